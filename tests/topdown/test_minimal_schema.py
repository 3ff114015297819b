"""The minimal schema: classes of cells for all regions at once, against dense programs, and exact below.

How implied constraints are enforced: chosen by predicted times, and the next one where one is slow.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from coco_opt import Hierarchy, Measurement, SolverChoices
from coco_opt.errors import InputError, ProblemError
from coco_opt.topdown import (
    UNBOUNDED,
    Invariants,
    LinearConstraint,
    RegionBounds,
    Schema,
    TableMeasurements,
    TopdownMethod,
    estimate_tables,
    parse_query,
)
from coco_opt.topdown.estimating.implied import implied_choice, minimal_schema, predicted_seconds
from coco_opt.topdown.estimating.implied.cuts import CutOracle, Cutting
from coco_opt.topdown.estimating.splitting.step import split_step
from coco_opt.topdown.feasibility.conflict import Proof
from coco_opt.topdown.feasibility.programs import tightened
from coco_opt.topdown.feasibility.system import ConstraintSystem, infinite
from coco_opt.topdown.kind.checkpoints import LevelFiles
from tests.topdown.estimation import check_tables, measured

SCHEMA = Schema({"kind": ["a", "b", "c", "d"], "age": ["minor", "adult"]})
TREE = Hierarchy.from_paths([("land", f"town{b // 3}", f"block{b}") for b in range(9)])


def facilities(seed: int, *, rules: bool = False) -> Measurement:
    """Return a measurement with block totals, facilities by type, and perhaps constraints of other shapes."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 3, (9, 4))
    counts[np.arange(9), rng.integers(4, size=9)] = 2
    people = counts[:, :, None] * (1 + rng.poisson(3.0, (9, 4, 2)))
    kinds = parse_query("kind", SCHEMA)
    constraints = RegionBounds(kinds, 2, counts, np.where(counts > 0, UNBOUNDED, 0))
    linear = []
    if rules:
        table = people.reshape(9, 8)
        most = int((table[:, 1] - 2 * table[:, 2]).max())
        linear.append(
            LinearConstraint.of(f"[kind = a & age = adult] - 2*[kind = b & age = minor] <= {most}", TREE, SCHEMA)
        )
    queries = ["total", "kind", "detail"]
    return measured(seed, TREE, SCHEMA, people.reshape(9, 8), queries, 2, [("total", 2)], [constraints], linear)


@pytest.mark.parametrize("leaves", [range(9), range(2), range(1, 5), range(3, 6), range(8, 9)])
def test_the_sides_of_some_leaves_are_those_of_all(leaves: range) -> None:
    towns = RegionBounds(parse_query("kind", SCHEMA), 1, np.zeros((3, 4), int), np.arange(12).reshape(3, 4))
    blocks = RegionBounds(parse_query("total", SCHEMA), 2, np.arange(9)[:, None] % 3, np.arange(9)[:, None] % 5 + 2)
    system = ConstraintSystem.of(TREE, SCHEMA, [towns, blocks])
    for some, every in zip(tightened(system, leaves), tightened(system), strict=True):
        np.testing.assert_array_equal(some, every[leaves.start : leaves.stop])


