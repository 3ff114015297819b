"""Isotonic regression in squares: the kernel and the certified solve against SciPy and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from coco_experiments.bench.instances import INSTANCES
from coco_experiments.bench.rows import PAIRED, Bench, Benchmark
from coco_experiments.bench.timing import Timing, take_turns
from coco_opt import solving
from coco_opt.array_types import Ints
from coco_opt.kernels import isotonic_l2
from coco_opt.problems import IsotonicL2

SIZE = 10_000_000
SMALL_SIZE = 20_000
REPEATS = 5

BLOCKS, FIT, SOLVE = "kernel, blocks only", "kernel, fit", "solve with certificate"
SCIPY, SKLEARN = "SciPy", "scikit-learn"
FIT_TARGET = 1.0
BLOCKS_TARGET = {"noisy group sizes": 1.7}


def candidates(y: Ints) -> dict[str, Callable[[], Any]]:
    """Return what is timed; the peers get the floats they work on, so that no conversion is held against them."""
    from scipy.optimize import isotonic_regression

    reals = y.astype(np.float64)
    problem = IsotonicL2(y)
    listed: dict[str, Callable[[], Any]] = {
        BLOCKS: lambda: isotonic_l2.pool(y),
        FIT: lambda: isotonic_l2.fit(y),
        SOLVE: lambda: solving.solve(problem),
        SCIPY: lambda: isotonic_regression(reals).x,
    }
    if find_spec("sklearn") is not None:
        from sklearn.isotonic import isotonic_regression as sklearn_isotonic

        listed[SKLEARN] = lambda: sklearn_isotonic(reals)
    return listed


def disagreements(instance: str, y: Ints, timings: dict[str, Timing]) -> list[str]:
    """Return one line for every answer that differs from the kernel's by more than 1e-9 of the data's scale."""
    fit = timings[FIT].value
    starts, means = timings[BLOCKS].value
    answers = {
        BLOCKS: isotonic_l2.expand(starts, means, np.empty(y.size)),
        SOLVE: timings[SOLVE].value.value,
        **{name: timings[name].value for name in (SCIPY, SKLEARN) if name in timings},
    }
    allowed = 1e-9 * max(1.0, float(np.abs(y).max(initial=0)))
    return [
        f"{instance}: {name} differs from the kernel's fit by {difference:.2g}"
        for name, answer in answers.items()
        if not (difference := float(np.abs(answer - fit).max(initial=0))) <= allowed
    ]


def measure(bench: Bench) -> str:
    """Time p = 2 on the five instances, n = 10^7 (small: 20,000)."""
    size = SMALL_SIZE if bench.small else SIZE
    for instance, make in bench.over(INSTANCES.items()):
        y = make(size)
        timings = take_turns(candidates(y), bench.repeats)
        targets = {BLOCKS: BLOCKS_TARGET.get(instance), FIT: FIT_TARGET, SOLVE: FIT_TARGET}
        bench.against(instance, y.size, targets, timings)
        bench.wrong += disagreements(instance, y, timings)
    bench.notes += bench.worst(FIT, BLOCKS, SOLVE)
    if find_spec("sklearn") is None:
        bench.notes.append("scikit-learn is not installed (pip install 'coco-opt[bench]'): SciPy is the only peer")
    return f"Isotonic regression p = 2, n = {size:,}: median of {bench.repeats} runs"


NOTES = ("many integers are pooled in halves by two threads; the peers have one", PAIRED)
ISOTONIC_L2 = Benchmark("bench/isotonic_l2", measure, NOTES, (REPEATS, 2))
