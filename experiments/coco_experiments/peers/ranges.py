"""Ordered histograms: error of all ranges and of all prefixes by coco-opt's trees and by OpenDP's, at one epsilon.

OpenDP is used as its documentation does: Laplace noise on the cells alone, or on a b-ary tree with the branching factor
that it chooses, made consistent by its post-processor. Errors over all ranges are computed exactly from the errors of
the prefixes, without listing the ranges.

``strategies``: the expected error of trees over the least of any strategy, and the error in simulations.

The least is the bound of Li and Miklau 2013 from the workload's singular values. The ratio does not depend on the data
or on the budget. OpenDP's tree is one of its branching factor whose levels share the budget equally, made consistent by
least squares, so its expected error is known as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from coco_experiments.outcome import Record, Table
from coco_experiments.peers.study import OURS, System, Trial, missing, peer_table, results_of, trial
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.array_types import Floats, Ints
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
from coco_opt.ranges.estimating.universal import Estimator
from coco_opt.ranges.interval_counts import Precision, noise_of

Noisy = Callable[[Ints, int], Floats]

SEEDS, SMALL_SEEDS = (1, 2, 3, 4, 5), (1, 2)
CELLS, SMALL_CELLS = (365, 1_024, 65_536), (64,)
EPSILON = Fraction(1)
ALL, PREFIXES = "root mean squared error, all ranges", "root mean squared error, prefixes"
_OPENDP = "opendp"


def daily_counts(cells: int) -> Ints:
    """Return smooth counts with a weekly and a yearly wave."""
    day = np.arange(cells)
    level = 40.0 + 15.0 * np.sin(2 * np.pi * day / 7) + 25.0 * np.sin(2 * np.pi * day / 365)
    return np.random.default_rng(365).poisson(level).astype(np.int64)


def sparse_counts(cells: int) -> Ints:
    """Return counts of which nine in ten are zero and the others heavy-tailed."""
    rng = np.random.default_rng(10)
    return np.where(rng.random(cells) < 0.1, rng.zipf(1.8, cells).clip(max=5_000), 0).astype(np.int64)


DATA = {"smooth": daily_counts, "sparse": sparse_counts}


def errors(estimate: Floats, truth: Ints) -> dict[str, float]:
    """Return the errors over all ranges begin:end and over all prefixes; O(cells).

    With e_j the error of the prefix j, the range i:j errs by e_j - e_i, and the sum of its square over all pairs of
    n + 1 prefixes is (n + 1) sum e_j^2 - (sum e_j)^2.
    """
    prefix = np.concatenate([[0.0], np.cumsum(estimate - truth)])
    n = truth.size
    squares = float(prefix @ prefix)
    ranges = ((n + 1) * squares - float(prefix.sum()) ** 2) / (n * (n + 1) / 2)
    return {ALL: float(np.sqrt(max(0.0, ranges))), PREFIXES: float(np.sqrt(squares / n))}


@cache
def best_tree(
    cells: int, cost: Cost, *, nonnegative: bool
) -> tuple[int | tuple[int, ...] | None, tuple[Fraction, ...] | None]:
    """Return the fan-outs and the shares of the optimised tree for all ranges; it is public, so planned once."""
    tree = optimised_tree(Workload.of(cells), cost, nonnegative=nonnegative)
    return tree.fan_out, tree.shares


@dataclass(frozen=True, slots=True)
class Ours:
    """coco-opt: the single fan-out, or the tree with shares by level, of least predicted error, and one estimator."""

    estimator: Estimator
    optimised: bool = False

    def __call__(self, counts: Ints, seed: int) -> Floats:
        """Return estimated cells; seeded noise, NOT PRIVATE."""
        cost = Epsilon(EPSILON)
        fan_out: int | tuple[int, ...] | None = choose_fan_out(counts.size, cost)
        shares: tuple[Fraction, ...] | None = None
        if self.optimised:
            fan_out, shares = best_tree(counts.size, cost, nonnegative=self.estimator == "nonnegative")
        measurement = measure_ranges(counts, cost, source=SeededNoise(seed), fan_out=fan_out, shares=shares)
        return UniversalHistogram.fit(measurement, self.estimator).cells


def opendp_prelude() -> Any:
    """Import OpenDP's prelude with the features that trees need."""
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib")
    return dp


def opendp_cells(counts: Ints, seed: int) -> Floats:
    """Return OpenDP's noisy cells."""
    dp = opendp_prelude()
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    noisy = dp.m.make_laplace(*space, scale=1.0 / float(EPSILON))
    return np.array(noisy(counts.tolist()), np.float64)


def opendp_tree(counts: Ints, seed: int) -> Floats:
    """Return OpenDP's consistent b-ary tree with the branching factor that it chooses."""
    dp = opendp_prelude()
    branching = dp.t.choose_branching_factor(size_guess=counts.size)
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    tree = dp.t.make_b_ary_tree(*space, leaf_count=counts.size, branching_factor=branching)
    scale = float(tree.map(d_in=1)) / float(EPSILON)
    noisy = tree >> dp.m.then_laplace(scale=scale)
    assert noisy.map(d_in=1) <= float(EPSILON) * (1 + 1e-9)
    consistent = dp.t.make_consistent_b_ary_tree(branching_factor=branching)
    return np.array(consistent(noisy(counts.tolist())), np.float64)[: counts.size]


