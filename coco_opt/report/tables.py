"""The report page of a release of tables: its budget, its tables beside unbiased estimates, and their certificates."""

from __future__ import annotations

from html import escape

import numpy as np

from coco_opt.report.html import GAP_NOTE, document, footer, reading_section, solvers_section, table
from coco_opt.runs.tables.release import TablesPage
from coco_opt.topdown.uncertainty import standard_errors

MOST_ANSWERS = 16
"""Queries of more answers are left out of the page."""

_NOTES = (
    (
        "Released",
        "Whole numbers of persons that add up over regions and cells, computed from noisy answers alone. Where a true "
        "count is small the released one is too large on average: nobody is released below zero.",
    ),
    (
        "Estimate and standard error",
        "The best linear unbiased estimate from the same noisy answers: right on average, but fractional, perhaps "
        "negative, and not adding up. Two times out of three the truth lies within one standard error of it.",
    ),
    (
        "Relaxed",
        "A region whose own table could not be split among its parts within what must hold exactly; it was changed by "
        "as few persons as possible, with every region above it.",
    ),
    GAP_NOTE,
)


def render_tables_report(page: TablesPage) -> str:
    """Return the report of a release of tables as one HTML document."""
    title = f"Release {page.manifest['name']}"
    sections = (
        _header(page, title),
        _budget(page),
        _answers(page),
        _relaxed(page),
        _unproved(page),
        solvers_section(page.manifest),
        reading_section(_NOTES),
        footer(page.manifest),
    )
    return document(title, sections)


def _header(page: TablesPage, title: str) -> str:
    hierarchy, schema = page.result.hierarchy, page.plan.schema
    kind = "private" if page.manifest["private"] else "exposed"
    attributes = " x ".join(f"{name} ({len(values)})" for name, values in schema.attributes.items())
    return (
        f"<h1>{escape(title)}</h1>\n<p>Tables of persons by {escape(attributes)}: {schema.size:,} cells, for "
        f"{hierarchy.regions:,} regions on {hierarchy.levels} level(s) below {escape(hierarchy.names[0])}.</p>\n"
        f'<div class="banner {kind}">{escape(page.spent)}.</div>'
    )


def _budget(page: TablesPage) -> str:
    budget = page.manifest["budget"]
    unit, noise = ("epsilon", "noise_scale") if "epsilon" in budget else ("rho", "noise_variance")
    levels = page.manifest["levels"]
    rows = [(levels[row["level"]], row["query"], row[unit], row[noise]) for row in budget["queries"]]
    method = page.manifest["method"]
    how = f"Estimation: {method['estimation']}, rounding {method['rounding']}."
    header = ("level", "query", unit, noise.replace("_", " "))
    return f"<h2>Budget and method</h2>\n{table(header, rows, numeric=2)}\n<p class='note'>{escape(how)}</p>"


def _answers(page: TablesPage) -> str:
    parts = [_region(page, level) for level in range(page.result.hierarchy.levels)]
    return (
        "<h2>Released beside unbiased estimates</h2>\n<p>The region with the most released persons of each level, "
        f"queries of at most {MOST_ANSWERS} answers.</p>\n" + "\n".join(parts)
    )


def _region(page: TablesPage, level: int) -> str:
    tables = page.result.tables[level]
    persons = np.add.reduceat(np.append(tables.counts, 0), tables.offsets[:-1]) * (np.diff(tables.offsets) > 0)
    region = int(persons.argmax())
    whole = tables.dense(region, region + 1)[0]
    path = page.result.hierarchy.paths[page.result.hierarchy.level_range(level).start + region]
    rows = []
    unbiased = page.linear.tables(level, slice(region, region + 1))[0]
    for query in page.plan.workload:
        if query.answers <= MOST_ANSWERS:
            released, estimate = query.operator.apply(whole), query.operator.apply(unbiased)
            error = standard_errors(page.linear, query.operator, level)[region]
            rows += [
                (query.text, label, f"{released[k]:,}", *_figures(float(estimate[k]), float(error[k])))
                for k, label in enumerate(query.labels())
            ]
    header = ("query", "answer", "released", "estimate", "standard error")
    return f"<h3>{escape(page.manifest['levels'][level])}: {escape(path)}</h3>\n{table(header, rows, numeric=2)}"


def _figures(estimate: float, error: float) -> tuple[str, str]:
    return (f"{estimate:,.1f}", f"{error:,.1f}") if np.isfinite(error) else ("not determined", "-")


def _relaxed(page: TablesPage) -> str:
    rows = [(one["region"], f"{one['persons_moved']:,}") for one in page.manifest["relaxed"]]
    return f"<h2>Relaxed regions</h2>\n{table(('region', 'persons moved'), rows)}" if rows else ""


def _unproved(page: TablesPage) -> str:
    gap = page.manifest["unproved_rounding"]
    if not gap > 0.0:
        return ""
    return (
        "<h2>Roundings not proved nearest</h2>\n<p>Some whole tables keep every sum and every constraint but were not "
        f"proved nearest to the fractional ones: at most {gap:.2g} of their distance (or of one person) could be saved."
        "</p>"
    )
