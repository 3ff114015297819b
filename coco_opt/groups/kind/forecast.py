"""How far off a release of groups will be and what it takes, in seconds and from public facts alone.

Stages linear in the noise are computed exactly. Every method that can read what is asked is rehearsed once on a part of
a look-alike, with seeded noise, and its errors are extrapolated to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from coco_opt.choices import SolverChoices
from coco_opt.errors import ConfigError
from coco_opt.groups.answers import max_size_of
from coco_opt.groups.asked.entities import PublicGroups
from coco_opt.groups.asked.private import PrivateCounts
from coco_opt.groups.estimated.method import SLOW, Consistency, GroupsMethod
from coco_opt.groups.estimated.posterior.sparse import MANY_CELLS
from coco_opt.groups.kind.look_alike import read_look_alike, supposed_groups
from coco_opt.groups.kind.method import method_of
from coco_opt.groups.kind.rehearsal import (
    Questions,
    Rehearsal,
    branch_answers,
    branches_within,
    cost_of_sizes,
    count_cells,
    extrapolated,
    part_of,
    questions_of,
)
from coco_opt.groups.queries import GROUPS, sensitivity
from coco_opt.privacy import Asked
from coco_opt.privacy.planner import LINEAR_STAGES, NoisePlan, Prediction, Shares, linear_errors
from coco_opt.releases.clock import slowness
from coco_opt.releases.expense import BYTES, count_answers
from coco_opt.releases.kind import Expense, Figures, Forecast, LookAlike, Plan, Wanted
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.solvers import choices_of

COMPARED: tuple[Consistency, ...] = ("posterior", "joint", "matching", "bottom_up")
"""The methods whose errors stand beside the configured one's."""

AS_CONFIGURED, LEAVES = "as configured", "leaves"

# Answers of a rehearsal that takes about two seconds, by method; the part is the same for all that are compared.
_ANSWERS: Mapping[Consistency, int] = {"posterior": 50_000, "joint": 120_000, "convex": 400_000}
_MOST_ANSWERS = 1_000_000
_RUNS = 300  # sizes of leaves that have groups, added up, beyond which the posterior takes long too
_TOO_MANY = 4  # times its answers: then a slow method is not compared

# Tables of regions x sizes in memory; those of the posterior where it keeps draws by the sizes that occur.
_TABLES: Mapping[Consistency, int] = {"posterior": 45, "joint": 8, "convex": 10}
_SPARSE_TABLES = 6
_REGION_BYTES = 100  # a cell of the widest region, where regions are fitted one after the other
# Seconds and bytes a row: of ids that are whole numbers outside CSV files, of texts, and of counts made elsewhere.
_WHOLE, _TEXTS = ((2.4e-7, 10), (1.2e-7, 30)), ((1.05e-6, 92), (1.1e-6, 110))
_COUNT_ROW = (3e-6, 300)
_SPILLED = 1_600_000_000  # bytes in memory at most of tables of texts, which lie on disk beyond
_ENTITIES = 2.5  # a group, unless declared
_LOADING = 1.0  # seconds of loading compiled kernels, at most
_REGION, _CELL = 2.2e-4, 1.6e-8  # seconds of asking
_PAGE, _LEVEL = 0.7, 0.27  # seconds of a page and of a level's figure


@dataclass(frozen=True, eq=False, slots=True)
class Rehearsed:
    """The predictions of all methods that can read what is asked, and what they were rehearsed on.

    ``first`` are the seconds of one path of regions, ``seconds`` those of the part, by the configured method.
    """

    part: LookAlike
    words: str
    methods: Mapping[Consistency, GroupsMethod]
    predictions: tuple[Prediction, ...]
    first: float
    seconds: float


def forecast_groups(plan: Plan, wanted: Wanted, reporter: Reporter) -> Forecast:
    """Predict a release; public data are a table of sizes with as many levels.

    Raises InputError, ProblemError; deterministic but for the seconds.
    """
    like = None if wanted.public is None else read_look_alike(plan, wanted.public)
    found = rehearsed(plan, like, wanted.runs, reporter)
    exact = linear_predictions(plan)
    method: Consistency = plan.config.method.consistency
    tables = [figures("Mean earth mover's distance of a region (entities): rehearsed", found.predictions, plan)]
    if exact:
        title = "Noise left in a cell after a linear stage, root mean square: exact"
        tables.insert(0, figures(title, exact, plan))
    plain: dict[str, Any] = {"predictions": [as_plain(one) for one in (*exact, *found.predictions)]}
    notes = [("Rehearsed on", found.words), ("Rows", _rows_words(plan, wanted))]
    lines: tuple[str, ...] = ()
    if wanted.optimise:
        # Imported here: it is wanted rarely.
        from coco_opt.groups.kind.optimise import Candidates, optimised

        candidates: Candidates = {name: (_questions(plan, name)[0], one) for name, one in found.methods.items()}
        better = optimised(plan, like, found.part, candidates, wanted.runs, reporter)
        tables += better.tables
        notes += better.notes
        lines, plain["optimised"] = better.lines, better.plain
    return Forecast(
        tables=tuple(tables),
        plain={"look_alike": found.words, **plain},
        notes=tuple(notes),
        lines=lines,
        reading=_reading(plan, wanted, found.part),
        asking=_asking(plan),
        estimating=Expense(_estimating(plan, found), _memory(plan, method)),
        writing=Expense(slowness() * (_PAGE + _LEVEL * plan.asked.hierarchy.levels)),
    )


