"""The posterior with integer tables and intervals, from a measurement: Taxi by cells and Hawaii's blocks by buckets."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from coco_experiments.bench.joint import Case, cases
from coco_experiments.bench.rows import Row, clocked, finish
from coco_experiments.outcome import Outcome, Reporter
from coco_experiments.simulated import generated_counts
from coco_opt.choices import SolverChoices
from coco_opt.groups import measure_hierarchy
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.estimate import GroupsResult, estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.privacy import Epsilon, Measurement, SeededNoise

NAME = "bench/posterior"
SEED = 2018
GROWTH = (0.05, 0.1, 0.3, 0.5)
LIMITS = (60.0, 40.0)
WHAT = "posterior, tables and intervals"


def measured(case: Case, growth: tuple[float, ...]) -> Measurement:
    """Return cumulative counts with total epsilon 1, the same part at each level; growth () asks for cells."""
    hierarchy = case.counts.hierarchy
    levels = hierarchy.levels
    return measure_hierarchy(
        [histogram.clamp(case.max_size) for histogram in case.counts.histograms()],
        hierarchy,
        case.counts.group_counts,
        queries=["cumulative"] * levels,
        costs=[Epsilon(Fraction(1, levels))] * levels,
        max_size=case.max_size,
        neighbours="add_remove",
        source=SeededNoise(SEED),
        buckets=[Buckets.by_growth(case.max_size, rate) for rate in growth[-levels:]],
    )


def timed(measurement: Measurement, threads: int) -> tuple[GroupsResult, float, float]:
    """Return the estimate with its intervals, the seconds it took, and the processor's seconds."""
    losses: list[Loss] = ["l1"] * measurement.hierarchy.levels
    method = GroupsMethod(tuple(losses), consistency="posterior", intervals=0.9)
    seconds, used, result = clocked(lambda: estimate_groups(measurement, method, SolverChoices(), threads=threads))
    return result, seconds, used


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Time the posterior on Taxi and Hawaii's blocks with two threads (small: made, 7 regions), compiled beforehand."""
    tables, notes = cases(small=small, data=data)
    tiny = Case("tiny", generated_counts(2, 2, 50, 20, np.random.default_rng(SEED)), 20, (None, None))
    run_one = partial(timed, threads=2)
    for warming in ((), GROWTH):
        run_one(measured(tiny, warming))
    growths: list[tuple[float, ...]] = [(), GROWTH] if len(tables) > 1 else [GROWTH]
    rows: list[Row] = []
    wrong: list[str] = []
    for done, (case, growth, limit) in enumerate(zip(tables, growths, LIMITS, strict=False), 1):
        result, seconds, used = run_one(measured(case, growth))
        cells = case.counts.hierarchy.regions * case.max_size
        what = f"{WHAT}, {'buckets' if growth else 'cells'}"
        rows.append(Row(case.name, what, cells, seconds, limit=None if small else limit))
        convergence = result.convergence
        assert convergence is not None
        notes.append(
            f"{case.name}: {used:.1f} processor seconds; prior {convergence.prior}, {convergence.draws:,} draws of "
            f"{convergence.sweeps:,} sweeps, converged: {convergence.converged}; table's relative gap "
            f"{result.certificates[0].relative_gap:.1g}"
        )
        totals = [histogram.groups for histogram in result.histograms]
        if totals != case.counts.group_counts.tolist():
            wrong.append(f"{case.name}: a region has not its number of groups")
        reporter.progress(NAME, done, len(tables))
    notes.append("n: cells of all regions; one run, compiled beforehand, two threads; certificate in the time")
    return finish(NAME, "The posterior from a measurement", rows, notes, wrong, out, reporter)
