"""The report sections of a release of tables: the measured queries, and the tables next to unbiased estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import NormalDist
from typing import Any

import numpy as np

from coco_opt.posterior.chains import Criterion
from coco_opt.privacy.budget import with_decimal
from coco_opt.privacy.cost import Cost, cost_of
from coco_opt.privacy.measurement import Measurement
from coco_opt.releases.kind import Shown, Truth
from coco_opt.releases.manifest import Words, date_of, protection, unit_words
from coco_opt.report.explorer import MOST_ROWS, Explored, explorer_section
from coco_opt.report.front import TRIAL, Figure, between, front_section, precision, small_figures, where
from coco_opt.report.html import GAP_NOTE, reading_section, shown_levels, table
from coco_opt.topdown.constraint import SOURCE_WORDS
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates, best_linear
from coco_opt.topdown.estimating.posterior.result import NOT_CONNECTED
from coco_opt.topdown.kind.earlier_releases import account_line
from coco_opt.topdown.kind.explored import NOTE, cell_intervals, explored_answers, widths_of
from coco_opt.topdown.kind.files import first_runs
from coco_opt.topdown.kind.intervals import INTERVALS, settled_regions
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.table_queries import AGREES, TableQueries

_COVERAGE = 0.9  # of intervals from standard errors
_Z = NormalDist().inv_cdf(0.5 + _COVERAGE / 2)
_MAIN_ANSWERS = 4  # of a query among the main figures
_FEW_EXACT = 3  # constraints that a sentence lists
_CELLS = 8  # changed cells of a relaxed region that are shown
_IMPLIED = {
    "bounds": "What they imply for larger regions: bounds on single answers, closed under sums.",
    "cuts": "What they imply for larger regions: {cuts:,} constraints on {classes} classes, found by {oracle}.",
    "minimal_schema": "What they imply for larger regions is kept by solving the {classes} classes of cells that they "
    "tell apart for all regions at once, and all other cells below them.",
}

MOST_ANSWERS = 16
"""Queries with more answers are omitted from the page."""

_NOTES = (
    (
        "Released",
        "Integers that add up over regions and cells, computed from noisy answers alone. A small count is released too "
        "large on average, because no released count is negative.",
    ),
    (
        "Estimate and standard error",
        "The best linear unbiased estimate from the same noisy answers: right on average, but fractional and perhaps "
        "negative. Two times out of three the truth lies within one standard error of it.",
    ),
    GAP_NOTE,
)
_RELAXED_NOTE = (
    "Relaxed",
    "A region whose own table could not be split among its parts within what must hold exactly; it was changed by "
    "as few persons as possible, with every region above it.",
)

_CORRECTED = (
    "Where the posterior's sums differed from the unbiased linear estimates by more than both variances allow, its "
    "answers were moved towards these, by the share of the difference in brackets"
)
_MOVED = (
    "Where the unbiased linear estimates refute the posterior of a query, its answers there are those of the tables "
    'nearest to the noisy answers (estimation "full"), and their intervals hold those of the linear estimates; the '
    "number of answers in brackets"
)
_WIDENED = (
    "Where the unbiased linear estimates show that the posterior errs more than it states, its intervals are widened, "
    "by up to the factor in brackets"
)


def errors_of(measurement: Measurement, truth: Truth, result: TablesResult) -> Mapping[str, list[float]]:
    """Return by method and level the mean over regions of a region's total absolute error (persons)."""
    results, levels = {"this release": result, **truth.others}, range(measurement.hierarchy.levels)
    exact = [truth.private.level_tables(level) for level in levels]
    return {
        name: [float(np.abs(tables.level(level) - exact[level]).sum(axis=1).mean()) for level in levels]
        for name, tables in results.items()
    }


def sections_of(shown: Shown) -> list[str]:
    """Return the report's sections: what readers see first, then method, tables next to estimates, and what is open."""
    table_queries = TableQueries.of(shown.measurement.measurement_plan)
    linear = best_linear(TableMeasurements.of(shown.measurement).own) if shown.for_page is None else shown.for_page
    words, levels = unit_words(shown.manifest), shown.measurement.measurement_plan.levels
    attributes = ", ".join(table_queries.schema.names)
    what = f"{words.entities} by {attributes} {where(table_queries.hierarchy, levels, date_of(shown.manifest))}"
    explorer = _open_cells(shown)
    if explorer and shown.result.posterior is None:  # cells are guesses: show what was measured
        explorer += explorer_section(explored_answers(shown, linear, words.entities), NOTE)
    else:
        explorer += explorer_section(_explored(shown, table_queries.schema, linear, words.entities))
    return [
        front_section(what, _main_figures(shown, linear, words), explorer, _sure(shown, linear, words)),
        _method(shown),
        _constraints(shown),
        _earlier_releases(shown, table_queries.earlier),
        _posterior(shown),
        _answers(shown, linear),
        _relaxed_regions(shown),
        _uncertified_gaps(shown),
        reading_section(
            (
                *_NOTES,
                *([_RELAXED_NOTE] if shown.manifest["relaxed"] else []),
                _rows_note(table_queries.plan.rows),
            )
        ),
    ]


