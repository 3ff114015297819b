"""Buckets of sizes and the posterior as a method of release: refusals, whole releases, intervals, determinism."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from coco_opt import CountOfCounts, Epsilon, Hierarchy, Rho, SolverChoices, read_groups_release
from coco_opt.errors import ConfigError, InputError, ProblemError
from coco_opt.groups import GroupsMeasurements, GroupsMethod, estimate_groups
from coco_opt.groups.buckets import Buckets, Split
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate, seed_of
from coco_opt.groups.estimating.posterior.observations import survey_of
from coco_opt.groups.estimating.posterior.recording import Counted, summaries, summary_values
from coco_opt.groups.estimating.posterior.sampler import Posterior, SamplerOptions
from coco_opt.groups.estimating.posterior.spikes import informed_counts
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.intervals import measured_sizes
from coco_opt.groups.measuring.measure import measurement_plan_of
from coco_opt.groups.noisy_measurements import buckets_of
from coco_opt.releases import check, estimate, release, render_report, verify_release
from coco_opt.releases.estimate import config_of as default_config
from tests.groups.helpers import (
    MAX_SIZE,
    SEEDED,
    assert_consistent,
    changed_copy,
    config_of,
    measured,
    shift,
    thirds,
    three_levels,
)
from tests.releases.drawn import restate

POSTERIOR = {"consistency": "posterior"}
SHORT = SamplerOptions(chains=2, burn_in=20, most_burn_in=40, settle=10, draws=10, thin=1, most_rounds=1, threads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Release the towns by buckets once."""
    where = tmp_path_factory.mktemp("towns")
    config = config_of(where, privacy=SEEDED, bucket_growth=[0.3, 0.5], **POSTERIOR)
    return release(config, where / "out", page=render_report).folder


# --- questions --------------------------------------------------------------------------------------------


def test_buckets_are_public_facts_of_what_is_asked(tmp_path: Path) -> None:
    measurement_plan = GROUPS.plan(config_of(tmp_path, bucket_growth=[0.5, 0], **POSTERIOR)).measurement_plan
    assert [query.name for query in measurement_plan.queries] == ["buckets", "cumulative"]
    assert measurement_plan.tables["bucket starts, level 0"].tolist() == [0, 1, 2, 3, 4, 6, 9]
    assert [query.size for query in measurement_plan.queries] == [7, 12]
    assert buckets_of(measurement_plan, 1) is None
    digests = {measurement_plan.digest}
    for keys in ({"bucket_growth": 0.5}, {"bucket_growth": [0.9, 0]}, {"bucket_edges": [0, 4]}, {}):
        digests.add(GROUPS.plan(config_of(tmp_path, **keys, **POSTERIOR)).measurement_plan.digest)
    assert len(digests) == 5
    same = GROUPS.plan(config_of(tmp_path, bucket_edges=[[0, 1, 2, 3, 4, 6, 9], []], **POSTERIOR)).measurement_plan
    assert same.digest == measurement_plan.digest


