"""Full information against generalised least squares over all cells of all regions as one dense matrix."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Grouping, Kronecker, Operator, identity, total
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.constraint import RegionBounds
from coco_opt.topdown.estimating.estimate import linear_estimates
from coco_opt.topdown.estimating.linear.best_linear import best_linear, is_full, trees_are_best
from coco_opt.topdown.estimating.linear.information import FullInformation, full_information, joint_cells
from coco_opt.topdown.estimating.linear.query_trees import linear_stage
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import parse_queries, parse_query
from coco_opt.topdown.rows import Atoms, Constraints
from coco_opt.topdown.schema import Schema
from tests.topdown.estimation import dense_estimates, dense_system, noisy, random_hierarchy, sums_of_leaves

ROWS = Grouping(np.array([0, 0, 1, 1, 2, 2]), 3)
COLUMNS = Grouping(np.array([0, 1, 0, 1, 0, 1]), 2)
SOME = Grouping(np.array([0, -1, -1, 1, 1, 1]), 2)
OVERLAPPING = Kronecker((np.tri(3), np.ones((1, 2))))
QUERIES: tuple[Operator, ...] = (identity(6), ROWS, COLUMNS, total(6), OVERLAPPING)


class Case:
    """A random plan with shares by level, random facts and a ragged tree, and its dense solution."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        levels = int(rng.integers(1, 5))
        self.tree = random_hierarchy(rng, levels, 3 if levels < 4 else 2)
        operators = [QUERIES[at] for at in rng.permutation(5)[: int(rng.integers(1, 5))]]
        variances: list[list[float | None]] = [
            [float(10 ** rng.uniform(-1, 2)) if rng.random() < 0.7 else None for _ in operators] for _ in range(levels)
        ]
        variances[int(rng.integers(levels))][0] = 1.0
        truth = rng.integers(0, 20, (len(self.tree.leaves), 6))
        self.measured = noisy(rng, self.tree, operators, variances, truth)
        tables, self.constraints = self.tree.aggregate(truth), {}
        for level in range(levels):
            if rng.random() < 0.4:
                regions, query = self.tree.level_range(level), (ROWS, COLUMNS, total(6), SOME)[int(rng.integers(4))]
                exact = query.apply(tables[regions.start : regions.stop])
                stated = np.ones(exact.shape, np.bool_) if rng.random() < 0.5 else rng.random(exact.shape) < 0.6
                sides = np.where(stated, exact, 0), np.where(stated, exact, UNBOUNDED)
                self.constraints[level] = Constraints(query, *sides, ("",) * query.answers)
        self.measured.constraints_of = lambda regions: self.constraints.get(int(self.tree.level[regions.start]))
        self._solve()

    def rows(self, region: int, query: Operator) -> Any:
        """Return a region's answers in the leaves' cells."""
        return np.kron(sums_of_leaves(self.tree, region)[None, :], query.to_sparse().toarray())

    def _solve(self) -> None:
        rows, answers, variances = dense_system(self.measured)
        cells, constraint_rows, values = rows.shape[1], [], []
        for level, constraints in self.constraints.items():
            for at, region in enumerate(self.tree.level_range(level)):
                exact = constraints.lower[at] == constraints.upper[at]
                constraint_rows.append(self.rows(region, constraints.operator)[exact])
                values.append(constraints.lower[at][exact])
        constraint_matrix = np.concatenate([np.zeros((0, cells)), *constraint_rows])
        start, free = np.zeros(cells), np.eye(cells)
        if len(constraint_matrix):
            start = np.linalg.pinv(constraint_matrix, rcond=1e-11) @ np.concatenate(values)
            _, spread, right = np.linalg.svd(constraint_matrix)
            free = right[int((spread > 1e-9 * spread[0]).sum()) :].T
        scale = np.sqrt(variances)[:, None]
        left, spread, right = np.linalg.svd((rows @ free) / scale)
        rank = int(np.linalg.matrix_rank(rows @ free, tol=1e-8)) if free.shape[1] else 0
        within = left[:, :rank].T @ ((answers - rows @ start) / scale[:, 0])
        self.estimate = start + free @ (right[:rank].T @ (within / spread[:rank]))
        self.covariance = free @ (right[:rank].T / spread[:rank] ** 2) @ right[:rank] @ free.T
        self.unknown = free @ right[rank:].T

    def determined(self, rows: Any) -> Any:
        """Return which combinations of the leaves' cells are determined."""
        return np.abs(rows @ self.unknown).max(axis=1, initial=0.0) < 1e-7


