"""Ordered histograms: the expected error of trees over the least of any strategy, and the error in simulations.

The least is the bound of Li and Miklau 2013 from the workload's singular values. The ratio does not depend on the data
or on the budget. OpenDP's tree is one of its branching factor whose levels share the budget equally, made consistent by
least squares, so its expected error is known as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Cell, Table
from coco_experiments.peers.ranges import ALL, PREFIXES, errors, opendp_prelude
from coco_experiments.peers.study import OURS, System, missing
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study, seeded
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

CELLS, SMALL_CELLS = (365, 1_024, 65_536), (32,)
SIMULATED, RUNS, SMALL_RUNS = 1_024, 2_000, 200  # the cells at which errors are simulated
COSTS: tuple[Cost, ...] = (Epsilon(Fraction(1)), Rho(Fraction(1, 8)))
MEASURES = {"ranges": ALL, "prefixes": PREFIXES}
TOLERANCE, DEVIATIONS = 0.02, 3.0
_OPENDP = System("opendp", "consistent b-ary tree")
RATIO = "simulated squared error over the expected"
Case = tuple[int, str, Cost, int]
"""Cells, workload, budget, and how often errors are simulated."""


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


def plan(data: Path | None, small: bool) -> list[tuple[Case, Sequence[int]]]:
    """Return 365, 1,024 and 65,536 cells, with 2,000 simulations at 1,024; small: 32 cells and 200 simulations."""
    cases = []
    for cells, name, cost in product(SMALL_CELLS if small else CELLS, MEASURES, COSTS):
        runs = RUNS if cells == SIMULATED and name == "ranges" else 0
        cases.append((cells, name, cost, SMALL_RUNS if small else runs))
    return seeded(cases)


def measure(case: Case, seed: int) -> list[dict[str, Cell]]:
    """Return a row for every strategy."""
    cells, name, cost, runs = case
    workload, rows = Workload.of(cells, name), list[dict[str, Cell]]()  # type: ignore[arg-type]
    for strategy, domain in trees(workload, cost).items():
        expected = workload.variance(Precision(domain, noise_of(domain, cost)))
        mean = simulated(domain, cost, MEASURES[name], runs) if runs else None
        rows.append(
            {
                "cells": cells,
                "workload": name,
                "budget": str(cost),
                "strategy": strategy,
                "fan-outs": "-" if domain.fan_out is None else " x ".join(map(str, domain.fan_outs)),
                "expected squared error over the bound": over_bound(domain, workload, cost),
                "expected root mean squared error": float(np.sqrt(expected)),
                RATIO: None if mean is None else mean.value / expected,
                "standard error": None if mean is None else (mean.standard_error or 0.0) / expected,
            }
        )
    return rows


def report(results: Sequence[Runs[Case, list[dict[str, Cell]]]], path: Path) -> Report:
    """Return all rows; it fails where errors in simulations are not the expected ones."""
    notes = (
        "The bound is that of any linear unbiased strategy with the same noise; with Laplace noise none reaches it.",
        "Errors are those of least squares, which is unbiased: they depend on no data.",
        *missing([_OPENDP]),
    )
    table = Table.of("Expected errors of ordered histograms", (row for runs in results for row in runs.found[0]), notes)
    failures = (
        f"{row['strategy']} on {row['cells']:,} cells, {row['budget']}: simulated {row[RATIO]:.3f} of the expected"
        for row in table.records()
        if row[RATIO] is not None and abs(row[RATIO] - 1) > TOLERANCE + DEVIATIONS * row["standard error"]
    )
    return Report({"": table}, failures=failures)


STRATEGIES = Study("peers/strategies", plan, measure, report)
