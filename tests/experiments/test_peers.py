"""The comparisons with other systems on small data: every installed one answers, and who errs less is said first."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.peers import anonymised, isotonic, marginals, planner, ranges, reconciliation, strategies
from coco_experiments.peers.study import OURS, Result, System, missing, peer_table

from coco_opt.problems import IsotonicL1
from coco_opt.solving import solve
from tests.experiments.recorder import Recorder, small_run

TASKS = {"isotonic": isotonic, "marginals": marginals, "ranges": ranges, "reconciliation": reconciliation}


@pytest.mark.parametrize("name", TASKS)
def test_every_installed_system_answers(name: str, tmp_path: Path) -> None:
    outcome = TASKS[name].run(small=True, out=tmp_path, reporter=Recorder())  # type: ignore[attr-defined]
    assert outcome.ok
    for table in outcome.tables:
        names = {str(row["system"]).partition(":")[0] for row in table.records()}
        assert OURS in names
        assert len(names) > 1
        assert all(np.isfinite(float(row["seconds"])) for row in table.records())  # type: ignore[arg-type]
        assert "peer errs less" in table.notes[0]


def test_simulated_errors_of_every_tree_are_the_expected_ones(tmp_path: Path) -> None:
    outcome = small_run(strategies, tmp_path)
    rows = outcome.tables[0].records()
    over = {
        row["strategy"]: row["expected squared error over the bound"] for row in rows if row["budget"] == "rho = 1/8"
    }
    assert 1.0 < over['coco-opt: fan_out = "optimised"'] < over['coco-opt: fan_out = "auto"'] <= over["cells alone"]


@pytest.mark.parametrize("objective", planner.OBJECTIVES)
def test_the_closed_form_is_the_bound_from_singular_values(objective: planner.Objective) -> None:
    shape, sets = (2, 3, 4), [(0,), (0, 1), (1, 2)]
    cells = np.indices(shape).reshape(3, -1).T
    rows = []
    for chosen in sets:
        keys = cells[:, list(chosen)]
        marginal = (keys[None] == np.unique(keys, axis=0)[:, None]).all(axis=2).astype(float)
        rows.append(marginal if objective == "total" else marginal / np.sqrt(len(marginal) * len(sets)))
    values = np.linalg.svd(np.concatenate(rows), compute_uv=False)
    assert planner.closed_form(shape, sets, objective) == pytest.approx(values.sum() ** 2 / 24)


def test_planned_strategies_are_near_the_optimum(tmp_path: Path) -> None:
    outcome = planner.run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.ok
    assert len(outcome.tables[0].rows) == 24


def test_sizes_of_groups_err_by_the_order_of_the_best_possible_rate(tmp_path: Path) -> None:
    outcome = anonymised.run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.ok
    for row in outcome.tables[0].records():
        assert 0.01 < float(row["error over the rate"] or 0) < 5
    sizes = np.array([1, 2, 2, 7])
    for method in anonymised.METHODS.values():
        assert method(sizes, Fraction(100), 1).tolist() == sizes.tolist()


def test_a_network_simplex_finds_the_certified_optimum() -> None:
    pytest.importorskip("networkx")
    rng = np.random.default_rng(1)
    for size in rng.integers(1, 12, 40):
        y = rng.integers(-5, 6, size)
        problem, fitted = IsotonicL1(y), isotonic.network_simplex(y)
        assert problem.violation(fitted) == 0
        assert problem.objective(fitted) == solve(problem).objective


def test_errors_over_all_ranges_equal_their_list() -> None:
    rng = np.random.default_rng(1)
    truth, estimate = rng.integers(0, 9, 12), rng.normal(4, 2, 12)
    error = estimate - truth
    squares = [error[i:j].sum() ** 2 for i in range(12) for j in range(i + 1, 13)]
    assert ranges.errors(estimate, truth)[ranges.ALL] == pytest.approx(np.sqrt(np.mean(squares)))


def test_a_peer_that_errs_less_is_named_first_and_one_that_is_absent_with_its_installation() -> None:
    peer, absent = System("numpy", "theirs"), System("no-such-package", "theirs")
    results = [Result("d", System(OURS, "ours"), {"error": (2.0, 2.0)}, (1.0, 1.0))]
    assert peer_table("t", results).notes[0].startswith("No peer errs less")
    better = peer_table("t", [*results, Result("d", peer, {"error": (1.0, 1.5)}, (3.0, 3.0))])
    assert better.notes[0] == "A peer errs less: numpy: theirs on d, error: 1.25 against 2"
    assert better.records()[1]["times coco-opt's"] == 3.0
    level = Result("d", peer, {"error": (2.0, 2.02)}, (0.5, 0.5))
    faster = "A peer is faster at the same errors: numpy: theirs on d, 2 times as fast as coco-opt: ours"
    assert peer_table("t", [*results, level]).notes[1] == faster
    assert faster not in peer_table("t", [*results, Result("d", peer, {"error": (2.5, 2.5)}, (0.5, 0.5))]).notes
    assert missing([peer, absent]) == ["no-such-package is not installed and was left out: pip install no-such-package"]
