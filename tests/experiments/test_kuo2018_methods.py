"""Draws, methods, sweeps and the exact shortcut of rank noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from coco_experiments.kuo2018 import sweep
from coco_experiments.kuo2018.cases import Case
from coco_experiments.kuo2018.draws import Draws, errors_by_level, omniscient_line
from coco_experiments.kuo2018.methods import (
    Method,
    alone,
    combinations,
    convexly,
    jointly,
    leaves_only,
    matched,
)
from coco_experiments.kuo2018.noisy_answers import answer_of
from coco_experiments.kuo2018.rank_shortcut import estimate_ranks, face_lengths, noisy_faces
from coco_experiments.kuo2018.shared_noise import SharedNoise
from coco_experiments.simulated import generated_counts

from coco_opt.choices import SolverChoices
from coco_opt.errors import ConfigError
from coco_opt.groups import GroupsMeasurements
from coco_opt.groups.estimating.estimators import FitOptions, estimate
from coco_opt.histograms import CountOfCounts, emd
from coco_opt.privacy import SeededNoise, resolve_noise
from tests.experiments.recorder import Recorder

ONE = Fraction(1)


@pytest.fixture
def case() -> Case:
    return Case.of("made", generated_counts(2, 3, 80, 30, np.random.default_rng(6)), 60)


def test_face_lengths_partition_every_run() -> None:
    counts = np.array([1, 0, 5, 1_000_000])
    run, length = face_lengths(counts, np.random.default_rng(1))
    assert np.array_equal(np.bincount(run, length, 4), counts)
    assert length.min() >= 1


def test_faces_are_as_many_as_cycles_of_random_permutations() -> None:
    # The number of cycles of a random permutation of n has mean 1 + 1/2 + ... + 1/n.
    run, _ = face_lengths(np.full(20_000, 50), np.random.default_rng(2))
    assert run.size / 20_000 == pytest.approx(sum(1 / k for k in range(1, 51)), rel=0.01)


def test_faces_come_sorted_with_the_noise_of_their_groups() -> None:
    truth = CountOfCounts([0, 7], [4_000, 3_000])
    sums, lengths = noisy_faces(truth, Fraction(2), np.random.default_rng(3))
    assert lengths.sum() == 7_000
    first = np.cumsum(lengths) <= 4_000
    for part in (first, ~first):
        assert np.all(np.diff(sums[part] / lengths[part]) >= 0)
    totals = [noisy_faces(truth, Fraction(2), np.random.default_rng(seed))[0].sum() for seed in range(400)]
    a = np.exp(-0.5)
    assert np.mean(totals) == pytest.approx(21_000, abs=4 * np.sqrt(7_000 * 2 * a / (1 - a) ** 2 / 400))
    assert np.var(totals) == pytest.approx(7_000 * 2 * a / (1 - a) ** 2, rel=0.3)


def test_the_shortcut_has_the_error_of_noise_and_regression() -> None:
    truth = CountOfCounts([1, 2, 3, 9, 40], [60, 50, 20, 6, 1])
    solvers, options = SolverChoices(), FitOptions("l2")

    def brute(seed: int) -> float:
        answer = answer_of(truth, "ranks", region="r", max_size=100, epsilon=ONE, source=SeededNoise(seed))
        return float(emd(truth, estimate(answer, options, solvers).histogram))

    def short(seed: int) -> float:
        rng = np.random.default_rng(seed)
        found = estimate_ranks(truth, max_size=100, epsilon=ONE, rng=rng, solvers=solvers)
        return float(emd(truth, found.histogram))

    one, other = ([error(seed) for seed in range(300)] for error in (brute, short))
    spread = np.sqrt((np.var(one) + np.var(other)) / 300)
    assert abs(np.mean(one) - np.mean(other)) < 4 * spread
    assert np.std(other) == pytest.approx(np.std(one), rel=0.2)


def test_shared_noise_is_one_sequence_and_says_so() -> None:
    source = SharedNoise(4)
    one = source.stream(Fraction(3), measurement="cumulative", region="a").draw(50)
    other = source.stream(Fraction(3), measurement="cumulative", region="b").draw(70)
    assert np.array_equal(one, other[:50])
    assert not SharedNoise.private
    assert "NOT PRIVATE" in repr(source)
    for name in (SharedNoise.name, "shared"):
        with pytest.raises(ConfigError):
            resolve_noise(name, 4)


def test_draws_repeat_per_seed_and_are_kept(case: Case) -> None:
    draws, again, other = Draws(case, 1), Draws(case, 1), Draws(case, 2)
    first = draws.level(1, "ranks", ONE)
    assert draws.level(1, "ranks", ONE) is first
    assert all(a.histogram.equals(b.histogram) for a, b in zip(first, again.level(1, "ranks", ONE), strict=True))
    assert not all(a.histogram.equals(b.histogram) for a, b in zip(first, other.level(1, "ranks", ONE), strict=True))


def test_measurements_are_the_noise_the_levels_read(case: Case) -> None:
    split = (Fraction(1, 2), Fraction(0), Fraction(1, 2))
    answers = GroupsMeasurements(Draws(case, 3).measurement("cumulative", split))
    assert answers.get(1) is None
    single = Draws(case, 3).answer(0, "cumulative", Fraction(1, 2))
    assert np.array_equal(answers[0].values, single.values)


CONSISTENT = [matched(choice) for choice in combinations(3)]
CONSISTENT += [matched(("Hc",) * 3, "average"), leaves_only("Hc"), leaves_only("Hg")]
CONSISTENT += [jointly("l1"), jointly("l2"), convexly("Hc", "l1"), convexly("naive", "l1")]


@pytest.mark.parametrize("method", CONSISTENT, ids=lambda method: method.name)
def test_consistent_methods_sum_to_the_root(case: Case, method: Method) -> None:
    found = method.run(Draws(case, 1), ONE)
    assert [one.groups for one in found] == case.counts.group_counts.tolist()
    leaves = [found[leaf] for leaf in case.hierarchy.leaves]
    assert found[0].equals(CountOfCounts.total(leaves))


def test_names_of_methods_are_unique(case: Case) -> None:
    methods = [*CONSISTENT, alone(("Hc",) * 3), alone(("naive",) * 3)]
    assert len({method.name for method in methods}) == len(methods)


def test_omniscient_line_counts_distinct_sizes(case: Case) -> None:
    line = omniscient_line(case, (ONE, ONE, Fraction(1, 2)))
    assert line[0] == pytest.approx(case.truth[0].distinct * np.sqrt(2))
    leaves = [case.truth[leaf].distinct for leaf in case.hierarchy.leaves]
    assert line[2] == pytest.approx(np.mean(leaves) * 2 * np.sqrt(2))


def test_a_sweep_marks_the_best_and_caps_dear_methods(case: Case) -> None:
    exact = Method("exact", lambda draws, epsilon: draws.case.truth)
    once = Method("once", leaves_only("Hc").run, 1)
    recorder = Recorder()
    points = sweep.sweep(case, [exact, once], (ONE, Fraction(2)), (1, 2, 3), recorder)
    rows = sweep.table_of("t", points).records()
    assert len(rows) == 2 * 3 * 2
    assert all(row["best"] is (row["method"] == "exact") for row in rows)
    assert {row["runs"] for row in rows if row["method"] == "once"} == {1}
    assert {row["best method"] for row in sweep.best_table("b", points).records()} == {"exact"}
    assert recorder.steps[-1] == ("made", 6, 6)


def test_an_inconsistent_method_is_never_the_best(case: Case) -> None:
    exact = Method("exact", lambda draws, epsilon: draws.case.truth, consistent=False)
    points = sweep.sweep(case, [exact, leaves_only("Hc")], (ONE,), (1,), Recorder())
    assert {row["best method"] for row in sweep.best_table("b", points).records()} == {"bottom-up Hc"}


def test_a_sweep_means_the_runs(case: Case) -> None:
    method = matched(("Hc",) * 3)
    (point,) = sweep.sweep(case, [method], (ONE,), (5, 6), Recorder())
    runs = [errors_by_level(case, method.run(Draws(case, seed), ONE)) for seed in (5, 6)]
    assert [mean.value for mean in point.means] == pytest.approx(np.mean(runs, axis=0).tolist())
    assert point.means[0].standard_error == pytest.approx(abs(runs[0][0] - runs[1][0]) / 2)
