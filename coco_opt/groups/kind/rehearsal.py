"""Releases of a look-alike under fixed seeds: how far off a method is, and how long it takes.

A part of the look-alike, some children of every region, says what the whole would: the error of a level grows as a
power of the leaves below a region, which the part itself shows, and the seconds in proportion to the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from time import process_time

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.groups.answers import counts_share_of, has_private_counts, max_size_of
from coco_opt.groups.asked.measure import asked_of, measured
from coco_opt.groups.asked.private import PrivateCounts
from coco_opt.groups.buckets import Scheme, Split
from coco_opt.groups.estimated.baselines import errors_by_level
from coco_opt.groups.estimated.estimate import estimate_groups
from coco_opt.groups.estimated.method import GroupsMethod
from coco_opt.groups.kind.look_alike import SEED, asked_like, made_look_alike
from coco_opt.groups.kind.plan import buckets_of, queries_of
from coco_opt.groups.queries import GROUPS, Query, cells
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Asked, Cost, Measurement, SeededNoise
from coco_opt.releases.kind import LookAlike, Plan

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Questions:
    """What a rehearsal asks of each level, root first; a cost of zero asks nothing."""

    queries: tuple[Query, ...]
    buckets: tuple[Scheme | None, ...]
    costs: tuple[Cost, ...]


def questions_of(plan: Plan) -> Questions:
    """Return what a plan's configuration asks."""
    config, levels = plan.config, plan.asked.hierarchy.levels
    return Questions(queries_of(config, levels), buckets_of(config, levels), tuple(config.levels_cost(levels)))


def cost_of_sizes(plan: Plan) -> Cost:
    """Return what the answers about sizes cost: all, but for what private numbers of groups do."""
    return plan.asked.cost * (1 - (counts_share_of(plan.asked) or Fraction(0)))


class Rehearsal:
    """Releases of a look-alike, each a function of its seed, so that methods and questions compare."""

    def __init__(self, like: LookAlike) -> None:
        self._asked = like.plan.asked
        self._truth = [one.clamp(max_size_of(self._asked)) for one in like.private.histograms()]

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the look-alike's regions."""
        return self._asked.hierarchy

    def errors(self, questions: Questions, method: GroupsMethod, runs: int, solvers: SolverChoices) -> FloatArray:
        """Return every run's mean error of each level, float64[runs, levels]."""
        found = []
        for run in range(runs):
            result = estimate_groups(self._measured(questions, run), method, solvers)
            found.append(errors_by_level(self.hierarchy, result.histograms, self._truth))
        return np.array(found)

    def seconds(self, questions: Questions, method: GroupsMethod, solvers: SolverChoices, least: float = 0.3) -> float:
        """Return the cores' seconds of an estimation: the mean of as many as take ``least`` seconds together."""
        measurement, done, start = self._measured(questions, 0), 0, process_time()
        while done == 0 or process_time() - start < least:
            estimate_groups(measurement, method, solvers)
            done += 1
        return (process_time() - start) / done

    def _measured(self, questions: Questions, run: int) -> Measurement:
        return measured(self._asked_of(questions), self._truth, SeededNoise(SEED + run))

    def _asked_of(self, questions: Questions) -> Asked:
        return asked_of(
            self.hierarchy,
            None if has_private_counts(self._asked) else self._asked.per_region[GROUPS],
            queries=questions.queries,
            costs=questions.costs,
            max_size=max_size_of(self._asked),
            neighbours=self._asked.neighbours,
            buckets=questions.buckets,
            counts_share=counts_share_of(self._asked),
        )


def count_cells(asked: Asked, queries: Sequence[Query], buckets: Sequence[Scheme | None]) -> tuple[int, ...]:
    """Return the noisy numbers about sizes that each level's query needs, root first; at least one."""
    counted = []
    for level, (query, sums) in enumerate(zip(queries, buckets, strict=True)):
        regions = asked.hierarchy.level_range(level)
        ranked = query == "ranks" or isinstance(sums, Split)
        if sums is not None and not isinstance(sums, Split):
            counted.append(max(sums.count * len(regions), 1))
            continue
        if not ranked:
            counted.append(cells(query, max_size_of(asked), 0) * len(regions))
            continue
        groups = int(asked.per_region[GROUPS][regions.start : regions.stop].sum())
        counted.append(max(groups + (sums.at if isinstance(sums, Split) else 0) * len(regions), 1))
    return tuple(counted)


def branch_answers(plan: Plan, branches: int) -> int:
    """Return the number of answers about the first so many children of every region."""
    questions = questions_of(plan)
    tree, where = plan.asked.hierarchy.first_branches(branches)
    groups = {name: values[where] for name, values in plan.asked.per_region.items()}
    asked = replace(plan.asked, hierarchy=tree, per_region=groups, region_ids=())
    return sum(count_cells(asked, questions.queries, questions.buckets))


def branches_within(plan: Plan, answers: int) -> int | None:
    """Return the most children of every region that ask at most so many answers, at least 1; None: the whole."""
    high = max(len(plan.asked.hierarchy.children(region)) for region in range(plan.asked.hierarchy.leaves.start or 1))
    if branch_answers(plan, max(high, 1)) <= answers:
        return None
    low = 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if branch_answers(plan, middle) <= answers else (low, middle - 1)
    return low


def part_of(plan: Plan, public: LookAlike | None, branches: int | None) -> LookAlike:
    """Return the first so many children of every region of a look-alike, made unless it is given; None: all of it."""
    if public is None:
        return made_look_alike(plan, branches)
    if branches is None:
        return public
    counts: PrivateCounts = public.private
    tree, where = counts.hierarchy.first_branches(branches)
    first = counts.hierarchy.leaves.start
    leaves = [counts.leaf(region - first) for region in where[tree.leaves.start :].tolist()]
    return asked_like(public.plan, PrivateCounts.of_leaves(tree, leaves), (), public.words)


def extrapolated(errors: FloatArray, part: Hierarchy, whole: Hierarchy) -> FloatArray:
    """Return the errors of a part's levels (levels,) as they would be with the whole's leaves below each region.

    They grow by the power of the leaves that the part shows from each level to the leaves, between 0 and 1: errors of
    the leaves' sums would cancel by the power 1/2, or add up.
    """
    grown = errors.copy()
    for level in range(part.levels - 1):
        below = len(part.leaves) / len(part.level_range(level))
        wanted = len(whole.leaves) / len(whole.level_range(level))
        if wanted <= below or errors[-1] <= 0.0 or errors[level] <= 0.0:
            continue
        power = np.log(errors[level] / errors[-1]) / np.log(below) if below > 1 else 0.5
        grown[level] *= (wanted / below) ** float(np.clip(power, 0.0, 1.0))
    return grown
