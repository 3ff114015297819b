"""How near the groups' posterior comes to the best possible where all regions of a tree share one distribution.

A nation of three states of three counties; each county has G groups, whose sizes are drawn independently from a known
distribution on 0 .. 40. Total epsilon is shared evenly by the levels, and the cumulative counts of every size are
measured. Counts of different counties depend on one another through the noisy sums above them, so that sums over one
region's counts no longer give the exact posterior. It is drawn instead: by the chains of the posterior itself, with the
true distribution in the place of the prior. Medians of these draws are the floor, but for the error of finitely many
draws. In one region they are those of ``floor.exact_medians``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coco_experiments.beyond.floor import EPSILONS, GROUPS, MAX_SIZE, SEEDS, FloorCase, distributions
from coco_experiments.beyond.stored_results import StoredResults
from coco_experiments.kuo2018.sweep import SEEDED
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish, write_csv
from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMeasurements, measure_hierarchy
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.posterior.chains import Learned, SizeLearner
from coco_opt.groups.estimating.posterior.observations import Survey, survey_of
from coco_opt.groups.estimating.posterior.prior import PriorOptions
from coco_opt.groups.estimating.posterior.sampler import Posterior, Sampler, SamplerOptions, chain_kind
from coco_opt.histograms import CountOfCounts, Hierarchy, emd
from coco_opt.privacy import Epsilon, Measurement, SeededNoise

NAME = "beyond/floor_tree"
PARTS = 3  # of a nation, and of each of these
LEVELS = ("nation", "states", "counties")
SMOOTH = ("geometric", "steep", "two bumps")
WANTED = 1.15
RATIO = "posterior / floor"
COLUMNS = ("sizes", "groups a county", "epsilon", "level", "floor", "posterior", RATIO, "standard error", "runs")
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


def measured(case: FloorCase, seed: int) -> tuple[Ints, Measurement]:
    """Return the true histograms int64[regions, K + 1] of a tree, and noisy cumulative counts of all its regions."""
    paths = [("nation", f"state {n}", f"county {m}") for n in range(PARTS) for m in range(PARTS)]
    tree, probabilities = Hierarchy.from_paths(paths), distributions()[case.distribution]
    sizes = np.random.default_rng(seed).choice(MAX_SIZE + 1, (len(paths), case.groups), p=probabilities)
    truth = np.zeros((tree.regions, MAX_SIZE + 1), np.int64)
    truth[tree.leaves] = [np.bincount(row, minlength=MAX_SIZE + 1) for row in sizes]
    for region in range(tree.regions - 1, 0, -1):
        truth[tree.parent[region]] += truth[region]
    return truth, measure_hierarchy(
        [CountOfCounts.from_dense(row) for row in truth],
        tree,
        truth.sum(axis=1).tolist(),
        queries=["cumulative"] * tree.levels,
        costs=[Epsilon(case.epsilon / tree.levels)] * tree.levels,
        max_size=MAX_SIZE,
        neighbours="add_remove",
        source=SeededNoise(seed),
    )


def errors_of(case: FloorCase, seed: int, options: SamplerOptions | None = None) -> list[list[float]]:
    """Return the mean errors of a region at each level, of the exact posterior's medians and of the posterior."""
    truth, measurement = measured(case, seed)
    how = options or SamplerOptions(draws=50, least_rounds=4)
    drawn = exact_posterior(survey_of(GroupsMeasurements(measurement)), distributions()[case.distribution], seed, how)
    floor = np.abs(drawn.quantile(1, 2) - np.cumsum(truth, axis=1)[:, :-1]).sum(axis=1)
    estimate = estimate_groups(measurement, GroupsMethod("l1", consistency="posterior"), SolverChoices())
    pairs = zip(estimate.histograms, truth, strict=True)
    errors = np.array([emd(histogram, CountOfCounts.from_dense(row)) for histogram, row in pairs])
    levels = survey_of(GroupsMeasurements(measurement)).levels()
    return [[float(each[levels == level].mean()) for level in range(len(LEVELS))] for each in (floor, errors)]