def _main_figures(shown: Shown, linear: LinearEstimates, words: Words) -> list[Figure]:
    """Return the main figures of the root: all persons, and the answers of the first query of few answers."""
    total = parse_query("total", shown.method.schema)
    [(_, persons, sure)] = _root(shown, linear, total)
    figures = [Figure(f"{persons:,}", f"{words.entities} in all", sure)]
    first = next((query for query in shown.method.workload if 1 < query.answers <= _MAIN_ANSWERS), None)
    if first is not None:
        figures += [
            Figure(f"{count:,}", label.replace(" = ", ": "), sure) for label, count, sure in _root(shown, linear, first)
        ]
    return figures


def _root(shown: Shown, linear: LinearEstimates, query: Query) -> list[tuple[str, int, str]]:
    """Return for each answer of the root its label, the released count and its interval in words."""
    tables, posterior = shown.result.tables[0], shown.result.posterior
    released = query.operator.apply(tables.dense(0, 1)[0])
    errors = linear.standard_errors(query.operator, 0, slice(0, 1))[0]
    if posterior is not None and posterior.has_intervals:
        lower, upper = (ends[0] for ends in posterior.interval(query, 0, slice(0, 1), tables))
    else:
        middle = linear.answers(query.operator, 0, slice(0, 1))[0]
        lower = np.minimum(released, np.maximum(0.0, np.round(middle - _Z * errors)))
        upper = np.maximum(released, np.round(middle + _Z * errors))
    ends = zip(lower, upper, errors, strict=True)
    sure = ["exact" if error == 0.0 else between(low, high) if np.isfinite(high) else "" for low, high, error in ends]
    return list(zip(query.labels(), released.tolist(), sure, strict=True))


def _sure(shown: Shown, linear: LinearEstimates, words: Words) -> list[str]:
    """Return in four sentences how sure the figures are."""
    posterior, levels = shown.result.posterior, shown.measurement.measurement_plan.levels
    coverage = posterior.coverage if posterior is not None and posterior.has_intervals else _COVERAGE
    query = next((query for query in shown.method.workload if 1 < query.answers <= MOST_ANSWERS), None)
    query = query or parse_query("total", shown.method.schema)
    half = _Z * float(np.median(linear.standard_errors(query.operator, len(levels) - 1)))
    exact = [f"{entry.get('constraint') or entry['query']} by {entry['level']}" for entry in shown.manifest["facts"]]
    few = f"; exact are {', '.join(exact)}" if 0 < len(exact) <= _FEW_EXACT else ""
    return [
        TRIAL if shown.measurement.status == "NOT PRIVATE" else protection(shown.manifest),
        precision(coverage),
        small_figures(
            half if np.isfinite(half) else None, f"numbers of {words.entities} by {query.text} in one {levels[-1]}"
        ),
        f"The figures of all parts add up to those of the whole{few}.",
    ]


def _open_cells(shown: Shown) -> str:
    """Say that the cells are guesses where no measurement determines them."""
    if not TableQueries.all_leave_cells_open(shown.measurement):
        return ""
    how = "not measured, but shared out in proportion to the measured margins"
    if shown.result.posterior is not None:
        how = "not measured, but estimated from the measured margins by the posterior's model"
    return (
        "<p class='note'>No query measured the cells: where attributes are crossed further than in the queries below, "
        f"released counts are guesses: {how}.</p>"
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
            measurement.measurement_plan.levels[level_query.level],
            level_query.words,
            "none: published as it is" if level_query.cost is None else _cost(level_query.cost),
            "-" if level_query.exact else str(level_query.distribution),
        )
        for number, each in enumerate(measurement.every, start=1)
        for level_query in each.measurement_plan.queries
    ]
    order = ", ".join(query.text for query in method.rounding_order)
    how = f"Estimation: {method.estimation}, rounding: {method.rounding}{f' ({order}, cells)' if order else ''}."
    header = (*(["measured by"] if measurement.also else []), "level", "query", "cost", "noise")
    query_table = table(header, rows, numeric=len(header), stacked=True)
    return f"<h2>Queries and method</h2>\n{query_table}\n<p class='note'>{escape(how)}</p>"


