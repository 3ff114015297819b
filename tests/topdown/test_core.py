"""The minimal schema: classes of cells for all regions at once, against dense programs, and exact below."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Measurement
from coco_opt.topdown import LinearConstraint, RegionBounds, Schema, TopdownMethod, estimate_tables, parse_query
from coco_opt.topdown.answers import TableAnswers
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.estimated import core
from coco_opt.topdown.estimated.step import implied_by, split_step
from coco_opt.topdown.estimated.unproved import Tally
from coco_opt.topdown.facts.presolve import tightened
from coco_opt.topdown.facts.system import FactSystem, infinite
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
    facts = RegionBounds(kinds, 2, counts, np.where(counts > 0, UNBOUNDED, 0))
    linear = []
    if rules:
        table = people.reshape(9, 8)
        most = int((table[:, 1] - 2 * table[:, 2]).max())
        linear.append(
            LinearConstraint.of(f"[kind = a & age = adult] - 2*[kind = b & age = minor] <= {most}", TREE, SCHEMA)
        )
    queries = ["total", "kind", "detail"]
    return measured(seed, TREE, SCHEMA, people.reshape(9, 8), queries, 2, [("total", 2)], [facts], linear)


@pytest.mark.parametrize("rules", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_tables_hold_without_any_failsafe(seed: int, rules: bool) -> None:
    measurement = facilities(seed, rules=rules)
    measured_, method = TableAnswers.of(measurement), TopdownMethod()
    assert implied_by(measured_, method) == "minimal_schema"
    result = estimate_tables(measurement, method)
    check_tables(measurement, result)
    assert not result.relaxed
    assert not result.unproved
    assert (result.implied.method, result.implied.classes) == ("minimal_schema", 6 if rules else 4)
    again = estimate_tables(measurement, method, threads=2)
    for level in range(3):
        np.testing.assert_array_equal(again.level(level), result.level(level))


def test_the_classes_are_the_least_squares_of_all_answers_within_all_facts() -> None:
    measurement = facilities(4)
    measured_ = TableAnswers.of(measurement)
    system = measured_.invariants.system
    lower, upper = tightened(system)
    fitted = core._fitted(measured_, system, lower, upper, SolverChoices(), Tally())
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


def test_every_class_of_every_region_is_next_to_its_fit() -> None:
    for seed in range(6):
        measured_ = TableAnswers.of(facilities(seed))
        system = measured_.invariants.system
        fitted = core._fitted(measured_, system, *tightened(system), SolverChoices(), Tally())
        step = split_step(measured_, TopdownMethod(seed=3), SolverChoices())
        assert step.core is not None
        for level in range(3):
            assert (np.abs(step.core.levels[level] - system.sums(fitted, level)) < 1.0 + 1e-5).all()


def test_where_every_solver_fails_whole_tables_that_hold_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    measurement = facilities(1, rules=True)
    monkeypatch.setattr(core, "round_leaves", lambda *_: None)
    result = estimate_tables(measurement, TopdownMethod(), SolverChoices(fallback=True))
    check_tables(measurement, result)
    assert result.unproved.unknown == 1


def test_bounds_serve_where_they_suffice_and_cuts_where_classes_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = np.full((9, 8), 2)
    totals = TableAnswers.of(measured(0, TREE, SCHEMA, leaves, ["detail"], 2, [("total", 2)]))
    assert implied_by(totals, TopdownMethod()) == "bounds"
    several = TableAnswers.of(facilities(0))
    assert implied_by(several, TopdownMethod(implied="cuts")) == "cuts"
    monkeypatch.setattr(core, "MOST_UNKNOWNS", 10)
    assert implied_by(several, TopdownMethod()) == "cuts"
    assert implied_by(TableAnswers.of(measured(0, TREE, SCHEMA, leaves, ["detail"])), TopdownMethod()) == "bounds"
    with pytest.raises(ProblemError, match="implied must be one of"):
        TopdownMethod(implied="cut")  # type: ignore[arg-type]


def test_a_failsafe_without_room_ends_with_the_minimal_schema() -> None:
    # Noise at the town leaves its parts no room: only the whole tree at once has it.
    rng = np.random.default_rng(2)
    tree = Hierarchy.from_paths([("r", f"p{leaf // 4}", f"l{leaf}") for leaf in range(12)])
    schema = Schema({"a": ["x", "y", "z"], "b": ["0", "1"]})
    leaves = rng.poisson(1.5, (12, 6))
    a, b = parse_query("a", schema), parse_query("b", schema)
    facts = [RegionBounds.exact(query, 2, query.operator.apply(leaves)) for query in (a, b)]
    facts = [RegionBounds(one.query, 2, one.lower, one.upper) for one in facts]
    measurement = measured(2, tree, schema, leaves, ["detail"], Fraction(1, 4), [], facts)
    for implied in ("bounds", "cuts", "auto"):
        method = TopdownMethod("classic", implied=implied)  # type: ignore[arg-type]
        check_tables(measurement, estimate_tables(measurement, method, SolverChoices(fallback=True)))


@pytest.mark.parametrize("implied", ["minimal_schema", "cuts"])
def test_a_resumed_run_keeps_its_classes_and_cuts_and_solves_nothing_twice(implied: str, tmp_path: Path) -> None:
    measurements, method = facilities(2, rules=True), TopdownMethod(implied=implied)  # type: ignore[arg-type]
    for level in range(2):
        solvers, folder = SolverChoices(), tmp_path / str(level)
        files = LevelFiles(folder, solvers)
        whole = estimate_tables(
            measurements,
            method,
            solvers,
            after_level=lambda done, files=files, level=level: level != done.level or files.keep(done),
        )
        again = SolverChoices()
        resumed = estimate_tables(measurements, method, again, resume_from=LevelFiles(folder, again).last())
        assert whole.implied == resumed.implied
        assert whole.implied.method == implied
        assert whole.implied.cuts == (implied == "cuts")
        for at in range(3):
            np.testing.assert_array_equal(whole.level(at), resumed.level(at))
        solved = [[replace(one, seconds=0.0) for one in done.certificates] for done in (whole, resumed)]
        assert solved[0] == solved[1]


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
    facts = FactSystem.of(tree, SCHEMA, [], [LinearConstraint.of(text, tree, SCHEMA) for text in texts])
    lower, upper = tightened(facts)
    assert (lower == 0).all()
    assert (upper[0, :2] == [999999999999, largest * 999999999999]).all()
    assert (upper[0, 2:] >= 2**60).all()  # c and d can be that many: no side may cut them off
