"""Regions that differ size by size: the answers say so before the run, and refute a posterior that denies it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from coco_opt import CountOfCounts, GroupsMethod, Hierarchy, SolverChoices, emd, estimate_groups, measure_hierarchy
from coco_opt.array_types import Floats
from coco_opt.groups.estimating.posterior import sampler
from coco_opt.groups.estimating.posterior.observations import survey_of
from coco_opt.groups.estimating.posterior.prior import only_last
from coco_opt.groups.estimating.posterior.spikes import rough_sizes
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.posterior.comparison import Excess
from coco_opt.privacy import Epsilon, Measurement, SeededNoise

MAX_SIZE, GROUPS = 15, 2_000
TREE = Hierarchy.from_paths([("nation", f"part{leaf % 3}", f"leaf{leaf}") for leaf in range(12)])
LAW = 0.75 ** np.arange(MAX_SIZE + 1) / (0.75 ** np.arange(MAX_SIZE + 1)).sum()


def measured(seed: int, concentration: float) -> tuple[Measurement, list[CountOfCounts]]:
    """Measure regions whose distributions are Dirichlet around their parents', or all the same for infinity."""
    rng = np.random.default_rng(seed)

    def around(law: Floats) -> Floats:
        return law if np.isinf(concentration) else rng.dirichlet(np.maximum(concentration * law, 1e-6))

    parts = [around(LAW) for _ in range(3)]
    truth = [CountOfCounts.empty()] * TREE.regions
    for leaf in TREE.leaves:
        counts = rng.multinomial(GROUPS, around(parts[TREE.parent[leaf] - 1]))
        truth[leaf] = CountOfCounts.from_ranks(np.repeat(np.arange(MAX_SIZE + 1), counts))
    for region in (3, 2, 1, 0):
        truth[region] = CountOfCounts.total(truth[child] for child in TREE.children(region))
    noisy = measure_hierarchy(
        truth,
        TREE,
        [histogram.groups for histogram in truth],
        queries=["cumulative"] * 3,
        costs=Epsilon(Fraction(1)).shared(["1/100", "1/100", "98/100"]),
        max_size=MAX_SIZE,
        neighbours="add_remove",
        source=SeededNoise(seed),
    )
    return noisy, truth


def test_answers_tell_rough_departures_from_one_distribution() -> None:
    alone = only_last(MAX_SIZE + 1)

    def rough(concentration: float) -> list[int]:
        surveys = (survey_of(GroupsMeasurements(measured(seed, concentration)[0])) for seed in range(20))
        return [rough_sizes(survey, alone, 0.6) for survey in surveys]

    assert min(rough(500.0)) >= 7
    assert np.count_nonzero(rough(np.inf)) <= 2


def test_rough_departures_cost_no_more_than_the_leaves_alone() -> None:
    errors = []
    for seed in range(4):
        noisy, truth = measured(seed, 200.0)
        for method in ("bottom_up", "posterior"):
            tables = estimate_groups(noisy, GroupsMethod(consistency=method), SolverChoices()).histograms  # type: ignore[arg-type]
            errors.append(sum(emd(*pair) for pair in zip(tables, truth, strict=True)))
    assert sum(errors[1::2]) < 1.1 * sum(errors[::2])


def test_a_refuted_posterior_is_replaced_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy, _ = measured(2, 100.0)
    trusted = estimate_groups(noisy, GroupsMethod(consistency="posterior")).convergence
    assert trusted is not None
    assert trusted.refuted_words(TREE.names) == ""
    monkeypatch.setattr(sampler, "rough_sizes", lambda *_: 0)  # the prior denies what the answers say
    refuted = estimate_groups(noisy, GroupsMethod(consistency="posterior"))
    matching = estimate_groups(noisy, GroupsMethod(consistency="matching"))
    assert refuted.convergence is not None
    assert refuted.convergence.instead == "matching"
    assert "refute" in refuted.convergence.refuted_words(("nation", "part", "leaf"))
    assert all(one.equals(two) for one, two in zip(refuted.histograms, matching.histograms, strict=True))
    intervals = estimate_groups(noisy, replace(GroupsMethod(consistency="posterior"), intervals=0.9))
    assert intervals.convergence is not None
    assert intervals.convergence.refuted
    assert intervals.convergence.instead == ""


def test_distances_of_a_right_model_are_expected_and_those_of_a_sure_one_are_not() -> None:
    rng = np.random.default_rng(5)
    truth = rng.normal(0.0, 2.0, 20_000)
    noisy = truth + rng.laplace(0.0, 1.0, truth.size)
    share = 4.0 / 6.0  # of the prior's variance in all of it: the best linear mean, whose variance is share x noise
    error = np.full(truth.size, 2.0)
    right = Excess.of(noisy - share * noisy, np.full(truth.size, share * 2.0), error, by_model=True)
    sure = Excess.of(noisy - 0.1 * noisy, np.full(truth.size, 0.1 * 2.0), error, by_model=True)
    assert not right.refutes()
    assert abs(right.share) < 0.05
    assert sure.refutes()
    assert (right + sure).excess == pytest.approx(right.excess + sure.excess)
