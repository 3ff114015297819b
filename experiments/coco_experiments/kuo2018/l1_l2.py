"""L1 against L2: both losses on the same noise, for every estimator, level and epsilon, before and after consistency.

Total epsilon is split evenly over the levels. "alone" is every region's own fit; the other steps make regions agree:
"bottom-up" sums the leaves' answers (which have their level's share only, so it is bottom-up at that epsilon),
"matching" is Algorithm 1, "convex program" and "joint" fit all regions at once. Discrete Gaussian noise stands next to
geometric noise of the same nominal variance: rho = epsilon^2 / 4 a level. That makes their errors comparable, it does
not make the two guarantees equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from pathlib import Path

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw, level_title
from coco_experiments.data import hawaiian
from coco_experiments.groups import BARS, SEEDED, Case, evenly
from coco_experiments.kuo2018.cases import (
    MAX_SIZE,
    TAXI_MAX_SIZE,
    hawaii_case,
    small_cases,
    taxi_case,
    top,
    west_coast,
    white_case,
)
from coco_experiments.kuo2018.l1_l2_duels import (
    ALONE,
    BOTTOM_UP,
    CONVEX,
    JOINT,
    P1,
    P2,
    PAIRED,
    STEPS,
    Duel,
    Side,
    duel,
    fit_table,
    full_table,
    gaussian_of,
    seconds_table,
    verdict_table,
)
from coco_experiments.kuo2018.sweep import SEEDS
from coco_experiments.statistics import Reference
from coco_experiments.study import Report, Runs, Study
from coco_opt.groups import Query
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.privacy import Cost, Epsilon

EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2))
SMALL_EPSILONS = (Fraction(1, 10), Fraction(1))
GEOMETRIC, GAUSSIAN = "geometric", "discrete Gaussian"
# One region of 11 million blocks, nearly all empty: 40 other runs, epsilon 1, K = 100,000 (see ``kuo2018/table3``).
REFERENCES: dict[str, dict[Loss, Reference]] = {
    "Hawaiian": {"l1": Reference(256.0, 20.0, 40), "l2": Reference(291.0, 32.0, 40)}
}
REFERENCE_BAND = 3.0  # combined standard errors


@dataclass(frozen=True, slots=True)
class Arena:
    """An estimator, a distribution of noise, and what a level's epsilon buys it with."""

    estimator: str
    query: Query
    noise: str
    cost: Callable[[Fraction], Cost]


HC = Arena("Hc", "cumulative", GEOMETRIC, Epsilon)
HG = Arena("Hg", "ranks", GEOMETRIC, Epsilon)
HC_GAUSSIAN = Arena("Hc", "cumulative", GAUSSIAN, gaussian_of)
ARENAS = (HC, HG, HC_GAUSSIAN)


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """A case in an arena at one total epsilon, and how many seeds: in all, with convex programs, with joint estimation.

    The seeds are the first of ten fixed beforehand; programs over all regions are of Hc only.
    """

    case: Case
    arena: Arena
    epsilon: Fraction
    runs: int
    convex: int = 0
    joint: int = 0

    def steps(self, run: int) -> list[str]:
        """Return the steps of one run, counted from 0; a single region has nothing to agree with."""
        enabled = {CONVEX: self.convex > run, JOINT: self.joint > run}
        return [ALONE] if self.case.levels == 1 else [step for step in STEPS if enabled.get(step, True)]


SeedCounts = tuple[int, int, int]


def cases(folder: Path | None, *, small: bool) -> list[tuple[Case, dict[Arena, SeedCounts]]]:
    """Return the cases and how often each is run in every arena; sizes decide what is affordable."""
    if small:
        dense, housing, _ = small_cases(120)
        few = {HC: (8, 3, 2), HG: (8, 0, 0), HC_GAUSSIAN: (8, 0, 0)}
        return [(dense, few), (top(housing, 2), {**few, HC: (8, 0, 0)})]
    hawaii, ten, none, five = hawaii_case(folder), (10, 0, 0), (0, 0, 0), (5, 0, 0)
    counties = replace(top(hawaii, 2), name="Hawaii blocks, state and county")
    tracts = replace(top(hawaii, 3), name="Hawaii blocks, down to tract")
    return [
        (taxi_case(folder, TAXI_MAX_SIZE), {HC: (10, 3, 3), HG: five, HC_GAUSSIAN: ten}),
        (counties, {HC: (10, 10, 10), HG: ten, HC_GAUSSIAN: (10, 10, 10)}),
        (tracts, {HC: (5, 2, 0), HG: five, HC_GAUSSIAN: five}),
        (Case.of("Hawaiian", hawaiian(folder), MAX_SIZE), {HC: ten, HG: none, HC_GAUSSIAN: ten}),
        (west_coast(white_case(folder)), {HC: five, HG: none, HC_GAUSSIAN: five}),
    ]


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return all cases in every arena at every epsilon."""
    for arena in ARENAS:  # compiles every kernel before a clock runs
        programs = int(arena is not HG)
        measure(Setting(small_cases(20)[0], arena, Fraction(1), 1, programs, programs), SEEDS[0])
    settings = product(cases(data, small=small), ARENAS, SMALL_EPSILONS if small else EPSILONS)
    return [
        (Setting(case, arena, epsilon, *runs[arena]), SEEDS[: runs[arena][0]])
        for (case, runs), arena, epsilon in settings
    ]


def measure(setting: Setting, seed: int) -> dict[str, dict[Loss, Side]]:
    """Return both losses after each step on one seed's noise; epsilon is split evenly over the levels."""
    case, arena = setting.case, setting.arena
    noisy = case.measured(seed, evenly(setting.epsilon, case.levels, arena.cost), arena.query)
    return duel(case, noisy, setting.steps(SEEDS.index(seed)))


