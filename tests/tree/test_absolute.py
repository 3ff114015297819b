"""Tree least absolute deviations in integers, against enumeration, linear programs and mixed-integer programs."""

from __future__ import annotations

import numpy as np
import pytest
from coco_solvers.structured.tree import TreeSlopes

from coco_opt import make_solver, solve
from coco_opt.errors import ProblemError
from coco_opt.problems.tree import Tree, TreeLeastAbsolute
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from tests.tree.instances import random_absolute
from tests.tree.oracles import best_integers, random_tree


@pytest.mark.parametrize("block", range(5))
def test_every_kind_of_node_is_solved_to_a_certificate(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        roots = []
        for ties in ("lower", "upper"):
            solution = solve(random_absolute(seed, 30, ties), TreeSlopes())
            assert solution.value.dtype == np.int64
            assert solution.gap == 0.0
            assert solution.raw_violation == 0.0
            roots.append(solution.value[0])
        assert roots[0] <= roots[1]


def test_equals_enumeration() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        tree = random_tree(rng, int(rng.integers(2, 7)))
        problem = TreeLeastAbsolute(tree, rng.integers(-3, 7, tree.nodes), lower=0, upper=np.where(tree.is_leaf, 5, 7))
        assert solve(problem, TreeSlopes()).objective == best_integers(problem, 0, 5)


def test_the_mixed_integer_program_agrees() -> None:
    for seed in range(25):
        problem = random_absolute(seed, 25)
        solution = solve(problem, make_solver("highs", form="milp"))
        assert solution.objective == pytest.approx(solve(problem, TreeSlopes()).objective, abs=1e-6)


def test_tie_rule_takes_the_extreme_root() -> None:
    tree = Tree([-1, 0, 0])
    low, high = (
        solve(TreeLeastAbsolute(tree, [2, 3, 3], [1.0, 0.5, 0.5], lower=0, ties=ties), TreeSlopes())
        for ties in ("lower", "upper")
    )
    assert low.objective == high.objective
    assert low.value[0] <= high.value[0]
    between = TreeLeastAbsolute(tree, [0, 4, 4], [1.0, 1.0, 1.0], lower=0)
    assert solve(between, TreeSlopes()).objective == 8
    assert solve(between, TreeSlopes()).value.tolist() == [0, 0, 0]
    most = TreeLeastAbsolute(tree, [0, 4, 4], [1.0, 1.0, 1.0], lower=0, ties="upper")
    assert solve(most, TreeSlopes()).value.tolist() == [8, 4, 4]


def test_among_equal_siblings_the_first_has_the_unit() -> None:
    tree = Tree([-1, 0, 0])
    problem = TreeLeastAbsolute(tree, [5, 4, 4], [9.0, 1.0, 1.0], lower=0)
    assert solve(problem, TreeSlopes()).value.tolist() == [5, 4, 1]


def test_corrupted_points_are_not_certified() -> None:
    for seed in range(30):
        problem = random_absolute(seed, 20)
        good = solve(problem, TreeSlopes())
        leaves = np.where(problem.tree.is_leaf, good.value, 0)
        leaves[-1] += 2
        moved = problem.tree.sums(leaves)
        if problem.violation(moved) > 0 or problem.objective(moved) == good.objective:
            continue
        verdict = judge(problem, Answer(moved, Status.OPTIMAL), "liar", 1e-9)
        assert verdict.status is Status.GAP_TOO_LARGE
        assert verdict.gap >= verdict.objective - good.objective - 1e-9


def test_real_weights_and_a_large_tree() -> None:
    rng = np.random.default_rng(6)
    tree = Tree.complete(4, 7)
    counts = tree.sums(np.where(tree.is_leaf & (rng.random(tree.nodes) < 0.1), rng.geometric(0.01, tree.nodes), 0))
    noisy = counts + rng.geometric(0.2, tree.nodes) - rng.geometric(0.2, tree.nodes)
    solution = solve(TreeLeastAbsolute(tree, noisy, rng.uniform(0.5, 2.0, tree.nodes), lower=0), TreeSlopes())
    assert solution.relative_gap <= 1e-12
    assert (solution.value == 0).mean() > 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"y": [1.5, 2.0]}, "integer answer"),
        ({"weights": -1.0}, "nonnegative"),
        ({"lower": 0.5}, "integers"),
        ({"ties": "middle"}, "ties"),
        ({"y": [2**52, 2]}, "too large"),
        ({"lower": [0, 3], "upper": [2, 5]}, "leave no value"),
    ],
)
def test_bad_data_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        TreeLeastAbsolute([-1, 0], **{"y": [1, 2], **options})  # type: ignore[arg-type]
