"""Joint estimation: Taxi and Hawaii against limits, small cases against HiGHS and PIQP, rounds as cells double.

``posterior``: the posterior with integer tables and intervals, from a measurement: Taxi by cells and Hawaii's blocks by
buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from coco_solvers.generic.highs import HiGHS
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured.joint import AlternatingDirections

from coco_experiments.bench.rows import Bench, Benchmark, take_turns
from coco_experiments.bench.solved import compare
from coco_experiments.data import generated_counts, hawaii_blocks, taxi
from coco_experiments.groups import Case
from coco_opt.choices import SolverChoices
from coco_opt.errors import ConfigError
from coco_opt.groups import GroupsMeasurements
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.privacy import Measurement
from coco_opt.problems import JointL1, JointL2, Tree
from coco_opt.problems.joint import JointFit
from coco_opt.solution import Solution
from coco_opt.solving import solve

SEED = 2018
TOLERANCE = 1e-4  # relative gap of what is timed

KINDS: dict[str, type[JointFit]] = {"joint p = 1": JointL1, "joint p = 2": JointL2}
ROUNDS = {name: f"{name}, 50 rounds" for name in KINDS}


LIMITS: dict[str, tuple[float | None, float | None]] = {"Taxi": (4.0, 1.0), "Hawaii's blocks": (20.0, None)}
"""Seconds for p = 1 and p = 2, of the real tables or simulated ones of their shape."""


def cases(bench: Bench) -> list[Case]:
    """Return the real tables where they are present, else simulated ones of their shape, which is noted."""
    rng = np.random.default_rng(SEED)
    if bench.small:
        return [Case.of("made, 7 regions", generated_counts(2, 2, 200, 60, rng), 60)]
    listed = []
    for name, read, max_size, shape in (
        ("Taxi", partial(taxi, bench.data), 5_000, (2, 14, 13_000)),
        ("Hawaii's blocks", partial(hawaii_blocks, folder=bench.data), 900, (35, 34, 21)),
    ):
        try:
            listed.append(Case.of(name, read(), max_size))
        except ConfigError:
            listed.append(Case.of(f"made like {name}", generated_counts(*shape, max_size, rng), max_size))
            bench.notes.append(f"{name} is absent: a made table of as many regions and groups instead")
    return listed


def problem_of(case: Case, kind: type[JointFit]) -> JointFit:
    """Return the fit of cumulative counts with total epsilon 1, the same part at each level."""
    answers = GroupsMeasurements(case.measured(SEED))
    table = np.concatenate([answers.table(level) for level in range(case.levels)])
    weights = answers.weights("l1" if kind is JointL1 else "l2")
    return kind(Tree(case.hierarchy.parent), table, answers.group_counts, weights)


def against_limits(bench: Bench, case: Case) -> None:
    """Time both losses on a table, note the certified gaps, and say which answers are not certified."""
    limits = LIMITS.get(case.name.removeprefix("made like "), (None, None))
    problems = {name: problem_of(case, kind) for name, kind in KINDS.items()}
    solver = AlternatingDirections(tolerance=TOLERANCE)
    calls = {name: partial(solve, problem, solver, check=False) for name, problem in problems.items()}
    timings = take_turns(calls, bench.repeats)
    for (name, problem), limit in zip(problems.items(), limits, strict=True):
        solution: Solution[Any] = timings[name].value
        rounds = f"{solution.iterations} rounds, relative gap {solution.relative_gap:.1g}"
        bench.row(case.name, name, problem.variables, timings[name].median, limit=limit)
        bench.notes.append(f"{case.name}, {name}: {rounds}")
        if not solution.ok:
            bench.wrong.append(f"{case.name}, {name}: {solution.status.name}, {rounds}")


def against_packages(bench: Bench, max_size: int) -> None:
    """Time a small made case against packages, solved to a relative gap of 1e-6 at least."""
    case = Case.of("small", generated_counts(2, 3, 300, max_size, np.random.default_rng(SEED)), max_size)
    for (name, kind), package in zip(KINDS.items(), (HiGHS(), PIQP()), strict=True):
        make = partial(problem_of, case, kind)
        compare(bench, f"small, {name}", make, AlternatingDirections(tolerance=1e-6), {package.name: package})


def doubling(bench: Bench, sizes: tuple[int, ...]) -> None:
    """Time 50 rounds by max_size."""
    for name, kind in KINDS.items():
        rng = np.random.default_rng(SEED)
        cases = [Case.of("doubling", generated_counts(2, 14, 2_000, size, rng), size) for size in sizes]
        problems = [problem_of(case, kind) for case in cases]
        calls: dict[str, tuple[int, Callable[[], Any]]] = {
            f"doubling, {problem.variables:,} cells": (
                problem.variables,
                partial(AlternatingDirections(tolerance=0.0, max_iter=50).solve, problem),
            )
            for problem in problems
        }
        bench.doubling(ROUNDS[name], calls, f"{problems[0].variables:,} to {problems[-1].variables:,} cells")


def measure(bench: Bench) -> str:
    """Time joint estimation on Taxi and Hawaii's blocks, small cases and doubling cells (small: made, 7 regions)."""
    jobs = [partial(against_limits, bench, case) for case in cases(bench)]
    jobs.append(partial(against_packages, bench, 30 if bench.small else 120))
    jobs.append(partial(doubling, bench, (50, 100) if bench.small else (1_250, 2_500, 5_000, 10_000, 20_000)))
    for job in bench.over(jobs):
        job()
    return f"Joint estimation: median of {bench.repeats} runs"


