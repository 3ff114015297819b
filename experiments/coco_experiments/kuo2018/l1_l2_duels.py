"""The two losses on the same noisy answers: errors, fits and seconds of p = 1 and p = 2, region by region and level.

Every fit goes through ``KeptFits``, which keeps the problem and its certified solution, so that what is reported of a
fit (objective, integer values, runs, seconds) is that of the fit the histograms were made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_experiments.groups import Case, Levels
from coco_experiments.kuo2018.joint import before_rounding
from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMeasurements, exact_answers
from coco_opt.groups.estimating.convex import convex
from coco_opt.groups.estimating.estimates import SizeEstimate
from coco_opt.groups.estimating.estimators import SAME_BLOCK, FitOptions, estimate
from coco_opt.groups.estimating.joint import joint
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.subtrees import matching, sum_of_leaves
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.groups.queries import MeasuredQuery
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurement, Rho
from coco_opt.problem import Problem
from coco_opt.solution import Solution
from coco_opt.solving import solve

ValueT = TypeVar("ValueT")
LOSSES: tuple[Loss, ...] = ("l1", "l2")
ALONE, BOTTOM_UP, MATCHING, CONVEX, JOINT = "alone", "bottom-up", "matching", "convex program", "joint"
STEPS = (ALONE, BOTTOM_UP, MATCHING, CONVEX, JOINT)


class StoredFits(SolverChoices):
    """Solve as usual and keep every problem with its solution."""

    def __init__(self) -> None:
        super().__init__()
        self.solved: list[tuple[Problem[Any, Any], Solution[Any]]] = []

    def solve(self, problem: Problem[ValueT, Any], *, fallback: bool = True) -> ValueT:
        """Return the certified value of one problem; SolverError where its solver missed the tolerance."""
        solution = solve(problem, self.solver(type(problem)))
        self.solved.append((problem, solution))
        return solution.value


@dataclass(frozen=True, slots=True)
class Fit:
    """What is known of the fits of a level, or of a whole program, before rounding.

    ``objective`` is the loss's own, the sum of absolute or of squared residuals, a mean a region (of a program the
    whole); ``whole`` and ``nearly`` the percentages of fitted values within 1e-6 and within 1e-2 of an integer (the
    programs' solvers stop near an optimum, not on it); ``runs`` how many different values a region's fit has. Seconds
    of all regions: ``kernel`` of the solver alone, ``certified`` with its certificate.
    """

    objective: float
    integer_share: float
    nearly: float
    runs: float
    kernel: float
    certified: float


@dataclass(frozen=True, slots=True)
class Side:
    """One loss on one answer after one step: errors (entities) and errors before rounding by level, and fits.

    ``fits`` has one a level, of a program one at level 0; None where a step fits nothing of its own or is whole.
    """

    errors: Levels
    fractional: Levels | None
    fits: tuple[Fit | None, ...]


def gaussian_of(epsilon: Fraction) -> Rho:
    """Return the rho = epsilon^2 / 4 whose noise has the paper's variance of geometric noise, 2 / epsilon^2."""
    return Rho(epsilon * epsilon / 4)


def duel(case: Case, measurement: Measurement, steps: Sequence[str]) -> dict[str, dict[Loss, Side]]:
    """Return, for each of the steps, both losses on the same answers."""
    by_step: dict[str, dict[Loss, Side]] = {step: {} for step in steps}
    for loss in LOSSES:
        estimates, own = _alone(case, measurement, loss)
        for step in steps:
            by_step[step][loss] = own if step == ALONE else _after(case, measurement, loss, step, estimates)
    return by_step


def _after(case: Case, measurement: Measurement, loss: Loss, step: str, estimates: Sequence[SizeEstimate]) -> Side:
    """Return what a consistency step makes of the regions' estimates, or of their answers."""
    unfitted: tuple[Fit | None, ...] = (None,) * case.levels
    if step == BOTTOM_UP:
        sums = sum_of_leaves(case.hierarchy, [estimates[leaf].histogram for leaf in case.hierarchy.leaves])
        return Side(case.errors(sums), None, unfitted)
    if step == MATCHING:
        return Side(case.errors(matching(case.hierarchy, estimates, SolverChoices())), None, unfitted)
    stored, fractional = StoredFits(), None
    if step == JOINT:
        estimate = joint(measurement, stored, loss=loss)
        histograms, fractional = estimate.histograms, before_rounding(case, estimate)
    else:
        histograms = convex(measurement, GroupsMethod(loss, consistency="convex"), stored)
    return Side(case.errors(histograms), fractional, (_program_fit(stored), *unfitted[1:]))


def _alone(case: Case, measurement: Measurement, loss: Loss) -> tuple[list[SizeEstimate], Side]:
    """Return every region's estimate on its own, and what is reported of them."""
    estimates: list[SizeEstimate] = []
    rows: list[Floats] = []
    answers = GroupsMeasurements(measurement)
    for region, truth in enumerate(case.truth):
        stored = StoredFits()
        estimates.append(estimate(answers[region], FitOptions(loss), stored))
        rows.append(_figures(stored, truth, answers[region].query, case.max_size))
    table = np.array(rows)
    levels = [table[list(case.hierarchy.level_range(level))] for level in range(case.levels)]
    fractional = tuple(float(level[:, -1].mean()) for level in levels)
    fits = tuple(_level_fit(level) for level in levels)
    return estimates, Side(case.errors([each.histogram for each in estimates]), fractional, fits)


def _figures(stored: StoredFits, truth: CountOfCounts, query: MeasuredQuery, max_size: int) -> Floats:
    """Return the figures of one fit in the order of Fit's fields, then its error before rounding."""
    if not stored.solved:  # a region without a group is not fitted
        return np.array([0.0, 100.0, 100.0, 0.0, 0.0, 0.0, 0.0])
    ((_, solution),) = stored.solved
    error = float(np.abs(solution.value - exact_answers(truth, query, max_size)).sum())
    fit = _fit_of(solution)
    return np.array([fit.objective, fit.integer_share, fit.nearly, fit.runs, fit.kernel, fit.certified, error])


def _level_fit(rows: Floats) -> Fit:
    objective, integer, nearly, runs = rows[:, :4].mean(axis=0).tolist()
    return Fit(objective, integer, nearly, runs, float(rows[:, 4].sum()), float(rows[:, 5].sum()))


def _program_fit(stored: StoredFits) -> Fit:
    """Return the figures of the program over all regions: it comes first, rounding or repairs after it."""
    return _fit_of(stored.solved[0][1])


def _fit_of(solution: Solution[Any]) -> Fit:
    values = np.asarray(solution.value)
    runs = float(np.mean(1 + np.count_nonzero(np.diff(values) > SAME_BLOCK, axis=-1)))
    certified = solution.seconds + solution.judge_seconds
    integer, nearly = integer_share(values), integer_share(values, 1e-2)
    return Fit(solution.objective, integer, nearly, runs, solution.seconds, certified)


def integer_share(values: NDArray[Any], within: float = 1e-6) -> float:
    """Return the percentage of values less than ``within`` from an integer; 100 where there are none."""
    if values.size == 0 or values.dtype == np.int64:
        return 100.0
    return float(100.0 * np.mean(np.abs(values - np.rint(values)) < within))
