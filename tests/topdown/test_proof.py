"""Facts of a whole tree: some whole table meets them, or a smallest set of them excludes itself, by enumeration."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from coco_opt.errors import InputError
from coco_opt.histograms import Hierarchy
from coco_opt.topdown import UNBOUNDED, LinearConstraint, RegionBounds, Schema, parse_query
from coco_opt.topdown.feasibility.conflict import nested_conflict, prove, smallest_conflict
from coco_opt.topdown.feasibility.system import ConstraintSystem
from tests.topdown.estimation import measured

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
