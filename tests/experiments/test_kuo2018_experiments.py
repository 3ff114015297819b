"""Every experiment of the paper on small simulated data: its files, its tables, and what its checks reject."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from coco_experiments import curves, plots
from coco_experiments.kuo2018 import (
    datasets,
    figure1,
    figure4,
    figure5,
    figure6,
    joint,
    mean_consistency,
    naive,
    private_counts,
    selection,
    sweep,
    variances,
)
from coco_experiments.kuo2018.cases import Case, small_cases, top
from coco_experiments.kuo2018.draws import Draws
from coco_experiments.kuo2018.noisy_answers import split_evenly
from coco_experiments.kuo2018.table3 import CLIPPED, small_data_set
from coco_experiments.looks import looks
from coco_experiments.outcome import Table
from coco_experiments.simulated import generated_counts
from coco_experiments.statistics import Mean
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt.groups import GroupsMethod, estimate_groups
from coco_opt.groups.estimating.joint import joint as joint_estimate
from coco_opt.groups.measuring.sizes import read_sizes
from coco_opt.histograms import errors_by_level
from tests.experiments.recorder import Recorder
from tests.groups.helpers import assert_consistent, measured, three_levels

EXPERIMENTS = (
    datasets,
    figure1,
    figure4,
    figure5,
    figure6,
    joint,
    mean_consistency,
    naive,
    private_counts,
    selection,
    variances,
)


@pytest.fixture
def case() -> Case:
    return Case.of("made", generated_counts(2, 2, 60, 25, np.random.default_rng(8)), 50)


@pytest.mark.parametrize("module", EXPERIMENTS, ids=lambda module: module.__name__.split(".")[-1])
def test_small_runs_write_csv_png_and_pdf(module: ModuleType, tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = module.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok, outcome.failures
    assert recorder.tables
    assert set(recorder.tables) <= set(outcome.tables)
    assert sorted(outcome.files) == sorted(tmp_path.glob("kuo2018/*"))
    assert {file.suffix for file in outcome.files} == {".csv", ".png", ".pdf"}
    own = tmp_path / f"{module.NAME}.csv"
    assert len(own.read_text().splitlines()) == len(outcome.tables[0].rows) + 1
    assert all(len(row) == len(table.columns) for table in outcome.tables for row in table.rows)


def test_figure1_splits_the_distance_by_size() -> None:
    case = top(small_cases()[1], 1)
    draws = Draws(case, 1)
    for estimator, query in (("Hg", "ranks"), ("Hc", "cumulative")):
        (estimate,) = draws.level(0, query, Fraction(1))
        gaps = figure1.gaps(draws, estimator)
        assert gaps[-1] == 0
        assert estimate.histogram.groups == case.truth[0].groups
        assert np.abs(gaps).sum() > 0
    bound = figure1.small_up_to(case)
    cumulative = case.truth[0].cumulative(case.max_size)
    assert cumulative[bound] >= 0.9 * case.truth[0].groups > cumulative[bound - 1]


def test_figure1_draws_every_step_of_the_error() -> None:
    case = top(small_cases()[0], 1)
    panel = figure1.panels(case, 1)[1]
    (line,) = panel.curves
    gaps = figure1.gaps(Draws(case, 1), "Hc")[: case.truth[0].max_size + 1]
    at = np.searchsorted(np.array(line.x), np.arange(gaps.size), side="right") - 1
    assert np.array_equal(np.array(line.y)[at], gaps)


def test_naive_knows_the_published_sizes() -> None:
    # 0.96 K^2 / 2 reaches the error published for Hawaiian at this K, and gives K back from its own distance.
    assert naive.clipped_mean() == pytest.approx(0.96, abs=0.005)
    assert naive.size_for(4_027_891_692.0) == pytest.approx(91_700, rel=0.002)
    assert naive.size_for(naive.expected_clipped(100_000)) == pytest.approx(100_000, rel=1e-4)


def test_naive_reports_claims_that_do_not_hold() -> None:
    good = naive._row(replace(small_data_set(), published={CLIPPED: 2e6}), Mean(2e6, 1.0, 5), Mean(1e4, 1.0, 5))
    assert naive.failures_in(Table("t", naive.COLUMNS, (good,))) == ()
    bad = naive._row(small_data_set(), Mean(2e5, 1.0, 5), Mean(1e5, 1.0, 5))
    assert len(naive.failures_in(Table("t", naive.COLUMNS, (bad,)))) == 2


@pytest.mark.parametrize("rule", [selection.NOISY_MIN, selection.RANDOM_STOPPING])
def test_selection_costs_exactly_the_stated_total(case: Case, rule: str) -> None:
    found = selection.select(case, rule, 1)
    assert found.epsilon == selection.TOTAL
    assert found.candidate.name in {" x ".join(choice) for choice in selection.choices_of(3)}
    assert [one.groups for one in found.histograms] == case.counts.group_counts.tolist()


def test_selection_prices_are_relative_to_the_best_known_method() -> None:
    def result(method: str, chosen: str, value: float) -> selection.Result:
        return selection.Result("d", method, Fraction(1), chosen, (Mean(value, 1.0, 3),), Mean(value, 1.0, 3))

    rows = selection.table_of([result("a", "-", 10.0), result("b", "-", 40.0), result("s", "a (3)", 25.0)]).records()
    assert [row["times the best method"] for row in rows] == [1.0, 4.0, 2.5]


def test_mean_consistency_sums_up_but_is_no_histogram(case: Case) -> None:
    for name, found in mean_consistency.tables_of(Draws(case, 2)).items():
        children = np.add.reduceat(found.table[3:], [0, 2], axis=0)
        assert found.table[1:3] == pytest.approx(children)
        assert found.negative > 0
        assert found.fractional > 0
        wrong = mean_consistency.wrong_totals(case, found)
        assert wrong == (0 if name == mean_consistency.ESTIMATED else 7)


def test_mean_consistency_that_does_not_fail_is_reported() -> None:
    row = ("d", mean_consistency.NOISY, 0, 1.0, 0.1, 0.0, 3.0, -1.0, 0.0)
    assert len(mean_consistency.failures_in(Table("t", mean_consistency.COLUMNS, (row,)))) == 1


def test_joint_measures_before_and_after_rounding(case: Case) -> None:
    draws = Draws(case, 3)
    noisy = draws.measurement("cumulative", split_evenly(Fraction(1), 3))
    found = joint_estimate(noisy, draws.solvers, loss="l1")
    before = joint.before_rounding(case, found)
    whole = replace(found, fitted=found.cumulative.astype(np.float64))
    (rounded,) = (r for r in joint.results_of(case, ("l1",), (3,), Recorder()) if r.method == joint.ROUNDED)
    assert joint.before_rounding(case, whole) == tuple(mean.value for mean in rounded.means)
    assert joint.integer_share(whole) == 100.0
    assert len(before) == 3


def test_joint_sets_the_prototype_beside_the_same_size_only() -> None:
    means = tuple(Mean(value, 1.0, 5) for value in (6_000.0, 5_000.0, 2_000.0))
    near = joint.Result("Taxi", 5_000, joint.ROUNDED, means)
    far = replace(near, max_size=100_000)
    rows = joint.table_of([near, far]).records()
    assert [row["reached"] for row in rows] == [True, False, True, None, None, None]
    assert joint.REFERENCES["Taxi"][joint.ROUNDED][0] == rows[0]["prototype"]


def test_sweeps_of_the_figures_name_their_methods_once() -> None:
    for methods in (figure4.METHODS, figure5.METHODS, figure6.METHODS):
        assert len({method.name for method in methods}) == len(methods)
    plan = datasets.Plan(1, 1, 1)
    assert len(datasets.methods_of(3, plan)) == 8 + 1 + 3 + 2 + 2 + 2
    assert len(datasets.methods_of(4, replace(plan, joint=0, convex=0))) == 6 + 1 + 3 + 2


def test_figure4_gains_compare_the_same_combination() -> None:
    case = top(small_cases()[0], 2)
    points = sweep.sweep(case, figure4.METHODS, (Fraction(2),), (1,), Recorder())
    errors = {point.method: point.means[0].value for point in points}
    gains = figure4.gains(points).records()
    assert [row["combination"] for row in gains] == [m.name for m in figure4.METHODS[::2]]
    for row in gains:
        plain = errors[f"{row['combination']}, average half up"]
        assert row["average / weighted, level 0"] == pytest.approx(plain / errors[str(row["combination"])])


def test_variances_are_compared_on_the_same_measurements(case: Case) -> None:
    means = variances.compare(case, ("Hc", "Hc", "Hg"), (1, 2), 3)
    assert set(means) == {"paper", "bootstrap", "oracle", "average"}
    rows = variances.rows_of(case, ("Hc", "Hc", "Hg"), means)
    assert [row[-1] for row in rows[:3]] == [1.0, 1.0, 1.0]
    assert rows[3][-1] == pytest.approx(means["bootstrap"][0].value / means["paper"][0].value)


def test_a_series_has_one_look_in_every_panel() -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    styles = looks(["first", "second", "third"])
    plots._draw(axes, plots.Panel(("a",), {"third": (1.0,)}), styles, log=True)
    (container,) = axes.containers
    assert container.lines[0].get_color() == styles["third"].colour
    assert len({look.colour for look in styles.values()}) == 3


def test_a_method_looks_the_same_in_all_figures_and_its_variants_are_hollow() -> None:
    level, levels = looks(["matching Hc x Hc", "omniscient"]), looks(["bottom-up Hc", "matching Hc x Hc x Hc"])
    assert level["matching Hc x Hc"] == levels["matching Hc x Hc x Hc"]
    first, second = looks(["matching Hc x Hg", "matching Hc x Hg, average half up"]).values()
    assert (first.colour, first.mark, first.hollow, second.hollow) == (second.colour, second.mark, False, True)
    assert looks(["exact H~, unrounded"]).popitem()[1].colour == looks(["H~"])["H~"].colour


def test_names_beside_lines_keep_apart_and_inside() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        heights = np.sort(rng.random(6))
        spread = curves._spread(heights, 0.1)
        assert np.all(np.diff(spread) >= 0.1 - 1e-12)
        assert spread[-1] <= 1.0 + 1e-12
    assert curves._spread(np.array([0.2, 0.8]), 0.1).tolist() == [0.2, 0.8]


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_every_kind_of_variances_gives_a_consistent_release(seed: int) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(seed))
    noisy = measured(hierarchy, truth, seed=seed)
    method = GroupsMethod(losses=("l1",) * 3, consistency="matching")
    found = variances.compare_variances(noisy, truth, method, rng=np.random.default_rng(seed), replicates=2)
    assert tuple(found) == variances.VARIANCES
    for histograms in found.values():
        assert_consistent(hierarchy, truth, histograms)
    plain = estimate_groups(noisy, method).histograms
    assert all(a.equals(b) for a, b in zip(found["paper"], plain, strict=True))


@pytest.mark.slow
def test_better_variances_merge_better_on_taxi(shared_data: Path) -> None:
    """Three seeds, K = 5,000, epsilon 1 split evenly: 9,960 becomes 9,290 at the root, 5,954 becomes 5,581 below."""
    taxi = read_sizes(shared_data / "kuo2018" / "taxi_neighbourhoods.csv")
    truth = taxi.histograms()
    sums: dict[str, Any] = {}
    for seed in (2018, 2019, 2020):
        noisy = measured(taxi.hierarchy, truth, seed=seed, max_size=5_000)
        rng, method = np.random.default_rng(seed), GroupsMethod(losses=("l1",) * 3, consistency="matching")
        for kind, histograms in variances.compare_variances(noisy, truth, method, rng=rng).items():
            sums[kind] = sums.get(kind, 0.0) + errors_by_level(taxi.hierarchy, histograms, truth) / 3
    assert (sums["bootstrap"][:2] < 0.97 * sums["paper"][:2]).all()
    assert (sums["oracle"] < sums["bootstrap"]).all()
    assert (sums["bootstrap"] < sums["average"]).all()
