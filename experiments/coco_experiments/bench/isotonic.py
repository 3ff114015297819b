"""Isotonic regression: kernels and certified solves on five named data sets, int64 and reproducible from a seed.

``isotonic_l1``: absolute values against HiGHS and a peer of this package, the slope trick on a compiled binary heap.
``isotonic_l2``: squares against SciPy and scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from coco_experiments.bench.rows import PAIRED, Bench, Benchmark, Timing, take_turns
from coco_experiments.bench.solved import SOLVE
from coco_opt import solving
from coco_opt.array_types import Ints
from coco_opt.kernels import isotonic_l1, isotonic_l2
from coco_opt.kernels.compile import compiled
from coco_opt.privacy import SeededNoise
from coco_opt.problems import IsotonicL1, IsotonicL2

SEED = 2018


def _noise(n: int, scale: int, name: str) -> Ints:
    return SeededNoise(SEED).stream(Fraction(scale), measurement="bench", region=name).draw(n)


def noisy_group_sizes(n: int) -> Ints:
    """Return the rank query: households of 1 to 7 people and a few large groups, sorted, noise of scale 1."""
    rng = np.random.default_rng(SEED)
    shares = np.array([0.27, 0.33, 0.16, 0.13, 0.07, 0.03, 0.01])
    sizes = rng.choice(np.arange(1, 8), n, p=shares)
    large = max(1, n // 100_000)
    sizes[:large] = rng.integers(1, 10_001, large)
    return np.sort(sizes).astype(np.int64) + _noise(n, 1, "group sizes")


def noisy_cumulative_counts(n: int) -> Ints:
    """Return the cumulative query: a heavy-tailed histogram that is empty above a tenth of n, noise of scale 1."""
    rng = np.random.default_rng(SEED)
    filled = max(1, n // 10)
    expected = 200_000.0 / (1.0 + np.arange(filled)) ** 1.1 + 0.05
    histogram = np.zeros(n, np.int64)
    histogram[:filled] = rng.poisson(expected)
    return np.cumsum(histogram) + _noise(n, 1, "cumulative counts")


def slope(n: int) -> Ints:
    """Return a line that rises by one a step, with noise of scale 2: many short blocks."""
    return np.arange(n, dtype=np.int64) + _noise(n, 2, "slope")


def flat_run(n: int) -> Ints:
    """Return one long run of equal true values with noise of scale 10: few long blocks."""
    return np.full(n, 1_000, np.int64) + _noise(n, 10, "flat run")


def heavy_ties(n: int) -> Ints:
    """Return three levels moved by -1, 0 or 1: nearly every comparison is a tie."""
    rng = np.random.default_rng(SEED)
    levels = np.sort(rng.integers(0, 3, n))
    return (levels + rng.integers(-1, 2, n)).astype(np.int64)


INSTANCES: dict[str, Callable[[int], Ints]] = {
    "noisy group sizes": noisy_group_sizes,
    "noisy cumulative counts": noisy_cumulative_counts,
    "slope": slope,
    "long flat run": flat_run,
    "heavy ties": heavy_ties,
}


@compiled
def _push(heap: Ints, size: int, value: int) -> int:
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if heap[parent] >= value:
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = value
    return size + 1


@compiled
def _replace_top(heap: Ints, size: int, value: int) -> None:
    parent, child = 0, 1
    while child < size:
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[parent] = heap[child]
        parent, child = child, 2 * child + 1
    heap[parent] = value


@compiled
def _lower_fit(y: Ints, x: Ints) -> None:
    n, size = y.size, 0
    heap = np.empty(n + 1, np.int64)
    for i in range(n):
        value = y[i]
        if size > 0 and heap[0] > value:
            _replace_top(heap, size, value)
        size = _push(heap, size, value)
        x[i] = heap[0]
    for i in range(n - 2, -1, -1):
        x[i] = min(x[i], x[i + 1])


def heap_fit(y: Ints) -> Ints:
    """Return the smallest isotonic fit of n integers with absolute loss and no bounds, n int64.

    The heap holds the breakpoints left of the argmin of the partial optimum; its top is the argmin's left
    end, and a backward running minimum gives the fit. O(n log n).
    """
    x = np.empty(y.size, np.int64)
    _lower_fit(np.ascontiguousarray(y, np.int64), x)
    return x


SIZES, SMALL_SIZE = {1: 1_000_000, 2: 10_000_000}, 20_000  # by p
LP_SIZE, SMALL_LP_SIZE = 100_000, 500
KERNEL, HEAP = "kernel, fit", "slope-trick heap, compiled"
SCIPY, SKLEARN = "SciPy", "scikit-learn"
LP_TARGET = 1_000.0
# Times the fastest peer's speed; on noisy cumulative counts and group sizes more is asked.
TARGETS: dict[int, dict[str, dict[str, float]]] = {
    1: {KERNEL: {"noisy cumulative counts": 2.0}, SOLVE: {"noisy cumulative counts": 2.0}},
    2: {KERNEL: {}, SOLVE: {}},
}


def problem_of(p: int, y: Ints) -> IsotonicL1 | IsotonicL2:
    """Return the isotonic regression of integers under one loss."""
    return IsotonicL1(y) if p == 1 else IsotonicL2(y)


def candidates(p: int, y: Ints) -> dict[str, Callable[[], Any]]:
    """Return what is timed, each a call for the fit; peers get the floats they work on, so that none converts."""
    problem = problem_of(p, y)
    certified = {SOLVE: lambda: solving.solve(problem).value}
    if p == 1:
        return {KERNEL: lambda: isotonic_l1.fit(y), **certified, HEAP: lambda: heap_fit(y)}
    from scipy.optimize import isotonic_regression

    reals = y.astype(np.float64)
    calls = {KERNEL: lambda: isotonic_l2.fit(y), **certified}
    calls[SCIPY] = lambda: isotonic_regression(reals).x
    if find_spec("sklearn") is not None:
        from sklearn.isotonic import isotonic_regression as sklearn_isotonic

        calls[SKLEARN] = lambda: sklearn_isotonic(reals)
    return calls


def disagreements(instance: str, p: int, y: Ints, timings: dict[str, Timing]) -> list[str]:
    """Return one line for every answer whose objective is not the kernel's (optima for p = 1 are not unique)."""
    problem = problem_of(p, y)
    answers: dict[str, Any] = {name: timing.value for name, timing in timings.items()}
    best = problem.objective(answers[KERNEL])
    return [
        f"{instance}: the objective of {name} is not the kernel's"
        for name, answer in answers.items()
        if abs(problem.objective(answer) - best) > 1e-9 * max(1.0, best)
    ]


