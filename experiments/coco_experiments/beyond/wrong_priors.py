"""The posterior where a smooth prior is wrong: uniform sizes with an edge, two spikes, Poisson, one huge group a leaf.

Simulated data of nine leaves on three levels, cells asked, even split; joint estimation reads the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_experiments.kuo2018.sweep import SEEDED, means_of
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_opt.choices import SolverChoices
from coco_opt.groups import measure_hierarchy
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.histograms import CountOfCounts, Hierarchy, emd
from coco_opt.privacy import Epsilon, Measurement, SeededNoise

NAME = "beyond/wrong_priors"
SEEDS = (2018, 2019, 2020, 2021, 2022)
DISTRIBUTIONS = ("uniform", "two spikes", "Poisson", "one huge group a leaf")
EPSILONS = (Fraction(1), Fraction(1, 20))
GROUPS = (200, 4_000)
MAX_SIZE = 200
LEVELS = 3
COLUMNS = ("sizes", "groups a leaf", "epsilon", "level", "joint", "posterior", "times joint", "paired", "runs")


@dataclass(frozen=True, slots=True)
class PriorCase:
    """A distribution of sizes, the groups of each of nine leaves, and the total epsilon."""

    distribution: str
    groups: int
    epsilon: Fraction


def sizes_of(distribution: str, groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the sizes of so many groups, int64[groups]."""
    if distribution == "uniform":
        sizes = rng.integers(0, 101, groups)
    elif distribution == "two spikes":
        sizes = np.where(rng.random(groups) < 0.5, 7, 40)
    elif distribution == "Poisson":
        sizes = rng.poisson(20, groups)
    else:
        sizes = np.append(rng.geometric(0.3, groups - 1), 180)
    return np.minimum(sizes, MAX_SIZE).astype(np.int64)


def truth_of(case: PriorCase, seed: int) -> tuple[Hierarchy, list[CountOfCounts]]:
    """Return three states of three counties each, and every region's true histogram."""
    rng = np.random.default_rng(seed)
    tree = Hierarchy.from_paths([("nation", f"s{state}", f"c{county}") for state in range(3) for county in range(3)])
    truth = [CountOfCounts.empty()] * tree.regions
    for leaf in tree.leaves:
        truth[leaf] = CountOfCounts.from_ranks(np.sort(sizes_of(case.distribution, case.groups, rng)))
    for region in reversed(range(tree.regions)):
        children = tree.children(region)
        if len(children):
            truth[region] = CountOfCounts.total(truth[child] for child in children)
    return tree, truth


def errors_of(case: PriorCase, seed: int) -> NDArray[np.float64]:
    """Return the mean errors float64[2, levels] of joint estimation and of the posterior, from the same noise."""
    tree, truth = truth_of(case, seed)
    noisy = measure_hierarchy(
        truth,
        tree,
        [histogram.groups for histogram in truth],
        queries=["cumulative"] * LEVELS,
        costs=[Epsilon(case.epsilon / LEVELS)] * LEVELS,
        max_size=MAX_SIZE,
        neighbours="add_remove",
        source=SeededNoise(seed),
    )
    methods: tuple[Consistency, ...] = ("joint", "posterior")
    return np.array([_errors(noisy, tree, truth, method) for method in methods])


def _errors(noisy: Measurement, tree: Hierarchy, truth: Sequence[CountOfCounts], method: Consistency) -> list[float]:
    estimates = estimate_groups(noisy, GroupsMethod("l1", consistency=method), SolverChoices()).histograms
    away = np.array([emd(a, b) for a, b in zip(estimates, truth, strict=True)], np.float64)
    return [float(away[tree.level == level].mean()) for level in range(LEVELS)]


def wrong_prior_table(cases: Sequence[PriorCase], seeds: Sequence[int], reporter: Reporter) -> Table:
    """Return the errors of both methods by case and level, and their quotient."""
    rows: list[tuple[Cell, ...]] = []
    for done, case in enumerate(cases, 1):
        errors = np.array([errors_of(case, seed) for seed in seeds])
        joint, posterior = errors.mean(axis=0)
        differences = means_of([tuple(row) for row in errors[:, 1] - errors[:, 0]])
        for level, difference in enumerate(differences):
            quotient = float(posterior[level] / joint[level]) if joint[level] else None
            shown = float(joint[level]), float(posterior[level]), quotient, difference.signed, len(seeds)
            rows.append((case.distribution, case.groups, str(case.epsilon), level, *shown))
        reporter.progress(NAME, done, len(cases))
    notes = (
        SEEDED,
        f"Nine leaves on three levels, sizes up to {MAX_SIZE}, cells, even split, the same noise for both.",
    )
    return Table("Wrong priors: mean distance (entities) a region", COLUMNS, tuple(rows), notes)


def cases(*, small: bool) -> list[PriorCase]:
    """Return all cases; small: the two spikes of few groups alone."""
    if small:
        return [PriorCase("two spikes", GROUPS[0], EPSILONS[0])]
    return [
        PriorCase(distribution, groups, epsilon)
        for distribution in DISTRIBUTIONS
        for groups in GROUPS
        for epsilon in EPSILONS
    ]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/wrong_priors`` as CSV; small: one seed of one case. ``data`` are not read."""
    table = wrong_prior_table(cases(small=small), SEEDS[:1] if small else SEEDS, reporter)
    return publish(NAME, {"": table}, out, reporter)
