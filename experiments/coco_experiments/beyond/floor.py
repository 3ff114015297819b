"""How near the groups' posterior comes to the best possible: the exact posterior under the true distribution.

One region of G groups, whose sizes are drawn independently from a known distribution on 0 .. 40; noisy cumulative
counts of every size. Whoever knows the distribution finds the medians of the cumulative counts exactly, by
forward-backward sums over binomial transitions: their mean error is the floor, which no estimator goes below on
average. The posterior and joint estimation read the same noise without knowing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
from scipy import special

from coco_experiments.groups import SEEDED, Case
from coco_experiments.outcome import Cell, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMeasurements
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon

SEEDS = tuple(range(2018, 2038))
SMALL_SEEDS = SEEDS[:2]
EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
GROUPS = (60, 200, 2_000)
MAX_SIZE = 40
METHODS: tuple[Consistency, ...] = ("joint", "posterior")


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
    """Return the posterior medians of all cumulative counts, int64[K], of noisy ones; O(K G^2)."""
    groups = matrices[0].shape[0] - 1
    distance = np.abs(noisy[:, None] - np.arange(groups + 1))
    likelihood = np.exp(-epsilon * (distance - distance.min(axis=1, keepdims=True)))
    forward, state = np.zeros((len(matrices), groups + 1)), np.eye(1, groups + 1)[0]
    for k, matrix in enumerate(matrices):
        state = state @ matrix * likelihood[k]
        state /= state.sum()
        forward[k] = state
    medians, backward = np.empty(noisy.shape, np.int64), np.ones_like(state)
    for k in range(len(matrices) - 1, -1, -1):
        marginal = forward[k] * backward
        medians[k] = (marginal.cumsum() >= 0.5 * marginal.sum()).argmax()
        backward = (backward * likelihood[k]) @ matrices[k].T
        backward /= backward.max()
    return medians


@dataclass(frozen=True, slots=True)
class FloorCase:
    """The name of a distribution, the number of groups, and epsilon."""

    distribution: str
    groups: int
    epsilon: Fraction

    def drawn(self, hierarchy: Hierarchy, seed: int) -> Case:
        """Return the sizes of so many groups in every leaf, drawn from the distribution."""
        shape = len(hierarchy.leaves), self.groups
        sizes = np.random.default_rng(seed).choice(MAX_SIZE + 1, shape, p=distributions()[self.distribution])
        return Case.of_leaves(self.distribution, hierarchy, sizes, MAX_SIZE)


def measure(case: FloorCase, seed: int) -> list[float]:
    """Return the errors of the exact posterior, of joint estimation and of the posterior under one seed."""
    data = case.drawn(Hierarchy.from_paths([("nation",)]), seed)
    measurement, (truth,) = data.measured(seed, [Epsilon(case.epsilon)]), data.truth
    noisy, matrices = (
        GroupsMeasurements(measurement)[0].values,
        transitions(distributions()[case.distribution], case.groups),
    )
    medians = exact_medians(noisy, matrices, float(case.epsilon))
    estimates = (
        estimate_groups(measurement, GroupsMethod("l1", consistency=method), SolverChoices()) for method in METHODS
    )
    floor = float(np.abs(medians - truth.cumulative(MAX_SIZE)[:-1]).sum())
    return [floor, *(data.errors(estimate.histograms)[0] for estimate in estimates)]


def cases(names: Sequence[str], *, small: bool) -> list[FloorCase]:
    """Return all cases; small: the fewest groups at the largest epsilon."""
    epsilons, groups = (EPSILONS[-1:], GROUPS[:1]) if small else (EPSILONS, GROUPS)
    return [FloorCase(name, number, epsilon) for epsilon, number, name in product(epsilons, groups, names)]


def plan(data: Path | None, small: bool) -> list[tuple[FloorCase, Sequence[int]]]:
    """Return all cases; no data are read."""
    return seeded(cases(list(distributions()), small=small), SMALL_SEEDS if small else SEEDS)


def report(results: Sequence[Runs[FloorCase, list[float]]], path: Path) -> Report:
    """Return a row a case: mean errors, and those of both methods over the floor."""
    rows: list[dict[str, Cell]] = []
    for runs in results:
        floor, *others = np.mean(runs.found, axis=0).tolist()
        errors = dict(zip(METHODS, others, strict=True))
        over = {f"{name} / floor": error / floor if floor else None for name, error in errors.items()}
        case = runs.case
        key: dict[str, Cell] = {"sizes": case.distribution, "groups": case.groups, "epsilon": f"{case.epsilon}"}
        rows.append({**key, "floor": floor, **errors, **over, "runs": len(runs.found)})
    notes = (
        SEEDED,
        f"One region, sizes 0 to {MAX_SIZE}, a noisy cumulative count of each. The floor knows the distribution.",
    )
    return Report({"": Table.of("Distance to the truth (entities) against the best possible", rows, notes)})


FLOOR = Study("beyond/floor", plan, measure, report)
