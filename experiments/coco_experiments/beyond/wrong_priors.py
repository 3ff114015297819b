"""The posterior where a smooth prior is wrong: uniform sizes with an edge, two spikes, Poisson, one huge group a leaf.

Simulated data of nine leaves on three levels, cells asked, even split; joint estimation reads the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.groups import SEEDED, Case, evenly, means_of
from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.array_types import Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.histograms import Hierarchy

SEEDS = (2018, 2019, 2020, 2021, 2022)
DISTRIBUTIONS = ("uniform", "two spikes", "Poisson", "one huge group a leaf")
EPSILONS = (Fraction(1), Fraction(1, 20))
GROUPS = (200, 4_000)
MAX_SIZE = 200
METHODS: tuple[Consistency, ...] = ("joint", "posterior")
TREE = Hierarchy.from_paths([("nation", f"s{state}", f"c{county}") for state in range(3) for county in range(3)])


@dataclass(frozen=True, slots=True)
class PriorCase:
    """A distribution of sizes, the groups of each of nine leaves, and the total epsilon."""

    distribution: str
    groups: int
    epsilon: Fraction


def sizes_of(distribution: str, groups: int, rng: np.random.Generator) -> Ints:
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


def measure(case: PriorCase, seed: int) -> list[list[float]]:
    """Return the errors by level of joint estimation and of the posterior, from the same noise."""
    rng = np.random.default_rng(seed)
    sizes = [sizes_of(case.distribution, case.groups, rng) for _ in TREE.leaves]
    data = Case.of_leaves(case.distribution, TREE, sizes, MAX_SIZE)
    noisy = data.measured(seed, evenly(case.epsilon, data.levels))
    estimates = (estimate_groups(noisy, GroupsMethod("l1", consistency=method), SolverChoices()) for method in METHODS)
    return [list(data.errors(estimate.histograms)) for estimate in estimates]


def plan(data: Path | None, small: bool) -> list[tuple[PriorCase, Sequence[int]]]:
    """Return all cases; small: the two spikes of few groups alone. No data are read."""
    if small:
        return seeded([PriorCase("two spikes", GROUPS[0], EPSILONS[0])], SEEDS[:1])
    return seeded((PriorCase(*case) for case in product(DISTRIBUTIONS, GROUPS, EPSILONS)), SEEDS)


def report(results: Sequence[Runs[PriorCase, list[list[float]]]], path: Path) -> Report:
    """Return the errors of both methods by case and level, and their quotient."""
    rows: list[Record] = []
    for runs in results:
        case, errors = runs.case, np.array(runs.found)
        joint, posterior = errors.mean(axis=0).tolist()
        differences = means_of((errors[:, 1] - errors[:, 0]).tolist())
        for level, difference in enumerate(differences):
            key: Record = {
                "sizes": case.distribution,
                "groups a leaf": case.groups,
                "epsilon": f"{case.epsilon}",
            }
            shown: Record = {"level": level, "joint": joint[level], "posterior": posterior[level]}
            quotient = posterior[level] / joint[level] if joint[level] else None
            paired: Record = {"times joint": quotient, "paired": difference.signed, "runs": difference.runs}
            rows.append({**key, **shown, **paired})
    notes = (
        SEEDED,
        f"Nine leaves on three levels, sizes up to {MAX_SIZE}, cells, even split, the same noise for both.",
    )
    return Report({"": Table.of("Wrong priors: mean distance (entities) a region", rows, notes)})


WRONG_PRIORS = Study("beyond/wrong_priors", plan, measure, report)
