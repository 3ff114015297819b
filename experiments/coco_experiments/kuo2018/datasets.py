"""Every method on every data set, at every level, for total epsilon 0.1, 0.5, 1 and 2, next to the omniscient line.

Each method spends the same total; all but bottom-up split it evenly over the levels. Taxi and the blocks of Hawaii are
real data; housing and White are made, on the West Coast, as the paper's figure of three levels has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from coco_experiments.kuo2018.cases import (
    Case,
    hawaii_case,
    housing_case,
    small_cases,
    taxi_case,
    west_coast,
    white_case,
)
from coco_experiments.kuo2018.methods import (
    Method,
    alone,
    combinations,
    convexly,
    jointly,
    leaves_only,
    matched,
)
from coco_experiments.kuo2018.sweep import SEEDS, SMALL_SEEDS, Point, best_table, finish, sweep, table_of
from coco_experiments.outcome import Cell, Outcome, Reporter, Table

NAME = "kuo2018/datasets"
EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2))
SMALL_EPSILONS = (Fraction(1),)
TAXI_MAX_SIZE = 5_000
_FOUR_LEVELS = ("Hc Hc Hc Hc", "Hc Hc Hc Hg", "Hc Hc Hg Hg", "Hc Hg Hg Hg", "Hg Hg Hg Hg", "Hg Hg Hc Hc")


@dataclass(frozen=True, slots=True)
class Plan:
    """How often the methods run on a case: dear ones less, joint estimation and convex programs at 0 not at all."""

    runs: int
    joint: int
    convex: int


def methods_of(levels: int, plan: Plan) -> list[Method]:
    """Return the methods compared on a case of so many levels."""
    chosen = combinations(levels) if levels < 4 else [tuple(text.split()) for text in _FOUR_LEVELS]
    methods = [
        *(matched(choice) for choice in chosen),
        matched(("Hc",) * levels, "average"),
        *(alone((estimator,) * levels) for estimator in ("Hc", "Hg", "naive")),
        *(leaves_only(estimator) for estimator in ("Hc", "Hg")),
    ]
    if plan.convex:
        methods += [convexly("Hc", "l1", plan.convex), convexly("naive", "l1", plan.convex)]
    if plan.joint:
        methods += [jointly("l1", plan.joint), jointly("l2", plan.joint)]
    return methods


def plans(folder: Path | None, *, small: bool) -> list[tuple[Case, Plan]]:
    """Return the cases and how often each method runs on them."""
    if small:
        return [(case, Plan(2, 1 if number == 0 else 0, 1)) for number, case in enumerate(small_cases(200)[:2])]
    return [
        (taxi_case(folder, TAXI_MAX_SIZE), Plan(10, 2, 1)),
        (hawaii_case(folder), Plan(2, 1, 1)),
        (west_coast(white_case(folder)), Plan(3, 0, 0)),
        (west_coast(housing_case(folder)), Plan(3, 0, 0)),
    ]


def seconds_table(points: Sequence[Point]) -> Table:
    """Return the mean seconds of a run by case and method, over all epsilons."""
    spent: dict[tuple[str, str], list[float]] = {}
    for point in points:
        spent.setdefault((point.case, point.method), []).append(point.seconds / max(1, point.means[0].runs))
    rows: list[tuple[Cell, ...]] = [(*key, sum(values) / len(values)) for key, values in spent.items()]
    note = "A method that is the first to need noise or a level's estimates pays for them; the others reuse them."
    return Table("Seconds a run", ("data", "method", "seconds"), tuple(rows), (note,))


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/datasets`` as CSV, PNG and PDF; small: few runs on simulated data."""
    epsilons = SMALL_EPSILONS if small else EPSILONS
    points: list[Point] = []
    for case, plan in plans(data, small=small):
        seeds = (SMALL_SEEDS if small else SEEDS)[: plan.runs]
        points += sweep(case, methods_of(case.levels, plan), epsilons, seeds, reporter)
    notes = (
        f"Capped: Taxi at K = {TAXI_MAX_SIZE:,} (its sizes are below); Hawaii at 6 of 16 combinations; runs as "
        "each row says; joint estimation and convex programs left out on the West Coast (0.7 and 1.4 million cells).",
        "'No consistency', including naive, is shown for comparison: its tables do not add up, so it is never best.",
        "Means of one or two runs are rough: a best method within a standard error of the next is no winner.",
    )
    table = table_of("Every method, data set, level and epsilon: mean earth mover's distance a region", points, notes)
    best = best_table("The best consistent method", points)
    drawn = [point for point in points if _is_drawn(point.method)]
    return finish(NAME, out, table, [best, seconds_table(points)], drawn, reporter)


def _is_drawn(method: str) -> bool:
    """Return whether a method is one of those the curves show: mixed combinations and naive would hide the rest."""
    return "naive" not in method and "convex" not in method and not ("Hc" in method and "Hg" in method)