def systems() -> Mapping[System, Noisy]:
    """Return every way to publish a histogram, by name."""
    return {
        System(OURS, "best fan-out, least squares"): Ours("consistent"),
        System(OURS, "best fan-out, nonnegative"): Ours("nonnegative"),
        System(OURS, "optimised tree, least squares"): Ours("consistent", optimised=True),
        System(OURS, "optimised tree, nonnegative"): Ours("nonnegative", optimised=True),
        System(_OPENDP, "noisy cells"): opendp_cells,
        System(_OPENDP, "consistent b-ary tree"): opendp_tree,
    }


def plan(data: Path | None, small: bool) -> list[tuple[tuple[int, str], Sequence[int]]]:
    """Return 365, 1,024 and 65,536 cells of two simulated data sets; small: 64 cells."""
    return seeded(product(SMALL_CELLS if small else CELLS, DATA), SMALL_SEEDS if small else SEEDS)


def measure(case: tuple[int, str], seed: int) -> Trial:
    """Return every system's errors on one data set."""
    truth = DATA[case[1]](case[0])
    calls = {system: partial(noisy, truth, seed) for system, noisy in systems().items()}
    return trial(calls, lambda cells: errors(cells, truth), warm=seed == SEEDS[0])


def report(found: Sequence[Runs[tuple[int, str], Trial]], path: Path) -> Report:
    """Return the comparison."""
    results = [
        result
        for runs in found
        for result in results_of(f"{runs.case[1]}, {runs.case[0]:,} cells", systems(), runs.found)
    ]
    notes = (
        f"epsilon {float(EPSILON):g} in all, neighbours differ by one entity. Data are simulated.",
        "coco-opt's noise is seeded, so that runs can be repeated; OpenDP draws its own.",
        "Seconds are those of measuring and estimating together.",
        *missing(list(systems())),
    )
    return Report({"": peer_table("Ordered histograms", results, notes)})


RANGES = Study("peers/ranges", plan, measure, report)


BOUND_SMALL_CELLS = (32,)
SIMULATED, RUNS, SMALL_RUNS = 1_024, 2_000, 200  # the cells at which errors are simulated
COSTS: tuple[Cost, ...] = (Epsilon(Fraction(1)), Rho(Fraction(1, 8)))
MEASURES = {"ranges": ALL, "prefixes": PREFIXES}
TOLERANCE, DEVIATIONS = 0.02, 3.0
_BOUND_OPENDP = System("opendp", "consistent b-ary tree")
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
    if _BOUND_OPENDP.version is not None:
        listed[_BOUND_OPENDP.name] = DomainTree(cells, opendp_prelude().t.choose_branching_factor(size_guess=cells))
    return listed


def simulated(domain: DomainTree, cost: Cost, measure_bound: str, runs: int) -> Mean:
    """Return the mean squared error of least squares, over so many seeded measurements of empty cells."""
    truth = np.zeros(domain.cells, np.int64)
    squares = []
    for seed in range(runs):
        noise = SeededNoise(seed)
        noisy = measure_ranges(truth, cost, source=noise, fan_out=domain.fan_out, shares=domain.shares)
        squares.append(errors(UniversalHistogram.fit(noisy, "consistent").cells, truth)[measure_bound] ** 2)
    return Mean.of(tuple(squares))


def plan_bound(data: Path | None, small: bool) -> list[tuple[Case, Sequence[int]]]:
    """Return 365, 1,024 and 65,536 cells, with 2,000 simulations at 1,024; small: 32 cells and 200 simulations."""
    cases = []
    for cells, name, cost in product(BOUND_SMALL_CELLS if small else CELLS, MEASURES, COSTS):
        runs = RUNS if cells == SIMULATED and name == "ranges" else 0
        cases.append((cells, name, cost, SMALL_RUNS if small else runs))
    return seeded(cases)


def measure_bound(case: Case, seed: int) -> list[Record]:
    """Return a row for every strategy."""
    cells, name, cost, runs = case
    workload, rows = Workload.of(cells, name), list[Record]()  # type: ignore[arg-type]
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


def report_bound(results: Sequence[Runs[Case, list[Record]]], path: Path) -> Report:
    """Return all rows; it fails where errors in simulations are not the expected ones."""
    notes = (
        "The bound is that of any linear unbiased strategy with the same noise; with Laplace noise none reaches it.",
        "Errors are those of least squares, which is unbiased: they depend on no data.",
        *missing([_BOUND_OPENDP]),
    )
    table = Table.of("Expected errors of ordered histograms", (row for runs in results for row in runs.found[0]), notes)
    failures = (
        f"{row['strategy']} on {row['cells']:,} cells, {row['budget']}: simulated {row[RATIO]:.3f} of the expected"
        for row in table.records()
        if row[RATIO] is not None and abs(row[RATIO] - 1) > TOLERANCE + DEVIATIONS * row["standard error"]
    )
    return Report({"": table}, failures=failures)


STRATEGIES = Study("peers/strategies", plan_bound, measure_bound, report_bound)
