"""The slides' college town step by step: the implied constraints by each method, and a town that cannot be split.

Two regions of 100 students in female-only, co-ed and male-only dorms: R1 has one F and one C, R2 one C and one M, each
occupied. Which F, C, M of the town can be split? Published: F >= 1, C >= 2, M >= 1, F <= 99, C + F >= 101 and
C + F + M = 200, so (49, 50, 101) cannot, though it meets every bound on a single kind but the one on M that follows.
Methods are compared by the set of towns that they accept: C >= 2 follows from two others, so lists may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.experiment import Cell, Outcome, Reporter, Table, write_csv
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.topdown import (
    UNBOUNDED,
    Invariant,
    RegionBounds,
    Schema,
    Strategy,
    TableCounts,
    TablePlan,
    TopdownMethod,
    estimate_tables,
    measure_tables,
    parse_query,
)
from coco_opt.topdown.facts.cuts import CutOracle
from coco_opt.topdown.facts.elimination import Inequality, eliminated
from coco_opt.topdown.facts.system import FactSystem

NAME = "kifer2019/dorm"
KINDS = ("F", "C", "M")
SCHEMA = Schema({"dorm": KINDS})
TOWN = Hierarchy.from_paths([("town", "R1"), ("town", "R2")])
FACILITIES = ((1, 1, 0), (0, 1, 1))
STUDENTS = 100
REJECTED, SPLIT = (49, 50, 101), (49, 52, 99)
COLUMNS = ("method", "implied constraints", "towns accepted", "as published", "(49, 50, 101)")
Accepts = Callable[[tuple[int, int, int]], bool]


def published(town: tuple[int, int, int]) -> bool:
    """Return whether a town (F, C, M) meets the published constraints."""
    f, c, m = town
    return f >= 1 and c >= 2 and m >= 1 and f <= 99 and c + f >= 101 and c + f + m == 2 * STUDENTS


def facts() -> tuple[RegionBounds, ...]:
    """Return the public facts: dorms are occupied, and hold all students of their region."""
    counts = np.array(FACILITIES)
    kinds, total = parse_query("dorm", SCHEMA), parse_query("total", SCHEMA)
    full = np.full((2, 1), STUDENTS)
    return (
        RegionBounds(kinds, 1, counts, np.where(counts > 0, UNBOUNDED, 0)),
        RegionBounds(total, 1, full, full),
    )


def elimination() -> tuple[list[str], Accepts]:
    """Return what Fourier-Motzkin elimination of the regions' tables leaves."""
    rows = []
    for region, dorms in enumerate(FACILITIES):
        own = [int(k // 3 == region) for k in range(6)] + [0] * 3
        rows += [Inequality.of(own, STUDENTS), Inequality.of([-w for w in own], -STUDENTS)]
        for kind, count in enumerate(dorms):
            one = [int(k == 3 * region + kind) for k in range(9)]
            rows.append(Inequality.of(one, count))
            if not count:
                rows.append(Inequality.of([-w for w in one], 0))
    for kind in range(3):
        link = [int(k % 3 == kind) for k in range(6)] + [-int(k == kind) for k in range(3)]
        rows += [Inequality.of(link, 0), Inequality.of([-w for w in link], 0)]
    found = eliminated(rows, range(6))

    def accepts(town: tuple[int, int, int]) -> bool:
        return all(sum(w * x for w, x in zip(row.weights, town, strict=True)) >= row.side for row in found)

    return [_words(row.weights, row.side) for row in found], accepts


def cutting(*, lifted: bool) -> tuple[list[str], Accepts]:
    """Return the cuts that all towns on a grid need, by flows or by projecting the regions' tables (lifting)."""
    oracle = CutOracle(FactSystem.of(TOWN, SCHEMA, facts()))
    if lifted:
        oracle.__dict__["totals"] = None  # structure unknown: every answer from the linear program
    cuts: dict[tuple[int, ...], int] = {}

    def accepts(town: tuple[int, int, int]) -> bool:
        if sum(town) != 2 * STUDENTS:  # the town's own fact
            return False
        if any(np.dot(weights, town) > upper for weights, upper in cuts.items()):
            return False
        found = oracle.violated(0, 0, np.array(town))
        if found is not None:
            cuts[tuple(found.weights.tolist())] = found.upper
        return found is None

    for town in _towns():
        accepts(town)
    return [_words([-w for w in weights], Fraction(-upper)) for weights, upper in cuts.items()], accepts


def repaired() -> tuple[tuple[int, ...], int]:
    """Return the town released where the noisy answers say (49, 50, 101), and how many parents the failsafe changed."""
    leaves = np.array([[49, 51, 0], [0, 1, 99]])
    plan = TablePlan.product(
        Strategy.uniform([parse_query("detail", SCHEMA)]), Epsilon(Fraction(50)), 2, neighbours="replace"
    )
    counts = TableCounts.from_counts(TOWN, SCHEMA, leaves)
    total = [Invariant(parse_query("total", SCHEMA), 1)]
    measurement = measure_tables(counts, plan, source=SeededNoise(1), invariants=total, bounds=facts()[:1])
    result = estimate_tables(measurement, TopdownMethod(implied="cuts"))
    return tuple(result.level(0)[0].tolist()), len(result.relaxed)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Print each method's constraints; fails where one accepts other towns than the published constraints do."""
    rows: list[tuple[Cell, ...]] = []
    failures = []
    methods: dict[str, Callable[[], tuple[list[str], Accepts]]] = {
        "Fourier-Motzkin, exact rationals": elimination,
        "max-flow (Hoffman cuts)": lambda: cutting(lifted=False),
        "lifting (projection)": lambda: cutting(lifted=True),
    }
    towns = _towns()[:: 7 if small else 1]
    for number, (name, method) in enumerate(methods.items(), 1):
        constraints, accepts = method()
        accepted = [town for town in towns if accepts(town)]
        same = accepted == [town for town in towns if published(town)]
        rows.append((name, "; ".join(sorted(constraints)), len(accepted), same, "refused" * (not accepts(REJECTED))))
        if not same or accepts(REJECTED) or not accepts(SPLIT):
            failures.append(f"{name}: accepts other towns than the published constraints")
        reporter.progress(NAME, number, len(methods) + 1)
    town, relaxed = repaired()
    if not published((town[0], town[1], town[2])) or relaxed:
        failures.append(f"the released town {town} cannot be split, or took {relaxed} failsafes")
    reporter.progress(NAME, len(methods) + 1, len(methods) + 1)
    notes = (
        f"{len(towns):,} towns of 199 to 201 students near the corners. C + F + M = 200 is the town's own fact.",
        f"Released with cuts, without a failsafe: F, C, M = {', '.join(str(one) for one in town)}.",
    )
    table = Table("implied constraints of the college town", COLUMNS, tuple(rows), notes)
    reporter.table(table)
    return Outcome((table,), (write_csv(out / f"{NAME}.csv", table),), tuple(failures))


def _towns() -> list[tuple[int, int, int]]:
    near = (0, 1, 2, 48, 49, 50, 98, 99, 100, 101)
    totals = (2 * STUDENTS - 1, 2 * STUDENTS, 2 * STUDENTS + 1)
    found = {(f, total - f - m, m) for total in totals for f in near for m in near if total >= f + m}
    return sorted({*found, *((f, c, 200 - f - c) for f in near for c in near if f + c <= 200), REJECTED, SPLIT})


def _words(weights: list[int] | tuple[int, ...], side: Fraction) -> str:
    pairs = [(weight, kind) for weight, kind in zip(weights, KINDS, strict=True) if weight]
    parts = [f"{'+' if w > 0 else '-'} {'' if abs(w) == 1 else f'{abs(w)} '}{kind}" for w, kind in pairs]
    return f"{' '.join(parts).removeprefix('+ ')} >= {side}"
