"""Choosing between ranks and cumulative counts by a noisy number a level: its sensitivity, its sense, its payment."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt import Epsilon, Hierarchy, SeededNoise, configure, estimate, measure, read_measurement, write_measurement
from coco_opt.errors import BudgetError, ConfigError, ProblemError
from coco_opt.groups.choice import UNIT, choice_query, chosen_queries, lead_of_ranks, noisy_leads
from coco_opt.groups.measuring.measure import choice_of, measured, measurement_plan_of
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import NEIGHBOURS, Neighbours
from coco_opt.releases import choose
from tests.cli.helpers import SECURE, Runner, paid, write_groups
from tests.groups.test_queries import neighbours_of


def lead(sizes: tuple[int, ...], clamp: int) -> float:
    """Compute the lead from its definition, run by run, on group sizes clamped to ``clamp``."""
    ranked = sorted(min(size, clamp) for size in sizes)
    cumulative = [sum(size <= bound for size in ranked) for bound in range(clamp)]
    # A size that groups have begins a run of Hc, also where it is 0 or has the value that Hc begins with.
    return sum(math.sqrt(cumulative.count(value)) for value in set(cumulative)) - sum(
        math.sqrt(ranked.count(value)) for value in set(ranked)
    )


@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=12).map(tuple), clamp=st.integers(1, 12))
def test_the_lead_is_its_definition_rounded_down_root_by_root(sizes: tuple[int, ...], clamp: int) -> None:
    result = lead_of_ranks(CountOfCounts.from_ranks(list(sizes)), clamp)
    assert abs(result - UNIT * lead(sizes, clamp)) < 1 + len(set(sizes))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("clamp", [1, 2, 5, 9])
def test_one_entity_changes_the_lead_of_a_level_by_no_more_than_is_declared(neighbours: Neighbours, clamp: int) -> None:
    declared = choice_query(1, neighbours, Epsilon(Fraction(1))).sensitivity
    assert declared is not None
    exact, rounded = 0.0, 0
    for groups in range(1, 5):
        for sizes in combinations_with_replacement(range(7), groups):
            before = lead_of_ranks(CountOfCounts.from_ranks(list(sizes)), clamp)
            for other in neighbours_of(sizes, neighbours):
                after = lead_of_ranks(CountOfCounts.from_ranks(list(other)), clamp)
                rounded = max(rounded, abs(after - before))
                exact = max(exact, abs(lead(other, clamp) - lead(sizes, clamp)))
    times = 2 if neighbours == "replace" else 1
    assert exact <= times + 1e-12
    assert rounded <= declared.l1
    assert declared.l1 <= times * (UNIT + 4)
    assert declared.l2_squared == declared.l1**2


@given(
    runs=st.dictionaries(st.integers(0, 60), st.integers(1, 10**9), min_size=1, max_size=8),
    moved=st.integers(0, 7),
    clamp=st.integers(1, 60),
)
def test_large_groups_of_groups_keep_the_bound(runs: dict[int, int], moved: int, clamp: int) -> None:
    size = sorted(runs)[moved % len(runs)]
    after = {**runs, size: runs[size] - 1, size + 1: runs.get(size + 1, 0) + 1}
    both = [CountOfCounts.from_runs(sizes=sorted(one), counts=[one[k] for k in sorted(one)]) for one in (runs, after)]
    assert abs(lead_of_ranks(both[0], clamp) - lead_of_ranks(both[1], clamp)) <= UNIT + 4


def test_every_level_adds_to_what_asking_costs() -> None:
    single, three = (choice_query(levels, "replace", Epsilon(Fraction(1))).sensitivity for levels in (1, 3))
    assert single is not None
    assert three is not None
    assert three.l1 == 3 * single.l1
    assert three.l2_squared == 3 * single.l1**2


TREE = Hierarchy.from_paths([("nation", f"part {k}") for k in range(3)])
DENSE = CountOfCounts.from_runs(sizes=list(range(1, 60)), counts=list(range(9_000, 3_100, -100)))
SPARSE = CountOfCounts.from_runs(sizes=[2, 700], counts=[5, 1])


def choice_on(leaves: list[CountOfCounts], epsilon: Fraction, seed: int = 1) -> tuple[str, ...]:
    truth = [leaves[0] + leaves[1] + leaves[2], *leaves]
    groups = [histogram.groups for histogram in truth]
    costs = [Epsilon(epsilon)] * 2
    measurement_plan = measurement_plan_of(
        TREE, groups, queries=["cumulative"] * 2, costs=costs, max_size=900, neighbours="add_remove"
    )
    return chosen_queries(measured(choice_of(measurement_plan, Epsilon(epsilon)), truth, SeededNoise(seed)))


def test_many_groups_of_many_sizes_are_asked_by_size_and_few_far_apart_by_rank() -> None:
    assert choice_on([DENSE] * 3, Fraction(1, 10)) == ("cumulative", "cumulative")
    assert choice_on([SPARSE] * 3, Fraction(1)) == ("ranks", "ranks")


def test_levels_choose_for_themselves() -> None:
    sizes = np.arange(1, 900, 3)
    leaves = [CountOfCounts.from_runs(sizes=sizes[k::3].tolist(), counts=[4] * 100) for k in range(3)]
    result = choice_on(leaves, Fraction(100))
    assert result == ("cumulative", "ranks"), [
        lead_of_ranks(histogram, 900) / UNIT for histogram in (sum(leaves[1:], leaves[0]), *leaves)
    ]


def test_private_numbers_of_groups_leave_no_choice() -> None:
    measurement_plan = measurement_plan_of(
        TREE,
        None,
        queries=["cumulative"] * 2,
        costs=[Epsilon(Fraction(1))] * 2,
        max_size=9,
        neighbours="add_remove",
        counts_share=Fraction(1, 10),
    )
    with pytest.raises(ProblemError, match="no choice"):
        choice_of(measurement_plan, Epsilon(Fraction(1)))


def test_a_choice_is_paid_once_and_what_is_left_pays_the_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coco = Runner(capsys)
    config = write_groups(tmp_path, privacy=SECURE)
    ran = coco("choose", config)
    assert ran.code == 0, ran
    assert 'epsilon = "49/50"' in ran.out
    assert paid(tmp_path) == ["GRANTED", "RESERVED", "MEASURED"]
    again = coco("choose", config)
    assert "paid for before" in again.out
    assert paid(tmp_path) == ["GRANTED", "RESERVED", "MEASURED"]
    # The whole budget is refused now, what is left of it is not, and then nothing is left.
    assert coco("release", config).code == 3
    text = config.read_text(encoding="utf-8").replace('epsilon = "1"', 'epsilon = "49/50"')
    config.write_text(
        text.replace("max_size = 20", 'max_size = 20\nquery = ["cumulative", "ranks"]\nconsistency = "matching"'),
        encoding="utf-8",
    )
    assert coco("release", config).code == 0
    assert coco("choose", config, "--share", "1/3").code == 3
    (folder,) = (tmp_path / "releases").iterdir()
    assert coco("verify", folder, "--ledger", config).code == 0


def test_what_was_sealed_is_read_again_published_and_chosen_from(tmp_path: Path) -> None:
    config = configure(folder=tmp_path, **_sections(tmp_path))
    result = choose(config)
    write_measurement(tmp_path / "open", result.measured.measurement, private=False)
    again, _ = read_measurement(tmp_path / "open")
    assert noisy_leads(again) == noisy_leads(result.measured.measurement)
    assert result.left == Epsilon(Fraction(49, 50))
    with pytest.raises(ConfigError, match="nothing of sizes"):
        estimate(again)
    with pytest.raises(ProblemError, match="does not contain the lead"):
        noisy_leads(measure(configure(config, privacy={"epsilon": "49/50"})).measurement)


def test_what_cannot_be_chosen_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    sections = _sections(tmp_path)
    for share in (Fraction(0), Fraction(1)):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            choose(configure(folder=tmp_path, **sections), share)
    pair = {"mechanism": "discrete_gaussian", "epsilon": "1", "delta": "1/1000000", "dataset": "land"}
    with pytest.raises(ConfigError, match="state rho"):
        choose(configure(folder=tmp_path, **{**sections, "privacy": pair}))
    assert paid(tmp_path) == []


def test_rho_is_shared_likewise_and_a_stated_total_stands(tmp_path: Path) -> None:
    privacy = {"mechanism": "discrete_gaussian", "rho": "1/2", "total": "1/2", "dataset": "land"}
    config = configure(folder=tmp_path, **{**_sections(tmp_path), "privacy": privacy})
    result = choose(config, Fraction(1, 10))
    assert str(result.left.amount) == "9/20"
    assert result.measured.measurement.cost.amount == Fraction(1, 20)
    with pytest.raises(BudgetError):
        measure(config)


def _sections(folder: Path) -> dict[str, dict[str, object]]:
    write_groups(folder)
    files = {key: f"{key}.csv" for key in ("entities", "groups", "hierarchy")}
    return {"data": files, "privacy": {"epsilon": "1", "dataset": "land"}, "groups": {"max_size": 20}}