@pytest.mark.parametrize(
    ("buckets", "queries", "message"),
    [
        ([Buckets.cells(4)], ["cumulative"], "every size"),
        ([Buckets.from_edges([1, 5])], ["cumulative"], "every size"),
        ([Buckets.from_edges([0, 6])], ["cumulative"], "every size"),
        ([Buckets(np.array([0, 3]), np.array([2, 5]))], ["cumulative"], "every size"),
        ([Buckets.from_edges([0, 5])], ["ranks"], "cannot be used with the query 'ranks'"),
        ([Buckets.from_edges([0, 5])] * 2, ["cumulative"], "as many buckets"),
        ([Split(5)], ["cumulative"], "below max_size"),
        ([Split(2)], ["ranks"], "cannot be used"),
        ([Split(2)], ["sizes"], "cannot be used"),
    ],
)
def test_wrong_buckets_are_refused(buckets: Any, queries: Any, message: str) -> None:
    hierarchy, _ = three_levels(np.random.default_rng(1))
    levels, counts = hierarchy.levels, np.zeros(hierarchy.regions, np.int64)
    level_buckets = buckets if len(buckets) == 2 else buckets * levels
    measurement_plan = {"queries": queries * levels, "costs": thirds(levels), "max_size": 5, "neighbours": "add_remove"}
    with pytest.raises(ProblemError, match=message):
        measurement_plan_of(hierarchy, counts, buckets=level_buckets, **measurement_plan)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"bucket_growth": -1}, "groups.bucket_growth"),
        ({"bucket_growth": "wide"}, "groups.bucket_growth"),
        ({"bucket_growth": [0.1, True]}, "groups.bucket_growth"),
        ({"bucket_edges": [1, 2]}, "groups.bucket_edges"),
        ({"bucket_edges": [0, 2, 2]}, "groups.bucket_edges"),
        ({"bucket_edges": [0, 12]}, "groups.bucket_edges"),
        ({"bucket_edges": [[0, 2], [0, 13]]}, "groups.bucket_edges"),
        ({"bucket_edges": [0, 1.5]}, "groups.bucket_edges"),
        ({"bucket_edges": [0, 2], "bucket_growth": 0.1}, "groups.bucket_edges"),
        ({"intervals": 1.0}, "groups.intervals"),
        ({"intervals": -0.1}, "groups.intervals"),
        ({"rank_above": -1}, "groups.rank_above"),
        ({"rank_above": True}, "groups.rank_above"),
        ({"rank_above": [3, "4"]}, "groups.rank_above"),
        ({"rank_above": 12}, "groups.rank_above"),
        ({"rank_above": 3, "group_counts": "private"}, "groups.rank_above"),
    ],
)
def test_keys_are_checked_when_they_are_read(keys: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, **{**POSTERIOR, **keys})
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({"bucket_growth": 1, "consistency": "convex"}, "groups.consistency", "'buckets' was measured"),
        ({"bucket_growth": [1] * 3, **POSTERIOR}, "groups.bucket_growth", "3 entries"),
        ({"bucket_edges": [[0]] * 3, **POSTERIOR}, "groups.bucket_edges", "3 entries"),
        ({"bucket_growth": 1, "query": "ranks", **POSTERIOR}, "groups.bucket_growth", "is ranks"),
        ({"query": ["cumulative", "sizes"], **POSTERIOR}, "groups.consistency", "'sizes'"),
        ({"intervals": 0.5}, "groups.intervals", "only consistency"),
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


# --- whole releases ---------------------------------------------------------------------------------------


def test_a_release_by_buckets_keeps_every_promise(folder: Path) -> None:
    checks = {check.name: check for check in verify_release(folder)}
    assert all(check.passed for check in checks.values())
    assert "intervals" in checks
    manifest = json.loads((folder / "manifest.json").read_text())
    method = manifest["method"]
    assert (method["consistency"], method["queries"]) == ("posterior", ["buckets"] * 2)
    assert method["bucket_starts"][1] == [0, 1, 2, 3, 4, 6, 9]
    assert manifest["intervals"]["coverage"] == 0.9
    assert manifest["convergence"]["prior"] == "multinomial"
    assert manifest["convergence"]["draws"] >= 200
    assert manifest["convergence"]["criterion"] == {"r_hat_at_most": 1.1, "effective_size_at_least": 25.0}
    assert manifest["convergence"]["regions_not_converged"] == 0
    assert 0 <= manifest["unproved"]["worst_relative_gap"] < 1
    assert manifest["solvers"]["expected_distance"]["solves"] == 1
    assert manifest["config"]["groups"]["bucket_growth"] == [0.3, 0.5]
    assert "12 sizes in 7 buckets" in (folder / "report.html").read_text()