def _cost(cost: Cost) -> str:
    return f"{cost.unit} = {with_decimal(cost.amount)}"


def _constraints(shown: Shown) -> str:
    constraints = shown.manifest["facts"]
    rows = [
        (entry["level"], entry.get("constraint") or entry["query"], SOURCE_WORDS[entry["source"]])
        for entry in constraints
    ]
    if not rows:
        return ""
    implied = shown.manifest["implied"]
    how = _IMPLIED[implied["method"]].format(**implied)
    how += "".join(f" {text[:1].upper()}{text[1:]}." for text in (implied.get("reason"), implied.get("slow")) if text)
    constraint_table = table(("level", "constraint", "where it comes from"), rows, numeric=3, stacked=True)
    return f"<h2>What holds exactly</h2>\n{constraint_table}\n<p class='note'>{escape(how)}</p>"


def _earlier_releases(shown: Shown, earlier: Sequence[Mapping[str, Any]]) -> str:
    releases = shown.manifest.get(AGREES, [])
    if not releases:
        return ""
    rows = [
        (
            release["release"],
            release["level_name"],
            "; ".join(f"{what}: {conditions}" for what, conditions in release["groups"].items())
            if "groups" in release
            else " * ".join(release["on"]) or "total",
            _cost(cost_of(release["budget"])),
            release["manifest"][:16],
        )
        for release in releases
    ]
    header = ("release", "exact in every region of", "on", "cost", "SHA-256 of its manifest")
    measurement_plan = shown.measurement.measurement_plan
    line = account_line(measurement_plan, earlier)
    listed = table(header, rows, numeric=5, stacked=True)
    return (
        f"<h2>Earlier releases</h2>\n<p>{escape(line)}.</p>\n{listed}\n<p class='note'>These "
        "tables repeat what was published there, errors and all, in these regions and above.</p>"
    )


def _posterior(shown: Shown) -> str:
    """Return the account of the chains and the intervals, empty for other estimations."""
    posterior = shown.result.posterior
    if posterior is None:
        return ""
    sampled = posterior.sampled
    if sampled is None:
        return f"<h2>Posterior</h2>\n<p>{escape(NOT_CONNECTED)}.</p>"
    settled, criterion = settled_regions(sampled), Criterion()
    lines = [
        f"The tables have the least expected error under the posterior of all tables given all noisy answers, by "
        f"{sampled.count:,} draws from {sampled.sweeps:,} sweeps of the chains. A region has converged if, of its "
        f"persons and of those in the largest cell, split R-hat is at most {criterion.r_hat:g} and the effective size "
        f"at least {criterion.effective:g}: {int(settled.sum()):,} of {settled.size:,} regions have (worst R-hat "
        f"{sampled.r_hat.max():.3g}, least effective sample size {sampled.effective.min():,.0f}). The others are less "
        "certain."
    ]
    levels, widened = shown.measurement.measurement_plan.levels, posterior.widened if posterior.has_intervals else ()
    for listed, form, words in (
        (posterior.corrected, ".2g", _CORRECTED),
        (posterior.moved, ",", _MOVED),
        (widened, ".2g", _WIDENED),
    ):
        of_levels = [f"{levels[level]}, {query.text} ({number:{form}})" for level, query, number in listed]
        lines += [f"{words}: {'; '.join(of_levels)}."] if of_levels else []
    if posterior.has_intervals:
        lines.append(
            f"Intervals of {100 * posterior.coverage:g} % of every cell and query lie in {INTERVALS}: the true answer "
            "lies inside with at least that probability under the posterior. They contain the released answers. The "
            "privacy guarantee does not depend on this model. The coverage holds for each interval on its own, not for "
            "many at the same time."
        )
    return f"<h2>Posterior</h2>\n<p>{escape(' '.join(lines))}</p>"


def _answers(shown: Shown, linear: LinearEstimates) -> str:
    parts = [_region(shown, linear, level) for level in shown_levels(shown.measurement.hierarchy.levels)]
    return (
        "<h2>Released counts and unbiased estimates</h2>\n<p>The region with the most released persons of each level, "
        f"queries of at most {MOST_ANSWERS} answers.</p>\n" + "\n".join(parts)
    )


