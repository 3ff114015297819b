"""The experiments beyond the papers on simulated data."""

from __future__ import annotations

import csv
import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.bench import posterior as bench
from coco_experiments.beyond import coverage, floor, floor_tree, loss_distributions, posterior, wrong_priors
from coco_experiments.beyond.queries import PLANNED, QueryPlan, planned
from coco_experiments.kuo2018.cases import Case
from coco_experiments.simulated import generated_counts

from coco_opt.choices import SolverChoices
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.chains import Learned
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate
from coco_opt.groups.estimating.posterior.observations import Answers, Survey
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Geometric
from tests.experiments.recorder import Recorder, small_run
from tests.posterior import tiny


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open() as opened:
        return list(csv.DictReader(opened))


def test_a_small_run_writes_errors_of_all_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Single cells would be chosen for the small cases, and are measured anyway.
    even = (Fraction(1, 3),) * 3
    monkeypatch.setattr(posterior, "planned", lambda case: QueryPlan(PLANNED, (0.0, 0.1, 0.3), even))
    small_run(posterior, tmp_path)
    rows = rows_of(tmp_path / "beyond" / "posterior.csv")
    methods = {row["method"] for row in rows}
    assert {"joint, cells", "bottom-up", "posterior, cells", "posterior, buckets", PLANNED} <= methods
    assert "matching, buckets" in methods
    assert all(float(row["measured"]) >= 0 for row in rows)
    joint = [row for row in rows if row["method"] == "joint, cells"]
    assert all(float(row["times joint, cells"]) == 1 for row in joint)
    chosen = rows_of(tmp_path / "beyond" / "posterior_planned.csv")
    assert any(float(row["growth"]) > 0 for row in chosen)
    of_cells = {(row["data"], row["level"]): row["measured"] for row in rows if row["method"] == "posterior, cells"}
    assert all(row["cells"] == of_cells[row["data"], row["level"]] for row in chosen)


def test_small_runs_write_coverage_and_wrong_priors(tmp_path: Path) -> None:
    assert coverage.run(small=True, out=tmp_path, reporter=Recorder()).ok
    assert np.mean([float(row["% inside"]) for row in rows_of(tmp_path / "beyond" / "coverage.csv")]) > 80
    assert wrong_priors.run(small=True, out=tmp_path, reporter=Recorder()).ok
    (row, *_) = rows_of(tmp_path / "beyond" / "wrong_priors.csv")
    assert float(row["times joint"]) < 1.1


def test_the_floor_is_the_posterior_found_by_enumeration(tmp_path: Path) -> None:
    distribution, groups, epsilon = np.array([0.5, 0.2, 0.2, 0.1]), 5, 0.4
    noisy = np.array([[3, 2, 6], [-1, 4, 4]])
    rows, weights = [], []
    for sizes in itertools.combinations_with_replacement(range(4), groups):
        counts = np.bincount(sizes, minlength=4)
        ways = math.factorial(groups) / np.prod([math.factorial(count) for count in counts])
        rows.append(np.cumsum(counts)[:-1])
        weights.append(ways * np.prod(distribution**counts))
    table = np.array(rows)
    likelihood = np.array(weights) * np.exp(-epsilon * np.abs(noisy[:, None] - table).sum(axis=2))
    found = floor.exact_medians(noisy, floor.transitions(distribution, groups), epsilon)
    for of_seed, medians in zip(likelihood / likelihood.sum(axis=1, keepdims=True), found, strict=True):
        for k, median in enumerate(medians):
            assert of_seed[table[:, k] <= median].sum() >= 0.5 > of_seed[table[:, k] < median].sum()
    assert floor.run(small=True, out=tmp_path, reporter=Recorder()).ok
    (row, *_) = rows_of(tmp_path / "beyond" / "floor.csv")
    assert 0.5 < float(row["posterior / floor"]) < 2.0