def rehearsed(plan: Plan, public: LookAlike | None, runs: int, reporter: Reporter) -> Rehearsed:
    """Return what a rehearsal on a part of a look-alike says of every method that can read what is asked."""
    configured, solvers = plan.config.method.consistency, choices_of(plan.config)
    methods, branches = _within_seconds(plan if public is None else public.plan, readable_methods(plan))
    part = part_of(plan, public, branches)
    path, rehearsal = Rehearsal(part_of(plan, public, 1)), Rehearsal(part)
    predictions, first, seconds = [], 0.0, 0.0
    counts: PrivateCounts = part.private
    if configured != "posterior" and counts.sizes.size > _RUNS:
        methods.pop("posterior", None)
    with reporter.stage("Rehearsing") as progress:
        for done, (name, method) in enumerate(methods.items()):
            progress(done, len(methods))
            questions, split = _questions(plan, name)
            if name == configured:
                first = _first_seconds(path, questions, method, solvers)
                seconds = rehearsal.seconds(questions, method, solvers)
            errors = rehearsal.errors(questions, method, runs, solvers)
            grown = extrapolated(errors.mean(axis=0), rehearsal.hierarchy, plan.asked.hierarchy)
            predictions.append(Prediction(name, split, shares_of(plan, questions), tuple(grown.tolist()), exact=False))
    words = part.words + _part_words(part, plan.asked if public is None else public.plan.asked, runs)
    return Rehearsed(part, words, methods, tuple(predictions), first, seconds)


def _within_seconds(
    plan: Plan, methods: Mapping[Consistency, GroupsMethod]
) -> tuple[dict[Consistency, GroupsMethod], int | None]:
    """Return the methods that can be rehearsed in seconds, the configured one always, and the children of each region.

    They are two at least, or extrapolation has nothing to go by, unless even that takes the configured method too long.
    """
    configured = plan.config.method.consistency
    least = branch_answers(plan, 2)
    kept = {
        name: method
        for name, method in methods.items()
        if name == configured or least <= _TOO_MANY * _ANSWERS.get(name, _MOST_ANSWERS)
    }
    branches = branches_within(plan, min(_ANSWERS.get(name, _MOST_ANSWERS) for name in kept))
    most = _TOO_MANY * _ANSWERS.get(configured, _MOST_ANSWERS)
    return kept, 2 if branches == 1 and least <= most else branches


def _first_seconds(path: Rehearsal, questions: Questions, method: GroupsMethod, solvers: SolverChoices) -> float:
    """Return the seconds of the first estimation of a process on one path: kernels are loaded, not compiled."""
    first, again = (path.seconds(questions, method, solvers, 0.0) for _ in range(2))
    return again + min(max(first - again, 0.0), _LOADING * slowness())


def readable_methods(plan: Plan) -> dict[Consistency, GroupsMethod]:
    """Return the configured method, then those compared with it that can read what is asked."""
    found = {plan.config.method.consistency: method_of(plan.config, plan.asked)}
    for name in COMPARED:
        section = plan.config.method.model_copy(update={"consistency": name, "intervals": 0.0})
        try:
            found.setdefault(name, method_of(replace(plan.config, method=section), plan.asked))
        except ConfigError:
            continue
    return found


def _questions(plan: Plan, name: Consistency) -> tuple[Questions, str]:
    """Return what a method is asked to read: as configured, but for bottom-up all of the budget at the leaves."""
    asked = questions_of(plan)
    if name != "bottom_up":
        return asked, AS_CONFIGURED
    nothing = plan.asked.cost * 0
    return Questions(asked.queries, asked.buckets, (*(nothing,) * (len(asked.costs) - 1), plan.asked.cost)), LEAVES


def shares_of(plan: Plan, questions: Questions) -> Shares:
    """Return each level's share of the whole cost."""
    return tuple(Fraction(cost.amount) / plan.asked.cost.amount for cost in questions.costs)


