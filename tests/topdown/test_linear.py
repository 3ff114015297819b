"""The linear stage against least squares over all cells of all regions written as one dense matrix.

Standard errors against the dense covariance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coco_opt.errors import ProblemError
from coco_opt.operators import Grouping, Operator, identity, total
from coco_opt.topdown.estimating.linear.linear_estimates import NormalEquations
from coco_opt.topdown.estimating.linear.query_trees import linear_stage
from coco_opt.topdown.schema import Schema
from tests.topdown.estimation import (
    dense_estimates,
    dense_system,
    noisy,
    random_hierarchy,
    sums_of_leaves,
)

ROWS = Grouping(np.array([0, 0, 1, 1, 2, 2]), 3)
COLUMNS = Grouping(np.array([0, 1, 0, 1, 0, 1]), 2)
STRATEGIES: dict[str, list[Operator]] = {
    "identity": [identity(6)],
    "identity and total": [identity(6), total(6)],
    "identity and margins": [identity(6), ROWS, COLUMNS],
    "margins alone": [ROWS, COLUMNS, total(6)],
}


def proportional(rng: np.random.Generator, levels: int, queries: int, unmeasured: bool) -> list[list[float | None]]:
    """Return variances of all levels in one proportion; some levels without budget where asked."""
    shares = rng.uniform(0.5, 3.0, queries)
    variances: list[list[float | None]] = []
    for level in range(levels):
        scale = rng.uniform(0.5, 5.0)
        skipped = unmeasured and (level + int(rng.integers(2))) % 2 == 1 and level < levels - 1
        variances.append([None if skipped else float(scale * share) for share in shares])
    return variances


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(4))
def test_linear_tables_are_the_least_squares_over_the_whole_hierarchy(strategy: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    operators, levels = STRATEGIES[strategy], 2 + seed % 2
    hierarchy = random_hierarchy(rng, levels)
    measurements = noisy(rng, hierarchy, operators, proportional(rng, levels, len(operators), seed >= 2))
    expected, _ = dense_estimates(measurements)
    stage = linear_stage(measurements)
    for level in range(levels):
        tables = np.stack(
            [sums_of_leaves(hierarchy, v) @ expected.reshape(-1, 6) for v in hierarchy.level_range(level)]
        )
        for operator in operators:
            np.testing.assert_allclose(
                stage.answers(operator, level), operator.apply(tables), rtol=0, atol=1e-9 * np.abs(tables).max()
            )


@pytest.mark.parametrize("seed", range(3))
def test_tables_of_some_regions_are_those_of_the_whole_level(seed: int) -> None:
    rng = np.random.default_rng(seed)
    operators, levels = STRATEGIES["identity and margins"], 4
    hierarchy = random_hierarchy(rng, levels)
    variances = proportional(rng, levels, 3, seed > 0)
    if seed == 2:
        variances[-1] = variances[-2] = [None, 2.0, None]
    stage = linear_stage(noisy(rng, hierarchy, operators, variances))
    for level in range(levels):
        level_tables, count = stage.tables(level), len(hierarchy.level_range(level))
        for begin, end in ((0, 1), (0, count), (count // 2, count), (count - 1, count), (1, 1), (count, count + 5)):
            np.testing.assert_allclose(
                stage.tables(level, slice(begin, end)), level_tables[begin:end], rtol=0, atol=1e-9
            )
        np.testing.assert_allclose(stage.answers(ROWS, level), ROWS.apply(level_tables), rtol=0, atol=1e-9)


def partly_minimised(measurements: Any, region: int, table: np.ndarray[Any, Any]) -> float:
    """Return the least sum of standardised squares at and below a region, given its table; by dense algebra."""
    hierarchy = measurements.hierarchy
    below = [v for v in range(hierarchy.regions) if v == region or region in hierarchy.ancestors(v)]
    a, y, s2 = dense_system(measurements, below)
    leaves = np.flatnonzero(sums_of_leaves(hierarchy, region))
    keep = np.concatenate([np.arange(6) + 6 * leaf for leaf in leaves])
    a = a[:, keep] / np.sqrt(s2)[:, None]
    # The last leaf's table is what the others leave of the region's.
    last, others = a[:, -6:], a[:, :-6]
    free = others - np.tile(last, len(leaves) - 1)
    left = y / np.sqrt(s2) - last @ table
    solution = np.linalg.lstsq(free, left, rcond=None)[0] if free.shape[1] else np.empty(0)
    return float(((left - free @ solution) ** 2).sum())


@pytest.mark.parametrize("seed", range(4))
def test_the_up_pass_is_the_sufficient_statistic_of_the_subtree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    operators = STRATEGIES["identity and margins"]
    hierarchy = random_hierarchy(rng, 3)
    measurements = noisy(rng, hierarchy, operators, proportional(rng, 3, 3, seed >= 2))
    stage = linear_stage(measurements)
    for region in (0, 1):
        tables = rng.normal(30, 10, (3, 6))
        exact = [partly_minimised(measurements, region, table) for table in tables]
        ours = []
        for table in tables:
            value = 0.0
            for operator, tree in zip(operators, stage.trees, strict=True):
                z, variance = tree.at(range(region, region + 1))
                assert z is not None
                value += float(((operator.apply(table) - z[0]) ** 2).sum() / variance[0])
            ours.append(value)
        np.testing.assert_allclose(np.diff(ours), np.diff(exact), rtol=1e-8, atol=1e-8)


def test_other_proportions_stay_unbiased_and_are_not_called_best() -> None:
    rng = np.random.default_rng(5)
    hierarchy = random_hierarchy(rng, 3)
    operators = STRATEGIES["identity and margins"]
    variances: list[list[float | None]] = [[1.0, 2.0, None], [4.0, 1.0, 1.0], [9.0, None, 1.0]]
    stage = linear_stage(noisy(rng, hierarchy, operators, variances))
    truth = rng.integers(0, 9, (len(hierarchy.leaves), 6))
    tables = hierarchy.aggregate(truth)
    exact = noisy(rng, hierarchy, operators, variances, truth)
    exact.answers = tuple(
        tuple(
            None
            if variances[level][q] is None
            else operators[q].apply(tables[hierarchy.level_range(level).start : hierarchy.level_range(level).stop])
            for q in range(3)
        )
        for level in range(3)
    )
    stage = linear_stage(exact)
    for level in range(3):
        regions = hierarchy.level_range(level)
        np.testing.assert_allclose(stage.tables(level), tables[regions.start : regions.stop], atol=1e-9)
    best = np.diag(dense_estimates(exact)[1])[:6]

    ours = stage.standard_errors(identity(6), 2)[0] ** 2
    assert (ours >= best - 1e-12).all()


def test_an_undetermined_query_is_said_to_be() -> None:
    rng = np.random.default_rng(0)
    hierarchy = random_hierarchy(rng, 2)
    stage = linear_stage(noisy(rng, hierarchy, [ROWS, COLUMNS], [[1.0, 1.0], [2.0, 2.0]]))
    assert np.isnan(stage.answers(identity(6), 1)).all()
    assert np.isfinite(stage.answers(total(6), 1)).all()


def test_exact_answers_are_refused_as_measurements() -> None:
    rng = np.random.default_rng(0)
    measurements = noisy(rng, random_hierarchy(rng, 2), [ROWS], [[1.0], [1.0]])
    measurements.variance = lambda level, query: 0.0
    with pytest.raises(ProblemError, match=r"'q0' at level 0 .* an exact answer is an invariant"):
        linear_stage(measurements)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_normal_equations_agree_dense_and_by_conjugate_gradients(strategy: str) -> None:
    rng = np.random.default_rng(1)
    operators = STRATEGIES[strategy]
    weights = rng.uniform(0.2, 1.0, len(operators))
    dense = NormalEquations(operators, weights)
    sparse = NormalEquations(operators, weights, dense_cells=0)
    assert dense.solve(np.empty((0, dense.cells))).shape == sparse.solve(np.empty((0, dense.cells))).shape
    right = dense.apply(rng.normal(size=(3, 6)))
    np.testing.assert_allclose(dense.solve(right), sparse.solve(right), atol=1e-9)
    matrix = sum(w * (q.to_sparse().T @ q.to_sparse()).toarray() for w, q in zip(weights, operators, strict=True))
    np.testing.assert_allclose(dense.solve(right), right @ np.linalg.pinv(matrix, rcond=1e-12), atol=1e-9)
    for query in (identity(6), ROWS, total(6)):
        np.testing.assert_array_equal(dense.determines(query), sparse.determines(query))


@pytest.mark.parametrize("weight", [1.0, 1e-6, 1e-13, 1e-16])
def test_a_query_of_every_cell_that_weighs_enough_makes_equations_definite(weight: float) -> None:
    normal = NormalEquations([total(6), identity(6), ROWS], np.array([1.0, weight, 0.3]))
    assert normal.definite == (normal._cholesky is not None) == (weight > 1e-14)


def test_definite_equations_are_known_without_their_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NormalEquations, "_cholesky", None)
    assert NormalEquations([total(6), identity(6)], np.array([1.0, 1e-3])).definite


SCHEMA = Schema({"race": ["a", "b", "c"], "age": ["minor", "adult"]})


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(3))
def test_standard_errors_are_those_of_the_dense_covariance(strategy: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    operators = STRATEGIES[strategy]
    hierarchy = random_hierarchy(rng, 3, 2)
    measurements = noisy(rng, hierarchy, operators, proportional(rng, 3, len(operators), seed == 2))
    _, covariance = dense_estimates(measurements)
    stage = linear_stage(measurements)
    for level in range(3):
        for query in [*operators, total(6)]:
            errors = stage.standard_errors(query, level)
            for index, region in enumerate(hierarchy.level_range(level)):
                rows = np.kron(sums_of_leaves(hierarchy, region)[None, :], query.to_sparse().toarray())
                expected = np.sqrt(np.einsum("ki,ij,kj->k", rows, covariance, rows))
                np.testing.assert_allclose(errors[index], expected, rtol=1e-8)


def test_standard_errors_are_exact_in_other_proportions_too() -> None:
    rng = np.random.default_rng(2)
    hierarchy = random_hierarchy(rng, 3)
    operators = STRATEGIES["identity and margins"]
    variances: list[list[float | None]] = [[1.0, 2.0, None], [4.0, 1.0, 1.0], [9.0, None, 1.0]]
    measurements = noisy(rng, hierarchy, operators, variances)
    stage = linear_stage(measurements)
    _, _, spread = dense_system(measurements)
    # The estimates are linear in the answers: their matrix, column by column, gives the covariance.
    slots = [(level, q) for level in range(3) for q in range(3) if measurements.answers[level][q] is not None]
    columns, positions = [], []
    for level, q in slots:
        for region in range(len(hierarchy.level_range(level))):
            for answer in range(operators[q].answers):
                answers = [[None if a is None else np.zeros_like(a) for a in row] for row in measurements.answers]
                answers[level][q][region, answer] = 1  # type: ignore[index]
                measurements.answers = tuple(tuple(row) for row in answers)
                columns.append(linear_stage(measurements).answers(ROWS, 2).reshape(-1))
                positions.append(variances[level][q])
    assert len(columns) == spread.size
    matrix = np.stack(columns, axis=1)
    expected = np.sqrt((matrix**2 * np.array(positions, dtype=float)).sum(axis=1))
    np.testing.assert_allclose(stage.standard_errors(ROWS, 2).reshape(-1), expected, rtol=1e-9)


def test_what_is_not_determined_has_no_finite_error() -> None:
    rng = np.random.default_rng(0)
    hierarchy = random_hierarchy(rng, 2)
    stage = linear_stage(noisy(rng, hierarchy, [ROWS, COLUMNS], [[1.0, 1.0], [2.0, 2.0]]))
    assert np.isinf(stage.standard_errors(identity(6), 1)).all()
    assert np.isfinite(stage.standard_errors(Grouping(np.array([0, 0, 1, 1, -1, -1]), 2), 1)).all()
