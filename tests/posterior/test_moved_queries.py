"""Queries of the leaves that linear estimates refute, on draws whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.histograms import Hierarchy
from coco_opt.kernels.posterior_table_summaries import Draws
from coco_opt.operators import Grouping, Operator
from coco_opt.topdown.estimating.posterior.correction import Correction, Counting, DrawnTables, central
from coco_opt.topdown.estimating.posterior.moved_queries import Moved
from coco_opt.topdown.estimating.sparse_tables import SparseTables

LEAVES, DRAWS, NOISE = 60, 64, 10.0
TREE = Hierarchy.from_paths([("land", f"leaf{k}") for k in range(LEAVES)])
HOME = Grouping(np.array([0, 0, 1, 1]), 2)  # young and old persons at home, then in institutions
AGE = Grouping(np.array([0, 1, 0, 1]), 2)
ALL = Grouping(np.zeros(4, np.int64), 1)
CELLS = Grouping(np.arange(4), 4)


class Estimates:
    """Linear estimates of the leaves' cells, each with half the variance of an answer."""

    def __init__(self, tables: NDArray[np.float64]) -> None:
        self.leaves = tables

    def answers(self, operator: Operator, level: int, regions: slice) -> NDArray[np.float64]:
        return operator.apply((self.leaves if level else self.leaves.sum(axis=0, keepdims=True))[regions])

    def standard_errors(self, operator: Operator, level: int, regions: slice) -> NDArray[np.float64]:
        scale = NOISE * (1.0 if level else LEAVES**0.5) * (4 / operator.answers / 2) ** 0.5
        return np.full_like(self.answers(operator, level, regions), scale)


def drawn_and_true(institutions: int) -> tuple[DrawnTables, Any, NDArray[np.int64]]:
    """Return draws that see too few persons in the leaves with institutions, linear estimates, and the truth."""
    rng = np.random.default_rng(3)
    true = np.tile([200, 100, 0, 0], (LEAVES, 1))
    true[:institutions, 2:] = 20, 80
    seen = true.copy()
    seen[:institutions] += [16, 64, -16, -64]  # the ages and the total are as they should be
    tables = seen + (rng.integers(-3, 4, (DRAWS, LEAVES, 1)) * [1, -1, 0, 0])
    tables[:, :, 2:] = np.maximum(tables[:, :, 2:] + rng.integers(-2, 3, (DRAWS, LEAVES, 2)), 0)
    cells = np.broadcast_to(np.arange(4, dtype=np.uint16), tables.shape)
    offset = 4 * (np.arange(DRAWS)[:, None] * LEAVES + np.arange(LEAVES + 1))
    draws = Draws(offset, cells.reshape(-1).copy(), tables.reshape(-1).astype(np.uint16))
    estimates = Estimates(true + NOISE / 2**0.5 * rng.standard_normal(true.shape))
    return DrawnTables(TREE, draws, 4), estimates, true


def answers(drawn: DrawnTables, operator: Operator) -> NDArray[np.float64]:
    """Return the leaves' mean answers [leaves, answers]."""
    return drawn.sorted_answers(TREE.leaves, Counting.of(operator)).mean(axis=1).reshape(LEAVES, -1)


def nearest(linear: Any) -> SparseTables:
    """Return integer tables near the linear estimates, as estimation "full" has them."""
    return SparseTables.of(np.maximum(np.rint(linear.leaves), 0).astype(np.int64))


def test_no_draw_changes_where_the_model_holds() -> None:
    drawn, linear, _ = drawn_and_true(0)
    moved = Moved.of(drawn, linear, [CELLS, HOME, AGE], nearest(linear))
    assert moved.drawn is drawn
    assert not any(rows.size for rows in moved.rows)


def test_answers_of_a_refuted_query_move_and_other_queries_keep_theirs() -> None:
    drawn, linear, true = drawn_and_true(6)
    moved = Moved.of(drawn, linear, [CELLS, HOME, AGE], nearest(linear))
    assert set(range(12)) <= set(moved.rows[1].tolist())
    assert moved.rows[0].size == moved.rows[2].size == 0
    before, after = answers(drawn, HOME), answers(moved.drawn, HOME)
    errors = [np.abs(each - HOME.apply(true))[:6].mean() for each in (before, after)]
    assert errors[0] > 70.0
    assert errors[1] < 2.0 * NOISE
    # Persons and ages of every leaf fitted what was measured.
    np.testing.assert_allclose(after.sum(axis=1), before.sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(answers(moved.drawn, AGE), answers(drawn, AGE), atol=3.0)
    persons = [each.sorted_answers(TREE.leaves, Counting.of(ALL)) for each in (drawn, moved.drawn)]
    np.testing.assert_array_equal(*persons)


def test_intervals_of_moved_answers_hold_what_their_estimates_allow() -> None:
    drawn, linear, true = drawn_and_true(20)
    moved = Moved.of(drawn, linear, [HOME], nearest(linear))
    correction = Correction.of(moved.drawn, linear, ((HOME,),) * 2, widened=drawn, moved=moved.rows)
    assert correction.weights[0] == (1.0,)
    values = correction.sorted_answers(1, TREE.leaves, 0)
    assert values is not None
    assert (np.diff(values, axis=1) >= 0).all()
    lower, upper = central(values, 0.9)
    expected = HOME.apply(true)[:20].reshape(-1)
    assert np.mean((lower[:40] <= expected) & (expected <= upper[:40])) > 0.85
    some = range(TREE.leaves.start + 5, TREE.leaves.start + 9)
    np.testing.assert_array_equal(correction.sorted_answers(1, some, 0), values[10:18])
