"""Many splits and roundings at once: the answers and certificates of one problem after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from coco_solvers.structured.split import SplitNewton

from coco_opt import Hierarchy, LinearRows, Schema, SolverChoices, SplitTerm, TopdownMethod, TopdownSplit, solve
from coco_opt.execution import executor as batching
from coco_opt.problems.sparse_rows import stacked
from coco_opt.problems.topdown_split.level import SplitLevel
from coco_opt.problems.topdown_split.prices import best_parent, caps, gradient
from coco_opt.topdown import UNBOUNDED, RegionBounds, TableMeasurements, TablesResult, estimate_tables, parse_query
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.estimating.splitting import level as levels
from coco_opt.topdown.estimating.splitting.level import LevelSplit, level_split
from coco_opt.topdown.estimating.splitting.step import SplitStep, split_step
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


@pytest.mark.parametrize("sides", ["equal", "lower"])
@pytest.mark.parametrize("queries", [["detail"], ["total", "race", "detail"], ["race", "age", "detail"]])
@pytest.mark.parametrize("classes", ["race", "age", "race[a, b]"])
def test_splits_below_bounds_are_those_of_a_general_solver(queries: list[str], classes: str, sides: str) -> None:
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
    lower = [class_counts.apply(table).astype(float) for table in tables]
    upper = [sums if sides == "equal" else np.full_like(sums, np.inf) for sums in lower]
    level = SplitLevel(
        stacked(operators, np.arange(6)),
        np.repeat(np.arange(len(operators)), [operator.answers for operator in operators]),
        np.cumsum([0, *(nonzero.size for nonzero in cells)]),
        np.concatenate(cells),
        np.concatenate([parent[nonzero] for parent, nonzero in zip(parents, cells, strict=True)]).astype(float),
        np.cumsum([0, *(len(table) for table in tables)]),
        np.concatenate([np.hstack(parent_answers) for parent_answers in answers]),
        np.concatenate(weights),
        class_counts.labels,
        np.concatenate(lower),
        np.concatenate(upper),
    )
    level_solution, ended, prices = SplitNewton().split_bounded(level)
    judged = level.judge(level_solution, prices)
    assert ended.all()
    most = np.maximum.reduceat(level.counts, level.starts[:-1])
    tolerance = TopdownSplit.feasibility_tolerance * (1.0 if sides == "equal" else 10.0)
    assert (judged.violation <= tolerance * most).all()
    assert sides == "equal" or (prices >= 0.0).all()
    for p in range(len(tables)):
        terms = [
            SplitTerm(operator, operator_answers, weights[p][:, at])
            for at, (operator, operator_answers) in enumerate(zip(operators, answers[p], strict=True))
        ]
        problem = TopdownSplit(terms, parents[p].astype(float), LinearRows(class_counts, lower[p], upper[p]))
        x = problem.expand(level_solution[level.places[p] : level.places[p + 1]].reshape(cells[p].size, -1))
        assert problem.objective(x) == pytest.approx(judged.objective[p], rel=1e-9)
        assert judged.objective[p] == pytest.approx(problem.objective(solve(problem, "piqp").value), rel=1e-5, abs=1e-5)
        assert judged.gap[p] <= 1e-6 * max(1.0, judged.objective[p])
    wrong = level.judge(level_solution)
    assert (wrong.gap >= judged.gap - 1e-9).all()


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