@dataclass(frozen=True, slots=True)
class Ratio:
    """The quotient of two means of paired runs, and its standard error (delta method)."""

    value: float
    standard_error: float | None

    @classmethod
    def of(cls, above: Floats, below: Floats) -> Ratio:
        """Return mean(above) / mean(below)."""
        ratio = float(above.mean() / below.mean())
        spread = float(np.std(above - ratio * below, ddof=1)) if above.size > 1 else None
        return cls(ratio, None if spread is None else spread / float(below.mean()) / math.sqrt(above.size))


def cases(*, small: bool) -> list[FloorCase]:
    """Return all cases; small: the fewest groups at the largest epsilon."""
    epsilons, groups, names = (EPSILONS[-1:], GROUPS[:1], SMOOTH[:1]) if small else (EPSILONS, GROUPS, SMOOTH)
    return [FloorCase(name, number, epsilon) for epsilon in epsilons for number in groups for name in names]


def rows_of(case: FloorCase, errors: Floats) -> list[tuple[Cell, ...]]:
    """Return a row for each level, of errors float64[seeds, 2, levels]."""
    rows: list[tuple[Cell, ...]] = []
    for level, name in enumerate(LEVELS):
        floor, own = errors[:, 0, level], errors[:, 1, level]
        ratio, labels = Ratio.of(own, floor), (case.distribution, case.groups, str(case.epsilon), name)
        rows.append((*labels, float(floor.mean()), float(own.mean()), ratio.value, ratio.standard_error, floor.size))
    return rows


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/floor_tree`` as CSV; small: one seed of one case. ``data`` are not read.

    The file is written anew after each seed. Results are stored, and a run that was stopped continues where it was.
    """
    stored = StoredResults(out / f"{NAME}_seeds.json")
    seeds, chosen = SEEDS[:1] if small else SEEDS, cases(small=small)
    found: dict[FloorCase, list[list[list[float]]]] = {case: [] for case in chosen}
    for seed in seeds:
        for case in chosen:
            key = f"{case.distribution}, {case.groups}, {case.epsilon}, {seed}"
            if key not in stored:
                stored[key] = errors_of(case, seed)
            found[case].append(stored[key])
            reporter.progress(NAME, sum(map(len, found.values())), len(seeds) * len(chosen))
        tables = summary(found)
        write_csv(out / f"{NAME}.csv", tables[""])
    return publish(NAME, tables, out, reporter, failures=() if small else failures(tables["_mean"]))


def summary(found: Mapping[FloorCase, Sequence[Sequence[Sequence[float]]]]) -> dict[str, Table]:
    """Return the table of all cases and levels, and the ratios' means over distributions and numbers of groups."""
    rows = [row for case, errors in found.items() for row in rows_of(case, np.array(errors))]
    tree = f"A nation of {PARTS} states of {PARTS} counties; total epsilon, shared evenly by the levels."
    notes = (SEEDED, f"{tree} Sizes 0 to {MAX_SIZE}. The floor knows the distribution.")
    title = "Distance to the truth (entities) of a region against the best possible, in a tree"
    means: list[tuple[Cell, ...]] = []
    for epsilon in dict.fromkeys(row[2] for row in rows):
        for level in LEVELS:
            ratios = [float(str(row[6])) for row in rows if (row[2], row[3]) == (epsilon, level)]
            means.append((epsilon, level, float(np.mean(ratios)), float(max(ratios)), len(ratios)))
    columns = ("epsilon", "level", f"{RATIO}, mean", "largest", "cases")
    return {"": Table(title, COLUMNS, tuple(rows), notes), "_mean": Table(f"{title}: all cases", columns, tuple(means))}


def failures(means: Table) -> tuple[str, ...]:
    """Return where the posterior errs more than wanted, in the mean over all cases of an epsilon."""
    return tuple(
        f"epsilon {epsilon}, {level}: the posterior errs by {ratio:.2f} times the floor, wanted are {WANTED}"
        for epsilon, level, ratio, *_ in means.rows
        if float(str(ratio)) > WANTED
    )
