"""Predict the accuracy and running time of a release of tables, from public input alone, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from coco_opt.releases.kind import Figures, Forecast, ForecastOptions, Plan, ResourceCost
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.resource_cost import slowness
from coco_opt.topdown.kind.expected import Expected, Predicted, on_public_records, on_simulated_persons, predicted
from coco_opt.topdown.kind.files import MOST_CELLS
from coco_opt.topdown.kind.method import TablesMethod, method_of
from coco_opt.topdown.kind.plan import TablesDetail
from coco_opt.topdown.kind.rehearsal import public_choice

_DIGITS = 4
_FEW_DIGITS = 2  # of errors on simulated persons: those of few regions vary from run to run
_ROWS = 3  # of the private table for each leaf, unless declared
_ROW_SECONDS, _ROW_BYTES = 1e-5, 200
_REGION_SECONDS, _REGION_BYTES = 1.5e-5, 5_000
_ANSWER_BYTES = 48
_PAGE_SECONDS, _ESTIMATE_SECONDS = 0.3, 5e-7
_PROVED = {
    "holds": "proved: some integer table meets them all ({how})",
    "undecided": "UNDECIDED whether any integer table meets them all: {how}; an estimation may relax them or fail",
}
_UNDETERMINED = "not determined"
_WAYS = {"bounds": "bounds", "cuts": "cuts", "minimal_schema": "minimal schema"}


def forecast_tables(plan: Plan, options: ForecastOptions, reporter: Reporter) -> Forecast:
    """Predict a release; this spends nothing and opens no private table.

    Complete releases of simulated persons, or of public records, give the errors of released answers.
    Raises ConfigError, InputError, ProblemError.
    """
    detail: TablesDetail = plan.detail
    method = method_of(plan.config, plan.measurement_plan)
    with reporter.stage("Predicting") as progress:
        predictions, linear_seconds = predicted(detail, progress)  # the release's unbiased estimates take as long
    if options.public is None:
        expected = on_simulated_persons(plan, options, method, predictions, reporter)
    else:
        expected = on_public_records(plan, options.public, options.runs, method, reporter)
    choices = () if detail.choices is None else detail.choices()
    answers, errors = _predicted_answers(plan, predictions), _released_errors(plan, expected)
    plain: dict[str, object] = {
        "predictions": answers,
        "rehearsed": errors,
        "look_alike": expected.words,
        "choices": [dict(zip(table.header, row, strict=True)) for table in choices for row in table.rows],
    }
    linear = tuple(
        (row["level"], row["query"], _shown(row["standard_error"]), _shown(row["standard_error_alone"]))
        for row in answers
    )
    released = tuple((row["level"], row["query"], _range(row["low"], row["high"], expected)) for row in errors)
    title = "Standard error of an estimated answer (persons), root mean square: exact"
    tables = (
        *choices,
        Figures(title, ("level", "query", "all levels", "own level alone"), linear, numeric=2),
        Figures(
            f"Mean absolute error of a released answer (persons): {expected.short}",
            ("level", "query", "error"),
            released,
            numeric=2,
        ),
    )
    notes = (*_notes(plan, predictions, method), ("Rehearsed on", expected.words))
    rows = _ROWS * len(detail.table_queries.hierarchy.leaves) if options.rows is None else options.rows
    regions, slow = plan.measurement_plan.hierarchy.regions, slowness()
    memory = _REGION_BYTES * regions + _ANSWER_BYTES * plan.measurement_plan.answers
    return Forecast(
        tables,
        plain,
        notes,
        reading=ResourceCost(slow * (_ROW_SECONDS * rows + _REGION_SECONDS * regions), _ROW_BYTES * rows),
        querying=ResourceCost(slow * _REGION_SECONDS * regions),
        estimating=ResourceCost(expected.seconds, memory, longest=expected.most),
        writing=ResourceCost(slow * _writing_seconds(detail) + linear_seconds, memory),
    )


def _released_errors(plan: Plan, expected: Expected) -> list[dict[str, Any]]:
    """Return the errors of released answers by level and query."""
    return [
        {
            "level": plan.measurement_plan.levels[level],
            "query": query.text,
            "mean_error": float(expected.rehearsed[level, index]),
            "low": float(expected.low[level, index]),
            "high": float(expected.high[level, index]),
        }
        for level in range(len(expected.rehearsed))
        for index, query in enumerate(plan.detail.workload)
    ]


def _predicted_answers(plan: Plan, predictions: Sequence[Predicted]) -> list[dict[str, Any]]:
    """Return the standard errors of estimated answers by level and query, None where they are not determined."""
    return [
        {
            "level": plan.measurement_plan.levels[prediction.level],
            "query": prediction.query,
            "standard_error": prediction.linear if math.isfinite(prediction.linear) else None,
            "standard_error_alone": prediction.alone if math.isfinite(prediction.alone) else None,
        }
        for prediction in predictions
    ]


def _writing_seconds(detail: TablesDetail) -> float:
    """Return the seconds of writing the page, the regions' tables and the unbiased estimates."""
    tree, workload = detail.table_queries.hierarchy, detail.workload
    answers, cells = sum(query.answers for query in workload), workload[0].operator.cells
    each = [len(tree.level_range(level)) for level in range(tree.levels)]
    estimates = answers * sum(regions for regions in each if regions * cells <= MOST_CELLS)
    return _PAGE_SECONDS + _REGION_SECONDS * tree.regions + _ESTIMATE_SECONDS * estimates


def _notes(plan: Plan, predictions: Sequence[Predicted], method: TablesMethod) -> Iterator[tuple[str, str]]:
    """Yield notes that the figures do not show."""
    detail: TablesDetail = plan.detail
    if any(math.isinf(prediction.linear) for prediction in predictions):
        yield (
            "Not determined",
            "the strategy measures too little to determine the query: its released answers are a guess",
        )
    if detail.table_queries.invariants:
        words = "no error where answers are published exactly, and less where they help"
        yield "Held exactly", f"{words}; inequalities do not enter the figures"
    implied = public_choice(detail.table_queries, method.topdown)
    if implied.reason:
        yield "Implied constraints", f"{_WAYS[implied.method]}: {implied.reason}"
    if detail.proof is not None and detail.table_queries.constraints:
        yield "Public constraints", _PROVED[detail.proof.verdict].format(how=detail.proof.how)
    leaves = detail.table_queries.plan.levels - 1
    if method.topdown.estimation == "bottom_up" and any(
        level < leaves for level, _ in detail.table_queries.plan.measured_queries
    ):
        yield "Not used", 'bottom_up reads the leaves alone: split = "leaves" gives them the whole budget'


def _shown(value: float | None) -> str:
    return _UNDETERMINED if value is None else f"{value:.{_DIGITS}g}"


def _range(low: float, high: float, expected: Expected) -> str:
    if expected.low is expected.high:
        return f"{low:.{_DIGITS}g}"
    ends = f"{low:.{_FEW_DIGITS}g}", f"{high:.{_FEW_DIGITS}g}"
    return " to ".join(dict.fromkeys(ends))
