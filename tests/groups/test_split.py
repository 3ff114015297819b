"""The split at a public size: what is asked and stored, who reads it, and what releases make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt import read_measurement
from coco_opt.choices import SolverChoices
from coco_opt.config import parse_config
from coco_opt.errors import ConfigError, ProblemError
from coco_opt.groups import GroupsMeasurements, GroupsMethod, estimate_groups
from coco_opt.groups.buckets import Buckets, Split
from coco_opt.groups.estimating.estimators import FitOptions, estimate
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate
from coco_opt.groups.estimating.posterior.observations import Ranks, survey_of
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions, start_histograms
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.measuring.measure import measurement_plan_of
from coco_opt.histograms import CountOfCounts, emd
from coco_opt.releases import check, measure, release, verify_release
from coco_opt.releases import estimate as estimated
from coco_opt.releases.estimate import config_of as default_config
from coco_opt.releases.kind import ForecastOptions
from coco_opt.releases.reporter import Silent
from tests.groups.helpers import MAX_SIZE, answer, assert_consistent, measured, thirds, three_levels
from tests.groups.towns import SEEDED, config_of

SHORT = SamplerOptions(chains=2, burn_in=20, most_burn_in=40, settle=10, draws=10, thin=1, most_rounds=1, threads=1)
SPLITS = [Split(4), None, Split(1)]


def test_it_is_one_question_at_the_whole_cost_of_its_level() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(2))
    noisy = measured(hierarchy, truth, buckets=SPLITS)
    measurement_plan = noisy.measurement_plan
    assert [(query.name, query.size) for query in measurement_plan.queries] == [
        ("split", "groups + 4"),
        ("cumulative", MAX_SIZE),
        ("split", "groups + 1"),
    ]
    assert [query.cost for query in measurement_plan.queries] == thirds()
    assert all(query.sensitivity is not None and query.sensitivity.l1 == 1 for query in measurement_plan.queries)
    assert (
        measurement_plan.digest
        != measured(hierarchy, truth, buckets=[Split(5), None, Split(1)]).measurement_plan.digest
    )
    answers = GroupsMeasurements(noisy)
    assert answers[0].values.size == 4 + truth[0].groups
    assert answers[0].scheme == Split(4)
    sizes, counts = answers[0].histogram()
    assert counts.sum() == truth[0].groups
    assert sizes[:5].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("split", "query", "message"),
    [
        (Split(5), "cumulative", "below max_size"),
        (Split(9), "cumulative", "below max_size"),
        (Split(2), "ranks", "cannot be used"),
        (Split(2), "sizes", "cannot be used"),
    ],
)
def test_wrong_splits_are_refused(split: Split, query: Any, message: str) -> None:
    hierarchy, _ = three_levels(np.random.default_rng(1))
    measurement_plan: dict[str, Any] = {
        "costs": thirds(),
        "max_size": 5,
        "neighbours": "add_remove",
        "buckets": [split] * 3,
    }
    with pytest.raises(ProblemError, match=message):
        measurement_plan_of(hierarchy, np.zeros(hierarchy.regions, np.int64), queries=[query] * 3, **measurement_plan)


@pytest.mark.parametrize("loss", ["l1", "l2"])
@pytest.mark.parametrize("at", [1, 5, MAX_SIZE - 1])
def test_without_noise_the_truth_comes_back(loss: Any, at: int) -> None:
    _, truth = three_levels(np.random.default_rng(2))
    for histogram in (*truth[:4], CountOfCounts.from_runs([0], [5]), CountOfCounts.from_runs([12], [5])):
        exact = answer(histogram, "cumulative", _silent(), buckets=[Split(at)])
        result = estimate(exact, FitOptions(loss), SolverChoices())
        assert result.histogram.equals(histogram)
        assert (result.variances > 0).all()


def _silent() -> Any:
    from tests.groups.helpers import NoNoise

    return NoNoise()


@pytest.mark.parametrize("variances", ["formula", "bootstrap"])
@pytest.mark.parametrize("consistency", ["matching", "bottom_up", "none", "posterior"])
def test_what_reads_ranks_reads_splits(consistency: Any, variances: Any) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(2))
    noisy = measured(hierarchy, truth, buckets=SPLITS, shares=[3, 3, 3])
    if consistency == "posterior":
        result = posterior_estimate(noisy, SolverChoices(), options=SHORT).histograms
    else:
        result = list(estimate_groups(noisy, GroupsMethod(consistency=consistency, variances=variances)).histograms)
    if consistency != "none":
        assert_consistent(hierarchy, truth, result)
    assert np.mean([emd(a, b) for a, b in zip(result, truth, strict=True)]) < 25


def test_the_posterior_reads_cells_and_ranks() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(2))
    survey = survey_of(GroupsMeasurements(measured(hierarchy, truth, buckets=[Split(4)] * 3, seed=None)))
    assert len(survey.answers) == 2 * hierarchy.regions
    cells, ranks = survey.answers[:2]
    assert isinstance(cells.query, Buckets)
    assert cells.query.end[-1] == 4
    assert ranks.query == Ranks(4)
    assert survey.answers[2].query is cells.query
    assert not survey.of_rows
    starts = start_histograms(survey)
    for row, leaf in zip(starts, hierarchy.leaves, strict=True):
        assert row.tolist() == truth[leaf].to_dense(MAX_SIZE).tolist()


# --- configurations and releases --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rank_above": -1}, "at least 1"),
        ({"rank_above": True}, "at least 1"),
        ({"rank_above": [3, "4"]}, "at least 1"),
        ({"rank_above": 12}, "max_size = 12"),
        ({"rank_above": 3, "group_counts": "private"}, "private counts"),
    ],
)
def test_keys_are_checked_when_they_are_read(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        config_of(tmp_path, **keys)
    assert caught.value.key == "groups.rank_above"


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({"rank_above": 3, "consistency": "joint"}, "groups.consistency", "'split' was measured"),
        ({"rank_above": [3, 0], "consistency": "convex"}, "groups.consistency", "'split' was measured"),
        ({"rank_above": [3, 2], "bucket_growth": [0, 0.5]}, "groups.rank_above", "has buckets too"),
        ({"rank_above": 3, "query": "ranks"}, "groups.rank_above", "is ranks"),
        ({"rank_above": [3] * 3}, "groups.rank_above", "3 entries"),
    ],
)
def test_contradictions_are_refused_before_anything_is_paid(
    keys: dict[str, Any], key: str, message: str, tmp_path: Path
) -> None:
    config = config_of(tmp_path, **keys)
    for step in (check, release):
        with pytest.raises(ConfigError, match=message) as caught:
            step(config)
        assert caught.value.key == key
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sizes.csv"]


def test_a_release_is_verified_and_taken_up_again(tmp_path: Path) -> None:
    config = config_of(tmp_path, privacy=SEEDED, rank_above=[3, 0], bucket_growth=[0, 0.5])
    done = release(config, tmp_path / "out")
    assert all(check.passed for check in verify_release(done.folder))
    assert done.manifest["method"]["queries"] == ["split", "buckets"]
    assert done.manifest["method"]["rank_above"] == [3, None]
    assert done.estimate is not None
    measurement = done.estimate.shown.measurement
    stated = GROUPS.section_of(measurement.measurement_plan)
    assert (stated["query"], stated["rank_above"]) == (["cumulative"] * 2, [3, 0])
    assert default_config(measurement).method.rank_above == (3, 0)
    again = estimated(measurement, config).save(tmp_path / "again")
    assert (again / "histograms.parquet").read_bytes() == (done.folder / "histograms.parquet").read_bytes()
    with pytest.raises(ConfigError, match="from another size"):
        estimated(measurement, config_of(tmp_path, privacy=SEEDED, rank_above=[4, 0], bucket_growth=[0, 0.5]))


def test_a_published_measurement_keeps_its_split(tmp_path: Path) -> None:
    config = config_of(tmp_path, privacy=SEEDED, rank_above=[3, 0])
    noisy = measure(config, publish=tmp_path / "noisy").measurement
    read, _ = read_measurement(tmp_path / "noisy")
    assert read.measurement_plan.digest == noisy.measurement_plan.digest
    for read_answer, noisy_answer in zip(read.answers, noisy.answers, strict=True):
        np.testing.assert_array_equal(read_answer.values, noisy_answer.values)


def test_a_forecast_rehearses_what_reads_it(tmp_path: Path) -> None:
    plan = GROUPS.plan(config_of(tmp_path, rank_above=[3, 0]))
    (simulated,) = GROUPS.forecast(plan, ForecastOptions(runs=2), Silent()).tables
    assert [row[0] for row in simulated.rows] == ["matching", "posterior", "bottom_up"]


def test_the_written_configuration_names_the_key(tmp_path: Path) -> None:
    section = GROUPS.draft({"sizes": ("nation", "size", "groups")}).section.replace("# rank_above", "rank_above")
    text = f'[data]\nsizes = "s.csv"\n[privacy]\nepsilon = "1"\ndataset = "d"\n{section}'
    assert parse_config(text, tmp_path).method.rank_above == 50
