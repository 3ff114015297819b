"""Figures 4, 5 and 6, and every method on every data set: declared sweeps over cases, methods and total epsilons.

Figure 4 merges matched groups by variance and by plain averages on two levels (nation, states), by the paper's
combinations Hc x Hc, Hc x Hg and Hg x Hc; it leaves out Hg x Hg, where the plain average's error is too large to draw.
The paper states no numbers, but that weighting wins at the top level for every budget and combination, and modestly at
the second. ``merging_claims`` says how often it does here, and where it does not.

Figure 5 shows every combination on two levels and the omniscient line. The paper states that the best method is
comparable to the omniscient one and that no estimator dominates: Hc on dense data (White), Hg on sparse (synthetic
housing, nation).

Figure 6 shows three levels without and with consistency. As in the paper, census data keep the West Coast (California,
Oregon, Washington and their 133 counties) and Taxi its whole geography. None dominates, and Hc tends to be much better
over all.

``datasets`` goes beyond: each method spends the same total, and all but bottom-up split it evenly over the levels. Taxi
and the blocks of Hawaii are real data; housing and White are made, on the West Coast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from coco_experiments.groups import SEEDED, Case
from coco_experiments.kuo2018.cases import (
    TAXI_MAX_SIZE,
    hawaii_case,
    hawaiian_case,
    housing_case,
    small_cases,
    taxi_case,
    top,
    west_coast,
    white_case,
)
from coco_experiments.kuo2018.methods import Method, alone, combinations, convexly, jointly, leaves_only, matched
from coco_experiments.kuo2018.sweep import SEEDS, Point, best_rows, best_table, sweep
from coco_experiments.outcome import Record, Statement, Table

PER_LEVEL = (Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(1))
EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2))
FIGURE6_MAX_SIZE = 10_000
_AT_TOP = "average / weighted, level 0"
_COMPARABLE, _MUCH = 3.0, 2.0  # factors between errors that stand for words of the paper
_FOUR_LEVELS = ("Hc Hc Hc Hc", "Hc Hc Hc Hg", "Hc Hc Hg Hg", "Hc Hg Hg Hg", "Hg Hg Hg Hg", "Hg Hg Hc Hc")
_MERGED = [
    matched(choice, merge) for choice in (("Hc", "Hc"), ("Hc", "Hg"), ("Hg", "Hc")) for merge in ("weighted", "average")
]
_COMBINED = [matched(choice) for choice in combinations(2)]
_CONSISTENT = [kind((estimator,) * 3) for estimator in ("Hc", "Hg") for kind in (alone, matched)]


def per_level(levels: int) -> Callable[[bool], list[Fraction]]:
    """Return the total epsilons of the paper's epsilons a level; small: the two largest."""
    return lambda small: [levels * epsilon for epsilon in (PER_LEVEL[2:] if small else PER_LEVEL)]


def two_levels(methods: Sequence[Method]) -> Callable[[Path | None, bool], list[tuple[Case, Sequence[Method], int]]]:
    """Return the data sets of figures 4 and 5, cut to nation and states, with these methods."""

    def cases(folder: Path | None, small: bool) -> list[tuple[Case, Sequence[Method], int]]:
        wide = small_cases()[:2] if small else [housing_case(folder), hawaiian_case(folder), white_case(folder)]
        return [(top(case, 2), methods, len(SEEDS)) for case in wide]

    return cases


def three_levels(folder: Path | None, small: bool) -> list[tuple[Case, Sequence[Method], int]]:
    """Return the data sets of figure 6."""
    if small:
        cases = small_cases()[:2]
    else:
        census = [housing_case(folder), hawaiian_case(folder), white_case(folder)]
        cases = [*(west_coast(case) for case in census), taxi_case(folder, FIGURE6_MAX_SIZE)]
    return [(case, _CONSISTENT, len(SEEDS)) for case in cases]


