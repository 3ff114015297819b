"""The two losses on the same noisy answers: errors, fits and seconds of p = 1 and p = 2, level by level; who wins.

Every fit goes through ``StoredFits``, which stores the problem and its certified solution: what is reported of a fit
(objective, integer values, runs, seconds) is that of the fit the histograms were made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean as mean
from statistics import geometric_mean, median
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_experiments.groups import Case, Levels
from coco_experiments.outcome import Record, Table
from coco_experiments.statistics import Mean
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
        merged = matching(case.hierarchy, estimates, SolverChoices(), GroupsMethod(consistency="matching"))
        return Side(case.errors(merged), None, unfitted)
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


P1, P2, UNDECIDED = "p = 1", "p = 2", "undecided"
NAMES: dict[Loss, str] = {"l1": P1, "l2": P2}
CONFIDENCE = 0.95
PAIRED = (
    "Margin: mean of (error of p = 2 - error of p = 1) over the runs, in its standard errors; positive: p = 1 wins. "
    f"A winner is named beyond the two-sided {CONFIDENCE:.0%} point of Student's t: about one tie in twenty gets one."
)


@dataclass(frozen=True, eq=False, slots=True)
class Duel:
    """Both losses, run by run on the same noise, at one level after one step; errors are mean entities a region."""

    case: str
    estimator: str
    noise: str
    epsilon: Fraction
    step: str
    level: int
    sides: Sequence[dict[Loss, Side]]

    @property
    def setting(self) -> Record:
        """Data, estimator and noise, as cells."""
        return {"data": self.case, "estimator": self.estimator, "noise": self.noise}

    def errors(self, loss: Loss) -> list[float]:
        """Return the errors of a loss, run by run."""
        return [sides[loss].errors[self.level] for sides in self.sides]

    def fractional(self, loss: Loss) -> list[float]:
        """Return the errors before rounding, where the step has them."""
        before = [sides[loss].fractional for sides in self.sides]
        return [levels[self.level] for levels in before if levels is not None]

    def fits(self, loss: Loss) -> list[Fit]:
        """Return the fits, where the step has them; a program's stand at level 0."""
        return [fit for sides in self.sides if (fit := sides[loss].fits[self.level]) is not None]

    @property
    def means(self) -> dict[Loss, Mean]:
        """The mean error of each loss."""
        return {loss: Mean.of(self.errors(loss)) for loss in LOSSES}

    @property
    def ratio(self) -> float | None:
        """The error of p = 2 over that of p = 1; None where p = 1 makes none."""
        means = self.means
        return means["l2"].value / means["l1"].value if means["l1"].value else None

    @property
    def difference(self) -> Mean:
        """The mean of the differences, p = 2 less p = 1, run by run."""
        pairs = zip(self.errors("l1"), self.errors("l2"), strict=True)
        return Mean.of([squared - absolute for absolute, squared in pairs])

    @property
    def margin(self) -> float | None:
        """The difference in its standard errors; None for a single run."""
        difference = self.difference
        if difference.standard_error is None:
            return None
        if difference.standard_error == 0.0:
            return math.copysign(math.inf, difference.value) if difference.value else 0.0
        return difference.value / difference.standard_error

    @property
    def winner(self) -> str:
        """The loss of smaller error where the margin passes the two-sided point of Student's t, else undecided."""
        from scipy.special import stdtrit

        margin = self.margin
        if margin is None or abs(margin) <= stdtrit(len(self.sides) - 1, (1.0 + CONFIDENCE) / 2.0):
            return UNDECIDED
        return P1 if margin > 0 else P2


def full_table(duels: Sequence[Duel], notes: Sequence[str]) -> Table:
    """Return one row a data set, estimator, noise, epsilon, step and level."""
    title = "p = 1 against p = 2 on the same noise: mean earth mover's distance (entities) a region"
    return Table.of(title, map(_row, duels), notes)


def _row(duel: Duel) -> Record:
    row: Record = {**duel.setting, "total epsilon": float(duel.epsilon), "step": duel.step}
    row |= {"level": duel.level, "runs": len(duel.sides)}
    for loss, error in duel.means.items():
        row |= {NAMES[loss]: error.value, f"standard error {NAMES[loss]}": error.standard_error}
    row |= {"p = 2 / p = 1": duel.ratio, "margin": duel.margin, "winner": duel.winner}
    before = {loss: duel.fractional(loss) for loss in LOSSES}
    row |= _pair("error before rounding", {loss: Mean.of(own).value if own else None for loss, own in before.items()})
    fits = {loss: duel.fits(loss) for loss in LOSSES}
    for name in FIGURES:
        middle = median if name.endswith("seconds") else mean
        row |= _pair(name, {loss: middle(fit[name] for fit in own) if own else None for loss, own in fits.items()})
    return row


