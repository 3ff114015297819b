"""The failsafe: tables that cannot be split give way least, what cannot hold at all is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coco_opt import Hierarchy, Measurement, Schema, SolverChoices, TopdownMethod, TopdownSplit, estimate_tables
from coco_opt.errors import SolverError
from coco_opt.operators import identity, stack, total
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from coco_opt.topdown import UNBOUNDED, Constraints, RegionBounds, parse_query
from coco_opt.topdown.estimating.recursion import Checkpoint
from coco_opt.topdown.estimating.splitting.failsafe import NO_TABLES_FIT, least, relaxed_rows
from tests.topdown.estimation import check_tables, measured, random_hierarchy, with_answers

DORMS = Schema({"kind": ["female", "coed", "male", "mixed"]})
PEOPLE = Schema({"race": ["a", "b"], "age": ["minor", "adult"]})


def dorms(town: list[int]) -> Measurement:
    """Return a town of 200 people in a state with another: 100 in R1, of the first two kinds, 100 in R2, of the last.

    So the first two kinds hold 100, which no bound on a single kind says. The town's noisy answers are made to be
    exactly ``town``.
    """
    hierarchy = Hierarchy.from_paths([("state", "town", "R1"), ("state", "town", "R2"), ("state", "rest", "R3")])
    leaves = np.array([[50, 50, 0, 0], [0, 0, 50, 50], [5, 6, 7, 8]])
    kinds = parse_query("kind", DORMS)
    most = np.array([[99, 99, 0, 0], [0, 0, 99, 99], [99, 99, 99, 99]])
    constraints = RegionBounds(kinds, 2, np.zeros_like(most), most)
    measurements = measured(0, hierarchy, DORMS, leaves, ["detail"], 40, [("total", 2)], [constraints])
    return with_answers(
        measurements, {1: np.array([town, [5, 6, 7, 8]]), 0: np.array([town]) + np.array([[5, 6, 7, 8]])}
    )


@pytest.mark.parametrize("estimation", ["classic", "full"])
def test_a_town_that_cannot_be_split_gives_way_least(estimation: str) -> None:
    measurements = dorms([61, 59, 42, 38])
    result = estimate_tables(measurements, TopdownMethod(estimation, implied="bounds"))  # type: ignore[arg-type]
    check_tables(measurements, result)
    town = result["state/town"]
    assert town.sum() == 200
    if estimation == "classic":
        assert [relaxation.path for relaxation in result.relaxed] == ["state/town"]
        assert result.relaxed[0].moved == 20
        assert result.relaxed[0].why == NO_TABLES_FIT
        assert town[:2].sum() == 100


def test_the_least_change_is_the_least_by_enumeration() -> None:
    rng = np.random.default_rng(0)
    allowed = [
        (f1, 10 - f1 + c2, 10 - c2) for f1 in range(1, 10) for c2 in range(1, 10)
    ]  # R1 = (f1, 10 - f1, 0), R2 = (0, c2, 10 - c2)
    sides = np.array([[1, 1, 0, 10], [0, 1, 1, 10]]), np.array([[9, 9, 0, 10], [0, 9, 9, 10]])
    both = Constraints(stack([identity(3), total(3)]), *sides, ("F", "C", "M", "total")).end_to_end(["R1", "R2"], 6)
    for _ in range(10):
        parent = rng.multinomial(20, [1 / 3, 1 / 3, 1 / 3])
        cost, tables = least(relaxed_rows(parent, 2, [both]), np.repeat([0.0, 1.0], 6), "here", 10.0)
        assert cost == min(np.abs(np.array(table) - parent).sum() for table in allowed)
        assert tables is not None
        assert (tables[:6].reshape(2, 3).sum(axis=0) == parent + tables[6:9] - tables[9:]).all()


def test_a_total_that_no_split_can_have_gives_way_too() -> None:
    hierarchy = Hierarchy.from_paths([("root", "town", "here"), ("root", "town", "there"), ("root", "rest", "far")])
    leaves = np.array([[5, 0, 5, 0], [0, 0, 5, 5], [1, 2, 3, 4]])
    # 10 people at least in each half of the town, said by race in one and by age in the other: no single query of the
    # town knows of 20.
    race = np.array([[5, 5], [0, 0], [0, 0]])
    age = np.array([[0, 0], [5, 5], [0, 0]])
    wide = np.full((3, 2), UNBOUNDED)
    constraints = [
        RegionBounds(parse_query(text, PEOPLE), 2, low, wide) for text, low in (("race", race), ("age", age))
    ]
    measurements = measured(0, hierarchy, PEOPLE, leaves, ["detail"], 40, [], constraints)
    measurements = with_answers(measurements, {1: np.array([[3, 3, 3, 3], [1, 2, 3, 4]]), 0: np.array([[4, 5, 6, 7]])})
    result = estimate_tables(measurements, TopdownMethod("classic", implied="bounds"))
    check_tables(measurements, result)
    assert result["root/town"].sum() == 20
    assert result["root"].sum() == 30
    assert [(relaxation.path, relaxation.moved) for relaxation in result.relaxed] == [("root/town", 8)]


@pytest.mark.parametrize("seed", [13, 16, 40, 52])
def test_several_relaxed_regions_meet_in_those_above(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, 4)
    leaves = rng.poisson(rng.gamma(0.5, 4.0, (len(hierarchy.leaves), PEOPLE.size))).astype(np.int64)
    tables, constraints = hierarchy.aggregate(leaves), []
    for text, level in (("race", 3), ("age", 3), ("race", 2), ("age", 1)):
        query, regions = parse_query(text, PEOPLE), hierarchy.level_range(level)
        true = query.operator.apply(tables[regions.start : regions.stop])
        spare = rng.integers(0, 2, true.shape)
        constraints.append(
            RegionBounds(query, level, np.maximum(true - spare, 0), true + rng.integers(0, 2, true.shape))
        )
    measurements = measured(seed, hierarchy, PEOPLE, leaves, ["detail"], 1, [("total", 1)], constraints)
    done: list[Checkpoint] = []
    method = TopdownMethod("classic", implied="bounds")
    result = estimate_tables(measurements, method, after_level=done.append)
    check_tables(measurements, result)
    assert len(result.relaxed) >= 3
    for checkpoint in done:
        again = estimate_tables(measurements, method, threads=2, resume_from=checkpoint)
        assert again.relaxed == result.relaxed
        for level in range(4):
            np.testing.assert_array_equal(again.level(level), result.level(level))


class Failing(SolverChoices):
    """Splits that every solver fails on: without a point, or with one that ``left`` makes of the problem."""

    def __init__(self, left: Callable[[TopdownSplit], np.ndarray[Any, Any]] | None = None, *, fallback: bool = True):
        super().__init__(fallback=fallback)
        self._left = left

    def solve(self, problem: Any, *, fallback: bool = True) -> Any:
        if not isinstance(problem, TopdownSplit):
            return super().solve(problem, fallback=fallback)
        solution = None
        if self._left is not None:
            answer = Answer(self._left(problem), Status.ITERATION_LIMIT)
            solution = judge(problem, answer, "failing", 1e-9)
        raise SolverError("no solver reached its tolerance", solution)


@pytest.mark.parametrize("town", [[51, 49, 60, 40], [61, 59, 42, 38]])
def test_whole_tables_that_hold_end_an_estimation_whose_solvers_all_fail(town: list[int]) -> None:
    measurements, method = dorms(town), TopdownMethod("classic", implied="bounds")
    result = estimate_tables(measurements, method, Failing())
    check_tables(measurements, result)
    assert result.uncertified_gap.unknown == result.uncertified_gap.steps > 0
    again = estimate_tables(measurements, method, Failing(), threads=3)
    for level in range(3):
        np.testing.assert_array_equal(again.level(level), result.level(level))
    with pytest.raises(SolverError, match="the root 'state': no solver reached"):
        estimate_tables(measurements, method, Failing(fallback=False))


def test_the_failsafe_ends_with_the_program_s_tables_where_only_its_own_fit_fails() -> None:
    class Relaxed(Failing):
        def solve(self, problem: Any, *, fallback: bool = True) -> Any:
            if isinstance(problem, TopdownSplit) and problem.shape == (1, 4 * DORMS.size):
                return super().solve(problem, fallback=fallback)
            return SolverChoices.solve(self, problem, fallback=fallback)

    measurements = dorms([61, 59, 42, 38])
    result = estimate_tables(measurements, TopdownMethod("classic", implied="bounds"), Relaxed())
    check_tables(measurements, result)
    assert [(relaxation.path, relaxation.moved) for relaxation in result.relaxed] == [("state/town", 20)]
    assert (result.uncertified_gap.steps, result.uncertified_gap.unknown) == (1, 1)
    with pytest.raises(SolverError, match="state/town"):
        estimate_tables(measurements, TopdownMethod("classic", implied="bounds"), Relaxed(fallback=False))


def test_a_point_that_a_failed_solver_left_is_rounded_to_tables_that_hold() -> None:
    def even(problem: TopdownSplit) -> np.ndarray[Any, Any]:
        if problem.parent is None:
            return np.full(problem.shape, 7.3)
        return np.tile(problem.parent / problem.shape[0], (problem.shape[0], 1))

    rng = np.random.default_rng(1)
    hierarchy = random_hierarchy(rng, 3)
    leaves = rng.poisson(5.0, (len(hierarchy.leaves), PEOPLE.size)).astype(np.int64)
    measurements = measured(1, hierarchy, PEOPLE, leaves, ["detail"], 1, [("total", 1)])
    for left in (even, lambda problem: 3.0 * even(problem)):
        result = estimate_tables(measurements, solvers=Failing(left))
        check_tables(measurements, result)
        assert result.uncertified_gap.steps > 0


def test_nothing_better_is_known_where_nothing_binds_the_root() -> None:
    hierarchy = Hierarchy.from_paths([("root", "here"), ("root", "there")])
    measurements = measured(0, hierarchy, PEOPLE, np.full((2, 4), 3), ["detail"], 2)
    with pytest.raises(SolverError, match="no solver reached"):
        estimate_tables(measurements, solvers=Failing())
