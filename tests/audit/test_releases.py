"""The audit of whole releases: residuals, scores, the table and its verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coco_opt.audit import (
    CAVEAT,
    AuditRow,
    GroupsMechanism,
    NeighbourPair,
    audit_groups,
    bulk_scores,
    lower_bound,
    neighbour_pair,
    released_runs,
)
from coco_opt.audit.plots import plot_losses
from coco_opt.audit.released import cumulative_residuals, score_places, up_to
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMethod
from coco_opt.groups.release import CONSISTENCIES, Consistency
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import PureBudget, SeededNoise, budget

BOUND = 6


def _pair() -> NeighbourPair:
    leaves = [CountOfCounts.from_ranks([0, 1, 1, 4]), CountOfCounts.from_ranks([0, 0, 1, 2, 2])]
    hierarchy = Hierarchy.from_paths([("all", "north"), ("all", "south")])
    return neighbour_pair([CountOfCounts.total(leaves), *leaves], hierarchy, BOUND)


def _mechanism(consistency: Consistency, epsilon: Fraction = Fraction(1), seed: int = 5) -> GroupsMechanism:
    levels = (Fraction(0), epsilon) if consistency == "bottom_up" else (epsilon / 2, epsilon / 2)
    return GroupsMechanism(
        ("cumulative", "cumulative"),
        PureBudget(epsilon, levels),
        BOUND,
        GroupsMethod(("l1", "l1"), consistency=consistency),
        lambda run: SeededNoise(1_000 * seed + run),
        SolverChoices(),
    )


@pytest.mark.parametrize("consistency", CONSISTENCIES)
def test_without_noise_the_release_is_exact_and_tells_everything(consistency: Consistency) -> None:
    pair = _pair()
    runs = released_runs(pair, _mechanism(consistency, Fraction(200)), 4)
    assert [residuals.values.tolist() for residuals in runs.residuals] == [[0.0], [0.0]]
    # Two regions differ, in one cumulative cell each: |d - d'| = 1 twice.
    assert runs.first[:, 0].tolist() == [-2.0] * 4
    assert runs.second[:, 0].tolist() == [2.0] * 4
    assert runs.first[:, 1].tolist() == [0.0] * 4
    assert runs.second[:, 1].tolist() == [2.0] * 4


@pytest.mark.parametrize("consistency", CONSISTENCIES)
def test_bulk_runs_release_what_single_runs_do(consistency: Consistency) -> None:
    pair, mechanism = _pair(), _mechanism(consistency)
    for seed in range(20):
        one = replace(mechanism, sources=lambda run, seed=seed: SeededNoise(2 * seed + run))
        single = released_runs(pair, one, 1)
        bulk = bulk_scores(pair, one, 1, one.sources)
        assert np.array_equal(single.first, bulk[0])
        assert np.array_equal(single.second, bulk[1])


def test_bulk_runs_post_process_each_distinct_answer_once() -> None:
    steps: list[tuple[int, int]] = []
    mechanism = _mechanism("bottom_up", Fraction(4))
    bulk_scores(_pair(), mechanism, 300, mechanism.sources, lambda *step: steps.append(step))
    totals = {total for _, total in steps}
    assert max(totals) < 300
    assert sum(done == total for done, total in steps) == 2


@pytest.mark.parametrize("consistency", CONSISTENCIES)
def test_releases_lose_no_more_than_they_claim(consistency: Consistency) -> None:
    mechanism = _mechanism(consistency)
    assert lower_bound(*bulk_scores(_pair(), mechanism, 150, mechanism.sources)).epsilon <= 1.0


def test_residuals_are_those_of_cumulative_counts_below_the_largest_group() -> None:
    truth, released = CountOfCounts.from_ranks([0, 1, 3]), CountOfCounts.from_ranks([1, 1, 5])
    assert cumulative_residuals(truth, released).tolist() == [-1, 0, 0]
    assert cumulative_residuals(CountOfCounts.empty(), released).size == 0
    assert up_to(released, 0) == 0
    assert up_to(released, 4) == 2
    assert score_places(_pair(), BOUND) == [(0, 4, 9, 8), (1, 4, 4, 3)]


def test_audit_has_a_row_for_everything() -> None:
    told: list[tuple[int, int]] = []
    found = audit_groups(_pair(), _mechanism("matching"), draws=4_000, runs=40, progress=lambda *s: told.append(s))
    assert [row.what for row in found.rows] == [
        "measurement, level 0 (cumulative)",
        "measurement, level 1 (cumulative)",
        "all measurements together",
        "release (matching), level 0",
        "release (matching), level 1",
        "release (matching), direct",
    ]
    assert [row.claimed for row in found.rows] == [Fraction(1, 2)] * 2 + [Fraction(1)] * 4
    assert [row.estimate is not None for row in found.rows] == [False] * 3 + [True] * 2 + [False]
    assert [row.bound is not None for row in found.rows] == [True] * 3 + [False] * 2 + [True]
    assert found.violated == ()
    assert told[-1] == (40, 40)
    assert set(found.losses) == {row.what for row in found.rows if row.estimate is not None}
    together = found.rows[2].bound
    assert together is not None
    assert 0.5 < together.epsilon <= 1.0
    json.dumps([row.as_dict() for row in found.rows], allow_nan=False)


def test_bottom_up_measures_the_leaves_only() -> None:
    found = audit_groups(_pair(), _mechanism("bottom_up"), draws=2_000, runs=2)
    assert [row.what for row in found.rows][:2] == [
        "measurement, level 1 (cumulative)",
        "release (bottom_up), level 0",
    ]


def test_sides_share_no_noise() -> None:
    opened: list[int] = []

    def source(number: int) -> SeededNoise:
        opened.append(number)
        return SeededNoise(number)

    audit_groups(_pair(), replace(_mechanism("matching"), sources=source), draws=10, runs=3)
    assert opened == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]  # two levels' draws, then the releases, under other labels


def test_too_little_noise_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(budget._UNIT_SENSITIVITY, "naive", 1)
    mechanism = replace(_mechanism("none"), queries=("naive", "naive"))
    found = audit_groups(_pair(), mechanism, draws=20_000, runs=2)
    assert [row.what for row in found.violated] == [
        "measurement, level 0 (naive)",
        "measurement, level 1 (naive)",
        "all measurements together",
    ]


def test_equal_residuals_leave_no_estimate() -> None:
    found = audit_groups(_pair(), _mechanism("none", Fraction(200)), draws=10, runs=2)
    rows = [row for row in found.rows if row.note]
    assert [(row.estimate, row.note) for row in rows] == [(None, "all residuals are equal")] * 2
    assert found.losses == {}


def test_a_row_without_a_bound_violates_nothing() -> None:
    assert not AuditRow("what", Fraction(1), 1, estimate=9.0).violated


def test_plots_are_written_and_carry_no_date(tmp_path: Path) -> None:
    found = audit_groups(_pair(), _mechanism("none"), draws=10, runs=20)
    files = plot_losses(tmp_path / "deep" / "audit", found.losses, 1.0)
    assert [file.name for file in files] == ["audit.png", "audit.pdf"]
    before = [file.read_bytes() for file in files]
    assert before[0].startswith(b"\x89PNG")
    assert [file.read_bytes() for file in plot_losses(tmp_path / "audit", found.losses, 1.0)] == before
    assert "neither an upper nor a lower bound" in CAVEAT


def test_plot_of_nothing_is_drawn(tmp_path: Path) -> None:
    assert all(file.stat().st_size > 1_000 for file in plot_losses(tmp_path / "audit", {}, 1.0))
