"""How implied constraints are enforced: chosen by predicted times, and the next one where one is slow."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coco_opt.choices import SolverChoices
from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.problems.table_rounding import TableRounding
from coco_opt.topdown import (
    UNBOUNDED,
    LinearConstraint,
    RegionBounds,
    TopdownMethod,
    estimate_tables,
    parse_query,
)
from coco_opt.topdown.estimating.implied import minimal_schema
from coco_opt.topdown.estimating.implied.choice import implied_choice, predicted_seconds
from coco_opt.topdown.estimating.implied.cuts import CutOracle, Cutting
from coco_opt.topdown.estimating.splitting.step import split_step
from coco_opt.topdown.feasibility.proof import Proof
from coco_opt.topdown.invariants import Invariants
from coco_opt.topdown.noisy_measurements import TableMeasurements
from tests.topdown.estimation import check_tables
from tests.topdown.test_minimal_schema import SCHEMA, TREE, facilities


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


def test_predictions_grow_with_regions_and_open_classes() -> None:
    seconds = []
    for leaves in (10, 1_000, 100_000):
        tree = Hierarchy.from_paths([("land", f"leaf {leaf}") for leaf in range(leaves)])
        texts = ["[kind = a] >= [kind = b]", "[age = minor] <= 2 * [age = adult]"]
        constraints = [LinearConstraint.of(text, tree, SCHEMA) for text in texts]
        seconds.append(predicted_seconds(minimal_schema.ConstraintSystem.of(tree, SCHEMA, [], constraints)))
    for method in ("minimal_schema", "cuts"):
        times = [row[method] for row in seconds]
        assert times == sorted(times)
        assert times[2] > 10 * times[1]


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


def test_rounding_and_failsafe_share_the_time() -> None:
    measured, solvers = TableMeasurements.of(facilities(1, rules=True)), SolverChoices()
    step = split_step(measured, TopdownMethod(seed=1, time=1200.0), solvers)
    assert 1190 < step.seconds_left <= 1200
    shared: Any = step.solvers.fresh().solver(TableRounding)
    assert shared.time_limit == shared.sweep_limit == 30.0  # twelve problems may take longer
    chosen, hurried = (
        split_step(measured, TopdownMethod(seed=1, time=24.0), choices)
        for choices in (SolverChoices({"table_rounding": "highs"}), solvers)
    )
    limited: Any = pickle.loads(pickle.dumps(hurried.solvers)).solver(TableRounding)
    assert 0.5 <= limited.time_limit == limited.sweep_limit < 6.0
    assert chosen.solvers.solver(TableRounding).name == "highs"
    assert replace(hurried, deadline=0.0).seconds_left == 1.0


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
