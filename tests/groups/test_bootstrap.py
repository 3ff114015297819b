"""Bootstrap variances: against ranks written out, against known laws, and that merging with them helps on Taxi."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt import CountOfCounts, GroupsMethod, SeededNoise, SolverChoices, emd
from coco_opt.config import Config
from coco_opt.errors import ProblemError
from coco_opt.groups import FitOptions, SizeEstimate, estimate, estimate_groups, release
from coco_opt.groups.bootstrap import (
    VARIANCES,
    bootstrap_variances,
    compare_variances,
    errors_by_level,
    public_redraws,
    squared_errors,
    with_errors,
)
from coco_opt.groups.estimators import noise_variance
from coco_opt.privacy import Measurement, Measurements, RunKey, measure, measure_hierarchy
from coco_opt.runs import release as run_module
from coco_opt.runs import run_release
from coco_opt.runs.predict import forecast
from coco_opt.runs.publish import folder_digest
from tests.groups.test_groups import MAX_SIZE, NoNoise, assert_consistent, three_levels
from tests.runs.test_release import held
from tests.runs.test_release import settings as release_settings

SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=30)


@given(SIZES, st.randoms(use_true_random=False), st.integers(1, 5))
def test_squared_errors_match_groups_by_rank(sizes: list[int], random: Any, cuts: int) -> None:
    ranks = np.sort(np.array(sizes, np.int64))
    other = CountOfCounts.from_ranks([max(0, size + random.randint(-3, 3)) for size in sizes])
    # Runs of one size may be cut, as those of a rank estimate are.
    bounds = np.unique([0, *np.flatnonzero(np.diff(ranks)) + 1, *random.choices(range(ranks.size), k=cuts), ranks.size])
    counts = np.diff(bounds).astype(np.int64)
    estimated = SizeEstimate(ranks[bounds[:-1]], counts, np.ones(counts.size))
    expected = np.add.reduceat((ranks - other.ranks()) ** 2.0, bounds[:-1])
    np.testing.assert_allclose(squared_errors(estimated, other), expected)


def test_squared_errors_need_equal_numbers_of_groups() -> None:
    one, two = CountOfCounts.from_runs([3], [4]), CountOfCounts.from_runs([3], [5])
    with pytest.raises(ProblemError, match="same number of groups"):
        squared_errors(SizeEstimate.from_histogram(one, 1.0), two)
    empty = SizeEstimate.from_histogram(CountOfCounts.empty(), 0.0)
    assert squared_errors(empty, CountOfCounts.empty()).size == 0


def answer(histogram: CountOfCounts, query: str, source: Any, **settings: Any) -> Measurement:
    given: dict[str, Any] = {"max_size": MAX_SIZE, "loss": "l1", "neighbours": "add_remove", **settings}
    if "rho" not in given:
        given.setdefault("epsilon", Fraction(1))
    return measure(histogram, query, region="n", groups=histogram.groups, source=source, **given)


def booted(measurement: Measurement, options: FitOptions, seed: int = 0, replicates: int = 200) -> SizeEstimate:
    solvers = SolverChoices()
    found = estimate(measurement, options, solvers)
    rng = np.random.default_rng(seed)
    return bootstrap_variances(measurement, found, options, solvers, rng=rng, replicates=replicates)


LAWS: list[dict[str, Any]] = [
    {"epsilon": Fraction(1, 40)},
    {"epsilon": Fraction(1, 40), "neighbours": "replace"},
    {"rho": Fraction(1, 3_200)},
]


@pytest.mark.parametrize("law", LAWS)
def test_a_lone_group_keeps_the_variance_of_its_noise(law: dict[str, Any]) -> None:
    """One group far from both bounds: its size's error is the noise itself, whatever the law."""
    measurement = answer(CountOfCounts.from_runs([5_000], [1]), "rank", NoNoise2(), max_size=10_000, **law)
    found = booted(measurement, FitOptions("l2"))
    assert found.sizes.tolist() == [5_000]
    assert found.variances[0] == pytest.approx(noise_variance(measurement), rel=0.3)


class NoNoise2(NoNoise):
    """No noise of either law."""

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> NoNoise:
        return self


