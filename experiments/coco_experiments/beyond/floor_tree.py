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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from coco_experiments.beyond.floor import MAX_SIZE, SEEDS, FloorCase, cases, distributions
from coco_experiments.groups import SEEDED, evenly
from coco_experiments.outcome import Cell, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMeasurements
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.posterior.chains import Learned, SizeLearner
from coco_opt.groups.estimating.posterior.observations import Survey, survey_of
from coco_opt.groups.estimating.posterior.prior import PriorOptions
from coco_opt.groups.estimating.posterior.sampler import Posterior, Sampler, SamplerOptions, chain_kind
from coco_opt.histograms import Hierarchy

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


def measure(case: FloorCase, seed: int) -> list[list[float]]:
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


def plan(data: Path | None, small: bool) -> list[tuple[FloorCase, Sequence[int]]]:
    """Return all cases; no data are read."""
    return seeded(cases(SMOOTH[:1] if small else SMOOTH, small=small), SEEDS[: 1 if small else None])


def report(results: Sequence[Runs[FloorCase, list[list[float]]]], path: Path) -> Report:
    """Return the ratios by case and level, and their means; it fails where the posterior errs more than wanted."""
    rows: list[dict[str, Cell]] = []
    for runs in results:
        case, errors = runs.case, np.array(runs.found)
        for level, name in enumerate(LEVELS):
            floor, own = errors[:, 0, level], errors[:, 1, level]
            ratio, spread = over(own, floor)
            key: dict[str, Cell] = {
                "sizes": case.distribution,
                "groups a county": case.groups,
                "epsilon": f"{case.epsilon}",
            }
            errors_of: dict[str, Cell] = {"floor": float(floor.mean()), "posterior": float(own.mean())}
            rows.append({**key, "level": name, **errors_of, RATIO: ratio, "standard error": spread, "runs": floor.size})
    means: list[dict[str, Cell]] = []
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


FLOOR_TREE = Study("beyond/floor_tree", plan, measure, report, fails_small=False, key=lambda *job: f"{job}")