def against_lp(bench: Bench, size: int) -> None:
    """Time the kernel and HiGHS on noisy cumulative counts; HiGHS runs once, only its own seconds count."""
    name, lp, y = "noisy cumulative counts", "HiGHS on the linear program", noisy_cumulative_counts(size)
    problem = IsotonicL1(y)
    ours = take_turns({KERNEL: lambda: isotonic_l1.fit(y)}, bench.repeats)[KERNEL]
    theirs = solving.solve(problem, "highs", check=False)
    ratio = theirs.seconds / ours.median
    bench.row(name, f"{KERNEL}, against {lp}", size, ours.median, peer=lp, ratio=ratio, target=LP_TARGET)
    bench.row(name, lp, size, theirs.seconds)
    best = problem.objective(ours.value)
    if abs(theirs.objective - best) > 1e-6 * max(1.0, best):
        bench.wrong.append(f"{name}: the objective of {lp} is not the kernel's")


def measure(bench: Bench, p: int) -> str:
    """Time one loss on the five instances, n = 10^6 and 10^7 (small: 20,000)."""
    size = SMALL_SIZE if bench.small else SIZES[p]
    for instance, make in bench.over(INSTANCES.items()):
        y = make(size)
        timings = take_turns(candidates(p, y), bench.repeats)
        targets = {what: special.get(instance, 1.0) for what, special in TARGETS[p].items()}
        bench.against(instance, y.size, targets, timings)
        bench.wrong += disagreements(instance, p, y, timings)
    bench.notes += bench.worst(*TARGETS[p])
    if p == 1:
        against_lp(bench, SMALL_LP_SIZE if bench.small else LP_SIZE)
    elif find_spec("sklearn") is None:
        bench.notes.append("scikit-learn is not installed (pip install 'coco-opt[bench]'): SciPy is the only peer")
    return f"Isotonic regression p = {p}, integers, n = {size:,}: median of {bench.repeats} runs"


NOTES = ("many integers are pooled in halves by two threads; the peers have one", PAIRED)
ISOTONIC_L1 = Benchmark("bench/isotonic_l1", partial(measure, p=1), (PAIRED,), (15, 2))
ISOTONIC_L2 = Benchmark("bench/isotonic_l2", partial(measure, p=2), NOTES, (5, 2))
