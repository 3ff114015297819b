"""Joint estimation of a nation: 3,161 regions, single sizes up to K = 10,000, and buckets of them, apart.

Absolute losses, noise of total epsilon 1, the same part at each level; measuring lies outside the seconds. It takes
some minutes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coco_experiments.bench.apart import Apart, apart, clocked
from coco_experiments.bench.nation import SEED, counts_of
from coco_experiments.bench.rows import Bench, Benchmark
from coco_experiments.groups import Case
from coco_opt.choices import SolverChoices
from coco_opt.errors import SolverError
from coco_opt.groups.estimating.joint import joint

MAX_SIZE, SMALL_MAX_SIZE = 10_000, 60
SECONDS_LIMIT, MEMORY_LIMIT = 180.0, 4000.0  # MB; of single sizes
GROWTHS = {"single sizes": 0.0, "buckets of growth .05": 0.05}


def fitted(size: str, data: str | None, max_size: int, growth: float) -> dict[str, float | str]:
    """Measure a nation with seeded noise and estimate it; return the call's seconds and what was certified.

    ``size`` is "whole", or "small" for 12 counties; ``growth`` is that of the buckets of every level (0: single sizes).
    ``failed`` says why there is no estimate.
    """
    _, counts = counts_of(small=size == "small", data=None if data is None else Path(data))
    noisy = Case.of("nation", counts, max_size).measured(SEED, growth=(growth,) * counts.hierarchy.levels)
    del counts
    solvers = SolverChoices()
    try:
        seconds, cpu, estimate = clocked(lambda: joint(noisy, solvers))
    except SolverError as error:
        return {"failed": str(error)}
    row = next(certificate for certificate in solvers.certificates if certificate.problem.startswith("joint"))
    return {
        "seconds": seconds,
        "cpu": cpu,
        "gap": row.relative_gap,
        "level_gap": float(np.nanmax(estimate.level_gaps)),
        "solver": row.solver,
        "solver_seconds": row.seconds,
    }


def measure(bench: Bench) -> str:
    """Time joint estimation of a nation on single sizes and on buckets (small: 12 counties, K = 60)."""
    name, counts = counts_of(small=bench.small, data=bench.data)
    max_size, regions = SMALL_MAX_SIZE if bench.small else MAX_SIZE, counts.hierarchy.regions
    target, folder = "coco_experiments.bench.joint_nation:fitted", bench.data and str(bench.data)
    for what, growth in bench.over(GROWTHS.items()):
        apart(target, "small", None, SMALL_MAX_SIZE, growth)  # compiles
        result = apart(target, "small" if bench.small else "whole", folder, max_size, growth)
        report = result.value
        if "failed" in report:
            bench.wrong.append(f"{what}: {report['failed']}")
            continue
        limits = {} if growth else {"limit": SECONDS_LIMIT, "peak_limit": MEMORY_LIMIT}
        run = Apart(report["seconds"], report["cpu"], result.peak, report)
        bench.apart(name, what, regions * max_size, run, **limits)
        bench.notes.append(
            f"{what}: {report['solver']}, {report['solver_seconds']:,.1f} s of it in the fit; "
            f"relative gap {report['gap']:.2g}, of the loosest level {report['level_gap']:.2g}"
        )
    return f"Joint estimation of a nation of {regions:,} regions, K = {max_size:,}: one run each"


NOTES = ("one element is one size of one region; fit, certificate and integer tables are in the seconds",)
JOINT_NATION = Benchmark("bench/joint_nation", measure, NOTES)
