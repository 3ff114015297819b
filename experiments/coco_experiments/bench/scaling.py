"""How the seconds of every solver grow with a problem's size: the page of the bench draws them.

A solver gets ever larger problems until the next would take longer than a limit, or exceeds what it can take; each is
solved once after the smallest, which warms it up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from coco_experiments.bench.apart import clocked
from coco_experiments.bench.isotonic import noisy_cumulative_counts
from coco_experiments.bench.rows import Bench, Benchmark
from coco_opt.errors import CocoOptError
from coco_opt.problem import Problem
from coco_opt.problems import ControlledRounding, IsotonicL1, IsotonicL2, SimplexProjection
from coco_opt.registry import Backend, candidates
from coco_opt.solution import Status
from coco_opt.solving import judge

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


def grow(bench: Bench, name: str, backend: Backend, sizes: tuple[int, ...], limit: float) -> None:
    """Add a row for every size that a backend solves, and a note for a certificate that fails."""
    make, solver = MADE[name], backend.make()
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
            bench.notes.append(f"{name}, {size:,}: {backend.name} was not certified within its tolerance")
            break
        bench.row(name, backend.name, size, seconds)
        if 10.0 * seconds > limit:
            break


def measure(bench: Bench) -> str:
    """Time every installed solver on sizes up to a million unknowns; small: up to a thousand."""
    sizes, limit = (SMALL_SIZES, SMALL_LIMIT) if bench.small else (SIZES, LIMIT)
    bench.notes.append(
        f"once each, until the next is expected to take longer than {limit:g} s; writing the program included"
    )
    jobs = [(name, row) for name, make in MADE.items() for row in candidates(type(make(TINY))) if row.installed]
    for name, backend in bench.over(jobs):
        grow(bench, name, backend, sizes, limit)
    return f"Seconds by size, {sizes[0]:,} to {sizes[-1]:,} unknowns"


SCALING = Benchmark("bench/scaling", measure)
