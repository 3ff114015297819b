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
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.hay2010.data import Counts, generated, universal
from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, large_tables, small_tables
from coco_experiments.topdown.hawaii import mean_absolute
from coco_opt.choices import SolverChoices
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.privacy.planner import Shares, allocation, leaf_allocation, uniform_shares
from coco_opt.ranges import UniversalHistogram, choose_fan_out, measure_ranges
from coco_opt.ranges.strategy import FAN_OUTS, evenly
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.estimating.estimate import estimate_tables
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.measuring.automatic import ranked_allocations, ranked_strategies
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import parse_queries

SEEDS = (2018, 2019, 2020)
CHOSEN = "auto"
NOTE = "Seeded noise: NOT PRIVATE."
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
    few: bool = False

    def measure(self, seed: int) -> dict[str, list[float]]:
        """Return every plan's mean absolute errors of released answers, by level and query."""
        workload, found = parse_queries(self.workload, self.tables.schema), {}
        for name, plan in plans_of(self).items():
            measurement = measure_tables(self.tables.counts, plan, source=SeededNoise(seed))
            result = estimate_tables(measurement, TopdownMethod("full"), SolverChoices(), threads=1)
            found[name] = mean_absolute(self.tables, result.answers, workload).ravel().tolist()
        return found


@dataclass(frozen=True, eq=False, slots=True)
class RangesCase:
    """A list of counts, and epsilon."""

    counts: Counts
    epsilon: Fraction

    @property
    def fan_outs(self) -> dict[str, int | None]:
        """Return every fan-out by name."""
        below = {f"{each}": each for each in FAN_OUTS if each < self.counts.values.size}
        return {"cells": None, **below}

    def measure(self, seed: int) -> dict[str, list[float]]:
        """Return every fan-out's mean absolute error of ranges of 2^i cells, by i."""
        values, found = self.counts.values, {}
        running = np.concatenate([[0], np.cumsum(values)])
        for name, fan_out in self.fan_outs.items():
            noisy = measure_ranges(values, fan_out=fan_out, cost=Epsilon(self.epsilon), source=SeededNoise(seed))
            histogram, errors = UniversalHistogram.fit(noisy), []
            for power in range(values.size.bit_length()):
                begin, end = evenly(values.size, 1 << power)
                away = histogram.ranges(begin, end).estimate - (running[end] - running[begin])
                errors.append(float(np.abs(away).mean()))
            found[name] = errors
        return found


def plans_of(case: TablesCase) -> dict[str, TablePlan]:
    """Return the automatic plan and those that it is compared with, by name."""
    tables, cost = case.tables, Epsilon(case.epsilon)
    widths = np.diff(tables.hierarchy.level_start).tolist()
    levels, workload = len(widths), parse_queries(case.workload, tables.schema)
    chosen = ranked_strategies(tuple(workload), tables.schema, type(cost))[0][0]
    even, by_hand = Strategy.uniform(workload), Strategy(workload, tuple(map(Fraction, case.shares)))
    uniform = uniform_shares(levels)
    plans: list[tuple[str, Strategy, Shares]] = [
        (CHOSEN, chosen, ranked_allocations(widths, cost, (1.0 / levels,) * levels)[0][0]),
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


AnyCase = TablesCase | RangesCase
Found = dict[str, list[float]]
"""One seed's mean absolute errors, by plan or fan-out."""


def tables_rows(case: TablesCase, found: Sequence[Found]) -> list[Record]:
    """Return the aim's error of every plan, and that of the automatic one over it."""
    errors = {name: np.mean([of_seed[name] for of_seed in found], axis=0) for name in found[0]}
    aims = {name: float(np.exp(np.log(np.maximum(error, 1e-9)).mean())) for name, error in errors.items()}
    key: Record = {"data": case.name, "epsilon": float(case.epsilon)}
    return [{**key, "plan": name, "aim's error": aim, "auto / it": aims[CHOSEN] / aim} for name, aim in aims.items()]


def ranges_rows(case: RangesCase, found: Sequence[Found]) -> list[Record]:
    """Return the errors of every fan-out, the chosen one marked."""
    errors = {name: float(np.mean([np.mean(of_seed[name]) for of_seed in found])) for name in found[0]}
    best = choose_fan_out(case.counts.values.size, Epsilon(case.epsilon))
    key: Record = {"data": case.counts.label, "epsilon": float(case.epsilon)}
    (chosen,) = (name for name, fan_out in case.fan_outs.items() if fan_out == best)
    return [
        {
            **key,
            "fan-out": name,
            "mean absolute error": error,
            "chosen / it": errors[chosen] / error,
            "auto": "chosen" if name == chosen else "",
        }
        for name, error in errors.items()
    ]


def plan(data: Path | None, small: bool) -> list[tuple[AnyCase, Sequence[int]]]:
    """Return lists of counts at their epsilons, and the data sets of tables."""
    lists = product([generated(256)] if small else universal(data), (Fraction(1), Fraction(1, 10))[: 1 if small else 2])
    ranges = [(RangesCase(*case), SEEDS[: 1 if small else 3]) for case in lists]
    if small:
        simulated = small_tables(generated_blocks(np.random.default_rng(7), 2, 2, 1, 3))
        few = TablesCase("simulated blocks", simulated, SMALL_WORKLOAD, SMALL_SHARES, Fraction(1), few=True)
        return [*ranges, (few, SEEDS[:1])]
    blocks = hawaii(data)
    first = TablesCase("Hawaii, 7 cells", small_tables(blocks), SMALL_WORKLOAD, SMALL_SHARES, Fraction(1))
    large = large_tables(blocks)
    second = TablesCase("Hawaii, 2,016 cells", large, LARGE_WORKLOAD, LARGE_SHARES, Fraction(4), few=True)
    return [*ranges, (first, SEEDS), (second, SEEDS[:1])]


def report(results: Sequence[Runs[AnyCase, Found]], path: Path) -> Report:
    """Return the tables of ranges and of tables."""
    ranges = [
        row for runs in results if isinstance(runs.case, RangesCase) for row in ranges_rows(runs.case, runs.found)
    ]
    tables = [
        row for runs in results if isinstance(runs.case, TablesCase) for row in tables_rows(runs.case, runs.found)
    ]
    titles = (
        "Ranges of 2^i cells at 64 places each: mean absolute error by fan-out",
        "Tables: geometric mean over levels and queries of mean absolute errors",
    )
    made = (NOTE, "Cells of the second data set are made.")
    return Report({"_ranges": Table.of(titles[0], ranges, (NOTE,)), "": Table.of(titles[1], tables, made)})


AUTO_TABLES = Study("beyond/auto_tables", plan, lambda case, seed: case.measure(seed), report)
