"""How near the groups' posterior comes to the best possible: the exact posterior under the true distribution.

One region of G groups, whose sizes are drawn independently from a known distribution on 0 .. 40; noisy cumulative
counts of every size. Whoever knows the distribution finds the medians of the cumulative counts exactly, by
forward-backward sums over binomial transitions: their mean error is the floor, which no estimator goes below on
average. The posterior and joint estimation read the same noise without knowing it.

``floor_tree``: the same where all regions of a tree share one distribution. A nation of three states of three counties;
each county has G groups, whose sizes are drawn independently from a known distribution on 0 .. 40. Total epsilon is
shared evenly by the levels, and the cumulative counts of every size are measured. Counts of different counties depend
on one another through the noisy sums above them, so that sums over one region's counts no longer give the exact
posterior. It is drawn instead: by the chains of the posterior itself, with the true distribution in the place of the
prior. Medians of these draws are the floor, but for the error of finitely many draws. In one region they are those of
``floor.exact_medians``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
from scipy import special

from coco_experiments.groups import SEEDED, Case, evenly
from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMeasurements
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.groups.estimating.posterior.chains import Learned, SizeLearner
from coco_opt.groups.estimating.posterior.observations import Survey, survey_of
from coco_opt.groups.estimating.posterior.prior import PriorOptions
from coco_opt.groups.estimating.posterior.sampler import Posterior, Sampler, SamplerOptions, chain_kind
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
    rows: list[Record] = []
    for runs in results:
        floor, *others = np.mean(runs.found, axis=0).tolist()
        errors = dict(zip(METHODS, others, strict=True))
        over = {f"{name} / floor": error / floor if floor else None for name, error in errors.items()}
        case = runs.case
        key: Record = {"sizes": case.distribution, "groups": case.groups, "epsilon": f"{case.epsilon}"}
        rows.append({**key, "floor": floor, **errors, **over, "runs": len(runs.found)})
    notes = (
        SEEDED,
        f"One region, sizes 0 to {MAX_SIZE}, a noisy cumulative count of each. The floor knows the distribution.",
    )
    return Report({"": Table.of("Distance to the truth (entities) against the best possible", rows, notes)})


FLOOR = Study("beyond/floor", plan, measure, report)


PARTS = 3  # of a nation, and of each of these
LEVELS = ("nation", "states", "counties")
SMOOTH = ("geometric", "steep", "two bumps")
WANTED = 1.15
RATIO = "posterior / floor"
_LEAST = 1e-12  # probability of a size that never occurs, so that chains have logarithms of all


class _Known(SizeLearner):
    """Learns nothing: every leaf has the same known distribution of sizes."""

    def __init__(self, distribution: Floats, leaves: int) -> None:
        positive = np.maximum(distribution, _LEAST)
        self._learned = Learned(np.tile(positive / positive.sum(), (leaves, 1)))

    def learn(self, counts: Floats) -> Learned:
        """Return the known distribution."""
        return self._learned


def exact_posterior(survey: Survey, distribution: Floats, seed: int, options: SamplerOptions) -> Posterior:
    """Return draws of all counts under a known distribution of sizes, which all regions share."""
    sampler = Sampler(survey, seed, PriorOptions(), options, chain_kind(survey))
    sampler.learner = _Known(distribution, survey.leaves.size)
    with ThreadPoolExecutor(options.threads) as pool:
        return sampler.run(pool)


TREE = Hierarchy.from_paths([("nation", f"state {n}", f"county {m}") for n in range(PARTS) for m in range(PARTS)])


def measure_tree(case: FloorCase, seed: int) -> list[list[float]]:
    """Return the mean errors of a region at each level, of the exact posterior's medians and of the posterior."""
    data, options = case.drawn(TREE, seed), SamplerOptions(draws=50, least_rounds=4)
    measurement = data.measured(seed, evenly(case.epsilon, data.levels))
    drawn = exact_posterior(
        survey_of(GroupsMeasurements(measurement)), distributions()[case.distribution], seed, options
    )
    truth = np.array([histogram.cumulative(MAX_SIZE)[:-1] for histogram in data.truth])
    floor = np.abs(drawn.quantile(1, 2) - truth).sum(axis=1).astype(np.float64)
    estimate = estimate_groups(measurement, GroupsMethod("l1", consistency="posterior"), SolverChoices())
    return [list(data.by_level(floor)), list(data.errors(estimate.histograms))]


def over(above: Floats, below: Floats) -> tuple[float, float | None]:
    """Return mean(above) / mean(below) of paired runs, and its standard error (delta method)."""
    ratio = float(above.mean() / below.mean())
    spread = float(np.std(above - ratio * below, ddof=1)) if above.size > 1 else None
    return ratio, None if spread is None else spread / float(below.mean()) / math.sqrt(above.size)


def plan_tree(data: Path | None, small: bool) -> list[tuple[FloorCase, Sequence[int]]]:
    """Return all cases; no data are read."""
    return seeded(cases(SMOOTH[:1] if small else SMOOTH, small=small), SEEDS[: 1 if small else None])


def report_tree(results: Sequence[Runs[FloorCase, list[list[float]]]], path: Path) -> Report:
    """Return the ratios by case and level, and their means; it fails where the posterior errs more than wanted."""
    rows: list[Record] = []
    for runs in results:
        case, errors = runs.case, np.array(runs.found)
        for level, name in enumerate(LEVELS):
            floor, own = errors[:, 0, level], errors[:, 1, level]
            ratio, spread = over(own, floor)
            key = {"sizes": case.distribution, "groups a county": case.groups, "epsilon": f"{case.epsilon}"}
            errors_of = {"level": name, "floor": float(floor.mean()), "posterior": float(own.mean())}
            rows.append({**key, **errors_of, RATIO: ratio, "standard error": spread, "runs": floor.size})
    means: list[Record] = []
    failures = []
    for epsilon, name in dict.fromkeys((row["epsilon"], name) for row in rows for name in LEVELS):
        ratios = [float(row[RATIO] or 0) for row in rows if (row["epsilon"], row["level"]) == (epsilon, name)]
        mean, largest = float(np.mean(ratios)), max(ratios)
        means.append(
            {"epsilon": epsilon, "level": name, f"{RATIO}, mean": mean, "largest": largest, "cases": len(ratios)}
        )
        if mean > WANTED:
            words = f"the posterior errs by {mean:.2f} times the floor, wanted are {WANTED}"
            failures.append(f"epsilon {epsilon}, {name}: {words}")
    tree = f"A nation of {PARTS} states of {PARTS} counties; total epsilon, shared evenly by the levels."
    notes = (SEEDED, f"{tree} Sizes 0 to {MAX_SIZE}. The floor knows the distribution.")
    title = "Distance to the truth (entities) of a region against the best possible, in a tree"
    tables = {"": Table.of(title, rows, notes), "_mean": Table.of(f"{title}: all cases", means)}
    return Report(tables, failures=failures)


FLOOR_TREE = Study(
    "beyond/floor_tree", plan_tree, measure_tree, report_tree, fails_small=False, key=lambda *job: f"{job}"
)