@pytest.mark.parametrize("rules", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_tables_hold_without_any_failsafe(seed: int, rules: bool) -> None:
    measurement = facilities(seed, rules=rules)
    measured_, method = TableMeasurements.of(measurement), TopdownMethod()
    assert implied_choice(measured_.invariants.system, method).method == "minimal_schema"
    result = estimate_tables(measurement, method)
    check_tables(measurement, result)
    assert not result.relaxed
    assert not result.uncertified_gap
    assert (result.implied.method, result.implied.classes) == ("minimal_schema", 6 if rules else 4)
    again = estimate_tables(measurement, method, threads=2)
    for level in range(3):
        np.testing.assert_array_equal(again.level(level), result.level(level))


def test_the_classes_are_the_least_squares_of_all_answers_within_all_facts() -> None:
    measurement = facilities(4)
    measured_ = TableMeasurements.of(measurement)
    system = measured_.invariants.system
    lower, upper = tightened(system)
    fitted = minimal_schema._fit(measured_, system, lower, upper, SolverChoices())
    # Frank-Wolfe's gap: no feasible point lies downhill of the fit.
    labels, slope = system.classes.labels, np.zeros_like(fitted)
    for level in range(3):
        for place, query in enumerate(measured_.queries):
            answers, variance = measured_.answers[level][place], measured_.variance(level, place)
            assert answers is not None
            sums = system.sums(fitted, level)
            if query.name == "total":
                off = (sums.sum(axis=1, keepdims=True) - answers) / variance * np.ones((1, 4))
            else:
                cells = query.answers // 4
                summed = answers.reshape(len(answers), 4, cells).sum(axis=2)
                off = (sums - summed) / (cells * variance)
            slope += 2.0 * np.repeat(off, np.diff(system.leaf_starts[level]), axis=0)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    matrix, low, high = system.matrix(list(system.ranged()))
    assert (low == high).all()
    ends = np.column_stack([lower.reshape(-1), infinite(upper.reshape(-1))])
    best = linprog(slope.reshape(-1), A_eq=matrix, b_eq=low, bounds=ends)
    assert float((slope * fitted).sum()) - best.fun <= 1e-4 * (1.0 + abs(best.fun))


def test_where_every_solver_fails_whole_tables_that_hold_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    measurement = facilities(1, rules=True)
    monkeypatch.setattr(minimal_schema, "round_leaves", lambda *_: None)
    result = estimate_tables(measurement, TopdownMethod(), SolverChoices(fallback=True))
    check_tables(measurement, result)
    assert result.uncertified_gap.unknown == 1


def test_bounds_serve_where_they_suffice_and_cuts_where_classes_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = np.full((9, 8), 2)
    totals = TableMeasurements.of(measured(0, TREE, SCHEMA, leaves, ["detail"], 2, [("total", 2)]))
    assert implied_choice(totals.invariants.system, TopdownMethod()).method == "bounds"
    several = TableMeasurements.of(facilities(0))
    assert implied_choice(several.invariants.system, TopdownMethod(implied="cuts")).method == "cuts"
    monkeypatch.setattr(minimal_schema, "MOST_UNKNOWNS", 10)
    assert implied_choice(several.invariants.system, TopdownMethod()).method == "cuts"
    assert implied_choice(None, TopdownMethod()).method == "bounds"
    with pytest.raises(ProblemError, match="implied must be one of"):
        TopdownMethod(implied="cut")  # type: ignore[arg-type]


def test_a_failsafe_without_room_ends_with_the_minimal_schema() -> None:
    # Noise at the town leaves its parts no room: only the whole tree at once has it.
    rng = np.random.default_rng(2)
    tree = Hierarchy.from_paths([("r", f"p{leaf // 4}", f"l{leaf}") for leaf in range(12)])
    schema = Schema({"a": ["x", "y", "z"], "b": ["0", "1"]})
    leaves = rng.poisson(1.5, (12, 6))
    a, b = parse_query("a", schema), parse_query("b", schema)
    constraints = [RegionBounds.exact(query, 2, query.operator.apply(leaves)) for query in (a, b)]
    constraints = [RegionBounds(bounds.query, 2, bounds.lower, bounds.upper) for bounds in constraints]
    measurement = measured(2, tree, schema, leaves, ["detail"], Fraction(1, 4), [], constraints)
    for implied in ("bounds", "cuts", "auto"):
        method = TopdownMethod("classic", implied=implied)  # type: ignore[arg-type]
        check_tables(measurement, estimate_tables(measurement, method, SolverChoices(fallback=True)))


@pytest.mark.parametrize("implied", ["minimal_schema", "cuts"])
def test_a_resumed_run_keeps_its_classes_and_cuts_and_solves_nothing_twice(implied: str, tmp_path: Path) -> None:
    measurements, method = facilities(2, rules=True), TopdownMethod(implied=implied)  # type: ignore[arg-type]
    for level in range(2):
        solvers, folder = SolverChoices(), tmp_path / str(level)
        files = LevelFiles(folder)
        uninterrupted = estimate_tables(
            measurements,
            method,
            solvers,
            after_level=lambda done, files=files, level=level: level != done.level or files.keep(done),
        )
        again = SolverChoices()
        resumed = estimate_tables(measurements, method, again, resume_from=LevelFiles(folder).last())
        assert uninterrupted.implied == resumed.implied
        assert uninterrupted.implied.method == implied
        assert uninterrupted.implied.cuts == (implied == "cuts")
        for at in range(3):
            np.testing.assert_array_equal(uninterrupted.level(at), resumed.level(at))
        solved = [
            [replace(certificate, seconds=0.0) for certificate in done.certificates]
            for done in (uninterrupted, resumed)
        ]
        assert solved[0] == solved[1]
        (folder / f"levels-{level:03}").write_bytes(b"damaged")
        assert LevelFiles(folder).last() is None


def test_one_region_alone_has_no_row_of_several_variables() -> None:
    tree = Hierarchy.from_paths([("land",)])
    least = RegionBounds(parse_query("kind", SCHEMA), 0, np.array([[3, 0, 0, 2]]), np.full((1, 4), 9))
    measurement = measured(2, tree, SCHEMA, np.full((1, 8), 2), ["detail"], bounds=[least])
    check_tables(measurement, estimate_tables(measurement, TopdownMethod(implied="minimal_schema")))


def test_chains_of_large_coefficients_leave_boxes_that_do_not_wrap() -> None:
    tree, largest = Hierarchy.from_paths([("land",)]), 2**20
    texts = [
        "[kind = a] <= 999999999999",
        *(f"[kind = {x}] <= {largest} * [kind = {y}]" for x, y in ("ba", "cb", "dc")),
    ]
    constraints = ConstraintSystem.of(tree, SCHEMA, [], [LinearConstraint.of(text, tree, SCHEMA) for text in texts])
    lower, upper = tightened(constraints)
    assert (lower == 0).all()
    assert (upper[0, :2] == [999999999999, largest * 999999999999]).all()
    assert (upper[0, 2:] >= 2**60).all()  # c and d can be that many: no side may cut them off


ROLES = Schema({"role": ["head", "spouse", "other"]})
PARENT = Hierarchy.from_paths([("town", "east"), ("town", "west")])
TOTAL, ROLE = parse_query("total", ROLES), parse_query("role", ROLES)


def town(seed: int, *, least_only: bool) -> Invariants:
    """Return bounds on totals and, inside them, on roles of two regions that some tables meet."""
    rng = np.random.default_rng(seed)
    tables = rng.integers(0, 3, (2, 3))
    totals = tables.sum(axis=1, keepdims=True)
    low = totals - rng.integers(0, 2, (2, 1))
    high = np.where(rng.random((2, 1)) < 0.5, totals, totals + rng.integers(0, 3, (2, 1)))
    least = np.maximum(tables - rng.integers(0, 3, (2, 3)), 0)
    most = np.full((2, 3), UNBOUNDED) if least_only else tables + rng.integers(0, 2, (2, 3))
    bounds = [RegionBounds(TOTAL, 1, np.maximum(low, 0), high), RegionBounds(ROLE, 1, least, most)]
    if rng.random() < 0.5:
        bounds.append(RegionBounds.exact(TOTAL, 0, totals.sum(axis=0, keepdims=True)))
    return Invariants(PARENT, ROLES, tuple(bounds))


def falls_short(invariants: Invariants) -> bool:
    """Return by enumeration whether a table of the town meets the closed bounds and does not extend to its regions."""
    above, below = invariants.constraints_of(range(1)), invariants.constraints_of(range(1, 3))
    assert above is not None
    assert below is not None
    for table in product(range(7), repeat=3):
        town_table = np.array(table)
        if above.broken_by(town_table[None]).any():
            continue
        parts = (np.array(part) for part in product(*(range(count + 1) for count in table)))
        if not any(not below.broken_by(np.stack([part, town_table - part])).any() for part in parts):
            return True
    return False


def test_bounds_suffice_where_nothing_inside_a_total_is_bounded_above() -> None:
    for seed in range(60):
        invariants = town(seed, least_only=True)
        assert not minimal_schema.bounds_fall_short(invariants.system)
        assert not falls_short(invariants)


def test_bounds_on_roles_and_totals_can_fall_short_and_are_not_trusted() -> None:
    short = 0
    for seed in range(60):
        invariants = town(seed, least_only=False)
        assert minimal_schema.bounds_fall_short(invariants.system)
        short += falls_short(invariants)
    assert short > 0


def test_a_method_is_chosen_by_what_it_is_predicted_to_take() -> None:
    system = TableMeasurements.of(facilities(1, rules=True)).invariants.system
    seconds = predicted_seconds(system)
    assert 0 == seconds["bounds"] < seconds["minimal_schema"] < 1
    choice = implied_choice(system, TopdownMethod())
    assert [name for name, _ in choice.candidates] == ["minimal_schema", "cuts", "bounds"]
    assert "minimal schema (6 classes of cells in 13 regions) takes about 0.1 s" in choice.reason
    hurried = implied_choice(system, TopdownMethod(time=1e-3))
    assert hurried.candidates == (("bounds", 0.0),)
    assert "where 0.0 s are allowed" in hurried.reason
    with pytest.raises(ProblemError, match="time must be a number of seconds above 0"):
        TopdownMethod(time=0.0)


def test_the_next_method_goes_on_where_a_step_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    measurement, notes = facilities(1, rules=True), list[str]()
    monkeypatch.setattr(minimal_schema, "round_leaves", lambda *_: None)
    monkeypatch.setattr(minimal_schema, "prove", lambda *_, **__: Proof("undecided", "not settled"))
    result = estimate_tables(measurement, TopdownMethod(), SolverChoices(fallback=True), note=notes.append)
    check_tables(measurement, result)
    assert result.implied.method == "cuts"
    assert notes == [result.implied.slow]
    assert notes[0].startswith("the minimal schema was given up: whether any integer table meets the constraints")
    with pytest.raises(ProblemError, match="not settled within 60 s"):
        estimate_tables(measurement, TopdownMethod(implied="minimal_schema"))
    measured = TableMeasurements.of(measurement)
    resumed = split_step(measured, TopdownMethod(seed=1), SolverChoices(), resumed=True)
    assert resumed.implied.method == "cuts"


def test_a_constraint_on_one_count_is_a_bound() -> None:
    total, kind = parse_query("total", SCHEMA), parse_query("kind[a]", SCHEMA)
    totals = RegionBounds(total, 2, np.full((9, 1), 10), np.full((9, 1), 10))
    for text, least, most in (
        ("[kind = a] >= 2", 2, UNBOUNDED),
        ("3 <= [kind = a]", 3, UNBOUNDED),
        ("[kind = a] <= 4", 0, 4),
    ):
        stated = LinearConstraint.of(text, TREE, SCHEMA)
        by_constraint = Invariants(TREE, SCHEMA, (totals,), linear=(stated,))
        bounds = RegionBounds(kind, 2, np.full((9, 1), least), np.full((9, 1), most))
        by_bounds = Invariants(TREE, SCHEMA, (totals, bounds))
        for level in range(3):
            first, second = (each.constraints_of(TREE.level_range(level)) for each in (by_constraint, by_bounds))
            assert first is not None
            assert second is not None
            np.testing.assert_array_equal(first.upper, second.upper)
            np.testing.assert_array_equal(np.maximum(first.lower, 0), second.lower)
        assert minimal_schema.bounds_fall_short(by_constraint.system) == (most < UNBOUNDED)
    few = RegionBounds(kind, 2, np.zeros((9, 1), np.int64), np.full((9, 1), 4))
    many = LinearConstraint.of("[kind = a] >= 11", TREE, SCHEMA)
    with pytest.raises(InputError, match=r"exclude each other: .*is at most 4 in .*; '\[kind = a\] >= 11' in"):
        Invariants(TREE, SCHEMA, (few,), linear=(many,))


def test_no_cut_is_looked_for_after_the_time() -> None:
    measured = TableMeasurements.of(facilities(1))
    oracle = CutOracle(measured.invariants.system)
    town = measured.hierarchy.level_range(1)
    tables = np.full((len(town), SCHEMA.size), 10**6)
    assert Cutting(oracle).cut(town, tables)
    late = Cutting(oracle, deadline=0.0)
    assert not late.cut(town, tables)
    step = split_step(measured, TopdownMethod(implied="cuts", seed=1, time=7.0), SolverChoices())
    assert not step.implied.slow
    assert replace(step, cutting=late).implied.slow == "after 7 s no cuts were looked for, in 3 regions"
