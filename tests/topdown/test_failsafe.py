"""Constraints that no table may meet: a proof or a smallest conflict by enumeration, and the failsafe."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from coco_opt import Hierarchy, Measurement, Schema, SolverChoices, TopdownMethod, TopdownSplit, estimate_tables
from coco_opt.errors import InputError, SolverError
from coco_opt.operators import identity, stack, total
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from coco_opt.topdown import UNBOUNDED, Constraints, LinearConstraint, RegionBounds, parse_query
from coco_opt.topdown.estimating.recursion import Checkpoint
from coco_opt.topdown.estimating.splitting.failsafe import NO_TABLES_FIT, least, relaxed_rows
from coco_opt.topdown.feasibility.conflict import nested_conflict, prove, smallest_conflict
from coco_opt.topdown.feasibility.system import ConstraintSystem
from tests.topdown.estimation import check_tables, measured, random_hierarchy, with_answers

SCHEMA = Schema({"a": ["x", "y", "z"]})
PAIR = Hierarchy.from_paths([("r", "s", "p"), ("r", "t", "q")])
TABLES = np.array(list(product(range(4), repeat=6)), np.int64).reshape(-1, 2, 3)


def random_system(rng: np.random.Generator, *, nested: bool) -> ConstraintSystem:
    """Return facts about two leaves of three cells that leave at most three persons in a cell."""
    every = parse_query("a", SCHEMA)
    bounds = [RegionBounds(every, 2, np.zeros((2, 3), np.int64), np.full((2, 3), 3))]
    linear = []
    for _ in range(int(rng.integers(1, 5))):
        text = ("total", "a[x, y..z]", "a[x..y]", "a")[int(rng.integers(4))]
        query, level = parse_query(text, SCHEMA), int(rng.integers(3))
        shape = (len(PAIR.level_range(level)), query.answers)
        low = rng.integers(0, 5, shape) * rng.integers(0, 2, shape)
        high = low + rng.integers(0, 3, shape)
        bounds.append(RegionBounds(query, level, low, np.where(rng.random(shape) < 0.3, UNBOUNDED, high)))
    for _ in range(0 if nested else int(rng.integers(1, 4))):
        weights = rng.integers(-2, 4, 3)
        if weights.any():
            level = int(rng.integers(3))
            regions = len(PAIR.level_range(level))
            low = rng.integers(-3, 4, regions)
            terms = tuple((int(w), f"a = {v}") for w, v in zip(weights, "xyz", strict=True) if w)
            linear.append(LinearConstraint("rule", terms, level, low, low + rng.integers(0, 2, regions)))
    return ConstraintSystem.of(PAIR, SCHEMA, bounds, linear)


def meeting(system: ConstraintSystem) -> bool:
    """Return whether some table of at most three persons a cell meets all facts."""
    good = np.ones(len(TABLES), np.bool_)
    for row in system.rows:
        weights = row.coefficients[system.classes.labels]
        sums = TABLES @ weights
        values = sums if row.level else sums.sum(axis=1, keepdims=True)
        good &= ((values >= row.lower) & (values <= row.upper)).all(axis=1)
    return bool(good.any())


@pytest.mark.parametrize("nested", [True, False])
def test_a_proof_agrees_with_enumeration(nested: bool) -> None:
    rng, verdicts = np.random.default_rng(4), set()
    for _ in range(50):
        system = random_system(rng, nested=nested)
        proof, true = prove(system), meeting(system)
        assert proof.verdict == ("holds" if true else "conflict")
        verdicts.add((true, proof.how))
        if true:
            witness = prove(system, witness=True).witness
            assert witness is not None
            assert system.holds(witness)
        if system.by_sums:
            assert (nested_conflict(system) is None) == true
    assert {true for true, _ in verdicts} == {True, False}
    if not nested:
        assert any(how == "in integers" for _, how in verdicts)


def alone(system: ConstraintSystem, facts: Collection[tuple[int, int]]) -> ConstraintSystem:
    """Return the system of some facts (row, region) alone."""
    rows = []
    for at, row in enumerate(system.rows):
        stated = np.array([(at, region) in facts for region in range(row.lower.size)])
        sides = np.where(stated, row.lower, -UNBOUNDED), np.where(stated, row.upper, UNBOUNDED)
        rows.append(replace(row, lower=sides[0], upper=sides[1]))
    return replace(system, rows=tuple(rows))


@pytest.mark.parametrize("nested", [True, False])
def test_every_fact_of_a_conflict_is_needed(nested: bool) -> None:
    """What the facts leave without any one of them is shown by a whole table, checked in integers."""
    rng, seen = np.random.default_rng(9), 0
    while seen < 20:
        system = random_system(rng, nested=nested)
        if meeting(system):
            continue
        seen += 1
        conflict = smallest_conflict(system, 20.0)
        assert conflict is not None
        assert conflict.smallest
        assert prove(alone(system, conflict.constraints)).verdict == "conflict"
        for constraint in conflict.constraints:
            rest = [other for other in conflict.constraints if other != constraint]
            assert prove(alone(system, rest), witness=True).witness is not None


def test_a_contradiction_is_named_by_region_and_fact_before_any_noise() -> None:
    tree = Hierarchy.from_paths([("land", "town", f"block{b}") for b in range(5)])
    schema = Schema({"residence": ["home", "nursing", "college"], "age": ["minor", "adult"]})
    leaves = np.full((5, 6), 3)
    kinds = parse_query("residence", schema)
    least = np.zeros((5, 3), np.int64)
    least[2, 1] = 7
    rules = [
        LinearConstraint.of("[age = adult & residence = nursing] <= 4", tree, schema),
        LinearConstraint.of("[age = minor & residence = nursing] = 0", tree, schema),
        LinearConstraint.of("[residence = home] >= [residence = college]", tree, schema),
    ]
    constraints = [RegionBounds(kinds, 2, least, np.full((5, 3), UNBOUNDED))]
    with pytest.raises(InputError, match="inconsistent-facts") as caught:
        measured(0, tree, schema, leaves, ["detail"], bounds=constraints, linear=rules)
    message = str(caught.value)
    assert "'residence: residence = nursing' is at least 7 in 'land/town/block2'" in message
    assert "'[age = adult & residence = nursing] <= 4' in 'land/town/block2'" in message
    assert "'[age = minor & residence = nursing] = 0' in 'land/town/block2'" in message
    assert "college" not in message
    assert "block1" not in message


def test_what_is_not_settled_in_time_is_said_to_be_undecided() -> None:
    rng = np.random.default_rng(0)
    cells = 40
    schema = Schema({"a": [f"v{k}" for k in range(cells)]})
    tree = Hierarchy.from_paths([("land",)])
    rules = []
    for number in range(4):  # market split: small and hard for branch and bound
        weights = rng.integers(1, 100, cells)
        half = np.array([int(weights.sum()) // 2])
        terms = tuple((int(w), f"a = v{k}") for k, w in enumerate(weights))
        rules.append(LinearConstraint(f"split {number}", terms, 0, half, half))
    ones = parse_query("a", schema)
    bounds = [RegionBounds(ones, 0, np.zeros((1, cells), np.int64), np.ones((1, cells), np.int64))]
    proof = prove(ConstraintSystem.of(tree, schema, bounds, rules), time_limit=0.2)
    assert proof.verdict == "undecided"
    assert "0.2 s" in proof.how


def test_data_that_meet_all_facts_are_the_proof() -> None:
    tree = Hierarchy.from_paths([("land", f"b{k}") for k in range(3)])
    leaves = np.array([[4, 0, 1], [0, 2, 2], [3, 3, 0]])
    rule = LinearConstraint.of("[a = x] + [a = z] <= 5", tree, SCHEMA, source="public")
    measurement = measured(1, tree, SCHEMA, leaves, ["detail"], invariants=[("total", 1)], linear=[rule])
    assert len(measurement.answers) == 3
    wrong = LinearConstraint.of("total <= 4", tree, SCHEMA, source="public")
    with pytest.raises(InputError, match="'total' as it is in the data, in 'land/b0'; 'total <= 4' in 'land/b0'"):
        measured(1, tree, SCHEMA, leaves, ["detail"], invariants=[("total", 1)], linear=[wrong])


def test_no_refusal_says_an_exact_answer_before_it_is_paid_for() -> None:
    tree = Hierarchy.from_paths([("land", f"b{k}") for k in range(3)])
    leaves = np.array([[4003, 0, 1], [0, 2, 5002], [3, 3001, 0]])
    everybody = parse_query("total", SCHEMA)
    above = [RegionBounds(everybody, 0, np.zeros((1, 1), np.int64), np.full((1, 1), 7))]
    rule = LinearConstraint.of("[a = x] >= [a = y] + [a = z]", tree, SCHEMA)
    for constraints in ({"bounds": above}, {"linear": [rule]}):
        with pytest.raises(InputError, match=r"exclude each other|no integer table") as caught:
            measured(1, tree, SCHEMA, leaves, ["detail"], invariants=[("total", 1), ("a", 1)], **constraints)  # type: ignore[arg-type]
        said = str(caught.value).replace(",", "")
        assert not any(str(count) in said for count in (4003, 4004, 5002, 5004, 3001, 3004, 12012))


@pytest.mark.parametrize("level", [1, 2])
def test_a_contradiction_among_many_blocks_is_found_in_its_own_region(level: int) -> None:
    tree = Hierarchy.from_paths([("land", f"town {b // 40}", f"block {b}") for b in range(4_000)])
    every, total = parse_query("a", SCHEMA), parse_query("total", SCHEMA)
    rng = np.random.default_rng(level)
    people = rng.integers(0, 50, (4_000, 3))
    sums = people.sum(axis=1, keepdims=True)
    lower = people - rng.integers(0, 2, people.shape) * (people > 0)
    exact = [RegionBounds.exact(total, 2, sums)]
    if level == 2:
        lower[1234, 1] = sums[1234, 0] - lower[1234, 0] - lower[1234, 2] + 1
    else:
        towns = sums.reshape(100, 40).sum(axis=1, keepdims=True)
        towns[30] -= 1
        exact.append(RegionBounds.exact(total, 1, towns))
    proof = prove(
        ConstraintSystem.of(tree, SCHEMA, [*exact, RegionBounds(every, 2, lower, np.full((4_000, 3), UNBOUNDED))])
    )
    assert proof.verdict == "conflict"
    assert proof.smallest
    assert all(("block 1234'" if level == 2 else "town 30") in constraint for constraint in proof.conflict)
    assert len(proof.conflict) == (4 if level == 2 else 41)


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
