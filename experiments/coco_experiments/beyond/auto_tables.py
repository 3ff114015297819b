"""What is chosen automatically for tables of persons and for ranges, against plans that users would write.

Tables: Hawaii's blocks with 7 real cells, and with 2,016 cells that are made. The aim is the geometric mean, over
levels and the queries of the workload, of the mean absolute errors of released answers. The plans are the workload
evenly, shares that are written by hand, and other allocations over the levels; fewer for 2,016 cells.

Ranges: the chosen fan-out against every other, by the mean absolute error of released ranges of 2^i cells. All plans
of one data set read the same seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_experiments.hay2010.data import generated, universal
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, large_tables, small_tables
from coco_experiments.topdown.study import Estimates, mean_absolute
from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.privacy.planner import Shares, allocation, leaf_allocation, uniform_shares
from coco_opt.ranges import UniversalHistogram, choose_fan_out, measure_ranges
from coco_opt.ranges.fan_out import FAN_OUTS, evenly
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.estimating.estimate import estimate_tables
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.measuring.automatic import chosen_allocation, chosen_strategy
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import parse_queries

NAME = "beyond/auto_tables"
SEEDS = (2018, 2019, 2020)
AUTO = "auto"
SMALL_WORKLOAD, SMALL_SHARES = ("detail", "hispanic", "total"), ("3/5", "1/5", "1/5")
LARGE_WORKLOAD = "detail", "hispanic * race", "race * voting_age", "residence", "total"
LARGE_SHARES = "2/5", "1/5", "1/5", "1/10", "1/10"


@dataclass(frozen=True, eq=False, slots=True)
class TablesCase:
    """A data set of tables, its workload, the shares that a user would write, epsilon, and its seeds."""

    name: str
    tables: Tables
    workload: tuple[str, ...]
    shares: tuple[str, ...]
    epsilon: Fraction
    seeds: tuple[int, ...]
    few: bool = False


def plans_of(case: TablesCase) -> dict[str, TablePlan]:
    """Return the automatic plan and those that it is compared with, by name."""
    tables, cost = case.tables, Epsilon(case.epsilon)
    widths = np.diff(tables.hierarchy.level_start).tolist()
    levels, workload = len(widths), parse_queries(case.workload, tables.schema)
    chosen = chosen_strategy(workload, tables.schema, cost)
    even, by_hand = Strategy.uniform(workload), Strategy(workload, tuple(map(Fraction, case.shares)))
    uniform = uniform_shares(levels)
    plans: list[tuple[str, Strategy, Shares]] = [
        (AUTO, chosen, chosen_allocation(widths, cost, (1.0 / levels,) * levels)),
        ("workload and levels evenly", even, uniform),
        ("shares by hand, levels evenly", by_hand, uniform),
        ("shares by hand, half on the blocks", by_hand, leaf_allocation(0.5, levels)),
    ]
    if not case.few:
        plans += [
            ("chosen shares, each level half of that above", chosen, allocation(0.5, levels)),
            ("chosen shares, each level twice that above", chosen, allocation(2.0, levels)),
            ("chosen shares, half on the blocks", chosen, leaf_allocation(0.5, levels)),
        ]
    return {name: TablePlan.product(strategy, cost, levels, level_shares=shares) for name, strategy, shares in plans}


def aim_of(case: TablesCase, plan: TablePlan, seed: int) -> Floats:
    """Return the mean absolute errors of one seed's released answers, float64[levels, workload]."""
    measurement = measure_tables(case.tables.counts, plan, source=SeededNoise(seed))
    result = estimate_tables(measurement, TopdownMethod("full"), SolverChoices(), threads=1)
    workload = parse_queries(case.workload, case.tables.schema)
    return mean_absolute(case.tables, Estimates(result.answers, 0.0, result), workload)


