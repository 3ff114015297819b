"""How sure a release of tables will be, and how long it takes, before anything is spent: from public input alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import SeededNoise
from coco_opt.privacy.measurement import Measurement
from coco_opt.releases.clock import slowness
from coco_opt.releases.expense import count_answers
from coco_opt.releases.kind import Expense, Figures, Forecast, LookAlike, Plan, Wanted
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.solvers import choices_of
from coco_opt.topdown.answers import TableAnswers
from coco_opt.topdown.asked.counts import TableCounts
from coco_opt.topdown.asked.measure import measure_tables
from coco_opt.topdown.estimated.best_linear import LinearEstimates, best_linear
from coco_opt.topdown.estimated.estimate import TablesResult, estimate_tables
from coco_opt.topdown.invariants import Invariants, RegionBounds
from coco_opt.topdown.kind.files import MOST_CELLS
from coco_opt.topdown.kind.look_alike import made_look_alike, read_look_alike
from coco_opt.topdown.kind.method import TablesMethod, method_of
from coco_opt.topdown.kind.plan import TablesDetail
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.questions import TableQuestions

Floats = NDArray[np.float64]

_REHEARSED = (300, 3_000)  # regions of the parts of a hierarchy that are rehearsed, about
_PERSONS = 10  # in every cell of a leaf: nothing is at a bound
_DIGITS = 4
_ROWS = 3  # of the private table, a leaf, unless declared
_ROW_SECONDS, _ROW_BYTES = 1e-5, 200
_REGION_SECONDS, _REGION_BYTES = 1.5e-5, 5_000
_ANSWER_BYTES = 48
_PAGE_SECONDS, _ESTIMATE_SECONDS = 0.3, 5e-7
_PROVED = {
    "holds": "proved: some whole table meets them all ({how})",
    "undecided": "UNDECIDED whether any whole table meets them all: {how}; an estimation may have to give way or fail",
}
_UNDETERMINED = "not determined"


@dataclass(frozen=True, slots=True)
class Predicted:
    """The standard error (persons, root mean square over regions and answers) of a workload query at a level.

    ``linear`` is that of the best linear unbiased estimate from all levels, ``alone`` from the region's own answers
    only (infinite where they do not determine it): both are exact. Released tables are nearer where true counts are
    small, for none is below zero, and biased upwards there.
    """

    level: int
    query: str
    linear: float
    alone: float


def forecast_tables(plan: Plan, wanted: Wanted, reporter: Reporter) -> Forecast:
    """Predict a release; spends nothing and opens no private table.

    With public records of persons like the private, whole releases of them say how far off released answers are.
    Raises ConfigError, InputError, ProblemError.
    """
    detail: TablesDetail = plan.detail
    method = method_of(plan.config, plan.asked)
    with reporter.stage("Predicting"):
        found = predicted(detail)
    tables = [_linear_figures(plan, found)]
    plain: dict[str, object] = {"predictions": [_plain(plan, one) for one in found]}
    notes = list(_notes(plan, found, method))
    public, runs = wanted.public, wanted.runs
    if public is None:
        with reporter.stage("Rehearsing on made persons (a first run compiles)"):
            seconds = _seconds(plan, method)
    else:
        if runs < 1:
            raise ProblemError("a rehearsal needs at least one run")
        like = read_look_alike(plan, public)
        with reporter.stage("Rehearsing on public records (a first run compiles)") as progress:
            _release(plan, like, method, 0)
            done = []
            for run in range(runs):
                done.append(_release(plan, like, method, 1 + run))
                progress(run + 1, runs)
        seconds = float(np.median([time for _, time in done]))
        errors = _mean_errors(like, detail, [result for result, _ in done])
        tables.append(_released_figures(plan, errors))
        plain["rehearsed"] = [
            {"level": plan.asked.levels[level], "query": query.text, "mean_error": float(errors[level, at])}
            for level in range(len(errors))
            for at, query in enumerate(detail.workload)
        ]
        notes.append(("Rehearsed on", f"{like.words}, {runs} run(s)"))
    rows = _ROWS * len(detail.questions.hierarchy.leaves) if wanted.rows is None else wanted.rows
    regions, slow = plan.asked.hierarchy.regions, slowness()
    memory = _REGION_BYTES * regions + _ANSWER_BYTES * count_answers(plan)
    return Forecast(
        tuple(tables),
        plain,
        tuple(notes),
        reading=Expense(slow * (_ROW_SECONDS * rows + _REGION_SECONDS * regions), _ROW_BYTES * rows),
        asking=Expense(slow * _REGION_SECONDS * regions),
        estimating=Expense(seconds, memory),
        writing=Expense(slow * _writing_seconds(detail), memory),
    )


def _writing_seconds(detail: TablesDetail) -> float:
    """Return the seconds of writing the page, the regions' tables and the unbiased estimates."""
    tree, workload = detail.questions.hierarchy, detail.workload
    answers, cells = sum(query.answers for query in workload), workload[0].operator.cells
    each = [len(tree.level_range(level)) for level in range(tree.levels)]
    estimates = answers * sum(regions for regions in each if regions * cells <= MOST_CELLS)
    return _PAGE_SECONDS + _REGION_SECONDS * tree.regions + _ESTIMATE_SECONDS * estimates


