"""The slides' college town step by step: the implied constraints by each method, and a town that cannot be split.

Two regions of 100 students in female-only, co-ed and male-only dorms: R1 has one F and one C, R2 one C and one M, each
occupied. Which F, C, M of the town can be split? Published: F >= 1, C >= 2, M >= 1, F <= 99, C + F >= 101 and
C + F + M = 200, so (49, 50, 101) cannot, though it meets every bound on a single kind but the one on M that follows.
C >= 2 follows from two others, so lists may differ: each method's constraints and the published ones are derived from
each other with multipliers in exact rationals, and compared on every town of 200 students.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.kifer2019.implied import Inequality, eliminated, implied, irredundant
from coco_experiments.outcome import Cell, Outcome, Reporter, Statement, Table, publish
from coco_opt.choices import SolverChoices
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
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
from coco_opt.topdown.estimating.implied.cuts import CutOracle
from coco_opt.topdown.feasibility.system import ConstraintSystem

NAME = "kifer2019/dorm"
KINDS = ("F", "C", "M")
SCHEMA = Schema({"dorm": KINDS})
TOWN = Hierarchy.from_paths([("town", "R1"), ("town", "R2")])
FACILITIES = ((1, 1, 0), (0, 1, 1))
STUDENTS = 100
REJECTED, SPLIT = (49, 50, 101), (49, 52, 99)
COLUMNS = ("method", "implied constraints", "implies all published", "implied by them", "towns accepted", str(REJECTED))
EVERYBODY = (Inequality.of((1, 1, 1), 2 * STUDENTS), Inequality.of((-1, -1, -1), -2 * STUDENTS))
PUBLISHED = (
    Inequality.of((1, 0, 0), 1),
    Inequality.of((0, 1, 0), 2),
    Inequality.of((0, 0, 1), 1),
    Inequality.of((-1, 0, 0), -99),
    Inequality.of((1, 1, 0), 101),
    *EVERYBODY,
)


def accepted(rows: Sequence[Inequality]) -> int:
    """Return how many towns of 200 students, of all 20,301, meet some constraints."""
    f, c = np.indices((2 * STUDENTS + 1, 2 * STUDENTS + 1))
    towns = np.stack([f, c, 2 * STUDENTS - f - c])[:, f + c <= 2 * STUDENTS]
    weights, sides = np.array([row.weights for row in rows]), np.array([float(row.side) for row in rows])
    return int((weights @ towns >= sides[:, None]).all(axis=0).sum())


def meets(town: Sequence[int], rows: Sequence[Inequality]) -> bool:
    """Return whether a town (F, C, M) meets some constraints."""
    return all(sum(w * x for w, x in zip(row.weights, town, strict=True)) >= row.side for row in rows)


def constraints() -> tuple[RegionBounds, ...]:
    """Return the public constraints: dorms are occupied, and hold all students of their region."""
    counts = np.array(FACILITIES)
    kinds, total = parse_query("dorm", SCHEMA), parse_query("total", SCHEMA)
    full = np.full((2, 1), STUDENTS)
    return (
        RegionBounds(kinds, 1, counts, np.where(counts > 0, UNBOUNDED, 0)),
        RegionBounds(total, 1, full, full),
    )


def elimination() -> list[Inequality]:
    """Return what Fourier-Motzkin elimination of the regions' tables leaves."""
    rows = []
    for region, dorms in enumerate(FACILITIES):
        own = [int(k // 3 == region) for k in range(6)] + [0] * 3
        rows += [Inequality.of(own, STUDENTS), Inequality.of([-w for w in own], -STUDENTS)]
        for kind, count in enumerate(dorms):
            cell = [int(k == 3 * region + kind) for k in range(9)]
            rows.append(Inequality.of(cell, count))
            if not count:
                rows.append(Inequality.of([-w for w in cell], 0))
    for kind in range(3):
        link = [int(k % 3 == kind) for k in range(6)] + [-int(k == kind) for k in range(3)]
        rows += [Inequality.of(link, 0), Inequality.of([-w for w in link], 0)]
    return eliminated(rows, range(6))


def cutting(*, lifted: bool) -> list[Inequality]:
    """Return the cuts that towns near the corners need, by flows or by projecting the regions' tables (lifting)."""
    oracle = CutOracle(ConstraintSystem.of(TOWN, SCHEMA, constraints()), flows=not lifted)
    cuts = list(EVERYBODY)  # the town's own constraint
    near = (0, 1, 2, 48, 49, 50, 98, 99, 100, 101)
    corners = [(f, c, 2 * STUDENTS - f - c) for f, c in product(near, near)]
    corners += [(f, 2 * STUDENTS - f - m, m) for f, m in product(near, near)]
    for town in (*corners, REJECTED, SPLIT):
        if meets(town, cuts):
            cut = oracle.violated(0, 0, np.array(town))
            if cut is not None:
                cuts.append(Inequality.of((-cut.weights).tolist(), -cut.upper))
    return irredundant(cuts)


def noisy() -> Measurement:
    """Return a measurement whose answer for the town is (49, 50, 101): noise that only cuts can put right."""
    leaves = np.array([[49, 51, 0], [0, 1, 99]])
    plan = TablePlan.product(
        Strategy.uniform([parse_query("detail", SCHEMA)]), Epsilon(Fraction(50)), 2, neighbours="replace"
    )
    counts = TableCounts.from_counts(TOWN, SCHEMA, leaves)
    total = [Invariant(parse_query("total", SCHEMA), 1)]
    drawn = measure_tables(counts, plan, source=SeededNoise(1), invariants=total, bounds=constraints()[:1])
    answers = tuple(
        replace(part, stored=np.array(REJECTED)) if part.table().shape == (1, 3) else part for part in drawn.answers
    )
    return replace(drawn, answers=answers)


def repaired(implied_by: str) -> tuple[tuple[int, ...], int]:
    """Return the town released of these answers, each level fitted to its own, and how many parents were relaxed."""
    method = TopdownMethod("classic", implied=implied_by)  # type: ignore[arg-type]
    result = estimate_tables(noisy(), method, SolverChoices(fallback=True))
    return tuple(result.level(0)[0].tolist()), len(result.relaxed)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Print each method's constraints; fails where they and the published constraints do not imply each other."""
    rows: list[tuple[Cell, ...]] = []
    failures = []
    methods: dict[str, Callable[[], list[Inequality]]] = {
        "published": lambda: list(PUBLISHED),
        "Fourier-Motzkin, exact rationals": elimination,
        "max-flow (Hoffman cuts)": lambda: cutting(lifted=False),
        "lifting (projection)": lambda: cutting(lifted=True),
    }
    for number, (name, method) in enumerate(methods.items(), 1):
        inequalities = method()
        enough = all(implied(row, inequalities) for row in PUBLISHED)
        no_more = all(implied(row, PUBLISHED) for row in inequalities)
        refused = not meets(REJECTED, inequalities) and meets(SPLIT, inequalities)
        words = "; ".join(sorted(_words(row.weights, row.side) for row in inequalities))
        count = accepted(inequalities)
        rows.append((name, words, enough, no_more, count, "refused" if refused else "accepted"))
        if not (enough and no_more and refused) or count != accepted(PUBLISHED):
            failures.append(f"{name}: other constraints than the published constraints")
        reporter.progress(NAME, number, len(methods) + 1)
    notes = ["Implied: with multipliers in exact rationals. Towns accepted: of all 20,301 of 200 students."]
    for way in ("bounds", "cuts", "minimal_schema"):
        town, relaxed = repaired(way)
        notes.append(f"Noisy answers {REJECTED}, implied {way!r}: released {town}, the failsafe at {relaxed} parents.")
        if not meets(town, PUBLISHED) or (relaxed and way != "bounds"):
            failures.append(f"{way}: the released town {town} cannot be split, or took {relaxed} failsafes")
    reporter.progress(NAME, len(methods) + 1, len(methods) + 1)
    table = Table("implied constraints of the college town", COLUMNS, tuple(rows), tuple(notes))
    claims = tuple(
        Statement(
            f"slides, the college town, by {name}",
            "F >= 1, C >= 2, M >= 1, F <= 99, C + F >= 101, C + F + M = 200; (49, 50, 101) cannot be split",
            f"{'those and' if enough else 'not all of those, and'} {'no more' if no_more else 'others'}; "
            f"{count:,} towns accepted, (49, 50, 101) {refused}",
            bool(enough and no_more and refused == "refused"),
        )
        for name, _, enough, no_more, count, refused in rows
        if name != "published"
    )
    return publish(NAME, {"": table}, out, reporter, failures=failures, statements=claims)


def _words(weights: tuple[int, ...], side: Fraction) -> str:
    """Return a constraint with positive numbers, as people write it."""
    sign = -1 if sum(w > 0 for w in weights) < sum(w < 0 for w in weights) or (side < 0 and sum(weights) <= 0) else 1
    pairs = [(sign * weight, kind) for weight, kind in zip(weights, KINDS, strict=True) if weight]
    parts = [f"{'+' if w > 0 else '-'} {'' if abs(w) == 1 else f'{abs(w)} '}{kind}" for w, kind in pairs]
    return f"{' '.join(parts).removeprefix('+ ')} {'>=' if sign > 0 else '<='} {sign * side}"