NOTES = ("n: cells of all regions; fits are certified, which is in their time; threads: all cores",)
JOINT = Benchmark("bench/joint", measure, NOTES, (3, 1))


GROWTH = (0.05, 0.1, 0.3, 0.5)
POSTERIOR_LIMITS = (60.0, 40.0)
METHOD = GroupsMethod("l1", consistency="posterior", intervals=0.9)


def measured(case: Case, growth: tuple[float, ...]) -> Measurement:
    """Return cumulative counts with total epsilon 1, the same part at each level; growth () asks for cells."""
    return case.measured(SEED, growth=growth[-case.levels :])


def measure_posterior(bench: Bench) -> str:
    """Time the posterior on Taxi and Hawaii's blocks with two threads (small: made, 7 regions), compiled beforehand."""
    tiny, listed = Case.of("tiny", generated_counts(2, 2, 50, 20, np.random.default_rng(SEED)), 20), cases(bench)
    for warming in ((), GROWTH):
        estimate_groups(measured(tiny, warming), METHOD, SolverChoices(), threads=2)
    growths: list[tuple[float, ...]] = [(), GROWTH] if len(listed) > 1 else [GROWTH]
    for case, growth, limit in bench.over(zip(listed, growths, POSTERIOR_LIMITS, strict=False)):
        call = partial(estimate_groups, measured(case, growth), METHOD, SolverChoices(), threads=2)
        what, cells = f"posterior, tables and intervals, {'buckets' if growth else 'cells'}", case.hierarchy.regions
        result, used = bench.once(case.name, what, cells * case.max_size, call, limit=None if bench.small else limit)
        convergence = result.convergence
        assert convergence is not None
        bench.notes.append(
            f"{case.name}: {used:.1f} processor seconds; prior {convergence.prior}, {convergence.draws:,} draws of "
            f"{convergence.sweeps:,} sweeps, converged: {convergence.converged}; table's relative gap "
            f"{result.certificates[0].relative_gap:.1g}"
        )
        if [histogram.groups for histogram in result.histograms] != case.counts.group_counts.tolist():
            bench.wrong.append(f"{case.name}: a region has not its number of groups")
    return "The posterior from a measurement"


POSTERIOR_NOTES = ("n: cells of all regions; one run, compiled beforehand, two threads; certificate in the time",)
POSTERIOR = Benchmark("bench/posterior", measure_posterior, POSTERIOR_NOTES)