def predicted(detail: TablesDetail) -> tuple[Predicted, ...]:
    """Return the exact standard errors of the workload at every level."""
    questions = detail.questions
    everything = best_linear(_unanswered(questions))
    levels = range(questions.plan.levels)
    alone = [_alone(questions, level) for level in levels]
    return tuple(
        Predicted(
            level,
            query.text,
            _rms(everything.standard_errors(query.operator, level)),
            np.inf if one is None else _rms(one.standard_errors(query.operator, 0)),
        )
        for level, one in zip(levels, alone, strict=True)
        for query in detail.workload
    )


def _unanswered(questions: TableQuestions) -> TableAnswers:
    """Return answers that are all zero: errors depend on the budget and the hierarchy alone."""
    plan, hierarchy = questions.plan, questions.hierarchy
    zero = np.zeros((), np.int64)
    answers = tuple(
        tuple(
            np.broadcast_to(zero, (len(hierarchy.level_range(level)), query.answers)) if cost else None
            for query, cost in zip(plan.queries, plan.costs[level], strict=True)
        )
        for level in range(plan.levels)
    )
    variances = np.array(
        [[plan.variance(level, at) for at in range(len(plan.queries))] for level in range(plan.levels)]
    )
    return TableAnswers(hierarchy, questions.schema, plan.queries, answers, variances, _made_facts(questions))


def _made_facts(questions: TableQuestions) -> Invariants:
    """Return what is declared exact with the answers of made tables, alike in all leaves and cells: errors are as real.

    Public bounds are of other people, and do not enter.
    """
    hierarchy, schema = questions.hierarchy, questions.schema
    leaves = hierarchy.aggregate(np.full((len(hierarchy.leaves), 1), _PERSONS, np.int64))
    made = []
    for one in questions.invariants:
        regions, cells = hierarchy.level_range(one.level), one.query.operator.apply(np.ones(schema.size, np.int64))
        made.append(RegionBounds.exact(one.query, one.level, leaves[regions.start : regions.stop] * cells))
    return Invariants(hierarchy, schema, tuple(made), questions.invariants)


def _alone(questions: TableQuestions, level: int) -> LinearEstimates | None:
    """Return the linear stage of one region that has this level's answers only."""
    plan = questions.plan
    if not any(plan.costs[level]):
        return None
    own = TablePlan(plan.queries, (plan.costs[level],), plan.neighbours, plan.rows)
    return best_linear(_unanswered(TableQuestions(Hierarchy.from_paths([("region",)]), questions.schema, own)))


def _rms(errors: Floats) -> float:
    return float(np.sqrt((errors**2).mean())) if np.isfinite(errors).all() else float(np.inf)


def _seconds(plan: Plan, method: TablesMethod) -> float:
    """Return the seconds of noise and estimation, from made persons: a fixed part, and one in proportion to regions.

    Of a large hierarchy two parts are released, whose regions have all their children but near the root. A first
    release is made beforehand: it compiles.
    """
    tree = plan.asked.hierarchy
    small, large = (made_look_alike(plan, _within(tree, regions)) for regions in _REHEARSED)
    _release(plan, small, method, 0)
    _, seconds = _release(plan, small, method, 1)
    regions, more = (like.plan.asked.hierarchy.regions for like in (small, large))
    if more == regions:
        return seconds * tree.regions / regions
    _, longer = _release(plan, large, method, 1)
    return seconds + max(longer - seconds, 0.0) / (more - regions) * (tree.regions - regions)


