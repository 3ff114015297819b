"""Isotonic regression in absolute values: the kernel and the certified solve against a compiled heap and HiGHS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coco_experiments.bench.heap_isotonic_l1 import heap_fit
from coco_experiments.bench.instances import INSTANCES, noisy_cumulative_counts
from coco_experiments.bench.rows import PAIRED, Bench, Benchmark
from coco_experiments.bench.timing import Timing, take_turns
from coco_opt import solving
from coco_opt.array_types import Ints
from coco_opt.kernels import isotonic_l1
from coco_opt.problems import IsotonicL1
from coco_opt.solution import Solution

SIZE, LP_SIZE = 1_000_000, 100_000
SMALL_SIZE, SMALL_LP_SIZE = 20_000, 500
REPEATS = 15

KERNEL, SOLVE, HEAP = "kernel, fit", "solve with certificate", "slope-trick heap, compiled"
LP = "HiGHS on the linear program"
HEAP_TARGET = 1.0
HEAP_TARGETS = {"noisy cumulative counts": 2.0}
LP_TARGET = 1_000.0


def candidates(y: Ints) -> dict[str, Callable[[], Any]]:
    """Return what is timed, all on the same integers."""
    problem = IsotonicL1(y)
    return {
        KERNEL: lambda: isotonic_l1.fit(y),
        SOLVE: lambda: solving.solve(problem),
        HEAP: lambda: heap_fit(y),
    }


def disagreements(instance: str, y: Ints, timings: dict[str, Timing]) -> list[str]:
    """Return one line for every answer whose objective is not the kernel's (optima are not unique)."""
    problem = IsotonicL1(y)
    solution: Solution[Any] = timings[SOLVE].value
    objective = problem.objective(timings[KERNEL].value)
    answers = {SOLVE: solution.value, HEAP: timings[HEAP].value}
    return [
        f"{instance}: the objective of {name} is not the kernel's"
        for name, answer in answers.items()
        if problem.objective(answer) != objective or problem.violation(answer) > 0
    ]


def against_lp(bench: Bench, size: int) -> None:
    """Time the kernel and HiGHS on noisy cumulative counts; HiGHS runs once, only its own seconds count."""
    name = "noisy cumulative counts"
    y = noisy_cumulative_counts(size)
    problem = IsotonicL1(y)
    ours = take_turns({KERNEL: lambda: isotonic_l1.fit(y)}, REPEATS)[KERNEL]
    theirs = solving.solve(problem, "highs", check=False)
    ratio = theirs.seconds / ours.median
    bench.row(name, f"{KERNEL}, against {LP}", size, ours.median, peer=LP, ratio=ratio, target=LP_TARGET)
    bench.row(name, LP, size, theirs.seconds)
    best = problem.objective(ours.value)
    if abs(theirs.objective - best) > 1e-6 * max(1.0, best):
        bench.wrong.append(f"{name}: the objective of {LP} is not the kernel's")


def measure(bench: Bench) -> str:
    """Time p = 1 on the five instances, n = 10^6, and the linear program at 10^5 (small: 20,000 and 500)."""
    size = SMALL_SIZE if bench.small else SIZE
    for instance, make in bench.over(INSTANCES.items()):
        y = make(size)
        timings = take_turns(candidates(y), bench.repeats)
        target = HEAP_TARGETS.get(instance, HEAP_TARGET)
        bench.against(instance, y.size, {KERNEL: target, SOLVE: target}, timings)
        bench.wrong += disagreements(instance, y, timings)
    bench.notes += bench.worst(KERNEL, SOLVE)
    against_lp(bench, SMALL_LP_SIZE if bench.small else LP_SIZE)
    return f"Isotonic regression p = 1, integers, n = {size:,}: median of {bench.repeats} runs"


ISOTONIC_L1 = Benchmark("bench/isotonic_l1", measure, (PAIRED,), (REPEATS, 2))