@pytest.mark.parametrize("query", ["naive", "rank", "cumulative"])
def test_it_finds_the_squared_error_of_the_same_truth(query: str) -> None:
    """From the truth itself the bootstrap's total is the expected squared error over fresh noise."""
    histogram = CountOfCounts.from_runs([1, 2, 5, 9], [60, 30, 10, 2])
    options = FitOptions("l2" if query == "rank" else "l1")
    exact = answer(histogram, query, NoNoise())
    found = booted(exact, options)
    assert found.histogram.equals(histogram)
    fresh = [estimate(answer(histogram, query, SeededNoise(s)), options, SolverChoices()) for s in range(200)]
    ranks = histogram.ranks()
    error = np.mean([np.sum((one.histogram.ranks() - ranks) ** 2) for one in fresh])
    total = float(found.counts @ found.variances)
    assert total == pytest.approx(error, rel=0.3)


def test_pooled_answers_are_drawn_pooled_again() -> None:
    histogram = CountOfCounts.from_runs([1, 5], [40, 10])
    raw, pooled = (answer(histogram, "rank", SeededNoise(1), loss="l2", raw_limit=limit) for limit in (100, 5))
    assert pooled.pooled
    one, two = (booted(measurement, FitOptions("l2"), replicates=20) for measurement in (raw, pooled))
    np.testing.assert_array_equal(one.sizes, two.sizes)
    np.testing.assert_allclose(one.variances, two.variances)


def test_variances_repeat_with_the_generator_and_are_never_zero() -> None:
    histogram = CountOfCounts.from_runs([1, 2, 5], [300, 200, 50])
    sharp = answer(histogram, "cumulative", SeededNoise(1), epsilon=Fraction(50))
    found = booted(sharp, FitOptions(), replicates=20)
    np.testing.assert_allclose(found.variances, 1 / (20 * found.counts + 1))  # no replicate differed
    noisy = answer(histogram, "cumulative", SeededNoise(1))
    a, b, c = (booted(noisy, FitOptions(), seed, 20).variances for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
    with pytest.raises(ProblemError, match="at least one replicate"):
        booted(noisy, FitOptions(), replicates=0)


def test_a_region_without_groups_has_no_variances() -> None:
    assert booted(answer(CountOfCounts.empty(), "cumulative", SeededNoise(1)), FitOptions()).variances.size == 0


def test_with_errors_counts_one_group_more() -> None:
    estimated = SizeEstimate(np.array([1, 4]), np.array([3, 1]), np.ones(2))
    np.testing.assert_allclose(with_errors(estimated, np.array([20.0, 0.0]), 2).variances, [21 / 7, 1 / 3])


def measurements(truth: list[CountOfCounts], hierarchy: Any, seed: int, max_size: int) -> Measurements:
    return measure_hierarchy(
        truth,
        hierarchy,
        np.array([one.groups for one in truth]),
        queries=["cumulative"] * 3,
        losses=["l1"] * 3,
        epsilons=[Fraction(1, 3)] * 3,
        max_size=max_size,
        neighbours="add_remove",
        source=SeededNoise(seed),
    )


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_every_kind_of_variances_gives_a_release(seed: int) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(seed))
    measured = measurements(truth, hierarchy, seed, MAX_SIZE)
    method = GroupsMethod(losses=("l1",) * 3)
    found = compare_variances(measured, truth, method, rng=np.random.default_rng(seed), replicates=2)
    assert tuple(found) == VARIANCES
    for histograms in found.values():
        assert_consistent(hierarchy, truth, histograms)
    plain = estimate_groups(measured, method).histograms
    assert all(a.equals(b) for a, b in zip(found["paper"], plain, strict=True))
    errors = errors_by_level(hierarchy, plain, truth)
    for level in range(3):
        here = hierarchy.level_range(level)
        assert errors[level] == pytest.approx(np.mean([emd(plain[r], truth[r]) for r in here]))


def of_release(seed: int, **settings: Any) -> tuple[CountOfCounts, ...]:
    hierarchy, truth = three_levels(np.random.default_rng(seed))
    threads = settings.pop("threads", 1)
    method = GroupsMethod(losses=("l1",) * 3, **settings)
    return estimate_groups(measurements(truth, hierarchy, seed, MAX_SIZE), method, threads=threads).histograms


