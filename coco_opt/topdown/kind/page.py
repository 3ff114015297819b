"""The report sections of a release of tables: what was asked, and the tables beside unbiased estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from coco_opt.privacy.cost import cost_of
from coco_opt.releases.kind import Shown
from coco_opt.report.explorer import MOST_ROWS, Explored, explorer_section
from coco_opt.report.html import GAP_NOTE, guarantee_note, reading_section, shown_levels, table, unit_note
from coco_opt.topdown.answers import TableAnswers
from coco_opt.topdown.constraint import SOURCE_WORDS
from coco_opt.topdown.estimated.best_linear import LinearEstimates, best_linear
from coco_opt.topdown.kind.earlier import account_line
from coco_opt.topdown.kind.files import CellRuns
from coco_opt.topdown.questions import AGREES, TableQuestions
from coco_opt.topdown.schema import Schema

_CELLS = 8  # changed cells of a relaxed region that are shown
_IMPLIED = {
    "bounds": "What they imply for larger regions: bounds on single answers, closed under sums.",
    "cuts": "What they imply for larger regions: {cuts:,} constraints on {classes} classes, found by {oracle}.",
    "minimal_schema": "What they imply for larger regions is kept by solving the {classes} classes of cells that they "
    "tell apart for all regions at once, and all other cells below them.",
}

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


def sections_of(shown: Shown, errors: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the sections as HTML; ``errors`` by method are empty where the truth is not known."""
    asked = TableQuestions.of(shown.measurement.asked)
    linear = best_linear(TableAnswers.of(shown.measurement).alone) if shown.beside is None else shown.beside
    return [
        _summary(asked),
        _method(shown),
        _facts(shown),
        _earlier(shown, asked.earlier),
        _errors(shown.measurement.asked.levels, errors),
        _answers(shown, linear),
        explorer_section(_explored(shown, asked.schema)),
        _relaxed(shown),
        _unproved(shown),
        reading_section(
            (
                *_NOTES,
                unit_note(shown.measurement.cost, "person"),
                guarantee_note(shown.measurement),
                _rows_note(asked.plan.rows),
            )
        ),
    ]


def _summary(questions: TableQuestions) -> str:
    tree, schema = questions.hierarchy, questions.schema
    attributes = " x ".join(f"{name} ({len(values)})" for name, values in schema.attributes.items())
    return (
        f"<p>Tables of persons by {escape(attributes)}: {schema.size:,} cells, for "
        f"{tree.regions:,} regions on {tree.levels} level(s) below {escape(tree.names[0])}.</p>"
    )


def _rows_note(rows: int) -> tuple[str, str]:
    if rows == 1:
        text = "One row of the records is taken to be one person: who has several rows is protected for each alone."
    else:
        text = (
            f"A person may have up to {rows:,} rows, anywhere; the noise is wide enough to hide all of them together."
        )
    return "One person", text


def _method(shown: Shown) -> str:
    measurement, method = shown.measurement, shown.method.topdown
    rows = [
        (
            *([f"measurement {number}"] if measurement.also else []),
            measurement.asked.levels[one.level],
            one.words,
            "none: declared public" if one.cost is None else str(one.cost),
            "-" if one.exact else str(one.law),
        )
        for number, each in enumerate(measurement.every, start=1)
        for one in each.asked.questions
    ]
    order = ", ".join(query.text for query in method.rounding_order)
    how = f"Estimation: {method.estimation}, rounding: {method.rounding}{f' ({order}, cells)' if order else ''}."
    header = (*(["asked by"] if measurement.also else []), "level", "question", "cost", "noise")
    questions = table(header, rows, numeric=len(header))
    return f"<h2>Questions and method</h2>\n{questions}\n<p class='note'>{escape(how)}</p>"


def _facts(shown: Shown) -> str:
    facts = shown.manifest["facts"]
    rows = [(one["level"], one.get("constraint") or one["query"], SOURCE_WORDS[one["source"]]) for one in facts]
    if not rows:
        return ""
    implied = shown.manifest["implied"]
    how = _IMPLIED[implied["method"]].format(**implied)
    facts_table = table(("level", "fact", "where it comes from"), rows, numeric=3)
    return f"<h2>What holds exactly</h2>\n{facts_table}\n<p class='note'>{escape(how)}</p>"


def _earlier(shown: Shown, earlier: Sequence[Mapping[str, Any]]) -> str:
    said = shown.manifest.get(AGREES, [])
    if not said:
        return ""
    rows = [
        (one["release"], one["level_name"], _shared(one), str(cost_of(one["budget"])), one["manifest"][:16])
        for one in said
    ]
    header = ("release", "exact in every region of", "on", "cost", "SHA-256 of its manifest")
    asked = shown.measurement.asked
    line = account_line(asked.cost, asked.neighbours, earlier)
    return (
        f"<h2>Earlier releases</h2>\n<p>{escape(line)}.</p>\n{table(header, rows, numeric=5)}\n<p class='note'>These "
        "tables repeat what was published there, errors and all, in these regions and above.</p>"
    )


