"""Who wins, by how much, and what the fits look like: the tables of the experiment ``kuo2018/l1_l2``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from coco_experiments.kuo2018.l1_l2_duels import Fit
from coco_experiments.outcome import Cell, Table
from coco_experiments.statistics import Mean

P1, P2, UNDECIDED = "p = 1", "p = 2", "undecided"
CONFIDENCE = 0.95
_KEY = ("data", "estimator", "noise")
_PAIRS = (
    "error before rounding",
    "% integer",
    "% near integer",
    "different values",
    "objective",
    "kernel seconds",
    "certified seconds",
)
COLUMNS = (
    *_KEY,
    "total epsilon",
    "step",
    "level",
    "runs",
    P1,
    f"standard error {P1}",
    P2,
    f"standard error {P2}",
    "p = 2 / p = 1",
    "margin",
    "winner",
    *(f"{what}, {loss}" for what in _PAIRS for loss in (P1, P2)),
)
PAIRED = (
    "Margin: mean of (error of p = 2 - error of p = 1) over the runs, in its standard errors; positive: p = 1 wins. "
    f"A winner is named beyond the two-sided {CONFIDENCE:.0%} point of Student's t: about one tie in twenty gets one."
)

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Duel:
    """The errors of p = 1 and of p = 2, run by run on the same noise, at one level after one step.

    ``errors`` mean entities a region; ``fractional`` the same before rounding, and ``fits``, where the step has them.
    """

    case: str
    estimator: str
    noise: str
    epsilon: Fraction
    step: str
    level: int
    errors: tuple[tuple[float, ...], tuple[float, ...]]
    fractional: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    fits: tuple[tuple[Fit, ...], tuple[Fit, ...]] | None = None

    @property
    def key(self) -> Key:
        """Data, estimator and noise."""
        return self.case, self.estimator, self.noise

    @property
    def means(self) -> tuple[Mean, Mean]:
        """The mean error of p = 1 and of p = 2."""
        return Mean.of(self.errors[0]), Mean.of(self.errors[1])

    @property
    def ratio(self) -> float | None:
        """The error of p = 2 over that of p = 1; None where p = 1 makes none."""
        absolute, squared = self.means
        return squared.value / absolute.value if absolute.value else None

    @property
    def difference(self) -> Mean:
        """The mean of the differences, p = 2 less p = 1, run by run."""
        return Mean.of([squared - absolute for absolute, squared in zip(*self.errors, strict=True)])

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
        """The loss with the smaller error where the margin is beyond random variation, else undecided."""
        margin = self.margin
        if margin is None or abs(margin) <= critical_margin(len(self.errors[0])):
            return UNDECIDED
        return P1 if margin > 0 else P2


def critical_margin(runs: int) -> float:
    """Return the two-sided point of Student's t that the margin of so many runs (2 or more) must pass."""
    from scipy.special import stdtrit

    return float(stdtrit(runs - 1, (1.0 + CONFIDENCE) / 2.0))


def full_table(duels: Sequence[Duel], notes: Sequence[str]) -> Table:
    """Return one row a data set, estimator, noise, epsilon, step and level."""
    title = "p = 1 against p = 2 on the same noise: mean earth mover's distance (entities) a region"
    return Table(title, COLUMNS, tuple(_row(duel) for duel in duels), tuple(notes))


def _row(duel: Duel) -> tuple[Cell, ...]:
    absolute, squared = duel.means
    measured = (len(duel.errors[0]), absolute.value, absolute.standard_error, squared.value, squared.standard_error)
    verdict = (duel.ratio, duel.margin, duel.winner)
    return (*duel.key, float(duel.epsilon), duel.step, duel.level, *measured, *verdict, *_fit_cells(duel))


def _fit_cells(duel: Duel) -> tuple[Cell, ...]:
    before: tuple[Cell, ...] = (None, None)
    if duel.fractional is not None:
        before = tuple(Mean.of(values).value for values in duel.fractional)
    if duel.fits is None:
        return (*before, *(None,) * (2 * len(_PAIRS) - 2))
    means = [sum(read(fit) for fit in side) / len(side) for read in _MEANS for side in duel.fits]
    return (*before, *means, *(median(read(fit) for fit in side) for read in _SECONDS for side in duel.fits))


_MEANS: tuple[Callable[[Fit], float], ...] = (
    lambda fit: fit.integer_share,
    lambda fit: fit.nearly,
    lambda fit: fit.runs,
    lambda fit: fit.objective,
)
_SECONDS: tuple[Callable[[Fit], float], ...] = (lambda fit: fit.kernel, lambda fit: fit.certified)


