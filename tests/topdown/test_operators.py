"""Operators agree with their matrices on every shape and type, exactly on int64, and refuse what is no map."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt.errors import ProblemError
from coco_opt.operators import Grouping, Kronecker, Operator, Restricted, Stacked, identity, stack, total


def operator_of(kind: str, rng: np.random.Generator) -> Operator:
    cells = 12
    grouping = Grouping(rng.integers(-1, 5, cells), 5)
    kronecker = Kronecker((rng.integers(-2, 3, (2, 3)), np.ones((1, 2)), rng.integers(0, 2, (3, 2))))
    if kind == "restricted":
        return Restricted(kronecker, rng.permutation(cells)[:7])
    if kind == "stacked":
        return stack([grouping, kronecker, total(cells)])
    return {"grouping": grouping, "kronecker": kronecker, "identity": identity(cells), "total": total(cells)}[kind]


KINDS = ("grouping", "kronecker", "identity", "total", "restricted", "stacked")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lead", [(), (0,), (1,), (3,), (2, 3)])
@settings(max_examples=12)
@given(seed=st.integers(0, 10**6))
def test_operators_agree_with_their_matrices(kind: str, lead: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    operator = operator_of(kind, rng)
    matrix = operator.to_sparse().toarray()
    assert matrix.shape == (operator.answers, operator.cells)
    for dtype in (np.int64, np.float64):
        x = rng.integers(-9, 10, (*lead, operator.cells)).astype(dtype)
        y = rng.integers(-9, 10, (*lead, operator.answers)).astype(dtype)
        assert operator.apply(x).dtype == operator.adjoint(y).dtype == dtype
        assert operator.apply(x).flags.c_contiguous or operator.apply(x).size == 0 or kind == "kronecker"
        np.testing.assert_array_equal(operator.apply(x), x @ matrix.T.astype(dtype))
        np.testing.assert_array_equal(operator.adjoint(y), y @ matrix.astype(dtype))
    np.testing.assert_array_equal(operator.absolute_columns, np.abs(matrix).sum(axis=0))
    np.testing.assert_array_equal(operator.squared_columns, (matrix**2).sum(axis=0))
    cells = np.sort(rng.permutation(operator.cells)[: rng.integers(0, operator.cells + 1)])
    np.testing.assert_array_equal(operator.restrict(cells).to_sparse().toarray(), matrix[:, cells])


@pytest.mark.parametrize("kind", KINDS)
def test_int64_stays_exact_beyond_what_floats_hold(kind: str) -> None:
    operator = operator_of(kind, np.random.default_rng(3))
    x = np.full((2, operator.cells), 2**55 + 1, dtype=np.int64)
    exact = operator.to_sparse().toarray().astype(np.int64).astype(object) @ x[0].astype(object)
    assert operator.apply(x)[1].tolist() == exact.tolist()
    y = np.full(operator.answers, 2**54 + 1, dtype=np.int64)
    back = y.astype(object) @ operator.to_sparse().toarray().astype(np.int64).astype(object)
    assert operator.adjoint(y).tolist() == back.tolist()


def test_answers_do_not_share_memory_with_tables() -> None:
    x = np.arange(4.0)
    assert not np.shares_memory(identity(4).apply(x), x)
    assert not np.shares_memory(identity(4).adjoint(x), x)


def test_a_grouping_without_answers_or_cells_is_the_zero_map() -> None:
    none = Grouping(np.full(3, -1), 0)
    assert none.apply(np.ones((2, 3))).shape == (2, 0)
    assert none.adjoint(np.ones((2, 0))).tolist() == [[0.0] * 3] * 2
    empty = Grouping(np.zeros(0, np.int64), 2)
    assert empty.apply(np.ones((2, 0))).tolist() == [[0.0, 0.0]] * 2


def test_whole_answers_of_fractional_weights_are_refused() -> None:
    half = Kronecker((np.array([[0.5, 1.0]]),))
    assert half.apply(np.array([2.0, 1.0])).tolist() == [2.0]
    with pytest.raises(ProblemError, match="fractional weights"):
        half.apply(np.array([2, 1]))


@pytest.mark.parametrize("labels", [[0, 2], [-2, 0], [0.0, 1.0], [[0, 1]]])
def test_bad_labels_are_refused(labels: list[object]) -> None:
    with pytest.raises(ProblemError, match="labels must be"):
        Grouping(np.array(labels), 2)


@pytest.mark.parametrize("chosen", [[0, 0], [4], [-1]])
def test_bad_chosen_cells_are_refused(chosen: list[int]) -> None:
    with pytest.raises(ProblemError, match="chosen"):
        Restricted(identity(4), np.array(chosen))


def test_operators_over_different_cells_are_not_stacked() -> None:
    with pytest.raises(ProblemError, match="same cells"):
        Stacked((identity(2), identity(3)))
    with pytest.raises(ProblemError, match="finite"):
        Kronecker((np.array([[np.inf]]),))
