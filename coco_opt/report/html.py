"""The parts that report pages of all kinds share: document, tables, certificates, reading notes and promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import chain, repeat
from typing import Any

from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import Cost, pair_words
from coco_opt.privacy.measurement import Measurement

_DIGITS = 4  # of an epsilon, rounded up
MOST_LEVELS = 12
"""The maximum number of levels of which a page shows a region; a hierarchy may have hundreds."""

GAP_NOTE = (
    "Certified gap",
    "Every step after the noise is an optimisation problem. The gap bounds how far an answer's objective can be "
    "from the best one; it is computed by the problem itself and trusts no solver. Zero means optimal.",
)


def document(title: str, sections: Iterable[str]) -> str:
    """Return one HTML document of sections, empty sections left out, without references to anything outside it."""
    body = "\n".join(section for section in sections if section)
    style = (files("coco_opt.report") / "page.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where there are several."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    numeric: int = 1,
    *,
    stacked: bool = False,
    beyond: Iterable[bool] = (),
) -> str:
    """Return an HTML table, every cell escaped; columns from ``numeric`` on are right-aligned.

    On a narrow screen every cell of a ``stacked`` table is a line with its column's name; other tables scroll sideways.
    Rows ``beyond`` noise stand out by their colour.
    """
    aligned = ["" if k < numeric else ' class="n"' for k in range(len(header))]
    named = [mark + f' data-name="{escape(name)}"' for mark, name in zip(aligned, header, strict=True)]

    def line(cells: Sequence[object], tag: str, marks: Sequence[str]) -> str:
        return "".join(f"<{tag}{m}>{escape(str(cell))}</{tag}>" for m, cell in zip(marks, cells, strict=True))

    body = "\n".join(
        f"<tr{' class=beyond' if mark else ''}>{line(row, 'td', named if stacked else aligned)}</tr>"
        for row, mark in zip(rows, chain(beyond, repeat(object=False)), strict=False)
    )
    head = f"<thead><tr>{line(header, 'th', aligned)}</tr></thead>"
    # A table that scrolls sideways on a narrow screen must be reachable by keyboard and have a label.
    label = escape(f"Table of {', '.join(header)}")
    opened = f'<div class="wide" tabindex="0" role="group" aria-label="{label}">'
    kind = ' class="stacked"' if stacked else ""
    return f"{opened}<table{kind}>\n{head}\n<tbody>\n{body}\n</tbody>\n</table></div>"


def solvers_section(manifest: Mapping[str, Any]) -> str:
    """Return the certificates of a manifest as a table; "" where no problem was solved, as by the posterior alone."""
    rows = [
        (
            kind.replace("_", " "),
            row["solver"],
            f"{row['solves']:,}",
            f"{row['worst_gap']:.2g}",
            f"{row['worst_relative_gap']:.2g}",
            f"{row['worst_violation']:.2g}",
            f"{row.get('missed', {}).get('steps', 0):,}",
        )
        for kind, row in manifest["solvers"].items()
    ]
    if not rows:
        return ""
    header = ("problem", "solver", "solved", "worst gap", "relative", "worst violation", "not certified")
    return f"<h2>Solvers and certificates</h2>\n{table(header, rows, numeric=2, stacked=True)}"


def fallbacks_section(manifest: Mapping[str, Any]) -> str:
    """Return the table of fallbacks, where another solver answered for a solver that failed; "" without any."""
    rows = [
        (
            kind.replace("_", " "),
            fallback["solver"],
            fallback["reason"].replace("_", " ").lower(),
            fallback["answered_by"],
            fallback["times"],
        )
        for kind, row in manifest["solvers"].items()
        for fallback in row.get("fallbacks", ())
    ]
    if not rows:
        return ""
    header = ("problem", "solver", "failed with", "answered by", "times")
    return f"<h2>Answers of other solvers</h2>\n{table(header, rows, numeric=4, stacked=True)}"


def shown_levels(levels: int) -> list[int]:
    """Return the levels of which the page shows a region: all if they are few, else the first and the last."""
    ends = MOST_LEVELS // 2
    return [level for level in range(levels) if level < ends or level >= levels - ends]


def unit_note(cost: Cost, unit: str) -> tuple[str, str]:
    """Return the note on the protection of one unit, and of several units together."""
    several = "k times epsilon" if cost.unit == "epsilon" else "k x k times rho"
    five = cost.amount * (5 if cost.unit == "epsilon" else 25)
    text = (
        f"The noise hides what one {unit} adds to the tables: {cost}. For k of them together, such as a household, the "
        f"guarantee is {several}: for five, {cost.unit} = {five}. What all members of a large group share may show."
    )
    return "Whom noise protects", text


def guarantee_note(measurement: Measurement) -> tuple[str, str]:
    """Return the note on what all noisy answers guarantee together: epsilon by delta, and their meaning."""
    composition = Composition.of(measurement.queries, adaptive=measurement.several)
    # Of several deltas at one epsilon the least, which comes last, says the most.
    pairs = {epsilon: delta for delta, epsilon in (*composition.curve(), *composition.pure())}
    listed = "; ".join(pair_words(epsilon, delta, _DIGITS) for epsilon, delta in pairs.items())
    verb = "are" if measurement.protects else "would be, if their noise were private,"
    changed = "missing" if measurement.measurement_plan.neighbours == "add_remove" else "replaced by another"
    text = (
        f"The noisy answers together {verb} (epsilon, delta)-differentially private, with {listed}. That is: any "
        "result computed from them is at most e^epsilon times as probable as it would be if one of those protected "
        f"were {changed}, plus delta. All these pairs hold for the same noise; the budget is spent once. What is "
        "published exactly, as listed above, is the same in both cases."
    )
    return "What the budget means", text


def reading_section(notes: Iterable[tuple[str, str]]) -> str:
    """Return the section that explains the terms of a page."""
    items = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in notes)
    return f"<h2>Terms</h2>\n<dl>\n{items}\n</dl>"


def footer(manifest: Mapping[str, Any]) -> str:
    """Return the promises and the versions."""
    versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
    promises = ", ".join(name.replace("_", " ") for name in manifest["promises"])
    return (
        f"<footer>Promised, and checked by <code>coco-opt verify</code>: {escape(promises)}.<br>"
        f"{escape(versions)}</footer>"
    )