def _shared(one: Mapping[str, Any]) -> str:
    if "groups" in one:
        return "; ".join(f"{what}: {conditions}" for what, conditions in one["groups"].items())
    return " * ".join(one["on"]) or "total"


def _errors(levels: Sequence[str], errors: Mapping[str, Sequence[float]]) -> str:
    if not errors:
        return ""
    rows = [(name, *(f"{value:,.1f}" for value in values)) for name, values in errors.items()]
    return (
        "<h2>Error by level</h2>\n<p>The data are made, so the truth is known: the sum over the cells of a region of "
        "what they are off by, in persons; mean over the regions of a level.</p>\n" + table(("method", *levels), rows)
    )


def _answers(shown: Shown, linear: LinearEstimates) -> str:
    parts = [_region(shown, linear, level) for level in shown_levels(shown.measurement.hierarchy.levels)]
    return (
        "<h2>Released beside unbiased estimates</h2>\n<p>The region with the most released persons of each level, "
        f"queries of at most {MOST_ANSWERS} answers.</p>\n" + "\n".join(parts)
    )


def _region(shown: Shown, linear: LinearEstimates, level: int) -> str:
    asked, tables = shown.measurement.asked, shown.result.tables[level]
    persons = np.add.reduceat(np.append(tables.counts, 0), tables.offsets[:-1]) * (np.diff(tables.offsets) > 0)
    place = int(persons.argmax())
    region = asked.hierarchy.level_range(level)[place]
    whole = tables.dense(place, place + 1)[0]
    rows = []
    for query in shown.method.workload:
        if query.answers <= MOST_ANSWERS:
            released = query.operator.apply(whole)
            estimate = linear.answers(query.operator, level, slice(place, place + 1))[0]
            error = linear.standard_errors(query.operator, level, slice(place, place + 1))[0]
            rows += [
                (query.text, label, f"{released[k]:,}", *_figures(float(estimate[k]), float(error[k])))
                for k, label in enumerate(query.labels())
            ]
    header = ("query", "answer", "released", "estimate", "standard error")
    path, name = asked.hierarchy.paths[region], asked.region_ids[region]
    title = f"{asked.levels[level]}: {path}" + ("" if name is None else f" ({name})")
    return f"<h3>{escape(title)}</h3>\n{table(header, rows, numeric=2)}"


def _figures(estimate: float, error: float) -> tuple[str, str]:
    return (f"{estimate:,.1f}", f"{error:,.1f}") if np.isfinite(error) else ("not determined", "-")


def _explored(shown: Shown, schema: Schema) -> Explored:
    """Return every region's cells that hold persons: no more of them than tell which levels a page holds."""
    asked = shown.measurement.asked
    tree, levels, ids = asked.hierarchy, asked.levels, asked.region_ids
    runs = CellRuns.of(shown.result.tables, MOST_ROWS + 1)
    codes = schema.decode(np.arange(schema.size))
    values = [[schema.attributes[name][code] for code in codes[name]] for name in schema.names]
    persons = np.bincount(runs.regions, runs.counts, tree.regions).astype(np.int64)
    words = {"weight": "persons", "key": ", ".join(schema.names), "value": "persons", "rows": "cells hold any"}
    labels = [", ".join(cell) for cell in zip(*values, strict=True)]
    return Explored(tree, levels, ids, persons, runs.regions, runs.cells, runs.counts, words, labels)


def _relaxed(shown: Shown) -> str:
    rows = [
        (one["region"], _changes(one["cells"]), one["why"], f"{one['persons_moved']:,}")
        for one in shown.manifest["relaxed"]
    ]
    header = ("region", "cells", "why", "persons moved")
    return f"<h2>Relaxed regions</h2>\n{table(header, rows, numeric=3)}" if rows else ""


def _changes(cells: Sequence[Mapping[str, Any]]) -> str:
    shown = "; ".join(f"{one['change']:+,} {one['cell']}" for one in cells[:_CELLS])
    return shown + (" ..." if len(cells) > _CELLS else "")


def _unproved(shown: Shown) -> str:
    unproved = shown.manifest["unproved"]
    if not unproved["steps"]:
        return ""
    gap, without = unproved["worst_relative_gap"], unproved["without_gap"]
    known = f"; at most {gap:.2g} of their distance (or of one person) could be saved" if gap > 0.0 else ""
    resort = f" Of {without:,} nothing is known but that they hold, for every solver failed." if without else ""
    return (
        f"<h2>Not proved nearest</h2>\n<p>{unproved['steps']:,} fits or roundings keep every sum and every constraint "
        f"but were not proved nearest{known}.{resort}</p>"
    )