def gains(points: Sequence[Point]) -> Table:
    """Return how many times smaller the weighted merge's error is, by combination, budget and level."""
    by_name = {(point.case, point.epsilon, point.method): point for point in points}
    rows: list[Record] = []
    for (case, epsilon, method), weighted in by_name.items():
        plain = by_name.get((case, epsilon, f"{method}, average half up"))
        if plain is not None:
            top, second = (p.value / w.value for p, w in zip(plain.means, weighted.means, strict=True))
            setting: Record = {"data": case, "epsilon a level": float(epsilon) / 2, "combination": method}
            rows.append({**setting, _AT_TOP: top, "level 1": second, "weighted wins at 0": top > 1.0})
    notes = ("The paper: weighting wins at level 0 always, by a large factor, and modestly at level 1.", SEEDED)
    return Table.of("Figure 4: what weighting by variance gains", rows, notes)


def merging_claims(points: Sequence[Point]) -> list[Statement]:
    """Return what section 6.2.2 says of weighting by variance, with the rows where the plain average wins."""
    rows = gains(points).records()
    says = {
        _AT_TOP: "weighting by variance lowers the error at the top for every budget and combination",
        "level 1": "and modestly, in every case, at the second level",
    }
    claims = []
    for column, words in says.items():
        ratios = [row[column] for row in rows]
        lost = {f"{row['combination']} on {row['data']}" for row in rows if row[column] <= 1}
        measured = f"lower in {sum(ratio > 1 for ratio in ratios)} of {len(rows)}, {_range(ratios)} times"
        where = f"the plain average wins with {', '.join(sorted(lost))}" if lost else ""
        claims.append(Statement("section 6.2.2, Figure 4", words, measured, not lost, where))
    return claims


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}"


def combination_claims(rows: Sequence[Record]) -> list[Statement]:
    """Return what section 6.2.3 says of two levels: how near to omniscient, and that no combination dominates."""
    far = [row for row in rows if float(str(row["times omniscient"])) > _COMPARABLE]
    budgets = sorted({float(str(row["epsilon a level"])) for row in far})
    where = f"further at {len(far)} of {len(rows)}, all with epsilon a level of {', '.join(map(str, budgets))}"
    ratios = [float(str(row["times omniscient"])) for row in rows]
    chosen = sorted({str(row["best method"]) for row in rows})
    white = {str(row["best method"]) for row in rows if str(row["data"]).startswith("White")}
    sparse = {str(row["best method"]) for row in rows if str(row["data"]).startswith("Synthetic") and row["level"] == 0}
    dense = Statement(
        "section 6.2.3",
        "Hc is best on dense data (White), methods with Hg on data that are sparse at the top (housing)",
        f"White: {', '.join(sorted(white))}; housing, top: {', '.join(sorted(sparse))}" if white else "no such data",
        all("Hg" not in name for name in white) and all("Hg" in name for name in sparse) if white else None,
        f"on White {', '.join(sorted(name for name in white if 'Hg' in name)) or 'Hc alone'} is best at times"
        if white
        else "simulated data stand in",
    )
    return [
        Statement(
            "section 6.2.3, Figure 5",
            "the best method is comparable to the omniscient one (taken as: within a factor of 3)",
            f"{_range(ratios)} times its error",
            not far,
            where if far else "",
        ),
        _no_method_dominates("section 6.2.3, Figure 5", chosen),
        dense,
    ]


def _no_method_dominates(where: str, chosen: Sequence[str]) -> Statement:
    return Statement(where, "no method dominates", f"best somewhere: {', '.join(chosen)}", len(chosen) > 1)


def consistency_claims(points: Sequence[Point]) -> list[Statement]:
    """Return what section 6.2.4 says of three levels: that none dominates, and Hc tends to be much better over all."""
    errors = {
        (point.case, point.epsilon, point.method, level): mean.value
        for point in points
        if point.consistent
        for level, mean in enumerate(point.means)
    }
    ratios = [
        error / errors[case, epsilon, method.replace("Hg", "Hc"), level]
        for (case, epsilon, method, level), error in errors.items()
        if "Hg" in method
    ]
    typical = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return [
        _no_method_dominates("section 6.2.4, Figure 6", sorted({str(row["best method"]) for row in best_rows(points)})),
        Statement(
            "section 6.2.4, Figure 6",
            "methods on Hc tend to be much better than those on Hg over all (taken as: half the error typically)",
            f"Hg errs {typical:.3g} times as much typically, {_range(ratios)}; less in "
            f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)}",
            typical >= _MUCH,
        ),
    ]


@dataclass(frozen=True, slots=True)
class Runs:
    """How often the methods run on a case: dear ones less, joint estimation and convex programs at 0 not at all."""

    runs: int
    joint: int
    convex: int