def _pair(name: str, values: Mapping[Loss, float | None]) -> Record:
    return {f"{name}, {NAMES[loss]}": value for loss, value in values.items()}


def verdict_table(duels: Sequence[Duel]) -> Table:
    """Return how often each loss wins over levels and epsilons, and the range of p = 2 / p = 1."""
    rows: list[Record] = []
    for group in _groups(duels, lambda duel: (*duel.setting.values(), duel.step)):
        winners = [duel.winner for duel in group]
        ratios = [duel.ratio for duel in group if duel.ratio]
        spread = (min(ratios), geometric_mean(ratios), max(ratios)) if ratios else (None,) * 3
        rows.append(
            {
                **group[0].setting,
                "step": group[0].step,
                "runs": min(len(duel.sides) for duel in group),
                **{name: winners.count(name) for name in (P1, P2, UNDECIDED)},
                **dict(zip(("least p = 2 / p = 1", "geometric mean", "greatest"), spread, strict=True)),
            }
        )
    notes = (
        PAIRED,
        "Counted over levels and epsilons, which share seeds. Few runs decide little: see the column runs.",
    )
    return Table.of("Who wins: levels and epsilons won by each loss", rows, notes)


def fit_table(duels: Sequence[Duel]) -> Table:
    """Return integer values, different values and what rounding costs, by epsilon; means over levels."""
    rows: list[Record] = []
    for group in _groups(duels, lambda duel: (*duel.setting.values(), duel.step, duel.epsilon)):
        fits = {loss: [fit for duel in group for fit in duel.fits(loss)] for loss in LOSSES}
        if fits["l1"]:
            row = {**group[0].setting, "step": group[0].step, "total epsilon": f"{float(group[0].epsilon):g}"}
            for name in FIGURES[1:4]:
                row |= _pair(name, {loss: mean(fit[name] for fit in own) for loss, own in fits.items()})
            rows.append({**row, **_pair("rounding %", {loss: _rounding_cost(group, loss) for loss in LOSSES})})
    notes = (
        "Before rounding: % within 1e-6 and within 1e-2 of integers, different values a region. Rounding %: error "
        "after rounding over error before, less 1; joint estimation's rounding also makes the regions add up.",
    )
    return Table.of("What the fits look like before rounding", rows, notes)


def _rounding_cost(duels: Sequence[Duel], loss: Loss) -> float | None:
    before = sum(sum(duel.fractional(loss)) for duel in duels)
    after = sum(sum(duel.errors(loss)) for duel in duels if duel.fractional(loss))
    return 100.0 * (after / before - 1.0) if before else None


def seconds_table(duels: Sequence[Duel]) -> Table:
    """Return the seconds of all regions' fits: medians over runs and epsilons, levels added up."""
    rows: list[Record] = []
    for group in _groups(duels, lambda duel: (*duel.setting.values(), duel.step)):
        if any(duel.fits("l1") for duel in group):
            spent = {(name, loss): _median_seconds(group, loss, name) for name in FIGURES[4:] for loss in LOSSES}
            row: Record = {**group[0].setting, "step": group[0].step}
            row |= {f"{name}, {NAMES[loss]}": seconds for (name, loss), seconds in spent.items()}
            rows.append({**row, **{f"{n}, p = 2 / p = 1": spent[n, "l2"] / spent[n, "l1"] for n in FIGURES[4:]}})
    note = "Kernel: the solver alone; certified: with the gap from multipliers. One thread, one fit after the other."
    return Table.of("Seconds for all regions of a data set", rows, (note,))


def _median_seconds(group: Sequence[Duel], loss: Loss, name: str) -> float:
    totals: dict[tuple[Fraction, int], float] = {}
    for duel in group:
        for run, fit in enumerate(duel.fits(loss)):
            totals[duel.epsilon, run] = totals.get((duel.epsilon, run), 0.0) + fit[name]
    return median(totals.values())


def _groups(duels: Sequence[Duel], key: Callable[[Duel], tuple[object, ...]]) -> list[list[Duel]]:
    groups: dict[tuple[object, ...], list[Duel]] = {}
    for duel in duels:
        groups.setdefault(key(duel), []).append(duel)
    return list(groups.values())