def linear_predictions(plan: Plan) -> list[Prediction]:
    """Return the exact noise of a cell after each linear stage, by the configured split; none where buckets are asked.

    Answers of unlike buckets do not add up along the tree.
    """
    questions = questions_of(plan)
    if any(questions.buckets) or len(set(questions.queries)) > 1 or "ranks" in questions.queries:
        return []
    tree = plan.asked.hierarchy
    noise = NoisePlan(cost_of_sizes(plan), tuple(sensitivity(one, plan.asked.neighbours) for one in questions.queries))
    found = []
    for stage in LINEAR_STAGES:
        own, split = _questions(plan, "bottom_up" if stage == "bottom_up" else "none")
        shares = shares_of(plan, own)
        errors = linear_errors(tree, stage, noise.variances(shares))
        found.append(Prediction(stage, split, shares, tuple(errors.tolist()), exact=True))
    return found


def figures(title: str, predictions: Sequence[Prediction], plan: Plan) -> Figures:
    """Return predictions as a table, one row each."""
    rows = tuple(
        (
            one.method,
            one.split,
            " ".join(f"{float(share):.3f}" for share in one.shares),
            *(f"{error:.4g}" if math.isfinite(error) else "not measured" for error in one.errors),
        )
        for one in predictions
    )
    return Figures(title, ("method", "split", "shares", *plan.asked.levels), rows, numeric=3)


def as_plain(one: Prediction) -> dict[str, Any]:
    """Return a prediction as plain values."""
    return {
        "method": one.method,
        "split": one.split,
        "shares": [str(share) for share in one.shares],
        "errors": [error if math.isfinite(error) else None for error in one.errors],
        "exact": one.exact,
    }


def _answers(plan: Plan, asked: Asked) -> int:
    questions = questions_of(plan)
    return sum(count_cells(asked, questions.queries, questions.buckets))


def _part_words(part: LookAlike, whole: Asked, runs: int) -> str:
    leaves, of = len(part.plan.asked.hierarchy.leaves), len(whole.hierarchy.leaves)
    words = "" if leaves == of else f"; {leaves:,} of {of:,} leaves, the levels above extrapolated"
    return f"{words}; {runs} run(s)"


def _estimating(plan: Plan, found: Rehearsed) -> float:
    """Return the seconds of the configured estimation: what it loads at first, and the part's in proportion."""
    asked, part = plan.asked, found.part.plan.asked
    if asked.hierarchy.levels == 1:
        return found.first
    return found.first + found.seconds * _answers(plan, asked) / _answers(plan, part)


def _memory(plan: Plan, method: Consistency) -> int:
    """Return the bytes of the configured estimation beside the answers."""
    asked, cells = plan.asked, max_size_of(plan.asked)
    if method in SLOW:
        return memory_of_tables(method, asked.hierarchy.levels, asked.hierarchy.regions * cells)
    ranked = any(one.query in ("ranks", "split") for one in asked.questions)
    widest = max(cells, int(asked.per_region[GROUPS].max())) if ranked else cells
    return _REGION_BYTES * widest


def memory_of_tables(method: Consistency, levels: int, cells: int) -> int:
    """Return the bytes of a method that holds all regions x sizes at once."""
    sparse = method == "posterior" and cells > MANY_CELLS and levels > 1
    return (_SPARSE_TABLES if sparse else _TABLES[method]) * BYTES * cells


def _asking(plan: Plan) -> Expense:
    asked = plan.asked
    regions = sum(len(asked.hierarchy.level_range(one.level)) for one in asked.questions)
    return Expense(slowness() * (_REGION * regions + _CELL * count_answers(plan)))


def _reading(plan: Plan, wanted: Wanted, part: LookAlike) -> Expense:
    """Return what reading the private table takes, from its rows as declared or supposed."""
    asked, data = plan.asked, plan.config.data
    if data.sizes is not None:
        counts: PrivateCounts = part.private
        leaves = len(asked.hierarchy.leaves) / len(counts.hierarchy.leaves)
        seconds, size = _COUNT_ROW
        rows = counts.sizes.size * leaves if wanted.rows is None else wanted.rows
        return Expense(slowness() * seconds * rows, round(size * rows))
    groups, rows = int(supposed_groups(plan)[0]), _entities(plan, wanted)
    known = isinstance(plan.detail, PublicGroups) and plan.detail.whole and not data.given("entities").is_csv
    (row, row_size), (group, group_size) = _WHOLE if known else _TEXTS
    size = row_size * rows + group_size * groups
    return Expense(slowness() * (row * rows + group * groups), size if known else min(size, _SPILLED))


def _entities(plan: Plan, wanted: Wanted) -> int:
    return round(_ENTITIES * int(supposed_groups(plan)[0])) if wanted.rows is None else wanted.rows


def _rows_words(plan: Plan, wanted: Wanted) -> str:
    if wanted.rows is not None:
        return f"{wanted.rows:,} in the private table, as declared"
    if plan.config.data.sizes is not None:
        return "in the private table as many as the rehearsal's data would have; --rows declares them"
    return f"in the private table {_entities(plan, wanted):,}, {_ENTITIES} a group supposed; --rows declares them"