def test_a_measurement_is_restated_and_estimated_anew(tmp_path: Path) -> None:
    config = config_of(tmp_path, privacy=SEEDED, bucket_growth=[0, 0.5], **POSTERIOR)
    outcome = release(config, tmp_path / "first").estimate
    assert outcome is not None
    measurement = outcome.shown.measurement
    stated = GROUPS.section_of(measurement.measurement_plan)
    assert stated["bucket_edges"] == [[], [0, 1, 2, 3, 4, 6, 9]]
    assert stated["query"] == ["cumulative"] * 2
    assert default_config(measurement).method.bucket_edges == ((), (0, 1, 2, 3, 4, 6, 9))
    again = estimate(measurement, config).save(tmp_path / "again")
    assert (again / "histograms.parquet").read_bytes() == (tmp_path / "first/histograms.parquet").read_bytes()
    assert (again / "intervals.parquet").read_bytes() == (tmp_path / "first/intervals.parquet").read_bytes()
    read = read_groups_release(again)
    for place, region in enumerate(read.hierarchy.paths):
        result, expected = read.intervals(region), outcome.result.intervals
        for name in ("groups_lower", "groups_upper", "at_most_lower", "at_most_upper"):
            assert getattr(result, name).tolist() == getattr(expected, name)[place].tolist()
            assert getattr(result, name).tolist() == getattr(outcome.intervals(region), name).tolist()
        assert result.coverage == 0.9
    without = estimate(measurement, config_of(tmp_path, bucket_growth=[0, 0.5], intervals=0, **POSTERIOR))
    assert not (without.save() / "intervals.parquet").exists()
    assert "intervals" not in without.manifest["promises"]
    with pytest.raises(InputError, match="no-intervals"):
        without.intervals("land")
    with pytest.raises(InputError, match="no-intervals"):
        read_groups_release(without.save(tmp_path / "none")).intervals("land")
    other = config_of(tmp_path, privacy=SEEDED, bucket_growth=[0, 0.7], **POSTERIOR)
    with pytest.raises(ConfigError, match="other buckets"):
        estimate(measurement, other)


def test_a_release_by_a_split_is_verified_and_taken_up_again(tmp_path: Path) -> None:
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
    again = estimate(measurement, config).save(tmp_path / "again")
    assert (again / "histograms.parquet").read_bytes() == (done.folder / "histograms.parquet").read_bytes()
    with pytest.raises(ConfigError, match="from another size"):
        estimate(measurement, config_of(tmp_path, privacy=SEEDED, rank_above=[4, 0], bucket_growth=[0, 0.5]))


@pytest.mark.parametrize("cost", [Epsilon(Fraction(1)), Rho(Fraction(1, 2))])
@pytest.mark.parametrize(
    ("queries", "shares", "growth"),
    [
        (["cumulative"] * 3, None, (0, 0.2, 0.5)),
        (["ranks", "cumulative", "cumulative"], None, (0, 0, 0.5)),
        (["cumulative", "cumulative", "ranks"], [Fraction(1, 2), 0, Fraction(1, 2)], (0.3, 0, 0)),
        (["cumulative"] * 3, [Fraction(1, 2), Fraction(1, 2), 0], (0, 0, 0)),
    ],
)
def test_all_questions_and_laws_give_consistent_tables(
    cost: Any, queries: list[str], shares: Any, growth: tuple[float, ...]
) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(4))
    buckets = [Buckets.by_growth(MAX_SIZE, one) if one else None for one in growth]
    each = shares or thirds(3)
    costs = [cost * getattr(share, "amount", share) for share in each]
    noisy = measured(hierarchy, truth, queries, buckets=buckets, costs=costs)
    result = posterior_estimate(noisy, SolverChoices(), coverage=0.8, options=SHORT)
    assert_consistent(hierarchy, truth, result.histograms)
    drawn, intervals = result.drawn, result.intervals
    assert isinstance(drawn, Posterior)
    assert drawn.sizes is not None
    assert drawn.sizes.counts.sum() == drawn.draws * hierarchy.regions * (MAX_SIZE + 1)
    assert drawn.cumulative.counts.sum() == drawn.draws * hierarchy.regions * MAX_SIZE
    assert intervals is not None
    for row, one in enumerate(result.histograms):
        dense, running = one.to_dense(MAX_SIZE), one.cumulative(MAX_SIZE)
        assert (intervals.groups_lower[row] <= dense).all()
        assert (dense <= intervals.groups_upper[row]).all()
        assert (intervals.at_most_lower[row] <= running).all()
        assert (running <= intervals.at_most_upper[row]).all()
    assert not result.convergence.converged


def test_a_huge_budget_returns_the_truth() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(4))
    noisy = measured(hierarchy, truth, "cumulative", costs=[Epsilon(Fraction(60))] * 3)
    result = estimate_groups(noisy, GroupsMethod(("l1",) * 3, consistency="posterior"), threads=2)
    assert all(a.equals(b) for a, b in zip(result.histograms, truth, strict=True))
    assert result.intervals is None