def _region(shown: Shown, linear: LinearEstimates, level: int) -> str:
    measurement_plan, tables = shown.measurement.measurement_plan, shown.result.tables[level]
    persons = np.add.reduceat(np.append(tables.counts, 0), tables.offsets[:-1]) * (np.diff(tables.offsets) > 0)
    place = int(persons.argmax())
    region = measurement_plan.hierarchy.level_range(level)[place]
    region_table = tables.dense(place, place + 1)[0]
    rows, intervals = [], shown.result.posterior
    spans = intervals is not None and intervals.has_intervals
    for query in shown.method.workload:
        if query.answers <= MOST_ANSWERS:
            inside: list[tuple[str, ...]] = [()] * query.answers
            if intervals is not None and intervals.has_intervals:
                lower, upper = intervals.interval(query, level, slice(place, place + 1), tables)
                inside = [(f"{low:,} to {high:,}",) for low, high in zip(lower[0], upper[0], strict=True)]
            released = query.operator.apply(region_table)
            estimate = linear.answers(query.operator, level, slice(place, place + 1))[0]
            error = linear.standard_errors(query.operator, level, slice(place, place + 1))[0]
            rows += [
                (query.text, label, f"{released[k]:,}", *inside[k], *_figures(float(estimate[k]), float(error[k])))
                for k, label in enumerate(query.labels())
            ]
    header = ("query", "answer", "released", *(["interval"] if spans else []), "estimate", "standard error")
    path, name = measurement_plan.hierarchy.paths[region], measurement_plan.region_ids[region]
    title = f"{measurement_plan.levels[level]}: {path}" + ("" if name is None else f" ({name})")
    return f"<h3>{escape(title)}</h3>\n{table(header, rows, numeric=2)}"


def _figures(estimate: float, error: float) -> tuple[str, str]:
    if error == 0.0:
        return f"{round(estimate):,}", "exact"
    return (f"{estimate:,.1f}", f"{error:,.1f}") if np.isfinite(error) else ("not determined", "-")


def _explored(shown: Shown, schema: Schema, linear: LinearEstimates, unit: str) -> Explored:
    """Return every region's cells that hold persons, at most one more than a page can hold."""
    measurement_plan = shown.measurement.measurement_plan
    tree, levels, ids = measurement_plan.hierarchy, measurement_plan.levels, measurement_plan.region_ids
    regions, cells, counts = first_runs(shown.result.tables, MOST_ROWS + 1)
    codes = schema.decode(np.arange(schema.size))
    values = [[schema.attributes[name][code] for code in codes[name]] for name in schema.names]
    persons = np.bincount(regions, counts, tree.regions).astype(np.int64)
    key = ", ".join(schema.names)
    words = {"weight": unit, "key": key, "value": unit, "title": f"{unit} by {key}"}
    labels = [", ".join(cell) for cell in zip(*values, strict=True)]
    mapped: dict[str, Any] = {}
    if shown.outlines is not None:
        words["width"], widths = widths_of(shown, schema, linear)
        attributes = {name: (schema.attributes[name], codes[name]) for name in schema.names}
        mapped = {"outlines": shown.outlines, "attributes": attributes, "widths": widths}
    ends = cell_intervals(shown.result, regions, cells)
    return Explored(tree, levels, ids, persons, regions, cells, counts, words, labels, *ends, **mapped)


def _relaxed_regions(shown: Shown) -> str:
    rows = [
        (region["region"], _changes(region["cells"]), region["why"], f"{region['persons_moved']:,}")
        for region in shown.manifest["relaxed"]
    ]
    header = ("region", "cells", "why", "persons moved")
    return f"<h2>Relaxed regions</h2>\n{table(header, rows, numeric=3, stacked=True)}" if rows else ""


def _changes(cells: Sequence[Mapping[str, Any]]) -> str:
    shown = "; ".join(f"{cell['change']:+,} {cell['cell']}" for cell in cells[:_CELLS])
    return shown + (" ..." if len(cells) > _CELLS else "")


def _uncertified_gaps(shown: Shown) -> str:
    uncertified_gap = shown.manifest["unproved"]
    if not uncertified_gap["steps"]:
        return ""
    gap, without = uncertified_gap["worst_relative_gap"], uncertified_gap["without_gap"]
    saving = f"; at most {gap:.2g} of their distance (or of one person) could be saved" if gap > 0.0 else ""
    resort = f" Of {without:,} nothing is known but that they hold, for every solver failed." if without else ""
    return (
        f"<h2>Not proved nearest</h2>\n<p>{uncertified_gap['steps']:,} fits or roundings keep every sum and every "
        f"constraint but were not proved nearest{saving}.{resort}</p>"
    )
