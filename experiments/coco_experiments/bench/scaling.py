"""How the seconds of every solver grow with a problem's size: the page of the bench draws them.

A solver gets ever larger problems until the next would take longer than a limit, or exceeds what it can take; each is
solved once after the smallest, which warms it up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coco_experiments.bench.instances import noisy_cumulative_counts
from coco_experiments.bench.rows import Row, clocked, finish
from coco_experiments.outcome import Outcome, Reporter
from coco_opt.errors import CocoOptError
from coco_opt.problem import Problem
from coco_opt.problems import ControlledRounding, IsotonicL1, IsotonicL2, SimplexProjection
from coco_opt.registry import Backend, candidates
from coco_opt.solution import Status
from coco_opt.solving import judge

NAME = "bench/scaling"
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
SMALL_SIZES = SIZES[:2]
LIMIT, SMALL_LIMIT = 30.0, 1.0  # seconds that the next size is expected to take, at ten times the last one's
TINY = 5


def _simplex(n: int) -> SimplexProjection:
    return SimplexProjection(np.random.default_rng(n).normal(3.0, 5.0, n), total=3.0 * n)


def _rounding(n: int) -> ControlledRounding:
    values = np.random.default_rng(n).random(n) * 10.0
    return ControlledRounding(values, total=round(float(values.sum())))


MADE: dict[str, Callable[[int], Problem[Any, Any]]] = {
    "isotonic, absolute values": lambda n: IsotonicL1(noisy_cumulative_counts(n), lower=0),
    "isotonic, squares": lambda n: IsotonicL2(noisy_cumulative_counts(n).astype(np.float64), lower=0.0),
    "simplex projection": _simplex,
    "controlled rounding": _rounding,
}


def rows_of(name: str, backend: Backend, sizes: tuple[int, ...], limit: float) -> tuple[list[Row], list[str]]:
    """Return a row for every size that a backend solved, and one line for each certificate that failed."""
    make, rows, wrong = MADE[name], [], []
    solver = backend.make()
    most = backend.limit(type(make(TINY)).kind)
    with suppress(Exception):  # what fails here fails again below
        solver.solve(make(sizes[0]))
    for size in sizes:
        if size > most:
            break
        problem = make(size)
        try:
            seconds, _, answer = clocked(partial(solver.solve, problem))
        except CocoOptError:
            break
        if judge(problem, answer, backend.name, solver.tolerance).status is not Status.OPTIMAL:
            wrong.append(f"{name}, {size:,}: {backend.name} was not certified within its tolerance")
            break
        rows.append(Row(name, backend.name, size, seconds))
        if 10.0 * seconds > limit:
            break
    return rows, wrong


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Time every installed solver on sizes up to a million unknowns; small: up to a thousand."""
    sizes, limit = (SMALL_SIZES, SMALL_LIMIT) if small else (SIZES, LIMIT)
    jobs = [(name, row) for name, make in MADE.items() for row in candidates(type(make(TINY))) if row.installed]
    rows: list[Row] = []
    notes = [f"once each, until the next is expected to take longer than {limit:g} s; writing the program included"]
    for done, (name, backend) in enumerate(jobs, 1):
        timed, uncertified = rows_of(name, backend, sizes, limit)
        rows += timed
        notes += uncertified
        reporter.progress(NAME, done, len(jobs))
    return finish(NAME, f"Seconds by size, {sizes[0]:,} to {sizes[-1]:,} unknowns", rows, notes, (), out, reporter)