def _within(tree: Hierarchy, regions: int) -> list[int]:
    """Return children of each level, the root's first, that leave about so many regions: few of the upper levels."""
    limits = [tree.regions] * (tree.levels - 1)

    def fits(level: int, most: int) -> bool:
        return tree.first_branches([*limits[:level], most, *limits[level + 1 :]])[0].regions <= regions

    for level in range(len(limits)):
        low, high = 1, tree.regions
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(level, middle) else (low, middle - 1)
        limits[level] = low
        if fits(level, low):
            break
    return limits


def _release(plan: Plan, like: LookAlike, method: TablesMethod, seed: int) -> tuple[TablesResult, float]:
    """Return the tables of a look-alike with seeded noise, and the cores' seconds of noise and estimation."""
    start = process_time()
    measurement = _measured(like, seed)
    result = estimate_tables(measurement, method.topdown, choices_of(plan.config))
    return result, process_time() - start


def _measured(like: LookAlike, seed: int) -> Measurement:
    questions: TableQuestions = like.plan.detail.questions
    return measure_tables(like.private, questions.plan, source=SeededNoise(seed), invariants=questions.invariants)


def _mean_errors(like: LookAlike, detail: TablesDetail, results: Sequence[TablesResult]) -> Floats:
    """Return the mean absolute error of a released answer, float64[levels, workload]."""
    counts: TableCounts = like.private
    errors = np.zeros((detail.questions.plan.levels, len(detail.workload)))
    for level in range(len(errors)):
        for at, query in enumerate(detail.workload):
            exact = counts.answers_of(query.operator, counts.hierarchy.level_range(level))
            off = [np.abs(result.answers(query.operator, level) - exact).mean() for result in results]
            errors[level, at] = np.mean(off)
    return errors


def _linear_figures(plan: Plan, found: Sequence[Predicted]) -> Figures:
    rows = tuple((plan.asked.levels[one.level], one.query, _shown(one.linear), _shown(one.alone)) for one in found)
    title = "Standard error of an estimated answer (persons), root mean square: exact"
    return Figures(title, ("level", "query", "all levels", "own level alone"), rows, numeric=2)


def _released_figures(plan: Plan, errors: Floats) -> Figures:
    detail: TablesDetail = plan.detail
    rows = tuple(
        (plan.asked.levels[level], query.text, _shown(float(errors[level, at])))
        for level in range(len(errors))
        for at, query in enumerate(detail.workload)
    )
    return Figures(
        "Mean absolute error of a released answer (persons): rehearsed", ("level", "query", "error"), rows, 2
    )


def _plain(plan: Plan, one: Predicted) -> dict[str, object]:
    return {
        "level": plan.asked.levels[one.level],
        "query": one.query,
        "standard_error": one.linear if math.isfinite(one.linear) else None,
        "standard_error_alone": one.alone if math.isfinite(one.alone) else None,
    }


def _notes(plan: Plan, found: Sequence[Predicted], method: TablesMethod) -> Iterator[tuple[str, str]]:
    """Yield what the figures do not say by themselves."""
    detail: TablesDetail = plan.detail
    if any(math.isinf(one.linear) for one in found):
        yield "Not determined", "the strategy measures too little to answer the query: what is released is a guess"
    if detail.questions.invariants:
        levels = plan.asked.levels
        exact = ", ".join(f"{one.query.text} by {levels[one.level]}" for one in detail.questions.invariants)
        yield (
            "Held exactly",
            f"{exact}: no error there, and less where it helps; public bounds do not enter the figures",
        )
    if detail.proof is not None and detail.questions.stated:
        yield "Public facts", _PROVED[detail.proof.verdict].format(how=detail.proof.how)
    leaves = detail.questions.plan.levels - 1
    if method.topdown.estimation == "bottom_up" and any(level < leaves for level, _ in detail.questions.plan.asked):
        yield "Not used", 'bottom_up reads the leaves alone: split = "leaves" gives them the whole budget'


def _shown(value: float) -> str:
    return f"{value:.{_DIGITS}g}" if math.isfinite(value) else _UNDETERMINED