def test_threads_and_progress_change_nothing() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(4))
    noisy = measured(hierarchy, truth, "cumulative", buckets=[Buckets.by_growth(MAX_SIZE, 0.5)] * 3)
    steps: list[tuple[int, int]] = []
    method = GroupsMethod(("l1",) * 3, consistency="posterior", intervals=0.9, seconds=0.3)
    first = estimate_groups(noisy, method, threads=1, progress=lambda done, most: steps.append((done, most)))
    second = estimate_groups(noisy, method, threads=3)
    assert all(a.equals(b) for a, b in zip(first.histograms, second.histograms, strict=True))
    assert first.intervals is not None
    assert second.intervals is not None
    np.testing.assert_array_equal(first.intervals.groups_upper, second.intervals.groups_upper)
    assert steps[-1][0] <= steps[-1][1]
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


# --- intervals.parquet ------------------------------------------------------------------------------------


def test_intervals_are_those_of_the_contract(folder: Path) -> None:
    table = pq.read_table(folder / "intervals.parquet")
    assert [f"{field.name} {field.type}" for field in table.schema] == [
        "level int32",
        "level_name string",
        "region string",
        "region_id string",
        "size int64",
        "groups_lower int64",
        "groups_upper int64",
        "at_most int64",
        "at_most_lower int64",
        "at_most_upper int64",
        "converged bool",
        "measured bool",
    ]
    rows = table.to_pandas()
    released = read_groups_release(folder)
    dense = {
        path: histogram.cumulative(12)
        for path, histogram in zip(released.hierarchy.paths, released.histograms, strict=True)
    }
    assert (
        rows["at_most"] == [dense[region][size] for region, size in zip(rows["region"], rows["size"], strict=True)]
    ).all()
    certain = (rows["groups_upper"] == 0) & (rows["at_most_lower"] == rows["at_most_upper"])
    assert not certain.any()
    assert ((rows["groups_upper"] - rows["groups_lower"]) > 0).any()


@pytest.mark.parametrize(
    ("places", "alone"), [((0, 1), ([0], [0])), ((0,), (range(31), range(31))), ((1,), (range(31), [0]))]
)
def test_sizes_that_share_a_bucket_are_marked_unless_a_level_below_tells_them_apart(
    places: tuple[int, ...], alone: tuple[Sequence[int], Sequence[int]]
) -> None:
    hierarchy = Hierarchy.from_paths([("land", "north"), ("land", "south")])
    leaf = CountOfCounts.from_ranks(np.array([1, 2, 30]))
    shared = Buckets.from_starts([0, 1, 5, 12], 30)
    buckets = [shared if level in places else None for level in range(2)]
    truth = [CountOfCounts.total([leaf, leaf]), leaf, leaf]
    noisy = measured(hierarchy, truth, max_size=30, buckets=buckets, costs=[Epsilon(Fraction(1, 2))] * 2)
    told = measured_sizes(noisy.measurement_plan)
    assert [np.flatnonzero(row).tolist() for row in told] == [list(sizes) for sizes in alone]


