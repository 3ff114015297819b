"""Rounding of a region's split: our solver, certificate included, against HiGHS; thousands of tiny tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from coco_solvers.generic.highs import HiGHS
from coco_solvers.structured.table_rounding import ShortestPaths

from coco_experiments.bench.rows import PAIRED, Bench, Benchmark, take_turns
from coco_opt import solving
from coco_opt.operators import Grouping, stack, total
from coco_opt.problems.linear_rows import LinearRows
from coco_opt.problems.table_rounding import TableRounding
from coco_opt.solution import Solution

SEED = 2020
TOLERANCE = 1e-9

SOLVE = "solve with certificate"
OURS, LINEAR, WHOLE = "shortest-paths, its own seconds", "HiGHS LP, its own seconds", "HiGHS MILP, its own seconds"
TINY = "tiny tables: build, solve and certify one"
TARGET = 10.0
TINY_LIMIT = 0.001
GROUPS = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """Children and cells of the tables timed against HiGHS, those timed alone, and how many tiny ones."""

    tables: tuple[tuple[int, int], ...]
    alone: tuple[tuple[int, int], ...]
    tiny: int


FULL = Sizes(((20, 781),), ((20, 1_873), (300, 7), (300, 400)), 1_000)
SMALL = Sizes(((4, 30),), ((6, 50),), 20)


def drawn(seed: int, children: int, cells: int, *, nested: bool = False) -> TableRounding:
    """Return tables that are fractional nearly everywhere, with exact totals and, nested, bounds on groups of cells.

    They are a mean of tables that spread the same skewed parent differently; totals are the nearest integers.
    """
    rng = np.random.default_rng([SEED, seed, children, cells])
    parent = rng.geometric(0.02, cells)
    shares = (rng.dirichlet(np.full(children, 0.7), cells) for _ in range(3))
    x = np.asarray(sum(parent * share.T for share in shares)) / 3.0
    values = x.sum(axis=1)
    totals = np.floor(values + TOLERANCE).astype(np.int64)
    ups = np.argsort(totals - values, kind="stable")[: int(parent.sum() - totals.sum())]
    totals[ups] += 1
    operator, lower, upper = total(cells), totals[:, None], totals[:, None]
    if not nested:
        return TableRounding(x, parent, LinearRows(operator, lower, upper))
    groups = Grouping(np.arange(cells) * GROUPS // cells, GROUPS)
    within = groups.apply(x)
    lower = np.hstack([lower, np.floor(within).astype(np.int64)])
    upper = np.hstack([upper, np.ceil(within).astype(np.int64)])
    return TableRounding(x, parent, LinearRows(stack([operator, groups]), lower, upper))


def fresh(problem: TableRounding) -> TableRounding:
    """Return the same problem without anything computed yet."""
    return TableRounding(problem.x, problem.parent, problem.constraints)


def against_highs(bench: Bench, children: int, cells: int, *, nested: bool) -> None:
    """Time one table against HiGHS, which is not charged for building or certifying."""
    problem = drawn(0, children, cells, nested=nested)
    name = f"{children} x {cells:,}, {f'totals and {GROUPS} groups' if nested else 'totals'}"
    peers = {LINEAR: HiGHS(form="lp"), WHOLE: HiGHS(form="milp")}
    calls: dict[str, Callable[[], Solution[Any]]] = {
        SOLVE: lambda: solving.solve(fresh(problem), ShortestPaths(), check=False),
        **{peer: partial(solving.solve, problem, chosen, check=False) for peer, chosen in peers.items()},
    }
    timings = take_turns(calls, bench.repeats)
    theirs = {peer: timings[peer].alone for peer in peers}
    bench.against(name, problem.variables, {SOLVE: TARGET}, {SOLVE: timings[SOLVE], **theirs})
    bench.row(name, OURS, problem.variables, timings[SOLVE].alone.median)
    answers = {OURS: timings[SOLVE].value, **{peer: timing.value for peer, timing in theirs.items()}}
    each = ", ".join(f"{what.partition(',')[0]} {answer.relative_gap:.1g}" for what, answer in answers.items())
    bench.wrong += faults(name, answers)
    bench.notes.append(f"{name}: relative gaps {each}")


def faults(name: str, answers: dict[str, Solution[Any]]) -> list[str]:
    """Return one line for each answer of ours that is not certified, or differs from a peer's objective."""
    ours = answers[OURS]
    wrong = [] if ours.ok and ours.violation == 0.0 else [f"{name}: the answer is not certified"]
    for peer, theirs in answers.items():
        if not abs(theirs.objective - ours.objective) <= 1e-7 * max(1.0, ours.objective):
            wrong.append(f"{name}: the objective of {peer.partition(',')[0]} differs")
    return wrong


def alone(bench: Bench, children: int, cells: int) -> None:
    """Time a table too large to wait for HiGHS."""
    problem = drawn(0, children, cells)
    calls = {SOLVE: lambda: solving.solve(fresh(problem), ShortestPaths(), check=False)}
    timing = take_turns(calls, bench.repeats)[SOLVE]
    name = f"{children} x {cells:,}, totals"
    bench.row(name, SOLVE, problem.variables, timing.median)
    bench.wrong += faults(name, {OURS: timing.value})


def tiny(bench: Bench, count: int) -> None:
    """Time many tables of 28 children x 7 cells."""
    problems = [drawn(1 + k, 28, 7) for k in range(count)]

    def all_of_them() -> list[Solution[Any]]:
        return [solving.solve(fresh(problem), ShortestPaths(), check=False) for problem in problems]

    timing = take_turns({TINY: all_of_them}, bench.repeats)[TINY]
    bench.row("28 x 7, totals", TINY, 28 * 7, timing.median / count, limit=TINY_LIMIT)
    failed = sum(not solution.ok for solution in timing.value)
    if failed:
        bench.wrong.append(f"{failed} of {count} tiny tables are not certified")


def measure(bench: Bench) -> str:
    """Time tables of 20 children x 781 cells against HiGHS, larger ones and a thousand tiny ones (small: tiny)."""
    sizes = SMALL if bench.small else FULL
    jobs = [partial(tiny, bench, sizes.tiny), *(partial(alone, bench, *size) for size in sizes.alone)]
    jobs += [partial(against_highs, bench, *size, nested=nested) for size in sizes.tables for nested in (False, True)]
    for job in bench.over(jobs):
        job()
    bench.notes += bench.worst(SOLVE)
    return f"Rounding of tables: median of {bench.repeats} runs"


NOTES = ("ours is timed from the bare problem to the certified answer, HiGHS by its own seconds alone", PAIRED)
TABLE_ROUNDING = Benchmark("bench/table_rounding", measure, NOTES, (3, 1))
