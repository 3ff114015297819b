"""Integer tree fits, p = 1 and 2: against enumeration, programs, other kernels, and what must not be certified."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from coco_solvers.structured.integer_tree import MergedSlopesInteger
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt import IntegerTreeL1, IntegerTreeL2, IsotonicL1, Tree, solve
from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError, UnknownSolverError
from coco_opt.problems.integer_tree import IntegerTree
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from tests.tree.oracles import enumerated, leaf_matrix, random_integers, random_tree

KINDS: tuple[type[IntegerTree], ...] = (IntegerTreeL1, IntegerTreeL2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(4))
def test_equals_enumeration(kind: type[IntegerTree], block: int) -> None:
    for seed in range(40 * block, 40 * block + 40):
        problem = random_integers(kind, seed, nodes=1 + seed % 6, cells=2, spread=3, noise=3)
        if int(problem.tree.is_leaf.sum()) > 4 or problem.weights[problem.tree.is_leaf].min() == 0.0:
            continue
        solution = solve(problem, MergedSlopesInteger())
        first, second = enumerated(problem, 8)
        assert solution.objective == pytest.approx(first, abs=1e-9)
        if kind is IntegerTreeL1:
            off = solution.value - problem.y
            assert float((problem.weights**2 @ off**2).sum()) == pytest.approx(second, abs=1e-9)


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.integers(1, 40), st.sampled_from([2, 9, 1_000, 10**7]))
def test_every_problem_is_solved_to_a_certificate(seed: int, kind: type[IntegerTree], nodes: int, noise: int) -> None:
    problem = random_integers(kind, seed, nodes=nodes, cells=3, spread=20, noise=noise)
    solution = solve(problem, MergedSlopesInteger(), check=False)
    assert solution.value.dtype == np.int64
    assert solution.raw_violation == 0.0
    assert solution.gap <= 1e-12 * max(1.0, solution.objective)


def varied(kind: type[IntegerTree], seed: int) -> IntegerTree:
    """Return one cell on a ragged tree or a path: large answers, weights up to eighteen digits apart, zero leaves."""
    rng = np.random.default_rng(seed)
    nodes, most = int(rng.integers(1, 9)), int(rng.choice([3, 100, 10**6, 2**30]))
    tree = random_tree(rng, nodes) if rng.random() < 0.7 else Tree(np.arange(nodes) - 1)
    inside = tree.sums(np.where(tree.is_leaf, rng.integers(0, most, nodes), 0))
    y = rng.integers(-most, most + 1, nodes) if rng.random() < 0.5 else inside + rng.integers(-5, 6, nodes)
    distributions = (
        rng.choice([0.0, 1.0], nodes),
        rng.choice([0.0, 1 / 3, 1.0, 3.0], nodes),
        10.0 ** rng.uniform(-6, 6, nodes),
        10.0 ** rng.uniform(-18, 0, nodes),
    )
    weights = distributions[int(rng.integers(4))]
    groups = np.maximum(inside + rng.integers(-2, 3, nodes), 0) if rng.random() < 0.4 else None
    return kind(tree, y[:, None], weights, groups=groups)


def exact_cost(problem: IntegerTree, x: Ints) -> Fraction:
    off = [abs(int(a) - int(b)) ** problem.power for a, b in zip(x, problem.y[:, 0], strict=True)]
    return sum((Fraction(float(w)) * cost for w, cost in zip(problem.weights, off, strict=True)), Fraction(0))


@pytest.mark.parametrize("kind", KINDS)
def test_no_exchange_of_units_improves_an_answer_in_exact_arithmetic(kind: type[IntegerTree]) -> None:
    """Around the answer, which convexity makes enough: no moves of the leaves by up to one unit cost less."""
    tried = 0
    for seed in range(150):
        problem = varied(kind, seed)
        S = leaf_matrix(problem.tree).astype(np.int64)
        if S.shape[1] > 4:
            continue
        tried += 1
        solution = solve(problem, MergedSlopesInteger())
        x = solution.value[:, 0]
        cost = exact_cost(problem, x)
        for move in product((-1, 0, 1), repeat=S.shape[1]):
            near = x + S @ np.array(move)
            if problem.violation(near[:, None]) == 0.0:
                assert cost - exact_cost(problem, near) <= Fraction(1, 10**12) * max(1, cost)
    assert tried > 100


@pytest.mark.parametrize("kind", KINDS)
def test_gaps_of_wrong_points_are_at_least_their_exact_loss(kind: type[IntegerTree]) -> None:
    """Large answers and weights far apart: what rounding is allowed for must not hide a loss."""
    for seed in range(200, 280):
        problem, rng = varied(kind, seed), np.random.default_rng(seed)
        S = leaf_matrix(problem.tree).astype(np.int64)
        best = solve(problem, MergedSlopesInteger()).value
        for reach in (1, 50):
            wrong = best + (S @ rng.integers(-reach, reach + 1, S.shape[1]))[:, None]
            if problem.violation(wrong) > 0.0:
                continue
            loss = float(exact_cost(problem, wrong[:, 0]) - exact_cost(problem, best[:, 0]))
            for claimed in (None, rng.normal(0.0, 1.0, wrong.shape), np.full(wrong.shape, np.nan), np.zeros(3)):
                verdict = judge(problem, Answer(wrong, Status.OPTIMAL, claimed), "liar", 1e-9)
                assert verdict.gap >= loss * (1 - 1e-9) - 1e-12 * max(1.0, verdict.objective)
                assert loss <= 2e-9 * max(1.0, verdict.objective) or not verdict.ok


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_of_prices_refuses_no_optimum(kind: type[IntegerTree]) -> None:
    """Weights that are no binary fractions, answers of 2^31 and above zero, many cells, a deep tree."""
    rng = np.random.default_rng(9)
    tree = Tree([-1, 0, 0, *np.repeat(np.arange(1, 79, 2), 2)])  # a path of 41 regions, each with a leaf beside
    y = tree.sums(np.where(tree.is_leaf, 2**31, 0))[:, None] + rng.integers(-9, 10, (tree.nodes, 200))
    weights = rng.choice([1 / 3, 1 / 7, 0.1], tree.nodes)
    solution = solve(kind(tree, y, weights), MergedSlopesInteger())
    assert solution.gap <= 1e-6 * solution.objective
    assert (y > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_broken_by_one_is_not_certified_however_large_the_counts(kind: type[IntegerTree]) -> None:
    """A tolerance relative to the counts would let it pass, with a gap of 0 or less."""
    large = 2**33
    problem = kind([-1, 0, 0], [[large], [large], [0]], groups=[large - 1, large, 5])
    wrong = np.array([[large], [large], [0]])
    assert problem.violation(wrong) == 1.0
    verdict = judge(problem, Answer(wrong, Status.OPTIMAL, None), "liar", 1e-9)
    assert verdict.violation == 0.0  # mended, and the mended point is judged
    assert verdict.value[0, 0] == large - 1
    free = kind([-1, 0, 0], [[2 * large], [large], [large]])
    for far in (
        [[2 * large], [large], [large + 1]],
        [[2 * large + 1], [large], [large + 1]],
        [[1e300], [1e300], [0.0]],
    ):
        verdict = judge(free, Answer(np.array(far), Status.OPTIMAL, None), "liar", 1e-9)
        assert verdict.violation == 0.0
        assert not verdict.ok
    wrapped = np.array([[-(2**63)], [2**62], [2**62]])  # its sum holds in 64 bits only
    assert not judge(kind([-1, 0, 0], [[0], [0], [0]]), Answer(wrapped, Status.OPTIMAL, None), "liar", 1e-9).ok


@pytest.mark.parametrize("kind", KINDS)
def test_what_breaks_a_constraint_is_seen(kind: type[IntegerTree]) -> None:
    problem = kind([-1, 0, 0], [[4, 4], [2, 3], [2, 2]], groups=[6, 3, 3])
    good: Ints = np.array([[4, 5], [2, 3], [2, 2]])
    assert problem.violation(good) == 0.0
    for at, change in (((1, 0), 1), ((0, 1), -2)):
        bad = good.copy()
        bad[at] += change
        assert problem.violation(bad) == abs(change)
    assert problem.violation(good + np.array([[0, 2], [0, 2], [0, 0]])) == 2  # a bound
    assert problem.violation(np.array([[4.0, 5.0], [1.5, 3.0], [2.5, 2.0]])) == 0.5
    assert problem.violation(good[:2]) == np.inf
    assert problem.violation(good * np.nan) == np.inf


@pytest.mark.parametrize("kind", KINDS)
def test_an_optimum_far_from_the_real_one_is_reached_in_wide_steps(kind: type[IntegerTree]) -> None:
    rng = np.random.default_rng(4)
    tree = Tree([-1] + [0] * 500)
    weights = rng.uniform(0.1, 2.0, tree.nodes)  # for p = 1 the lightest leaf takes all that the root lacks
    problem = kind(tree, rng.integers(-5, 50, (tree.nodes, 3)), weights)
    answer = MergedSlopesInteger().solve(problem)
    assert answer.iterations is not None
    assert answer.iterations <= 200 * 3
    assert judge(problem, answer, "far", 1e-12).ok


def test_threads_do_not_change_the_answer() -> None:
    problem = random_integers(IntegerTreeL1, 3, nodes=30, cells=50, spread=30, noise=40)
    single, two = (solve(problem, MergedSlopesInteger(threads=threads)).value for threads in (1, 2))
    np.testing.assert_array_equal(single, two)


def test_another_kind_is_refused() -> None:
    with pytest.raises(UnknownSolverError, match="integer_tree_l1"):
        MergedSlopesInteger().solve(IsotonicL1([1, 2]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"y": [[1.5], [2.0]]}, "y must be integers of shape 2 x cells"),
        ({"y": [[1], [2], [3]]}, "y must be integers"),
        ({"y": np.zeros((2, 0), np.int64)}, "y must be integers"),
        ({"y": [[2**50], [2]]}, "too large"),
        ({"y": [[2**51], [2]]}, "2\\^50"),
        ({"groups": [3, -1]}, "groups must lie between 0"),
        ({"groups": [3]}, "groups must be integers"),
        ({"weights": [1.0, -1.0]}, "nonnegative"),
        ({"weights": [1.0, 2.0, 3.0]}, "one number"),
        ({"tree": [0, 0]}, "parent"),
    ],
)
def test_bad_data_are_refused(kind: type[IntegerTree], options: dict[str, Any], words: str) -> None:
    given = {"tree": [-1, 0], "y": [[1], [2]], **options}
    with pytest.raises(ProblemError, match=words):
        kind(given.pop("tree"), given.pop("y"), given.pop("weights", 1.0), **given)
