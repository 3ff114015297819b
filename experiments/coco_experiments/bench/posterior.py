"""The posterior with integer tables and intervals, from a measurement: Taxi by cells and Hawaii's blocks by buckets."""

from __future__ import annotations

from functools import partial

import numpy as np

from coco_experiments.bench.joint import SEED, cases
from coco_experiments.bench.rows import Bench, Benchmark
from coco_experiments.groups import Case
from coco_experiments.simulated import generated_counts
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.privacy import Measurement

GROWTH = (0.05, 0.1, 0.3, 0.5)
LIMITS = (60.0, 40.0)
METHOD = GroupsMethod("l1", consistency="posterior", intervals=0.9)


def measured(case: Case, growth: tuple[float, ...]) -> Measurement:
    """Return cumulative counts with total epsilon 1, the same part at each level; growth () asks for cells."""
    return case.measured(SEED, growth=growth[-case.levels :])


def measure(bench: Bench) -> str:
    """Time the posterior on Taxi and Hawaii's blocks with two threads (small: made, 7 regions), compiled beforehand."""
    tiny, listed = Case.of("tiny", generated_counts(2, 2, 50, 20, np.random.default_rng(SEED)), 20), cases(bench)
    for warming in ((), GROWTH):
        estimate_groups(measured(tiny, warming), METHOD, SolverChoices(), threads=2)
    growths: list[tuple[float, ...]] = [(), GROWTH] if len(listed) > 1 else [GROWTH]
    for case, growth, limit in bench.over(zip(listed, growths, LIMITS, strict=False)):
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


NOTES = ("n: cells of all regions; one run, compiled beforehand, two threads; certificate in the time",)
POSTERIOR = Benchmark("bench/posterior", measure, NOTES)
