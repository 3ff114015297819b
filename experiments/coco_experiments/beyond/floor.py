"""How near the groups' posterior comes to the best possible: the exact posterior under the true distribution.

One region of G groups, whose sizes are drawn independently from a known distribution on 0 .. 40; noisy cumulative
counts of every size. Whoever knows the distribution finds the medians of the cumulative counts exactly, by
forward-backward sums over binomial transitions: their mean error is the floor, which no estimator goes below on
average. The posterior and joint estimation read the same noise without knowing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy import special

from coco_experiments.kuo2018.sweep import SEEDED
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMeasurements, measure_hierarchy
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.histograms import CountOfCounts, Hierarchy, emd
from coco_opt.privacy import Epsilon, SeededNoise

NAME = "beyond/floor"
SEEDS = tuple(range(2018, 2038))
SMALL_SEEDS = SEEDS[:2]
EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
GROUPS = (60, 200, 2_000)
MAX_SIZE = 40
METHODS: tuple[Consistency, ...] = ("joint", "posterior")
COLUMNS = ("sizes", "groups", "epsilon", "floor", "joint", "posterior", "joint / floor", "posterior / floor", "runs")


def distributions() -> Mapping[str, Floats]:
    """Return the distributions of sizes, float64[41] of sum 1 each."""
    k = np.arange(MAX_SIZE + 1)
    every = {
        "geometric": np.where(k > 0, 0.75**k, 0.0),
        "steep": 1.0 / (1.0 + k) ** 3,
        "two bumps": np.exp(-0.5 * ((k - 8) / 2.0) ** 2) + 0.6 * np.exp(-0.5 * ((k - 25) / 4.0) ** 2),
        "two spikes": np.isin(k, [7, 30]).astype(np.float64),
    }
    return {name: weights / weights.sum() for name, weights in every.items()}


def transitions(distribution: Floats, groups: int) -> list[Floats]:
    """Return P(Hc[k] = j | Hc[k - 1] = i) for every size k below the largest, float64[G + 1, G + 1] each.

    Given that i groups are smaller than k, each of the others has size k with the probability pi_k / sum_(m >= k) pi_m.
    """
    before, after = np.ogrid[: groups + 1, : groups + 1]
    ways = special.gammaln(groups - before + 1) - special.gammaln(np.maximum(after - before, 0) + 1)
    ways = ways - special.gammaln(groups - after + 1)
    left = np.maximum(distribution[::-1].cumsum()[::-1], 1e-300)
    matrices = []
    for share in np.minimum(distribution / left, 1.0)[:-1]:
        logs = ways + special.xlogy(after - before, share) + special.xlog1py(groups - after, -share)
        matrices.append(np.exp(np.where(after >= before, logs, -np.inf)))
    return matrices


def exact_medians(noisy: Ints, matrices: list[Floats], epsilon: float) -> Ints:
    """Return the posterior medians of all cumulative counts, int64[seeds, K], of noisy ones; O(seeds K G^2)."""
    groups = matrices[0].shape[0] - 1
    distance = np.abs(noisy[:, :, None] - np.arange(groups + 1))
    likelihood = np.exp(-epsilon * (distance - distance.min(axis=2, keepdims=True)))
    forward = np.zeros((len(matrices), noisy.shape[0], groups + 1))
    state = np.zeros((noisy.shape[0], groups + 1))
    state[:, 0] = 1.0
    for k, matrix in enumerate(matrices):
        state = state @ matrix * likelihood[:, k]
        state /= state.sum(axis=1, keepdims=True)
        forward[k] = state
    medians = np.empty(noisy.shape, np.int64)
    backward = np.ones_like(state)
    for k in range(len(matrices) - 1, -1, -1):
        marginal = forward[k] * backward
        marginal /= marginal.sum(axis=1, keepdims=True)
        medians[:, k] = (marginal.cumsum(axis=1) >= 0.5).argmax(axis=1)
        backward = (backward * likelihood[:, k]) @ matrices[k].T
        backward /= backward.max(axis=1, keepdims=True)
    return medians


@dataclass(frozen=True, slots=True)
class FloorCase:
    """The name of a distribution, the number of groups, and epsilon."""

    distribution: str
    groups: int
    epsilon: Fraction


def errors_of(case: FloorCase, seeds: tuple[int, ...]) -> Floats:
    """Return the errors float64[seeds, 3] of the exact posterior, of joint estimation and of the posterior."""
    distribution = distributions()[case.distribution]
    noisy, truth, errors = [], [], np.zeros((len(seeds), 3))
    for n, seed in enumerate(seeds):
        sizes = np.random.default_rng(seed).choice(MAX_SIZE + 1, case.groups, p=distribution)
        histogram = CountOfCounts.from_ranks(np.sort(sizes))
        measurement = measure_hierarchy(
            [histogram],
            Hierarchy.from_paths([("nation",)]),
            [case.groups],
            queries=["cumulative"],
            costs=[Epsilon(case.epsilon)],
            max_size=MAX_SIZE,
            neighbours="add_remove",
            source=SeededNoise(seed),
        )
        noisy.append(GroupsMeasurements(measurement)[0].values)
        truth.append(np.cumsum(np.bincount(sizes, minlength=MAX_SIZE + 1))[:-1])
        for place, method in enumerate(METHODS, 1):
            estimate = estimate_groups(measurement, GroupsMethod("l1", consistency=method), SolverChoices())
            errors[n, place] = emd(estimate.histograms[0], histogram)
    medians = exact_medians(np.array(noisy), transitions(distribution, case.groups), float(case.epsilon))
    errors[:, 0] = np.abs(medians - np.array(truth)).sum(axis=1)
    return errors


def cases(*, small: bool) -> list[FloorCase]:
    """Return all cases; small: the fewest groups at the largest epsilon."""
    epsilons, groups = (EPSILONS[-1:], GROUPS[:1]) if small else (EPSILONS, GROUPS)
    return [FloorCase(name, number, epsilon) for epsilon in epsilons for number in groups for name in distributions()]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/floor`` as CSV; small: two seeds of few cases. ``data`` are not read."""
    rows: list[tuple[Cell, ...]] = []
    seeds, chosen = SMALL_SEEDS if small else SEEDS, cases(small=small)
    for done, case in enumerate(chosen, 1):
        errors = errors_of(case, seeds)
        floor, *others = errors.mean(axis=0).tolist()
        quotients = [error / floor if floor else None for error in others]
        rows.append((case.distribution, case.groups, str(case.epsilon), floor, *others, *quotients, len(seeds)))
        reporter.progress(NAME, done, len(chosen))
    notes = (
        SEEDED,
        f"One region, sizes 0 to {MAX_SIZE}, a noisy cumulative count of each. The floor knows the distribution.",
    )
    table = Table("Distance to the truth (entities) against the best possible", COLUMNS, tuple(rows), notes)
    return publish(NAME, {"": table}, out, reporter)