@pytest.mark.parametrize("seed", range(40))
def test_estimates_and_standard_errors_are_those_of_the_dense_solution(seed: int) -> None:
    case = Case(seed)
    information = full_information(case.measured)
    for level in range(case.tree.levels):
        for query in (identity(6), ROWS, total(6), SOME):
            answers, errors = information.answers(query, level), information.standard_errors(query, level)
            determines = information.determines(query, level)
            for at, region in enumerate(case.tree.level_range(level)):
                rows = case.rows(region, query)
                determined = case.determined(rows)
                np.testing.assert_array_equal(np.isfinite(answers[at]), determined)
                np.testing.assert_array_equal(np.isfinite(errors[at]), determined)
                assert (determined | ~determines).all()
                np.testing.assert_allclose(answers[at][determined], (rows @ case.estimate)[determined], atol=1e-9)
                variance = np.einsum("ki,ij,kj->k", rows, case.covariance, rows)[determined]
                np.testing.assert_allclose(errors[at][determined] ** 2, variance, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_covariances_and_unions_are_those_of_the_dense_solution(seed: int) -> None:
    case, rng = Case(seed), np.random.default_rng(seed)
    information, tree = full_information(case.measured), case.tree
    for _ in range(4):
        first, second = (int(region) for region in rng.integers(tree.regions, size=2))
        rows = case.rows(first, total(6)), case.rows(second, ROWS)
        if case.determined(np.vstack(rows)).all():
            expected = rows[0] @ case.covariance @ rows[1].T
            np.testing.assert_allclose(information.covariance((first, total(6)), (second, ROWS)), expected, atol=1e-9)
        regions: list[int] = []
        for region in rng.permutation(tree.regions).tolist():
            lines = [{chosen, *tree.ancestors(chosen)} for chosen in regions]
            if len(regions) < 4 and not any(region in line for line in lines):
                regions += [] if any(chosen in tree.ancestors(region) for chosen in regions) else [region]
        rows_of_all = np.sum([case.rows(region, ROWS) for region in regions], axis=0)
        if case.determined(rows_of_all).all():
            estimate, covariance = information.union(ROWS, regions)
            np.testing.assert_allclose(estimate, rows_of_all @ case.estimate, atol=1e-9)
            np.testing.assert_allclose(covariance, rows_of_all @ case.covariance @ rows_of_all.T, atol=1e-9)
        else:
            with pytest.raises(ProblemError, match="does not determine"):
                information.union(ROWS, regions)


def test_where_levels_ask_alike_the_trees_are_as_good() -> None:
    rng = np.random.default_rng(1)
    tree = random_hierarchy(rng, 3)
    measured = noisy(rng, tree, [identity(6), ROWS], [[1.0, 2.0], [3.0, 6.0], [0.5, 1.0]])
    measured.constraints_of = lambda regions: None
    assert trees_are_best(measured)
    assert not is_full(best_linear(measured))
    trees, matrices = linear_stage(measured), full_information(measured)
    for level in range(3):
        np.testing.assert_allclose(matrices.answers(ROWS, level), trees.answers(ROWS, level), atol=1e-9)
        np.testing.assert_allclose(matrices.tables(level), trees.tables(level), atol=1e-9)
        errors = trees.standard_errors(COLUMNS, level)
        np.testing.assert_allclose(matrices.standard_errors(COLUMNS, level), errors, rtol=1e-9)
    other = noisy(rng, tree, [identity(6), ROWS], [[1.0, 2.0], [3.0, 1.0], [0.5, 1.0]])
    other.constraints_of = lambda regions: None
    assert not trees_are_best(other)
    best, usual = best_linear(other), linear_stage(other)
    assert is_full(best)
    assert (best.standard_errors(ROWS, 2) <= usual.standard_errors(ROWS, 2) + 1e-12).all()
    assert best.standard_errors(ROWS, 2).sum() < 0.999 * usual.standard_errors(ROWS, 2).sum()
    covariance = dense_estimates(other)[1]
    rows = np.kron(sums_of_leaves(tree, 0)[None, :], ROWS.to_sparse().toarray())
    np.testing.assert_allclose(best.standard_errors(ROWS, 0)[0] ** 2, np.diag(rows @ covariance @ rows.T), rtol=1e-9)


def people(seed: int) -> tuple[Hierarchy, Schema, TableCounts]:
    """Return a ragged tree and its private tables."""
    rng = np.random.default_rng(seed)
    tree, schema = random_hierarchy(rng, 3, 3), Schema({"race": ("a", "b", "c"), "age": ("minor", "adult")})
    return tree, schema, TableCounts.from_counts(tree, schema, rng.poisson(40.0, (len(tree.leaves), 6)))


def plan_by_level(schema: Schema) -> TablePlan:
    """Return a plan whose levels share their parts differently over queries."""
    shares = (("1/10", "1/10", "1/10"), ("1/5", "0", "1/10"), ("1/20", "1/4", "1/10"))
    return TablePlan.table(parse_queries(["total", "race", "detail"], schema), Epsilon(Fraction(3)), shares, "replace")


def test_what_is_public_comes_out_as_it_is() -> None:
    tree, schema, counts = people(4)
    constraints = [Invariant(parse_query("total", schema), 0), Invariant(parse_query("age", schema), 1)]
    zero = parse_query("race", schema)
    upper = np.full((len(tree.leaves), 3), 500)
    upper[0, 1] = 0  # nobody of one race in one leaf: an exact answer in one region only
    leaves = counts.level_tables(2).copy()
    leaves[0][zero.operator.labels == 1] = 0  # type: ignore[attr-defined]
    counts = TableCounts.from_counts(tree, schema, leaves)
    bounds = [RegionBounds(zero, 2, np.zeros_like(upper), upper)]
    measurement = measure_tables(
        counts, plan_by_level(schema), source=SeededNoise(3), invariants=constraints, bounds=bounds
    )
    estimates = linear_estimates(measurement)
    assert isinstance(estimates, FullInformation)
    totals = counts.level_tables(0).sum()
    np.testing.assert_allclose(estimates.answers(total(6), 0), [[totals]], atol=1e-9)
    assert estimates.standard_errors(total(6), 0) == 0.0
    age = parse_query("age", schema).operator
    np.testing.assert_allclose(estimates.answers(age, 1), age.apply(counts.level_tables(1)), atol=1e-9)
    assert estimates.answers(zero.operator, 2)[0, 1] == pytest.approx(0.0, abs=1e-9)
    assert estimates.standard_errors(zero.operator, 2)[0, 1] == 0.0
    assert joint_cells(TableMeasurements.of(measurement)) == 6
    without = linear_estimates(measurement, full=False)
    assert (estimates.standard_errors(age, 2) <= without.standard_errors(age, 2) + 1e-12).all()


def test_unions_of_the_same_or_nested_regions_are_refused() -> None:
    _, schema, counts = people(4)
    estimates = linear_estimates(measure_tables(counts, plan_by_level(schema), source=SeededNoise(1)), full=True)
    assert isinstance(estimates, FullInformation)
    for regions in ([1, 1], [0, 1]):
        with pytest.raises(ProblemError, match="none inside another"):
            estimates.union(total(6), regions)
    with pytest.raises(ProblemError, match="between 0 and 1"):
        estimates.interval(total(6), [1], 1.0)
    low, high = estimates.interval(total(6), [1, 2], 0.9)
    assert low < estimates.union(total(6), [1, 2])[0] < high


def test_atoms_are_the_cells_that_queries_tell_apart() -> None:
    atoms = Atoms.of([ROWS, total(6)], 6)
    assert atoms.count == 3
    np.testing.assert_array_equal(atoms.codes, [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(atoms.matrix(total(6)), [[1, 1, 1]])
    np.testing.assert_array_equal(atoms.resolves(COLUMNS), [False, False])
    np.testing.assert_array_equal(atoms.resolves(ROWS), [True] * 3)


@pytest.mark.slow
def test_stated_variances_and_intervals_hold_over_many_measurements() -> None:
    """500 measurements with shares by level and facts: squared errors and coverage are as stated."""
    tree, schema, counts = people(9)
    constraints = [Invariant(parse_query("total", schema), 1)]
    race, leaves = parse_query("race", schema).operator, [*tree.leaves][:2]
    aimed = race.apply(counts.level_tables(2)[:2].sum(axis=0))
    squares, covered, runs, stated = np.zeros(3), np.zeros(3), 500, np.zeros(3)
    for seed in range(runs):
        drawn = measure_tables(counts, plan_by_level(schema), source=SeededNoise(seed), invariants=constraints)
        information = linear_estimates(drawn)
        assert isinstance(information, FullInformation)
        estimate, covariance = information.union(race, leaves)
        low, high = information.interval(race, leaves, 0.95)
        squares += (estimate - aimed) ** 2 / runs
        covered += ((low <= aimed) & (aimed <= high)) / runs
        stated = np.diag(covariance)
    np.testing.assert_allclose(squares, stated, rtol=0.25)
    assert (np.abs(covered - 0.95) < 0.03).all()