def tables_table(cases: Sequence[TablesCase], reporter: Reporter) -> Table:
    """Return the aim's error of every plan, and that of the automatic one over it."""
    rows: list[tuple[Cell, ...]] = []
    for case in cases:
        aims: dict[str, float] = {}
        for done, (name, plan) in enumerate(plans_of(case).items(), 1):
            errors = np.mean([aim_of(case, plan, seed) for seed in case.seeds], axis=0)
            aims[name] = float(np.exp(np.log(np.maximum(errors, 1e-9)).mean()))
            reporter.progress(f"{NAME} {case.name}", done, 4 if case.few else 7)
        rows += [(case.name, float(case.epsilon), name, aim, aims[AUTO] / aim) for name, aim in aims.items()]
    columns = "data", "epsilon", "plan", "aim's error", "auto / it"
    notes = ("Seeded noise: NOT PRIVATE.", "Cells of the second data set are made.")
    return Table("Tables: geometric mean over levels and queries of mean absolute errors", columns, tuple(rows), notes)


def ranges_table(small: bool, data: Path | None, reporter: Reporter) -> Table:
    """Return the errors of every fan-out on lists of counts, the chosen one marked."""
    rows: list[tuple[Cell, ...]] = []
    epsilons = [Fraction(1)] if small else [Fraction(1), Fraction(1, 10)]
    for counts in [generated(256)] if small else universal(data):
        for epsilon in epsilons:
            cells, cost = counts.values.size, Epsilon(epsilon)
            chosen = choose_fan_out(cells, cost)
            errors = {
                fan_out: np.mean(
                    [_range_error(counts.values, fan_out, cost, seed) for seed in SEEDS[: 1 if small else 3]]
                )
                for fan_out in (None, *(each for each in FAN_OUTS if each < cells))
            }
            for fan_out, error in errors.items():
                name = "cells" if fan_out is None else f"{fan_out}"
                ratio = float(errors[chosen] / error)
                rows.append(
                    (counts.label, float(epsilon), name, float(error), ratio, "chosen" if fan_out == chosen else "")
                )
            reporter.progress(f"{NAME} ranges", 1, 1)
    columns = "data", "epsilon", "fan-out", "mean absolute error", "chosen / it", "auto"
    title = "Ranges of 2^i cells at 64 places each: mean absolute error by fan-out"
    return Table(title, columns, tuple(rows), ("Seeded noise: NOT PRIVATE.",))


def _range_error(values: NDArray[np.int64], fan_out: int | None, cost: Epsilon, seed: int) -> float:
    counts = measure_ranges(values, fan_out=fan_out, cost=cost, source=SeededNoise(seed))
    histogram = UniversalHistogram.fit(counts)
    running = np.concatenate([[0], np.cumsum(values)])
    errors = []
    for power in range(values.size.bit_length()):
        begin, end = evenly(values.size, 1 << power)
        errors.append(np.abs(histogram.ranges(begin, end).estimate - (running[end] - running[begin])).mean())
    return float(np.mean(errors))


def cases_of(small: bool, data: Path | None) -> list[TablesCase]:
    """Return the data sets of tables."""
    if small:
        tables = small_tables(generated_blocks(np.random.default_rng(7), 2, 2, 1, 3))
        return [TablesCase("simulated blocks", tables, SMALL_WORKLOAD, SMALL_SHARES, Fraction(1), SEEDS[:1], few=True)]
    blocks = hawaii(data)
    large = large_tables(blocks)
    return [
        TablesCase("Hawaii, 7 cells", small_tables(blocks), SMALL_WORKLOAD, SMALL_SHARES, Fraction(1), SEEDS),
        TablesCase("Hawaii, 2,016 cells", large, LARGE_WORKLOAD, LARGE_SHARES, Fraction(4), SEEDS[:1], few=True),
    ]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/auto_tables`` as CSV; small: simulated data and one seed."""
    tables = {"_ranges": ranges_table(small, data, reporter), "": tables_table(cases_of(small, data), reporter)}
    return publish(NAME, tables, out, reporter)