def twice(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        values.append(values[0])


def shorter(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        del values[1]


def test_a_manifest_without_a_coverage_fails(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    restate(copy, intervals={"coverage": 2.0})
    assert [check.name for check in verify_release(copy) if not check.passed] == ["intervals"]


# --- summaries.parquet ------------------------------------------------------------------------------------


def test_summaries_are_those_of_the_released_histograms(folder: Path) -> None:
    rows = pq.read_table(folder / "summaries.parquet").to_pandas()
    assert list(rows.columns) == ["level", "level_name", "region", "region_id", "summary", "value", "lower", "upper"]
    released = read_groups_release(folder)
    for path, histogram in zip(released.hierarchy.paths, released.histograms, strict=True):
        sizes = histogram.ranks()
        own = rows[rows["region"] == path].set_index("summary")["value"]
        assert own["mean_size"] == pytest.approx(sizes.mean())
        assert own["share_of_size_1"] == pytest.approx((sizes == 1).mean())
        assert own["largest_size"] == sizes.max()
        for part in (0.25, 0.5, 0.75, 0.9):
            assert own[f"size_quantile_{part:g}"] == np.quantile(sizes, part, method="inverted_cdf")
    assert ((rows["lower"] <= rows["value"]) & (rows["value"] <= rows["upper"])).all()
    assert (rows["lower"] < rows["upper"]).mean() > 0.5


def test_summaries_of_draws_are_those_of_their_histograms() -> None:
    rng = np.random.default_rng(2)
    sizes = [np.sort(rng.integers(0, 9, n)) for n in (1, 4, 40)] + [np.zeros(0, np.int64)]
    table = np.array([np.cumsum(np.bincount(draw, minlength=9))[:8] for draw in sizes])
    groups = np.array([draw.size for draw in sizes])
    result = summaries(table, groups)
    for row, draw in zip(result[:3], sizes, strict=False):
        quantiles = [np.quantile(draw, part, method="inverted_cdf") for part in (0.25, 0.5, 0.75, 0.9)]
        assert row.tolist() == [draw.sum(), (draw == 1).sum(), draw.max(), *quantiles]
    assert result[3].tolist() == [0] * 7
    assert np.isnan(summary_values(result, groups)[3]).all()


ELSEWHERE = (
    lambda columns: columns["region"].__setitem__(0, "nowhere"),
    lambda columns: columns["level_name"].__setitem__(0, "elsewhere"),
    lambda columns: columns["level"].__setitem__(0, 1),
    twice,
    shorter,
)
PLANTED: dict[str, Sequence[Callable[[dict[str, list[Any]]], None]]] = {
    "intervals": (
        shift("at_most", 1),
        shift("groups_lower", 10_000),
        shift("groups_upper", -10_000),
        shift("at_most_lower", 10_000),
        shift("at_most_upper", -10_000),
        shift("groups_lower", -10_000),
        shift("groups_upper", 10_000),
        shift("size", 13),
        lambda columns: columns.update(size=[float(one) for one in columns["size"]]),
        lambda columns: columns["groups_lower"].__setitem__(0, None),
        lambda columns: columns["converged"].__setitem__(0, not columns["converged"][0]),
        *ELSEWHERE,
    ),
    "summaries": (
        shift("value", 1),
        shift("lower", 10_000),
        shift("upper", -10_000),
        lambda columns: columns["summary"].__setitem__(0, "largest_size"),
        lambda columns: columns["upper"].__setitem__(0, float("inf")),
        lambda columns: columns.update(value=[str(one) + "x" for one in columns["value"]]),
        *ELSEWHERE,
    ),
}


@pytest.mark.parametrize(("name", "change"), [(name, change) for name, row in PLANTED.items() for change in row])
def test_planted_faults_in_intervals_and_summaries_are_found(
    folder: Path, tmp_path: Path, name: str, change: Callable[[dict[str, list[Any]]], None]
) -> None:
    changed = changed_copy(folder, tmp_path / "copy", f"{name}.parquet", change)
    assert [check.name for check in verify_release(changed) if not check.passed] == [name]


# --- coverage ---------------------------------------------------------------------------------------------


def test_draws_are_inside_as_often_as_stated() -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 9, 12).astype(np.uint16)
    counts[5] = 30
    draws = int(counts.sum())
    counted = Counted(np.zeros((1, 1), np.int32), np.array([0, 12]), counts, draws)
    for coverage in (Fraction(1, 2), Fraction(9, 10)):
        shares = [float(counted.inside(np.array([[value]]), coverage)[0, 0]) for value in range(12)]
        assert float(counts @ np.array(shares)) / draws == pytest.approx(float(coverage))


# --- several measurements ---------------------------------------------------------------------------------


def test_a_measurement_counted_twice_is_one_of_half_the_noise() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(4))
    noisy = measured(hierarchy, truth, "cumulative")
    twice_over = survey_of(GroupsMeasurements(noisy), GroupsMeasurements(noisy))
    once = survey_of(GroupsMeasurements(noisy))
    assert len(twice_over.answers) == 2 * len(once.answers)
    counts, variance = informed_counts(twice_over)
    again, wider = informed_counts(once)
    np.testing.assert_allclose(counts, again)
    np.testing.assert_allclose(variance, wider / 2)
    assert seed_of(noisy, noisy) != seed_of(noisy)


# --- forecast ---------------------------------------------------------------------------------------------
