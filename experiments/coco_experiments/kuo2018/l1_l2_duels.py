"""The two losses on the same noisy answers: errors, fits and seconds of p = 1 and p = 2, region by region and level.

Every fit goes through ``StoredFits``, which stores the problem and its certified solution: what is reported of a fit
(objective, integer values, runs, seconds) is that of the fit the histograms were made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_experiments.groups import Case, Levels
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMeasurements, exact_answers
from coco_opt.groups.estimating.convex import convex
from coco_opt.groups.estimating.estimators import SAME_BLOCK, FitOptions, SizeEstimate, estimate
from coco_opt.groups.estimating.joint import JointEstimate, joint
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.subtrees import matching
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import sum_of_leaves
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


FIGURES = ("objective", "% integer", "% near integer", "different values", "kernel seconds", "certified seconds")
"""What is said of a fit before rounding; the first four are means over a level's regions, seconds are sums over them.

The objective is the loss's own, the sum of absolute or of squared residuals; the percentages are of fitted values
within 1e-6 and within 1e-2 of an integer (the programs' solvers stop near an optimum, not on it). Kernel seconds are
the solver's alone, certified ones include the certificate.
"""
Fit = dict[str, float]


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
    # The program over all regions comes first, rounding or repairs after it.
    return Side(case.errors(histograms), fractional, (dict(_figures(stored.solved[0][1])), *unfitted[1:]))


def before_rounding(case: Case, estimate: JointEstimate) -> Levels:
    """Return sum_i |Hc[i] - fitted[i]| (entities) a region, by level."""
    errors = [
        float(np.abs(row - truth.cumulative(case.max_size)[:-1]).sum())
        for row, truth in zip(estimate.fitted, case.truth, strict=True)
    ]
    return case.by_level(np.array(errors))


def _alone(case: Case, measurement: Measurement, loss: Loss) -> tuple[list[SizeEstimate], Side]:
    """Return every region's estimate on its own, and what is reported of them."""
    answers, estimates, rows, before = GroupsMeasurements(measurement), list[SizeEstimate](), list[list[float]](), []
    for region, truth in enumerate(case.truth):
        stored = StoredFits()
        estimates.append(estimate(answers[region], FitOptions(loss), stored))
        if not stored.solved:  # a region without a group is not fitted
            rows.append([0.0, 100.0, 100.0, 0.0, 0.0, 0.0])
            before.append(0.0)
            continue
        ((_, solution),) = stored.solved
        rows.append([value for _, value in _figures(solution)])
        exact = exact_answers(truth, answers[region].query, case.max_size)
        before.append(float(np.abs(solution.value - exact).sum()))
    table = np.array(rows)
    levels = [table[list(case.hierarchy.level_range(level))] for level in range(case.levels)]
    figures = ([*level[:, :4].mean(axis=0).tolist(), *level[:, 4:].sum(axis=0).tolist()] for level in levels)
    fits = tuple(dict(zip(FIGURES, values, strict=True)) for values in figures)
    return estimates, Side(case.errors([each.histogram for each in estimates]), case.by_level(np.array(before)), fits)


def _figures(solution: Solution[Any]) -> Iterator[tuple[str, float]]:
    """Yield the figures of one fit by name."""
    values, seconds = np.asarray(solution.value), solution.seconds
    runs = float(np.mean(1 + np.count_nonzero(np.diff(values) > SAME_BLOCK, axis=-1)))
    shares = integer_share(values), integer_share(values, 1e-2)
    yield from zip(FIGURES, (solution.objective, *shares, runs, seconds, seconds + solution.judge_seconds), strict=True)


def integer_share(values: NDArray[Any], within: float = 1e-6) -> float:
    """Return the percentage of values less than ``within`` from an integer; 100 where there are none."""
    if values.size == 0 or values.dtype == np.int64:
        return 100.0
    return float(100.0 * np.mean(np.abs(values - np.rint(values)) < within))