def test_the_floor_of_a_tree_is_drawn_from_the_posterior_found_by_enumeration(tmp_path: Path) -> None:
    distribution, noisy = np.array([0.4, 0.3, 0.2, 0.1]), [[3, 4, 8], [0, 2, 5], [3, 3, 3]]
    answers = [Answers(n, Buckets.cells(3), np.array(row), Geometric(Fraction(2))) for n, row in enumerate(noisy)]
    survey = Survey(np.array([-1, 0, 0]), np.array([8, 4, 4]), 3, answers)
    states, weights = tiny.posterior(survey, Learned(np.tile(distribution, (2, 1))))
    means = np.tensordot(weights, np.array([tiny.table_of(survey, state) for state in states]), 1)
    options = SamplerOptions(draws=200, least_rounds=5, threads=1)
    drawn = floor_tree.exact_posterior(survey, distribution, 5, options)
    np.testing.assert_allclose(drawn.mean, means, atol=0.08)
    assert floor_tree.run(small=True, out=tmp_path, reporter=Recorder()).ok
    rows = rows_of(tmp_path / "beyond" / "floor_tree.csv")
    assert [row["level"] for row in rows] == list(floor_tree.LEVELS)
    assert all(0.5 < float(row["posterior / floor"]) < 2.0 for row in rows)


def test_a_posterior_far_from_the_floor_of_a_tree_is_told() -> None:
    case = floor_tree.cases(small=True)[0]
    tables = floor_tree.summary({case: [[[10.0, 5.0, 4.0], [11.0, 6.0, 4.0]], [[10.0, 5.0, 4.0], [12.0, 6.0, 4.0]]]})
    assert [(row[6], row[8]) for row in tables[""].rows] == [(1.15, 2), (1.2, 2), (1.0, 2)]
    (line,) = floor_tree.failures(tables["_mean"])
    assert line.startswith("epsilon 1, states: the posterior errs by 1.20 times the floor")


def test_the_planner_asks_cells_where_groups_are_dense() -> None:
    dense = Case.of("made", generated_counts(1, 1, 50_000, 5, np.random.default_rng(1)), 5)
    assert planned(dense).growth == (0.0,) * 3


def test_coverage_counts_wide_intervals_only_and_splits_ties() -> None:
    case = Case.of("made", generated_counts(1, 1, 30, 5, np.random.default_rng(1)), 5)
    short = SamplerOptions(chains=2, burn_in=20, most_burn_in=40, settle=10, draws=20, thin=1, most_rounds=2)
    noisy = QueryPlan("", (0.0,) * 3, (Fraction(1, 3),) * 3).measured(case, 3)
    found = posterior_estimate(noisy, SolverChoices(), sizes=True, options=short)
    intervals = found.intervals(coverage.COVERAGE)
    for counts, levels in coverage.coverage_of(case, found).items():
        assert [len(classes) for classes in levels] == [3, 3, 3]
        assert all(one.uncertain == 0.0 and np.isnan(one.inside) for classes in levels for one in classes[1:])
        assert all(one.split <= one.inside for classes in levels for one in classes[:1])
        assert counts in {"of at most a size", "of a size"}
    sizes = np.array([one.to_dense(5) for one in case.truth])
    wide = intervals.groups_lower[0] < intervals.groups_upper[0]
    inside = (intervals.groups_lower[0] <= sizes[0]) & (sizes[0] <= intervals.groups_upper[0])
    (root, *_), *_ = coverage.coverage_of(case, found)["of a size"]
    assert root.uncertain == pytest.approx(wide.mean())
    assert root.inside == pytest.approx(inside[wide].mean())


def test_made_data_are_what_their_names_say() -> None:
    tree, truth = wrong_priors.truth_of(wrong_priors.PriorCase("one huge group a leaf", 50, Fraction(1)), 3)
    assert truth[0].groups == 450
    assert truth[0].to_dense(200)[180] == 9
    assert truth[0].equals(CountOfCounts.total(truth[leaf] for leaf in tree.leaves))
    _, spikes = wrong_priors.truth_of(wrong_priors.PriorCase("two spikes", 50, Fraction(1)), 3)
    assert np.flatnonzero(spikes[0].to_dense(200)).tolist() == [7, 40]


def test_the_small_bench_is_right_and_written(tmp_path: Path) -> None:
    outcome = small_run(bench, tmp_path)
    assert [file.suffix for file in outcome.files] == [".csv", ".json"]


def test_loss_distributions_save_noise_on_both_allocations() -> None:
    kuo, census = loss_distributions.allocations().values()
    assert sum(share for share, _ in kuo) == sum(share for share, _ in census) == 1
    assert len(census) == 55
    kept = {"Kuo, three levels": kuo}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_distributions, "allocations", lambda: kept)  # the other takes seconds
        (row,) = loss_distributions.rows(loss_distributions.PAIRS[2:3])
    saved, reached = row[-2:]
    assert 0.12 < float(str(saved)) < 0.14
    assert 0.99 < float(str(reached)) <= 1
