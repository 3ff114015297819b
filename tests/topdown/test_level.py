"""Many splits and roundings at once: the answers and certificates of one problem after the other.

Lower bounds on classes that few prices keep: the splits of a general solver, after few rounds.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from coco_solvers.structured.split import SplitNewton

from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.execution import executor as batching
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Grouping, Operator
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.problems.sparse_rows import stacked
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit
from coco_opt.problems.topdown_split.level import SplitLevel
from coco_opt.problems.topdown_split.prices import best_parent, caps, gradient
from coco_opt.solving import solve
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.constraint import RegionBounds
from coco_opt.topdown.estimating.estimate import TablesResult, estimate_tables
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.estimating.splitting import level as levels
from coco_opt.topdown.estimating.splitting.level import LevelSplit, level_split
from coco_opt.topdown.estimating.splitting.step import SplitStep, split_step
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import parse_queries, parse_query
from coco_opt.topdown.schema import Schema
from tests.topdown.estimation import check_tables, measured

SCHEMA = Schema({"race": ("a", "b", "c"), "age": ("minor", "adult")})
QUERIES = ["total", "race", "detail"]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take batches however few parents there are."""
    monkeypatch.setattr(levels, "LEAST_PARENTS", 1)


def ragged(rng: np.random.Generator) -> tuple[Hierarchy, np.ndarray]:
    """Return a tree whose regions have 1 to 5 children, some of them empty, and its leaves' tables."""
    paths = [
        ("n", f"s{s}", f"s{s}c{c}", f"s{s}c{c}b{b}")
        for s in range(3)
        for c in range(int(rng.integers(1, 5)))
        for b in range(int(rng.integers(1, 6)))
    ]
    tree = Hierarchy.from_paths(paths)
    tables = rng.poisson(rng.gamma(0.4, 8.0, (len(paths), 6)))
    tables[: max(1, len(paths) // 6)] = 0
    return tree, tables


def estimated(seed: int, method: TopdownMethod, choices: SolverChoices, threads: int = 1) -> TablesResult:
    tree, tables = ragged(np.random.default_rng(seed))
    measurement = measured(seed, tree, SCHEMA, tables, QUERIES, 3)
    result = estimate_tables(measurement, method, choices, threads=threads)
    check_tables(measurement, result)
    return result


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("rounding", [pytest.param("passes", marks=pytest.mark.slow), "nearest"])  # compiles a minute
@pytest.mark.parametrize("estimation", ["full", "classic"])
def test_batches_give_the_tables_of_one_problem_after_the_other(
    monkeypatch: pytest.MonkeyPatch, estimation: str, rounding: str
) -> None:
    method = TopdownMethod(estimation, rounding=rounding)  # type: ignore[arg-type]
    for seed in range(4):
        at_once, threaded, singly = SolverChoices(), SolverChoices(), SolverChoices()
        monkeypatch.setattr(levels, "LEAST_PARENTS", 1)
        batched = estimated(seed, method, at_once)
        monkeypatch.setattr(batching, "_NUMBERS", 40)
        same = estimated(seed, method, threaded, threads=2)
        monkeypatch.setattr(levels, "LEAST_PARENTS", 10**6)
        other = estimated(seed, method, singly)
        for level in range(4):
            np.testing.assert_array_equal(batched.level(level), same.level(level))
            np.testing.assert_array_equal(batched.level(level), other.level(level))
        for mine, single in zip(at_once.certificates, singly.certificates, strict=True):
            assert (mine.problem, mine.solver) == (single.problem, single.solver)
            assert mine.relative_gap == pytest.approx(single.relative_gap, rel=1e-3, abs=1e-12)
            assert mine.violation <= 1e-9


def prepared(seed: int) -> tuple[SplitStep, LevelSplit, SparseTables, range]:
    """Return a step, what splits the last level at once, its parents' true tables, and all of them."""
    tree, tables = ragged(np.random.default_rng(seed))
    measurement = measured(seed, tree, SCHEMA, tables, QUERIES, 3)
    method = TopdownMethod(seed=3)
    step = split_step(TableMeasurements.of(measurement), method, SolverChoices())
    split = level_split(step, 2)
    assert split is not None
    regions = tree.level_range(2)
    return step, split, SparseTables.of(tree.aggregate(tables)[regions.start : regions.stop]), regions


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("seed", range(3))
def test_a_level_judges_tables_as_the_problems_do(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    step, splitter, above, parents = prepared(seed)
    problems: list[SplitLevel] = []
    split = LevelSplit._split

    def noted(self: LevelSplit, step: SplitStep, problem: SplitLevel, *rest: Any) -> Any:
        problems.append(problem)
        return split(self, step, problem, *rest)

    monkeypatch.setattr(LevelSplit, "_split", noted)
    assert splitter(step, parents, above)[0].counts.any()
    level = problems[0]
    batch_tables, rested = splitter.splitter.split_level(level)
    assert rested.any()
    rng, hierarchy = np.random.default_rng(seed), step.measured.hierarchy
    for tables in (batch_tables, batch_tables * rng.uniform(0.5, 1.5, batch_tables.size)):
        judged = level.judge(tables)
        chosen = [v for at, v in enumerate(hierarchy.level_range(2)) if np.diff(above.offsets)[at]]
        chosen = [v for v in chosen if len(hierarchy.children(v)) > 1]
        for number, region in enumerate(chosen):
            children = hierarchy.children(region)
            at = region - hierarchy.level_range(2).start
            parent = above.dense(at, at + 1)[0].astype(np.float64)
            problem = TopdownSplit(step.terms(children, splitter.queries), parent)
            part = slice(int(level.places[number]), int(level.places[number + 1]))
            table = tables[part].reshape(problem.occupied_cells.size, -1)
            x = problem.expand(table)
            assert judged.objective[number] == pytest.approx(problem.objective(x), rel=1e-9)
            assert judged.violation[number] == pytest.approx(problem.violation(x), abs=1e-9)
            none = np.zeros((0, len(children)))
            gap = best_parent(problem, table, gradient(problem, table), caps(problem, table), none)[2]
            assert judged.gap[number] == pytest.approx(gap, rel=1e-6, abs=1e-9)
    bad = replace(level, counts=level.counts + 1.0).judge(batch_tables)
    assert (bad.violation > 0.5).all()


@pytest.mark.usefixtures("batches")
def test_what_batches_cannot_take_goes_one_by_one() -> None:
    tree, tables = ragged(np.random.default_rng(1))

    def at_once(method: TopdownMethod, choices: SolverChoices, invariants: list[tuple[str, int]]) -> bool:
        measurement = measured(1, tree, SCHEMA, tables, QUERIES, 3, invariants)
        step = split_step(TableMeasurements.of(measurement), replace(method, seed=1), choices)
        return level_split(step, 2) is not None

    assert at_once(TopdownMethod(), SolverChoices(), [])
    assert not at_once(TopdownMethod(), SolverChoices({"topdown_split": "piqp"}), [])
    assert not at_once(TopdownMethod(), SolverChoices({"table_rounding": "highs"}), [])
    assert at_once(TopdownMethod(), SolverChoices(), [("total", 3)])


def test_few_regions_are_split_one_by_one() -> None:
    tree, tables = ragged(np.random.default_rng(1))
    measurement = measured(1, tree, SCHEMA, tables, QUERIES, 3)
    assert level_split(split_step(TableMeasurements.of(measurement), TopdownMethod(seed=1), SolverChoices()), 2) is None


@pytest.mark.parametrize("queries", [["detail"], ["total", "race", "detail"], ["race", "age", "detail"]])
@pytest.mark.parametrize("classes", ["race", "age", "race[a, b]"])
def test_splits_below_exact_counts_are_those_of_a_general_solver(queries: list[str], classes: str) -> None:
    rng = np.random.default_rng(len(queries) + len(classes))
    class_counts = parse_query(classes, SCHEMA).operator
    operators = [parse_query(text, SCHEMA).operator for text in queries]
    tables = [rng.poisson(rng.gamma(0.5, 6.0, (int(rng.integers(2, 7)), 6))) for _ in range(12)]
    tables = [table for table in tables if table.any()]
    answers = [
        [operator.apply(table) + rng.normal(0, 9, (len(table), operator.answers)) for operator in operators]
        for table in tables
    ]
    weights = [rng.uniform(0.1, 2.0, (len(table), len(operators))) for table in tables]
    parents = [table.sum(axis=0) for table in tables]
    cells = [np.flatnonzero(parent) for parent in parents]
    every = np.arange(6)
    level = SplitLevel(
        stacked(operators, every),
        np.repeat(np.arange(len(operators)), [operator.answers for operator in operators]),
        np.cumsum([0, *(nonzero.size for nonzero in cells)]),
        np.concatenate(cells),
        np.concatenate([parent[nonzero] for parent, nonzero in zip(parents, cells, strict=True)]).astype(float),
        np.cumsum([0, *(len(table) for table in tables)]),
        np.concatenate([np.hstack(parent_answers) for parent_answers in answers]),
        np.concatenate(weights),
        class_counts.labels,
        *[np.concatenate([class_counts.apply(table) for table in tables]).astype(float)] * 2,
    )
    level_solution, ended, prices = SplitNewton().split_bounded(level)
    judged = level.judge(level_solution, prices)
    assert ended.all()
    most = np.maximum.reduceat(level.counts, level.starts[:-1])
    assert (judged.violation <= TopdownSplit.feasibility_tolerance * most).all()
    for p, table in enumerate(tables):
        exact = class_counts.apply(table).astype(float)
        terms = [
            SplitTerm(operator, operator_answers, weights[p][:, at])
            for at, (operator, operator_answers) in enumerate(zip(operators, answers[p], strict=True))
        ]
        problem = TopdownSplit(terms, parents[p].astype(float), LinearRows(class_counts, exact, exact))
        x = problem.expand(level_solution[level.places[p] : level.places[p + 1]].reshape(cells[p].size, -1))
        assert problem.objective(x) == pytest.approx(judged.objective[p], rel=1e-9)
        assert judged.objective[p] == pytest.approx(problem.objective(solve(problem, "piqp").value), rel=1e-5, abs=1e-5)
        assert judged.gap[p] <= 1e-6 * max(1.0, judged.objective[p])
    wrong = level.judge(level_solution)
    assert (wrong.gap >= judged.gap - 1e-9).all()


@pytest.mark.parametrize("seed", range(3))
def test_batches_keep_what_was_published_as_single_problems_do(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    tree, tables = ragged(np.random.default_rng(seed))
    query = parse_query("race", SCHEMA)
    published = query.operator.apply(np.random.default_rng(9 + seed).poisson(tables + 0.2))
    bounds = RegionBounds(query, 3, published, published, "release")
    counts = TableCounts.from_counts(tree, SCHEMA, tables)
    plan = TablePlan.product(Strategy.uniform(parse_queries(["age", "detail"], SCHEMA)), Epsilon(Fraction(1)), 4)
    measurement = measure_tables(counts, plan, source=SeededNoise(seed), bounds=[bounds])
    at_once = estimate_tables(measurement)
    check_tables(measurement, at_once)
    monkeypatch.setattr(levels.BoundedClasses, "of", lambda _: None)
    singly = estimate_tables(measurement)
    for level in range(4):
        assert (at_once.answers(query.operator, level) == singly.answers(query.operator, level)).all()
        distance = [
            np.abs(result.level(level) - tree_tables(tree, tables, level)).sum() for result in (at_once, singly)
        ]
        assert abs(distance[0] - distance[1]) <= 0.2 * max(distance) + 8


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("seed", range(3))
def test_what_one_child_alone_may_hold_is_placed_there(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree, tables = ragged(rng)
    kinds = parse_query("race[a, b]", SCHEMA)
    facilities = rng.random((len(tables), 2)) < 0.25  # many parents have one child with each kind, or none
    tables = tables * (kinds.operator.adjoint(1 * ~facilities) == 0)
    facilities &= kinds.operator.apply(tables) > 0
    bounds = RegionBounds(kinds, 3, facilities.astype(np.int64), np.where(facilities, UNBOUNDED, 0))
    measurement = measured(seed, tree, SCHEMA, tables, QUERIES, 3, bounds=[bounds])
    method, choices = TopdownMethod(implied="bounds", seed=3), SolverChoices()
    step = split_step(TableMeasurements.of(measurement), method, choices)
    split, parents, splits = (
        level_split(step, 2),
        tree.level_range(2),
        list[tuple[SplitLevel, np.ndarray, np.ndarray]](),
    )
    assert split is not None
    split_rest = LevelSplit._split_rest

    def watched(self: LevelSplit, own: SplitStep, problem: SplitLevel, child: np.ndarray) -> object:
        out = split_rest(self, own, problem, child)
        splits.append((problem, out[0], child))
        return out

    monkeypatch.setattr(LevelSplit, "_split_rest", watched)
    above = SparseTables.of(tree.aggregate(tables)[parents.start : parents.stop])
    _, left = split(step, parents, above)
    ((problem, found, child),) = splits
    assert (child >= 0).any()
    persons, first_children = above.dense(), tree.first_child[parents.start : parents.stop + 1] - parents.stop
    assert split.classes is not None
    decided = (split.classes.decided(above, first_children)[0] & persons.any(axis=1)).tolist()
    chosen = [v for v, here in zip(parents, decided, strict=True) if here and len(tree.children(v)) > 1]
    assert chosen
    assert not set(chosen) & set(left)
    for number, parent in enumerate(chosen):
        cells = problem.cells[problem.starts[number] : problem.starts[number + 1]]
        own = found[problem.places[number] : problem.places[number + 1]].reshape(cells.size, -1)
        alone = step.fractional(tree.children(parent), persons[parent - parents.start])
        np.testing.assert_allclose(own, alone[:, cells].T, atol=1e-3 * max(1, persons.max()))
    result = estimate_tables(measurement, method, choices)
    check_tables(measurement, result)
    assert not result.relaxed
    assert all(row.relative_gap <= 1e-6 for row in choices.certificates)


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("least", [0.0, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_what_several_children_may_hold_is_closed_in_the_others(seed: int, least: float) -> None:
    rng = np.random.default_rng(seed)
    tree, tables = ragged(rng)
    kinds = parse_query("race[a, b]", SCHEMA)
    facilities = rng.random((len(tables), 2)) < 0.6
    tables = tables * (kinds.operator.adjoint(1 * ~facilities) == 0)
    persons = kinds.operator.apply(tables)
    facilities &= persons > 0
    lower = np.maximum(facilities, (least * persons).astype(np.int64))  # the larger ones bind most children
    bounds = RegionBounds(kinds, 3, lower, np.where(facilities, UNBOUNDED, 0))
    measurement = measured(seed, tree, SCHEMA, tables, QUERIES, 3, bounds=[bounds])
    step = split_step(TableMeasurements.of(measurement), TopdownMethod(implied="bounds", seed=3), SolverChoices())
    split, parents = level_split(step, 2), tree.level_range(2)
    assert split is not None
    above = SparseTables.of(tree.aggregate(tables)[parents.start : parents.stop])
    batch_tables, left = split(step, parents, above)
    assert split.classes is not None
    settled, _ = split.classes.decided(above, tree.first_child[parents.start : parents.stop + 1] - parents.stop)
    several = [v for v in parents if not settled[v - parents.start] and v not in left and len(tree.children(v)) > 1]
    assert several
    constraints = step.constraints(tree.level_range(3))
    assert constraints is not None
    broken = constraints.broken_by(batch_tables.dense())
    for region in several:
        children = tree.children(region)
        own = batch_tables.dense(children.start - parents.stop, children.stop - parents.stop)
        np.testing.assert_array_equal(own.sum(axis=0), above.dense()[region - parents.start])
        alone = step.fractional(children, above.dense()[region - parents.start])
        assert np.abs(own - alone).max() < 1.0 + 1e-6
        assert not broken[children.start - parents.stop : children.stop - parents.stop].any()


def tree_tables(tree: Hierarchy, tables: np.ndarray, level: int) -> np.ndarray:
    regions = tree.level_range(level)
    return tree.aggregate(tables)[regions.start : regions.stop]


CELLS, CLASSES = 24, 4
LABELS = np.where(np.arange(CELLS) < 16, np.arange(CELLS) % CLASSES, -1)
PRICED_QUERIES: list[Operator] = [Grouping(np.zeros(CELLS, np.int64), 1), Grouping(np.arange(CELLS), CELLS)]
COUNTED = Grouping(LABELS, CLASSES)


def noisy(rng: np.random.Generator, children: int, size: float) -> tuple[Floats, list[SplitTerm]]:
    """Return a parent's table, and noisy answers to two queries in its children."""
    true = rng.poisson(rng.gamma(0.5, 2.0 * size, (children, CELLS))).astype(np.float64)
    terms = [
        SplitTerm(query, query.apply(true) + rng.normal(0.0, 1.0 + size**0.5, (children, query.answers)), weight)
        for query, weight in (
            (PRICED_QUERIES[0], np.full(children, 3.0)),
            (PRICED_QUERIES[1], rng.uniform(0.5, 1.5, children)),
        )
    ]
    return true.sum(axis=0), terms


@pytest.mark.parametrize(("seed", "children", "size"), [(0, 12, 30.0), (1, 8, 30.0), (2, 40, 300.0)])
def test_lower_bounds_give_the_split_of_a_general_solver(seed: int, children: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    parent, terms = noisy(rng, children, size)
    cells, rows = np.flatnonzero(parent), stacked(PRICED_QUERIES, np.arange(CELLS))
    level = SplitLevel(
        rows,
        np.repeat([0, 1], [1, CELLS]),
        np.array([0, cells.size]),
        cells,
        parent[cells],
        np.array([0, children]),
        np.hstack([term.answers for term in terms]),
        np.stack([np.asarray(term.weights).reshape(children, -1)[:, 0] for term in terms], axis=1),
    )
    free, _ = SplitNewton().split_level(level)
    sums = COUNTED.apply(level_table(level, free))
    lower = np.zeros((children, CLASSES))
    binding = rng.integers(children, size=3), np.arange(3)  # a child of each of three classes
    more = np.minimum(rng.uniform(0.5, 3.0, 3), 0.3 * (COUNTED.apply(parent)[:3] - sums[binding]))
    lower[binding] = sums[binding] + more
    level = replace(level, classes=LABELS, lower=lower, upper=np.full_like(lower, np.inf))
    tables, rested, prices = SplitNewton().split_bounded(level)
    judged = level.judge(tables, prices)
    assert rested.all()
    assert (prices >= 0.0).all()
    assert judged.gap[0] <= 1e-6 * max(1.0, judged.objective[0])
    found = level_table(level, tables)
    assert (COUNTED.apply(found) >= lower - 1e-9 * max(1.0, parent.max())).all()
    constraints = LinearRows(COUNTED, lower, np.full_like(lower, np.inf))
    other = solve(TopdownSplit(terms, parent, constraints), "clarabel")
    assert judged.objective[0] == pytest.approx(other.objective, rel=1e-5)
    np.testing.assert_allclose(found, other.value, atol=2e-3 * max(1.0, float(parent.max())) ** 0.5)


def level_table(level: SplitLevel, tables: Floats) -> Floats:
    """Return the only parent's children [children, all cells]."""
    out = np.zeros((level.children[-1], CELLS))
    out[:, level.cells] = tables.reshape(level.cells.size, -1).T
    return out
