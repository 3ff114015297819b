"""Releases of simulated data under fixed seeds: the error of a method, and its seconds.

A part of the data, some children of every region, predicts both for all of the data: the error of a level grows as a
power of the leaves below a region, which the part itself shows, and the seconds in proportion to the answers.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from time import process_time

import numpy as np

from coco_opt.activity import doing
from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.kind.simulated_data import SEED, queries_like, simulated_data_of
from coco_opt.groups.look import certain_distribution
from coco_opt.groups.measuring.measure import measured
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import max_size_of
from coco_opt.histograms import Hierarchy, errors_by_level
from coco_opt.privacy import Measurement, SeededNoise
from coco_opt.releases.kind import Plan, SimulatedData


class Rehearsal:
    """Releases of simulated data by its plan, each a function of its seed, so that methods can be compared."""

    def __init__(self, simulated_data: SimulatedData) -> None:
        self.plan = simulated_data.plan.measurement_plan
        self._truth = [histogram.clamp(max_size_of(self.plan)) for histogram in simulated_data.private.histograms()]

    def errors(self, method: GroupsMethod, runs: int, solvers: SolverChoices) -> tuple[Floats, float]:
        """Return every run's mean error of each level, float64[runs, levels], and the CPU seconds of an estimation."""
        run_errors, seconds = [], 0.0
        for run in range(runs):
            measurement, start = self._measured(run), process_time()
            with doing(f"run {run + 1} of {runs}"):
                result = estimate_groups(measurement, method, solvers)
            seconds += process_time() - start
            run_errors.append(errors_by_level(self.plan.hierarchy, result.histograms, self._truth))
        return np.array(run_errors), seconds / runs

    def seconds(self, method: GroupsMethod, solvers: SolverChoices, least: float = 0.3) -> float:
        """Return the CPU seconds of an estimation: the mean over as many runs as take ``least`` seconds in all."""
        measurement, done, start = self._measured(0), 0, process_time()
        while done == 0 or process_time() - start < least:
            estimate_groups(measurement, method, solvers)
            done += 1
        return (process_time() - start) / done

    def _measured(self, run: int) -> Measurement:
        return measured(self.plan, self._truth, SeededNoise(SEED + run))


def on_leaves(simulated_data: SimulatedData) -> SimulatedData:
    """Return the same data under a plan that spends all of the budget on the leaves."""
    plan = simulated_data.plan
    shares = (*(Fraction(0),) * (plan.measurement_plan.hierarchy.levels - 1), Fraction(1))
    config = replace(plan.config, privacy=plan.config.privacy.model_copy(update={"split": shares}))
    return queries_like(replace(plan, config=config), simulated_data.private, (), simulated_data.words)


def branch_answers(plan: Plan, branches: int) -> int:
    """Return the number of answers when the first ``branches`` children of every region are kept."""
    tree, where = plan.measurement_plan.hierarchy.first_branches(branches)
    groups = {name: values[where] for name, values in plan.measurement_plan.per_region.items()}
    return replace(plan.measurement_plan, hierarchy=tree, per_region=groups, region_ids=()).answers


def branches_within(plan: Plan, answers: int) -> int | None:
    """Return the most children per region that need at most ``answers`` answers, at least 1; None for all children."""
    high = max(
        len(plan.measurement_plan.hierarchy.children(region))
        for region in range(plan.measurement_plan.hierarchy.leaves.start or 1)
    )
    if branch_answers(plan, max(high, 1)) <= answers:
        return None
    low = 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if branch_answers(plan, middle) <= answers else (low, middle - 1)
    return low


def part_of(plan: Plan, public: SimulatedData | None, branches: int | None) -> SimulatedData:
    """Return the first ``branches`` children of every region (None: all) of ``public``, or of simulated data.

    Simulated sizes have the distribution that the plan's look suggests, where it was paid.
    """
    if public is None and plan.also:
        probabilities, hidden = certain_distribution(plan.also[0])
        words = "sizes distributed as the look suggests"
        if hidden >= 1:
            words += (
                ", without large groups that its noise alone can make: if there are some, errors of the root are up to "
                f"about {round(hidden):,} larger"
            )
        return simulated_data_of(plan, branches, probabilities, words)
    if public is None:
        return simulated_data_of(plan, branches)
    if branches is None:
        return public
    counts: PrivateCounts = public.private
    tree, where = counts.hierarchy.first_branches(branches)
    first = counts.hierarchy.leaves.start
    leaves = [counts.leaf(region - first) for region in where[tree.leaves.start :].tolist()]
    return queries_like(public.plan, PrivateCounts.of_leaves(tree, leaves), (), public.words)


def extrapolated(errors: Floats, part: Hierarchy, full: Hierarchy) -> Floats:
    """Extrapolate the errors (levels,) of a part to the number of leaves below each region in the ``full`` hierarchy.

    They grow by the power of the leaves that the part shows from each level to the leaves, between 0 and 1: errors of
    the leaves' sums would cancel by the power 1/2, or add up.
    """
    grown = errors.copy()
    for level in range(part.levels - 1):
        part_leaves = len(part.leaves) / len(part.level_range(level))
        full_leaves = len(full.leaves) / len(full.level_range(level))
        if full_leaves <= part_leaves or errors[-1] <= 0.0 or errors[level] <= 0.0:
            continue
        power = np.log(errors[level] / errors[-1]) / np.log(part_leaves) if part_leaves > 1 else 0.5
        grown[level] *= (full_leaves / part_leaves) ** float(np.clip(power, 0.0, 1.0))
    return grown