def verdict_table(duels: Sequence[Duel]) -> Table:
    """Return how often each loss wins over levels and epsilons, and the range of p = 2 / p = 1."""
    rows: list[tuple[Cell, ...]] = []
    for key, group in _groups(duels, lambda duel: (*duel.key, duel.step)).items():
        winners = [duel.winner for duel in group]
        ratios = [duel.ratio for duel in group if duel.ratio]
        runs = min(len(duel.errors[0]) for duel in group)
        counts = [winners.count(name) for name in (P1, P2, UNDECIDED)]
        spread = (min(ratios), _geometric_mean(ratios), max(ratios)) if ratios else (None,) * 3
        rows.append((*key, runs, *counts, *spread))
    columns = (*_KEY, "step", "runs", P1, P2, UNDECIDED, "least p = 2 / p = 1", "geometric mean", "greatest")
    notes = (
        PAIRED,
        "Counted over levels and epsilons, which share seeds. Few runs decide little: see the column runs.",
    )
    return Table("Who wins: levels and epsilons won by each loss", columns, tuple(rows), notes)


def fit_table(duels: Sequence[Duel]) -> Table:
    """Return integer values, different values and what rounding costs, by epsilon; means over levels."""
    rows: list[tuple[Cell, ...]] = []
    groups = _groups(duels, lambda duel: (*duel.key, duel.step, f"{float(duel.epsilon):g}"))
    for key, group in groups.items():
        fitted = [duel.fits for duel in group if duel.fits is not None]
        rounded = [duel for duel in group if duel.fractional is not None]
        if fitted:
            cells = [
                sum(read(fit) for fits in fitted for fit in fits[side]) / sum(len(fits[side]) for fits in fitted)
                for read in _MEANS[:3]
                for side in (0, 1)
            ]
            rows.append((*key, *cells, *(_rounding_cost(rounded, side) for side in (0, 1))))
    names = ("% integer", "% near integer", "different values", "rounding %")
    columns = (*_KEY, "step", "total epsilon", *(f"{name}, {loss}" for name in names for loss in (P1, P2)))
    notes = (
        "Before rounding: % within 1e-6 and within 1e-2 of integers, different values a region. Rounding %: error "
        "after rounding over error before, less 1; joint estimation's rounding also makes the regions add up.",
    )
    return Table("What the fits look like before rounding", columns, tuple(rows), notes)


def _rounding_cost(duels: Sequence[Duel], side: int) -> float | None:
    before = sum(sum(duel.fractional[side]) for duel in duels if duel.fractional is not None)
    after = sum(sum(duel.errors[side]) for duel in duels)
    return 100.0 * (after / before - 1.0) if before else None


def seconds_table(duels: Sequence[Duel]) -> Table:
    """Return the seconds of all regions' fits: medians over runs and epsilons, levels added up."""
    rows: list[tuple[Cell, ...]] = []
    for key, group in _groups(duels, lambda duel: (*duel.key, duel.step)).items():
        if any(duel.fits is not None for duel in group):
            spent = [_median_seconds(group, side, read) for read in _SECONDS for side in (0, 1)]
            rows.append((*key, *spent, spent[1] / spent[0], spent[3] / spent[2]))
    kinds = ("kernel", "certified")
    columns = (
        *_KEY,
        "step",
        *(f"{kind}, {loss}" for kind in kinds for loss in (P1, P2)),
        *(f"{kind}, p = 2 / p = 1" for kind in kinds),
    )
    note = "Kernel: the solver alone; certified: with the gap from multipliers. One thread, one fit after the other."
    return Table("Seconds for all regions of a data set", columns, tuple(rows), (note,))


def _median_seconds(group: Sequence[Duel], side: int, read: Callable[[Fit], float]) -> float:
    totals: dict[tuple[Fraction, int], float] = {}
    for duel in group:
        for run, fit in enumerate(() if duel.fits is None else duel.fits[side]):
            totals[duel.epsilon, run] = totals.get((duel.epsilon, run), 0.0) + read(fit)
    return median(totals.values())


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def _groups(duels: Sequence[Duel], key: Callable[[Duel], Key]) -> dict[Key, list[Duel]]:
    groups: dict[Key, list[Duel]] = {}
    for duel in duels:
        groups.setdefault(key(duel), []).append(duel)
    return groups