def test_a_release_with_redraws_repeats_whatever_the_threads() -> None:
    one = of_release(3, variances="bootstrap")
    for again in (of_release(3, variances="bootstrap"), of_release(3, variances="bootstrap", threads=3)):
        assert all(a.equals(b) for a, b in zip(one, again, strict=True))
    assert not all(a.equals(b) for a, b in zip(one, of_release(3), strict=True))


@pytest.mark.parametrize("change", [{"merge": "average"}, {"consistency": "bottom_up"}, {"consistency": "joint"}])
def test_nothing_is_redrawn_for_methods_that_read_no_variances(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(release, "bootstrap_variances")
    plain = of_release(4, **change)
    assert all(a.equals(b) for a, b in zip(plain, of_release(4, variances="bootstrap", **change), strict=True))
    with pytest.raises(NameError):
        of_release(4, variances="bootstrap")


def test_redraws_are_a_function_of_the_place_alone() -> None:
    first, again, other = (public_redraws(place).integers(2**62, size=4).tolist() for place in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("query", ["naive", "rank", "cumulative"])
def test_a_whole_release_keeps_its_promises_and_says_how_it_merged(query: str, tmp_path: Path) -> None:
    outcome = run_release(release_settings(tmp_path, estimator=query, variances="bootstrap"), tmp_path / "out")
    assert "children_sum_to_parents" in held(outcome)
    assert outcome.manifest["method"]["variances"] == "bootstrap"
    assert outcome.manifest["config"]["groups"]["variances"] == "bootstrap"
    plain = run_release(release_settings(tmp_path, estimator=query), tmp_path / "plain")
    assert plain.manifest["method"]["variances"] == "formula"


def test_a_forecast_redraws_for_predictions_but_not_in_the_search_for_a_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrawn: list[int] = []

    def counted(_: Measurement, estimated: SizeEstimate, *__: object, **___: object) -> SizeEstimate:
        redrawn.append(1)
        return estimated

    monkeypatch.setattr(release, "bootstrap_variances", counted)
    found = forecast(release_settings(tmp_path, variances="bootstrap"), runs=2)
    simulated = [one for one in found.predictions if one.method == "matching" and not one.exact]
    assert {one.split for one in simulated} == {"uniform", "proportional", "square root", "planned"}
    assert len(redrawn) == len(simulated) * 2 * found.plan.hierarchy.regions


def test_an_interrupted_release_with_redraws_is_resumed_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunKey, "generate", lambda: RunKey(bytes(range(32))))

    def config(folder: Path) -> Config:
        folder.mkdir()
        return release_settings(folder, privacy='dataset = "towns"', variances="bootstrap")

    def stop(*_: object, **__: object) -> Any:
        raise InterruptedError

    first = config(tmp_path / "first")
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "estimate_groups", stop)
        with pytest.raises(InterruptedError):
            run_release(first)
    resumed, straight = run_release(first), run_release(config(tmp_path / "second"))
    assert resumed.manifest["private"]
    assert folder_digest(resumed.folder) == folder_digest(straight.folder)


@pytest.mark.slow
def test_better_variances_merge_better_on_taxi(shared_data: Path) -> None:
    """Three seeds, K = 5,000, epsilon 1 split evenly: 9,960 becomes 9,290 at the root, 5,954 becomes 5,581 below."""
    from coco_opt.tables import read_sizes

    taxi = read_sizes(shared_data / "kuo2018" / "taxi_neighbourhoods.csv")
    truth = [taxi.region(region) for region in range(taxi.hierarchy.regions)]
    sums: dict[str, Any] = {}
    for seed in (2018, 2019, 2020):
        measured = measurements(truth, taxi.hierarchy, seed, 5_000)
        rng = np.random.default_rng(seed)
        for kind, histograms in compare_variances(measured, truth, GroupsMethod(losses=("l1",) * 3), rng=rng).items():
            sums[kind] = sums.get(kind, 0.0) + errors_by_level(taxi.hierarchy, histograms, truth) / 3
    assert (sums["bootstrap"][:2] < 0.97 * sums["paper"][:2]).all()
    assert (sums["oracle"] < sums["bootstrap"]).all()
    assert (sums["bootstrap"] < sums["average"]).all()
