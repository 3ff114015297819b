"""Standard errors against the dense covariance."""

from __future__ import annotations

import numpy as np
import pytest

from coco_opt.operators import Grouping, identity, total
from coco_opt.topdown.estimating.linear.query_trees import linear_stage
from coco_opt.topdown.schema import Schema
from tests.topdown.estimation import (
    dense_estimates,
    dense_system,
    noisy,
    random_hierarchy,
    sums_of_leaves,
)
from tests.topdown.test_linear import COLUMNS, ROWS, STRATEGIES, proportional

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
