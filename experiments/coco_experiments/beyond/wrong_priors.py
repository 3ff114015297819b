"""The posterior where a smooth prior is wrong: uniform sizes with an edge, two spikes, Poisson, one huge group a leaf.

Simulated data of nine leaves on three levels, cells asked, even split; joint estimation reads the same noise.

And regions that differ size by size: Dirichlet-multinomial at every level, of twelve leaves in three parts, where the
posterior has the split that is chosen for few leaves, and is compared with the best of the other methods.
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
from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon

SEEDS = (2018, 2019, 2020, 2021, 2022)
ROUGH_SEEDS = tuple(range(2018, 2026))
DISTRIBUTIONS = ("uniform", "two spikes", "Poisson", "one huge group a leaf")
EPSILONS = (Fraction(1), Fraction(1, 20))
GROUPS = (200, 4_000)
MAX_SIZE = 200
METHODS: tuple[Consistency, ...] = ("joint", "posterior")
CONCENTRATIONS, ROUGH_GROUPS, ROUGH_EPSILONS = (50, 200, 2_000), (60, 300, 2_000), (Fraction(1), Fraction(3, 10))
ROUGH_SIZE = 15
CHOSEN_SHARES = (Fraction(1, 200), Fraction(1, 200), Fraction(99, 100))
RIVALS: tuple[Consistency, ...] = ("bottom_up", "joint", "matching")
ROUGH_TREE = Hierarchy.from_paths([("nation", f"p{leaf % 3}", f"c{leaf}") for leaf in range(12)])
TREE = Hierarchy.from_paths([("nation", f"s{state}", f"c{county}") for state in range(3) for county in range(3)])


@dataclass(frozen=True, slots=True)
class PriorCase:
    """A distribution of sizes, the groups of each of nine leaves, and the total epsilon."""

    distribution: str
    groups: int
    epsilon: Fraction
    concentration: int = 0


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
    """Return the errors by level of joint estimation and of the posterior, from the same noise, or of all rivals."""
    if case.concentration:
        return _rough_errors(case, seed)
    rng = np.random.default_rng(seed)
    sizes = [sizes_of(case.distribution, case.groups, rng) for _ in TREE.leaves]
    data = Case.of_leaves(case.distribution, TREE, sizes, MAX_SIZE)
    noisy = data.measured(seed, evenly(case.epsilon, data.levels))
    estimates = (estimate_groups(noisy, GroupsMethod("l1", consistency=method), SolverChoices()) for method in METHODS)
    return [list(data.errors(estimate.histograms)) for estimate in estimates]


def rough_case(case: PriorCase, seed: int) -> Case:
    """Return regions whose size distributions are Dirichlet around their parents', the nation's around a geometric."""
    rng = np.random.default_rng(seed)

    def around(law: Floats) -> Floats:
        return rng.dirichlet(np.maximum(case.concentration * law, 1e-9))

    law = 0.75 ** np.arange(ROUGH_SIZE + 1)
    nation = around(law / law.sum())
    parts = [around(nation) for _ in range(3)]
    laws = [around(parts[ROUGH_TREE.parent[leaf] - 1]) for leaf in ROUGH_TREE.leaves]
    sizes = [np.repeat(np.arange(ROUGH_SIZE + 1), rng.multinomial(case.groups, own)) for own in laws]
    return Case.of_leaves(case.distribution, ROUGH_TREE, sizes, ROUGH_SIZE)


def _rough_errors(case: PriorCase, seed: int) -> list[list[float]]:
    """Return the errors by level of each rival and, last, of the posterior, each with its usual split."""
    data, none = rough_case(case, seed), Fraction(0)
    even = (Fraction(1, 3),) * 3
    ways: list[tuple[Consistency, tuple[Fraction, ...]]] = [("bottom_up", (none, none, Fraction(1)))]
    ways += [("joint", even), ("matching", even), ("posterior", CHOSEN_SHARES)]
    errors = []
    for method, shares in ways:
        noisy = data.measured(seed, [Epsilon(case.epsilon * share) for share in shares])
        estimate = estimate_groups(noisy, GroupsMethod("l1", consistency=method), SolverChoices())
        errors.append(list(data.errors(estimate.histograms)))
    return errors


def plan(data: Path | None, small: bool) -> list[tuple[PriorCase, Sequence[int]]]:
    """Return all cases; small: the two spikes and one rough case, both of few groups. No data are read."""
    smooth = [PriorCase(*case) for case in product(DISTRIBUTIONS, GROUPS, EPSILONS)]
    of_rough = product(CONCENTRATIONS, ROUGH_GROUPS, ROUGH_EPSILONS)
    rough = [PriorCase(f"Dirichlet, {c:,}", groups, epsilon, c) for c, groups, epsilon in of_rough]
    if small:
        return seeded([PriorCase("two spikes", GROUPS[0], EPSILONS[0]), rough[0]], SEEDS[:1])
    return [*seeded(smooth, SEEDS), *seeded(rough, ROUGH_SEEDS)]


def report(results: Sequence[Runs[PriorCase, list[list[float]]]], path: Path) -> Report:
    """Return the errors of both methods by case and level, and their quotient."""
    rows: list[Record] = []
    of_rough = [_rough_row(runs) for runs in results if runs.case.concentration]
    for runs in results:
        case, errors = runs.case, np.array(runs.found)
        if case.concentration:
            continue
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
    rough = (
        SEEDED,
        f"Twelve leaves in three parts, sizes up to {ROUGH_SIZE}. The best of the others by the geometric mean over "
        "levels is that of the other seeds, in turn for each half of them.",
    )
    return Report(
        {
            "": Table.of("Wrong priors: mean distance (entities) a region", rows, notes),
            "_rough": Table.of(
                "Regions that differ size by size: the posterior over the best of the others", of_rough, rough
            ),
        }
    )


def _rough_row(runs: Runs[PriorCase, list[list[float]]]) -> Record:
    """Return the posterior's errors over those of the rival that is best on the other half of the seeds."""
    case, errors = runs.case, np.maximum(np.array(runs.found), 0.1)
    halves = np.arange(len(errors)) % 2
    best, ratios = [], []
    for half in np.unique(halves):
        others = errors[halves != half] if halves.any() else errors
        best.append(int(np.log(others.mean(axis=0)[: len(RIVALS)]).mean(axis=1).argmin()))
        own = errors[halves == half].mean(axis=0)
        ratios.append(np.log(own[-1] / own[best[-1]]))
    logs = np.mean(ratios, axis=0)
    key: Record = {"concentration": case.concentration, "groups a leaf": case.groups, "epsilon": f"{case.epsilon}"}
    names = " ".join(dict.fromkeys(RIVALS[each] for each in best))
    means: Record = {f"level {level}": float(np.exp(each)) for level, each in enumerate(logs)}
    return {**key, "best of the others": names, **means, "all levels": float(np.exp(logs.mean())), "runs": len(errors)}


WRONG_PRIORS = Study("beyond/wrong_priors", plan, measure, report)
