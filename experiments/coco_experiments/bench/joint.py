"""Joint estimation: Taxi and Hawaii against limits, small cases against HiGHS and PIQP, rounds as cells double."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from coco_solvers.generic.highs import HiGHS
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured.joint import AlternatingDirections

from coco_experiments.bench.rows import Bench
from coco_experiments.bench.timing import take_turns
from coco_experiments.data import hawaii_blocks, taxi
from coco_experiments.outcome import Outcome, Reporter
from coco_experiments.simulated import generated_counts
from coco_opt.errors import ConfigError
from coco_opt.groups import GroupsMeasurements, measure_hierarchy
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.problems import JointL1, JointL2, Tree
from coco_opt.problems.joint import JointFit
from coco_opt.solution import Solution
from coco_opt.solving import solve

NAME = "bench/joint"
SEED = 2018
REPEATS, SMALL_REPEATS = 3, 1
TOLERANCE = 1e-4  # relative gap of what is timed
CLOSE = 1e-5  # relative difference of the packages' objectives

KINDS: dict[str, type[JointFit]] = {"joint p = 1": JointL1, "joint p = 2": JointL2}
ROUNDS = {name: f"{name}, 50 rounds" for name in KINDS}


@dataclass(frozen=True, slots=True)
class Case:
    """One table to fit: its name, private counts, max_size and the limits in seconds for p = 1 and p = 2."""

    name: str
    counts: PrivateCounts
    max_size: int
    limits: tuple[float | None, float | None]


def cases(*, small: bool, data: Path | None) -> tuple[list[Case], list[str]]:
    """Return the real tables where they are present, else simulated ones of their shape, and a note on that."""
    rng = np.random.default_rng(SEED)
    if small:
        return [Case("made, 7 regions", generated_counts(2, 2, 200, 60, rng), 60, (None, None))], []
    notes = []
    try:
        first = Case("Taxi", taxi(data), 5_000, (4.0, 1.0))
    except ConfigError:
        first = Case("made like Taxi", generated_counts(2, 14, 13_000, 5_000, rng), 5_000, (4.0, 1.0))
        notes.append("Taxi is absent: a made table of 31 regions and as many groups instead")
    try:
        second = Case("Hawaii's blocks", hawaii_blocks(folder=data), 900, (20.0, None))
    except ConfigError:
        second = Case("made like Hawaii", generated_counts(35, 34, 21, 900, rng), 900, (20.0, None))
        notes.append("Hawaii's blocks are absent: a made table of 1,226 regions and as many groups instead")
    return [first, second], notes


def problem_of(counts: PrivateCounts, max_size: int, kind: type[JointFit], seed: int = SEED) -> JointFit:
    """Return the fit of cumulative counts with total epsilon 1, the same part at each level."""
    hierarchy, truth = counts.hierarchy, [histogram.clamp(max_size) for histogram in counts.histograms()]
    levels = hierarchy.levels
    measured = measure_hierarchy(
        truth,
        hierarchy,
        np.array([histogram.groups for histogram in truth]),
        queries=["cumulative"] * levels,
        costs=[Epsilon(Fraction(1, levels))] * levels,
        max_size=max_size,
        neighbours="add_remove",
        source=SeededNoise(seed),
    )
    answers = GroupsMeasurements(measured)
    table = np.concatenate([answers.table(level) for level in range(levels)])
    weights = answers.weights("l1" if kind is JointL1 else "l2")
    return kind(Tree(hierarchy.parent), table, answers.group_counts, weights)


def against_limits(bench: Bench, case: Case) -> None:
    """Time both losses on a table, note the certified gaps, and say which answers are not certified."""
    problems = {name: problem_of(case.counts, case.max_size, kind) for name, kind in KINDS.items()}
    solver = AlternatingDirections(tolerance=TOLERANCE)
    calls = {name: partial(solve, problem, solver, check=False) for name, problem in problems.items()}
    timings = take_turns(calls, bench.repeats)
    for (name, problem), limit in zip(problems.items(), case.limits, strict=True):
        solution: Solution[Any] = timings[name].value
        rounds = f"{solution.iterations} rounds, relative gap {solution.relative_gap:.1g}"
        bench.row(case.name, name, problem.variables, timings[name].median, limit=limit)
        bench.notes.append(f"{case.name}, {name}: {rounds}")
        if not solution.ok:
            bench.wrong.append(f"{case.name}, {name}: {solution.status.name}, {rounds}")


def against_packages(bench: Bench, max_size: int) -> None:
    """Time a small made case against packages, both solved to a relative gap of 1e-6 at least.

    The packages' time is that of their own call; writing the program is not counted against them.
    """
    counts = generated_counts(2, 3, 300, max_size, np.random.default_rng(SEED))
    for (name, kind), package in zip(KINDS.items(), (HiGHS(), PIQP()), strict=True):
        problem = problem_of(counts, max_size, kind)
        peer = f"{package.name}, its own seconds"
        calls: dict[str, Callable[[], Solution[Any]]] = {
            name: partial(solve, problem, AlternatingDirections(tolerance=1e-6), check=False),
            peer: partial(solve, problem, package, check=False),
        }
        timings = take_turns(calls, bench.repeats)
        ours, theirs = timings[name].value, timings[peer].value
        instance = f"small, {problem.variables:,} cells"
        bench.against(instance, problem.variables, {name: None}, {**timings, peer: timings[peer].alone})
        difference = abs(ours.objective - theirs.objective) / max(1.0, theirs.objective)
        if not (ours.ok and difference <= CLOSE):
            bench.wrong.append(f"{instance}, {name}: objective differs from {package.name} by {difference:.2g} of it")


def doubling(bench: Bench, sizes: tuple[int, ...]) -> None:
    """Time 50 rounds by max_size."""
    for name, kind in KINDS.items():
        rng = np.random.default_rng(SEED)
        problems = [problem_of(generated_counts(2, 14, 2_000, size, rng), size, kind) for size in sizes]
        calls: dict[str, tuple[int, Callable[[], Any]]] = {
            f"doubling, {problem.variables:,} cells": (
                problem.variables,
                partial(AlternatingDirections(tolerance=0.0, max_iter=50).solve, problem),
            )
            for problem in problems
        }
        bench.doubling(ROUNDS[name], calls, f"{problems[0].variables:,} to {problems[-1].variables:,} cells")


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Time joint estimation on Taxi and Hawaii's blocks, small cases and doubling cells (small: made, 7 regions)."""
    tables, notes = cases(small=small, data=data)
    bench = Bench(NAME, reporter, len(tables) + 2, SMALL_REPEATS if small else REPEATS)
    bench.notes += notes
    for case in tables:
        against_limits(bench, case)
        bench.done()
    against_packages(bench, 30 if small else 120)
    bench.done()
    doubling(bench, (50, 100) if small else (1_250, 2_500, 5_000, 10_000, 20_000))
    bench.done()
    note = "n: cells of all regions; fits are certified, which is in their time; threads: all cores"
    return bench.finish(f"Joint estimation: median of {bench.repeats} runs", out, note)
