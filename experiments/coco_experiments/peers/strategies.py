"""Ordered histograms: the expected error of trees over the least of any strategy, and the error in simulations.

The least is the bound of Li and Miklau 2013 from the workload's singular values. The ratio does not depend on the data
or on the budget. OpenDP's tree is one of its branching factor whose levels share the budget equally, made consistent by
least squares, so its expected error is known as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Cell, Outcome, Reporter, Table
from coco_experiments.peers.ranges import ALL, PREFIXES, errors, opendp_prelude
from coco_experiments.peers.study import OURS, System, finish, missing
from coco_experiments.statistics import Mean
from coco_opt.privacy import Cost, Epsilon, Rho, SeededNoise
from coco_opt.ranges import (
    DomainTree,
    UniversalHistogram,
    Workload,
    choose_fan_out,
    measure_ranges,
    optimised_tree,
    over_bound,
)
from coco_opt.ranges.precision import Precision, noise_of

NAME = "peers/strategies"
CELLS, SMALL_CELLS = (365, 1_024, 65_536), (32,)
SIMULATED, RUNS, SMALL_RUNS = 1_024, 2_000, 200  # the cells at which errors are simulated
COSTS: tuple[Cost, ...] = (Epsilon(Fraction(1)), Rho(Fraction(1, 8)))
MEASURES = {"ranges": ALL, "prefixes": PREFIXES}
TOLERANCE, DEVIATIONS = 0.02, 3.0
_OPENDP = System("opendp", "consistent b-ary tree")
_COLUMNS = (
    "cells",
    "workload",
    "budget",
    "strategy",
    "fan-outs",
    "expected squared error over the bound",
    "expected root mean squared error",
    "simulated squared error over the expected",
    "standard error",
)


def trees(workload: Workload, cost: Cost) -> Mapping[str, DomainTree]:
    """Return the tree of every strategy, by name."""
    cells = workload.cells
    listed = {
        "cells alone": DomainTree(cells, None),
        f'{OURS}: fan_out = "auto"': DomainTree(cells, choose_fan_out(cells, cost)),
    }
    for name, nonnegative in (("", False), (", nonnegative", True)):
        best = optimised_tree(workload, cost, nonnegative=nonnegative)
        listed[f'{OURS}: fan_out = "optimised"{name}'] = DomainTree(cells, best.fan_out, shares=best.shares)
    if _OPENDP.version is not None:
        listed[_OPENDP.name] = DomainTree(cells, opendp_prelude().t.choose_branching_factor(size_guess=cells))
    return listed


def simulated(domain: DomainTree, cost: Cost, measure: str, runs: int) -> Mean:
    """Return the mean squared error of least squares, over so many seeded measurements of empty cells."""
    truth = np.zeros(domain.cells, np.int64)
    squares = []
    for seed in range(runs):
        noise = SeededNoise(seed)
        noisy = measure_ranges(truth, cost, source=noise, fan_out=domain.fan_out, shares=domain.shares)
        squares.append(errors(UniversalHistogram.fit(noisy, "consistent").cells, truth)[measure] ** 2)
    return Mean.of(tuple(squares))


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Compare at 365, 1,024 and 65,536 cells, with 2,000 simulations at 1,024; small: 32 cells and 200 simulations."""
    sizes, runs = (SMALL_CELLS, SMALL_RUNS) if small else (CELLS, RUNS)
    rows: list[tuple[Cell, ...]] = []
    wrong = []
    cases = [(cells, name, cost) for cells in sizes for name in MEASURES for cost in COSTS]
    for done, (cells, name, cost) in enumerate(cases, 1):
        workload = Workload.of(cells, name)  # type: ignore[arg-type]
        for strategy, domain in trees(workload, cost).items():
            expected = workload.variance(Precision(domain, noise_of(domain, cost)))
            told: list[Cell] = [None, None]
            if small or (cells == SIMULATED and name == "ranges"):
                mean = simulated(domain, cost, MEASURES[name], runs)
                ratio, error = mean.value / expected, (mean.standard_error or 0.0) / expected
                told = [ratio, error]
                if abs(ratio - 1) > TOLERANCE + DEVIATIONS * error:
                    wrong.append(f"{strategy} on {cells:,} cells, {cost}: simulated {ratio:.3f} of the expected error")
            fan_outs = "-" if domain.fan_out is None else " x ".join(map(str, domain.fan_outs))
            over = over_bound(domain, workload, cost)
            rows.append((cells, name, str(cost), strategy, fan_outs, over, float(np.sqrt(expected)), *told))
        reporter.progress(NAME, done, len(cases))
    notes = (
        "The bound is that of any linear unbiased strategy with the same noise; with Laplace noise none reaches it.",
        "Errors are those of least squares, which is unbiased: they depend on no data.",
        *missing([_OPENDP]),
    )
    return finish(
        NAME, [Table("Expected errors of ordered histograms", _COLUMNS, tuple(rows), notes)], wrong, out, reporter
    )