def duels_of(runs: Runs[Setting, dict[str, dict[Loss, Side]]]) -> list[Duel]:
    """Return one duel a step and level."""
    setting, case, last = runs.case, runs.case.case, runs.case.case.levels - 1
    key = case.name, setting.arena.estimator, setting.arena.noise, setting.epsilon
    return [
        Duel(*key, step, level, [found[step] for found in runs.found if step in found])
        for step in runs.found[0]
        for level in range(last if step == BOTTOM_UP else case.levels)  # it leaves the leaves as they are
    ]


def failures_in(duels: Sequence[Duel]) -> list[str]:
    """Return one line for every mean too far from its reference and every fit of p = 1 alone that is not integer."""
    lines = []
    for item in duels:
        if item.step == ALONE and min((fit["% integer"] for fit in item.fits("l1")), default=100.0) < 100.0:
            lines.append(f"{item.case}, {item.estimator}, level {item.level}: a fit with p = 1 is not integer")
        references = REFERENCES.get(item.case, {}) if item.epsilon == 1 and item.noise == GEOMETRIC else {}
        for loss, reference in references.items():
            apart = reference.standard_errors_from(item.means[loss])
            if apart > REFERENCE_BAND:
                lines.append(f"{item.case}, {loss}: {apart:.3g} combined standard errors from the reference")
    return lines


def report(results: Sequence[Runs[Setting, dict[str, dict[Loss, Side]]]], path: Path) -> Report:
    """Return every error, objective and time, who wins, the fits, the seconds and the curves."""
    duels = [item for runs in results for item in duels_of(runs)]
    notes = (
        SEEDED,
        BARS,
        PAIRED,
        "Objectives are each loss's own; joint estimation's and the convex program's fits stand at level 0.",
        "Discrete Gaussian noise has rho = epsilon^2 / 4 a level: the same nominal variance, not the same guarantee.",
    )
    tables = {
        "": full_table(duels, notes),
        "_verdicts": verdict_table(duels),
        "_fits": fit_table(duels),
        "_seconds": seconds_table(duels),
    }
    return Report(tables, curves(path, duels), failures_in(duels))


def curves(path: Path, duels: Sequence[Duel]) -> list[Path]:
    """Draw the error of p = 2 over that of p = 1 against epsilon: a row a case, a column a level; return the files."""
    rows = []
    for case in dict.fromkeys(item.case for item in duels):
        own = [item for item in duels if item.case == case]
        rows.append([_panel(case, level, own) for level in sorted({item.level for item in own})])
    style = AxisStyle("total epsilon", f"error of {P2}\nover that of {P1}", yscale="linear", same_y=True)
    return draw(path, rows, style)


def _panel(case: str, level: int, duels: Sequence[Duel]) -> CurvePanel:
    at_level = [item for item in duels if item.level == level and item.step != BOTTOM_UP and item.ratio is not None]
    drawn = []
    for name in dict.fromkeys(_label(item) for item in at_level):
        own = [item for item in at_level if _label(item) == name]
        bars = [(item.difference.standard_error or 0.0) / item.means["l1"].value for item in own]
        x = tuple(float(item.epsilon) for item in own)
        drawn.append(Curve(name, x, tuple(item.ratio or 0.0 for item in own), tuple(bars)))
    ends = tuple(sorted({float(item.epsilon) for item in at_level}))
    drawn.append(Curve("equal", ends, (1.0,) * len(ends), theory=True))
    return CurvePanel(level_title(case, level), tuple(drawn))


def _label(item: Duel) -> str:
    return f"{item.estimator} {item.step}" + (", Gaussian" if item.noise == GAUSSIAN else "")


L1_L2 = Study("kuo2018/l1_l2", plan, measure, report)