def methods_of(levels: int, runs: Runs) -> list[Method]:
    """Return the methods compared on a case of so many levels."""
    chosen = combinations(levels) if levels < 4 else [tuple(text.split()) for text in _FOUR_LEVELS]
    methods = [
        *(matched(choice) for choice in chosen),
        matched(("Hc",) * levels, "average"),
        *(alone((estimator,) * levels) for estimator in ("Hc", "Hg", "naive")),
        *(leaves_only(estimator) for estimator in ("Hc", "Hg")),
    ]
    if runs.convex:
        methods += [convexly("Hc", "l1", runs.convex), convexly("naive", "l1", runs.convex)]
    if runs.joint:
        methods += [jointly("l1", runs.joint), jointly("l2", runs.joint)]
    return methods


def every_case(folder: Path | None, small: bool) -> list[tuple[Case, list[Method], int]]:
    """Return all data sets with every method, and how often it runs."""
    if small:
        plans = [(case, Runs(2, 1 if number == 0 else 0, 1)) for number, case in enumerate(small_cases(200)[:2])]
    else:
        plans = [
            (taxi_case(folder, TAXI_MAX_SIZE), Runs(10, 2, 1)),
            (hawaii_case(folder), Runs(2, 1, 1)),
            (west_coast(white_case(folder)), Runs(3, 0, 0)),
            (west_coast(housing_case(folder)), Runs(3, 0, 0)),
        ]
    return [(case, methods_of(case.levels, runs), runs.runs) for case, runs in plans]


def seconds_table(points: Sequence[Point]) -> Table:
    """Return the mean seconds of a run by case and method, over all epsilons."""
    spent: dict[tuple[str, str], list[float]] = {}
    for point in points:
        spent.setdefault((point.case, point.method), []).append(point.seconds)
    note = "A method that is the first to need noise or a level's estimates pays for them; the others reuse them."
    rows: list[Record] = [
        {"data": case, "method": name, "seconds": sum(s) / len(s)} for (case, name), s in spent.items()
    ]
    return Table.of("Seconds a run", rows, (note,))


def _is_drawn(method: str) -> bool:
    """Return whether a method is one of those the curves show: mixed combinations and naive would hide the rest."""
    return "naive" not in method and "convex" not in method and not ("Hc" in method and "Hg" in method)


FIGURE4 = sweep(
    "kuo2018/figure4",
    "Figure 4: weighted against plain merging, two levels, {runs} runs",
    two_levels(_MERGED),
    per_level(2),
    lambda points: [gains(points)],
    claims=merging_claims,
)
FIGURE5 = sweep(
    "kuo2018/figure5",
    "Figure 5: two levels, matching weighted by variance, {runs} runs",
    two_levels(_COMBINED),
    per_level(2),
    lambda points: [best_table("Figure 5: the best combination", points)],
    claims=lambda points: combination_claims(best_rows(points)),
)
FIGURE6 = sweep(
    "kuo2018/figure6",
    "Figure 6: three levels without and with consistency, {runs} runs",
    three_levels,
    per_level(3),
    lambda points: [best_table("Figure 6: the best consistent method", points)],
    (f"K = {FIGURE6_MAX_SIZE:,} instead of the paper's 100,000, which adds empty cells and little error.",),
    claims=consistency_claims,
)
DATASETS = sweep(
    "kuo2018/datasets",
    "Every method, data set, level and epsilon: mean earth mover's distance a region",
    every_case,
    lambda small: EPSILONS[2:3] if small else EPSILONS,
    lambda points: [best_table("The best consistent method", points), seconds_table(points)],
    (
        f"Capped: Taxi at K = {TAXI_MAX_SIZE:,} (its sizes are below); Hawaii at 6 of 16 combinations; runs as "
        "each row says; joint estimation and convex programs left out on the West Coast (0.7 and 1.4 million cells).",
        "'No consistency', including naive, is shown for comparison: its tables do not add up, so it is never best.",
        "Means of one or two runs are rough: a best method within a standard error of the next is no winner.",
    ),
    _is_drawn,
    lambda points: [
        _no_method_dominates("section 6.2", sorted({str(row["best method"]) for row in best_rows(points)}))
    ],
)
