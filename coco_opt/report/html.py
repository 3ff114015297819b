"""The report page: what was released, how private it is, how certain the optimisation, and how to read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from coco_opt.errors import ProblemError
from coco_opt.report import plots
from coco_opt.runs.release import Page

_CSS = """
:root { color-scheme: light; }
body { font: 16px/1.55 Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; color: #222;
  background: #fff; max-width: 54rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; font-weight: 600; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .5rem; font-weight: 600; border-bottom: 1px solid #ddd; }
h3 { font-size: 1rem; margin: 1.4rem 0 .2rem; font-weight: 600; }
p { margin: .5rem 0; } .note { color: #555; font-size: .92rem; }
.banner { padding: .7rem 1rem; border-left: 6px solid; margin: 1.2rem 0; }
.private { border-color: #1f4e79; background: #eef3f8; }
.exposed { border-color: #b3261e; background: #fbeceb; }
table { border-collapse: collapse; font-size: .92rem; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; border-bottom: 1px solid #e5e5e5; }
th { font-weight: 600; border-bottom-color: #999; } td.n, th.n { text-align: right; }
img { max-width: 100%; height: auto; display: block; margin: .3rem 0; }
dt { font-weight: 600; margin-top: .6rem; } dd { margin: 0 0 0 1.2rem; }
footer { margin-top: 3rem; color: #666; font-size: .85rem; border-top: 1px solid #ddd; padding-top: .6rem; }
"""

GAP_NOTE = (
    "Certified gap",
    "Every step after the noise is an optimisation problem. The gap bounds how far an answer's objective can be "
    "from the best one; it is computed by the problem itself and trusts no solver. Zero means optimal.",
)

_NOTES = (
    (
        "Released and noisy",
        "Red points are what was measured: true counts plus noise, all that was ever taken from the private table. "
        "Blue points are the released whole numbers, computed from the red ones alone. Sizes without groups are "
        "left out of the tables; a long axis shows a sample of its cells.",
    ),
    (
        "Noisy minus released",
        "Where the fit is good, points scatter around zero and two thirds or more lie in the grey band, one standard "
        "deviation of the noise. In a consistent release a region also agrees with its neighbours on the tree, "
        "so its differences can be larger than its own noise.",
    ),
    GAP_NOTE,
)
_ERROR_NOTES = (
    (
        "Error",
        "The earth mover's distance between true and released histograms: how many people would have to be added to "
        "or removed from groups to turn one into the other; the mean over the regions of a level. It can be shown "
        "only for made data.",
    ),
)


def render_report(page: Page) -> str:
    """Return the report of a release as one HTML document without references to anything outside it.

    Raises ProblemError where a private release comes with a truth to compare it with.
    """
    manifest = page.manifest
    if page.truth is not None and manifest["private"]:
        raise ProblemError("a report of a private release must not show the truth")
    title = f"Release {manifest['name']}"
    sections = (
        _header(page, title),
        _budget(manifest),
        _errors(page),
        _regions(page),
        solvers_section(manifest),
        reading_section(_NOTES + (_ERROR_NOTES if page.truth is not None else ())),
        footer(manifest),
    )
    return document(title, sections)


def document(title: str, sections: Iterable[str]) -> str:
    """Return one HTML document of sections, empty ones left out, without references to anything outside it."""
    body = "\n".join(section for section in sections if section)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]], numeric: int = 1) -> str:
    """Return an HTML table, every cell escaped; columns from ``numeric`` on are right-aligned."""

    def line(cells: Sequence[object], tag: str) -> str:
        marks = ("" if k < numeric else ' class="n"' for k in range(len(cells)))
        return "".join(f"<{tag}{m}>{escape(str(cell))}</{tag}>" for m, cell in zip(marks, cells, strict=True))

    body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{line(header, 'th')}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _header(page: Page, title: str) -> str:
    hierarchy, private = page.result.hierarchy, page.manifest["private"]
    kind = "private" if private else "exposed"
    groups = int(page.measurements.group_counts[0])
    return (
        f"<h1>{escape(title)}</h1>\n<p>Histograms of groups by size for {hierarchy.regions:,} regions on "
        f"{hierarchy.levels} level(s), {groups:,} groups in all, below {escape(hierarchy.names[0])}.</p>\n"
        f'<div class="banner {kind}">{escape(page.spent)}.</div>'
    )


def _budget(manifest: Mapping[str, Any]) -> str:
    method, budget = manifest["method"], manifest["budget"]
    pure = budget.get("mechanism", "geometric") == "geometric"
    unit, noise = ("epsilon", "noise_scale") if pure else ("rho", "noise_variance")
    rows = [
        (row["level"], row[unit], row[noise] or "not measured", estimator, loss)
        for row, estimator, loss in zip(budget["levels"], method["estimators"], method["losses"], strict=True)
    ]
    matched = f", merging {method['merge']}, variances by {method['variances']}"
    how = (
        f"Consistency: {method['consistency']}{matched if method['consistency'] == 'matching' else ''}, "
        f"rounding {method['rounding']}, ties {method['ties']}. "
        f"Sizes above {manifest['max_size']:,} count as {manifest['max_size']:,}."
    )
    header = ("level", unit, noise.replace("_", " "), "estimator", "loss")
    return f"<h2>Budget and method</h2>\n{table(header, rows)}\n<p class='note'>{escape(how)}</p>"


def _errors(page: Page) -> str:
    errors = page.errors()
    if not errors:
        return ""
    levels = [f"level {level}" for level in range(page.result.hierarchy.levels)]
    rows = [(name, *(f"{value:,.1f}" for value in values)) for name, values in errors.items()]
    picture = plots.error_figure(errors)
    return (
        "<h2>Error by level</h2>\n<p>The data are made, so the truth is known: people to add or remove, mean over "
        f"the regions of a level.</p>\n{table(('method', *levels), rows)}\n"
        f'<img alt="Mean error by level and method" src="{picture}">'
    )


def _regions(page: Page) -> str:
    hierarchy = page.result.hierarchy
    shown = [_largest(page, level) for level in range(hierarchy.levels)]
    parts = [_region(page, region) for region in shown]
    return (
        "<h2>Released against noisy histograms</h2>\n<p>The region with the most groups of each level.</p>\n"
        + "\n".join(parts)
    )


def _largest(page: Page, level: int) -> int:
    regions = page.result.hierarchy.level_range(level)
    return max(regions, key=lambda region: int(page.measurements.group_counts[region]))


def _region(page: Page, region: int) -> str:
    hierarchy = page.result.hierarchy
    path = hierarchy.paths[region]
    picture = plots.region_figure(
        page.measurements.answers[region],
        page.result.histograms[region],
        None if page.truth is None else page.truth.histograms[region],
        page.measurements.max_size,
    )
    groups = int(page.measurements.group_counts[region])
    return (
        f"<h3>Level {int(hierarchy.level[region])}: {escape(path)} ({groups:,} groups)</h3>\n"
        f'<img alt="Histograms of {escape(path)}" src="{picture}">'
    )


def solvers_section(manifest: Mapping[str, Any]) -> str:
    """Return the certificates of a manifest as a table."""
    rows = [
        (
            kind.replace("_", " "),
            row["solver"],
            f"{row['solves']:,}",
            f"{row['worst_gap']:.2g}",
            f"{row['worst_relative_gap']:.2g}",
            f"{row['worst_violation']:.2g}",
        )
        for kind, row in manifest["solvers"].items()
    ]
    header = ("problem", "solver", "solved", "worst gap", "relative", "worst violation")
    return f"<h2>Solvers and certificates</h2>\n{table(header, rows, numeric=2)}"


def reading_section(notes: Iterable[tuple[str, str]]) -> str:
    """Return what the terms of a page mean."""
    items = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in notes)
    return f"<h2>How to read this page</h2>\n<dl>\n{items}\n</dl>"


def footer(manifest: Mapping[str, Any]) -> str:
    """Return what is promised and the versions."""
    versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
    promises = ", ".join(name.replace("_", " ") for name in manifest["promises"])
    return (
        f"<footer>Promised, and checked by <code>coco-opt verify</code>: {escape(promises)}.<br>"
        f"{escape(versions)}</footer>"
    )
