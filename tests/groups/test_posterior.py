"""Buckets of sizes and the posterior as a method of release: refusals, whole releases, intervals, determinism."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.choices import SolverChoices
from coco_opt.config import parse_config
from coco_opt.errors import ConfigError, InputError, ProblemError
from coco_opt.files.folder import read_manifest
from coco_opt.groups import GroupsMeasurements, GroupsMethod, estimate_groups
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate, seed_of
from coco_opt.groups.estimating.posterior.observations import survey_of
from coco_opt.groups.estimating.posterior.recording import Counted, summaries, summary_values
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions
from coco_opt.groups.estimating.posterior.spikes import informed_counts, isolated_sizes
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.files import read_groups_release
from coco_opt.groups.kind.intervals import measured_sizes
from coco_opt.groups.measuring.measure import measurement_plan_of
from coco_opt.groups.noisy_measurements import buckets_of
from coco_opt.histograms import CountOfCounts, Hierarchy, emd
from coco_opt.privacy import Epsilon, Rho
from coco_opt.releases import estimate, release, render_report, verify_release
from coco_opt.releases.estimate import config_of as default_config
from coco_opt.releases.kind import ForecastOptions
from coco_opt.releases.reporter import Silent
from tests.groups.changed import changed_copy, shift
from tests.groups.helpers import MAX_SIZE, assert_consistent, measured, thirds, three_levels
from tests.groups.towns import SEEDED, config_of
from tests.releases.restated import restate

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


def test_buckets_of_single_sizes_are_the_plain_question(tmp_path: Path) -> None:
    plain, small = (GROUPS.plan(config_of(tmp_path, bucket_growth=growth)).measurement_plan for growth in (0, 0.1))
    assert plain.digest == small.digest
    assert not plain.tables


def test_answers_say_their_buckets() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(1))
    buckets = Buckets.by_growth(MAX_SIZE, 0.5)
    answers = GroupsMeasurements(measured(hierarchy, truth, "cumulative", buckets=[buckets, None, buckets]))
    assert answers.query(0) == "buckets"
    assert answers.query(1) == "cumulative"
    assert answers[0].buckets is answers.buckets(0)
    assert answers[0].values.size == buckets.count
    starts, groups = answers[0].histogram()
    assert starts.tolist() == [*buckets.begin.tolist(), MAX_SIZE]
    assert groups.sum() == pytest.approx(truth[0].groups)


@pytest.mark.parametrize(
    ("buckets", "queries", "message"),
    [
        ([Buckets.cells(4)], ["cumulative"], "every size"),
        ([Buckets.from_edges([1, 5])], ["cumulative"], "every size"),
        ([Buckets.from_edges([0, 6])], ["cumulative"], "every size"),
        ([Buckets(np.array([0, 3]), np.array([2, 5]))], ["cumulative"], "every size"),
        ([Buckets.from_edges([0, 5])], ["ranks"], "cannot be used with the query 'ranks'"),
        ([Buckets.from_edges([0, 5])] * 2, ["cumulative"], "as many buckets"),
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
    ],
)
def test_keys_are_checked_when_they_are_read(keys: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, **keys, **POSTERIOR)
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
    ],
)
def test_contradictions_are_refused_before_anything_is_paid(
    keys: dict[str, Any], key: str, message: str, tmp_path: Path
) -> None:
    config = config_of(tmp_path, **keys)
    with pytest.raises(ConfigError, match=message) as caught:
        release(config)
    assert caught.value.key == key
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sizes.csv"]


def test_programs_of_cells_refuse_buckets_in_python_too() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(1))
    noisy = measured(hierarchy, truth, "cumulative", buckets=[Buckets.from_edges([0, 3, MAX_SIZE])] * 3)
    with pytest.raises(ProblemError):
        estimate_groups(noisy, GroupsMethod(("l1",) * 3, consistency="convex"))
    with pytest.raises(ProblemError, match="'posterior'"):
        GroupsMethod(("l1",), intervals=0.9, consistency="matching")
    sizes = measured(hierarchy, truth, "sizes")
    with pytest.raises(ProblemError, match="sizes"):
        estimate_groups(sizes, GroupsMethod(("l1",) * 3, consistency="posterior"))


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
    page = (folder / "report.html").read_text()
    assert "12 sizes in 7 buckets" in page
    assert "intervals.parquet" in page
    assert "no answer says how groups are spread within a bucket" in page
    assert f"after {manifest['convergence']['draws']:,} draws of" in page


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
    result = posterior_estimate(noisy, SolverChoices(), sizes=True, options=SHORT)
    assert_consistent(hierarchy, truth, result.histograms)
    cumulative = result.posterior.cumulative
    assert result.posterior.sizes is not None
    assert result.posterior.sizes.counts.sum() == result.posterior.draws * hierarchy.regions * (MAX_SIZE + 1)
    assert cumulative.counts.sum() == result.posterior.draws * hierarchy.regions * MAX_SIZE
    intervals = result.intervals(0.8)
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
    method = GroupsMethod(("l1",) * 3, consistency="posterior", intervals=0.9, seconds=3.0)
    first = estimate_groups(noisy, method, threads=1, progress=lambda done, most: steps.append((done, most)))
    second = estimate_groups(noisy, method, threads=3)
    assert all(a.equals(b) for a, b in zip(first.histograms, second.histograms, strict=True))
    assert first.intervals is not None
    assert second.intervals is not None
    np.testing.assert_array_equal(first.intervals.groups_upper, second.intervals.groups_upper)
    assert steps[-1][0] <= steps[-1][1]
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_the_seed_is_of_questions_and_answers() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(4))
    seeds = {seed_of(measured(hierarchy, truth, query, seed=seed)) for query in ("ranks", "sizes") for seed in (1, 2)}
    assert len(seeds) == 4
    assert seed_of(measured(hierarchy, truth, "ranks", seed=1)) in seeds


def test_spikes_are_found_in_the_answers_and_kept() -> None:
    """Half of the groups at one size: a smooth prior alone would spread them over its neighbours."""
    hierarchy = Hierarchy.from_paths([("n", "a"), ("n", "b"), ("n", "c")])
    rng = np.random.default_rng(2)
    sizes = [np.where(rng.random(120) < 0.5, 9, rng.integers(0, 25, 120)) for _ in range(3)]
    leaves = [CountOfCounts.from_ranks(np.sort(ranks)) for ranks in sizes]
    truth = [CountOfCounts.total(leaves), *leaves]
    noisy = measured(hierarchy, truth, "cumulative", max_size=30, costs=[Epsilon(Fraction(1, 2))] * 2)
    survey = survey_of(GroupsMeasurements(noisy))
    assert np.flatnonzero(isolated_sizes(survey, 0.3)).tolist() == [9, 30]
    counts, variance = informed_counts(survey)
    assert counts.sum() == pytest.approx(360)
    # The root's own answer and the sum of its three leaves', each the difference of two cells.
    distribution = GroupsMeasurements(noisy).distribution(0)
    np.testing.assert_allclose(variance, 2 * distribution.variance * 3 / 4)
    result = posterior_estimate(noisy, SolverChoices(), options=SHORT)
    assert abs(int(result.histograms[0].to_dense(30)[9]) - int(truth[0].to_dense(30)[9])) < 12
    bucketed = measured(
        hierarchy, truth, "cumulative", max_size=30, buckets=[Buckets.from_starts([0, 1, 5, 12], 30)] * 2
    )
    _, vague = informed_counts(survey_of(GroupsMeasurements(bucketed)))
    assert np.isfinite(vague).tolist() == [True, False, *[False] * 29]
    assert np.flatnonzero(isolated_sizes(survey_of(GroupsMeasurements(bucketed)), 0.3)).tolist() == [30]


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


@pytest.mark.parametrize(
    "change",
    [
        shift("at_most", 1),
        shift("groups_lower", 10_000),
        shift("groups_upper", -10_000),
        shift("at_most_lower", 10_000),
        shift("at_most_upper", -10_000),
        shift("groups_lower", -10_000),
        shift("groups_upper", 10_000),
        shift("size", 13),
        lambda columns: columns["region"].__setitem__(0, "nowhere"),
        lambda columns: columns["level_name"].__setitem__(0, "elsewhere"),
        lambda columns: columns["level"].__setitem__(0, 1),
        lambda columns: columns.update(size=[float(one) for one in columns["size"]]),
        lambda columns: columns["groups_lower"].__setitem__(0, None),
        twice,
        shorter,
    ],
)
def test_planted_faults_in_intervals_are_found(
    folder: Path, tmp_path: Path, change: Callable[[dict[str, list[Any]]], None]
) -> None:
    changed = changed_copy(folder, tmp_path / "copy", "intervals.parquet", change)
    assert [check.name for check in verify_release(changed) if not check.passed] == ["intervals"]


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


@pytest.mark.parametrize(
    "change",
    [
        shift("value", 1),
        shift("lower", 10_000),
        shift("upper", -10_000),
        lambda columns: columns["summary"].__setitem__(0, "largest_size"),
        lambda columns: columns["region"].__setitem__(0, "nowhere"),
        lambda columns: columns["level_name"].__setitem__(0, "elsewhere"),
        lambda columns: columns["level"].__setitem__(0, 1),
        lambda columns: columns["upper"].__setitem__(0, float("inf")),
        lambda columns: columns.update(value=[str(one) + "x" for one in columns["value"]]),
        twice,
        shorter,
    ],
)
def test_planted_faults_in_summaries_are_found(
    folder: Path, tmp_path: Path, change: Callable[[dict[str, list[Any]]], None]
) -> None:
    changed = changed_copy(folder, tmp_path / "copy", "summaries.parquet", change)
    assert [check.name for check in verify_release(changed) if not check.passed] == ["summaries"]


# --- coverage ---------------------------------------------------------------------------------------------


def test_a_value_is_inside_as_far_as_its_draws_are() -> None:
    low, start = np.array([[3, 0]], np.int32), np.array([0, 4, 6])
    counted = Counted(low, start, np.array([2, 4, 3, 1, 0, 10], np.uint16), 10)
    for value, expected in [(2, 0.0), (3, 0.5), (4, 1.0), (5, 1.0), (6, 0.0), (9, 0.0)]:
        assert counted.inside(np.array([[value, 1]]), Fraction(4, 5))[0, 0] == pytest.approx(expected)
    assert counted.inside(np.array([[4, 1]]), Fraction(4, 5))[0, 1] == pytest.approx(0.8)
    assert counted.inside(np.array([[4, 0]]), Fraction(4, 5))[0, 1] == 0.0


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


def test_two_measurements_are_nearer_than_one() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(4))
    one, two = (
        measured(hierarchy, truth, "cumulative", seed=seed, buckets=buckets, costs=[Epsilon(Fraction(1, 4))] * 3)
        for seed, buckets in ((1, ()), (2, [Buckets.by_growth(MAX_SIZE, 0.5)] * 3))
    )
    method = GroupsMethod(("l1",) * 3, consistency="posterior", seconds=10.0)
    away = []
    for first, more in ((one, ()), (two, ()), (one, (two,))):
        result = estimate_groups(first, method, also=more)
        assert_consistent(hierarchy, truth, result.histograms)
        away.append(sum(emd(a, b) for a, b in zip(result.histograms, truth, strict=True)))
    assert away[2] < min(away[:2])
    with pytest.raises(ProblemError, match="only 'posterior'"):
        estimate_groups(one, GroupsMethod(("l1",) * 3, consistency="joint"), also=(two,))
    other = measured(hierarchy, truth, "cumulative", max_size=MAX_SIZE + 1)
    with pytest.raises(ProblemError, match="largest size"):
        estimate_groups(one, method, also=(other,))


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


def test_a_forecast_rehearses_what_reads_buckets(tmp_path: Path) -> None:
    config = config_of(tmp_path, bucket_growth=0.5, **POSTERIOR)
    shown = GROUPS.forecast(GROUPS.plan(config), ForecastOptions(runs=2), Silent())
    (simulated,) = shown.tables
    assert [row[0] for row in simulated.rows] == ["posterior", "joint", "matching", "bottom_up"]


def test_the_written_configuration_names_the_keys(tmp_path: Path) -> None:
    section = GROUPS.draft({"sizes": ("nation", "size", "groups")}).section
    for key in ("bucket_growth", "bucket_edges", "intervals"):
        assert f"# {key} = " in section
    opened = section.replace("# bucket_growth", "bucket_growth").replace("# intervals", "intervals")
    text = f'[data]\nsizes = "s.csv"\n[privacy]\nepsilon = "1"\ndataset = "d"\n{opened}'
    assert parse_config(text, tmp_path).method.intervals == 0.9


def test_regions_that_have_not_converged_are_listed_and_marked(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "marked"
    shutil.copytree(folder, copy)
    table = pq.read_table(copy / "intervals.parquet")
    marked = [region == table["region"][0].as_py() for region in table["region"].to_pylist()]
    place = table.column_names.index("converged")

    def flagged(converged: list[bool]) -> str:
        changed = table.set_column(place, "converged", pa.array(converged))
        pq.write_table(changed, copy / "intervals.parquet", write_page_checksum=True)
        (check,) = [check for check in verify_release(copy) if check.name == "intervals"]
        return "" if check.passed else check.detail

    assert read_manifest(folder)["convergence"]["not_converged"] == []
    assert "row 1: 'converged' is not what the manifest says" in flagged([not m for m in marked])
    manifest = json.loads((copy / "manifest.json").read_text())

    def listed(count: int, *regions: str) -> None:
        manifest["convergence"].update(not_converged=regions, regions_not_converged=count)
        (copy / "manifest.json").write_text(json.dumps(manifest))

    listed(1, table["region"][0].as_py())
    assert flagged([not here for here in marked]) == ""
    one_row = [not here for here in marked]
    one_row[0] = True
    assert "is not what the manifest says" in flagged(one_row)
    listed(2, table["region"][0].as_py())
    assert "not one of so many regions" in flagged([not here for here in marked])
