"""What the top-down experiments share: one measurement a seed, several ways to make tables of it, errors by query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from coco_experiments.topdown.data import Tables
from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.operators import Operator
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.estimating.estimate import estimate_tables, linear_estimates
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import Query, parse_queries

Answers = Callable[[Operator, int], NDArray[np.float64] | NDArray[np.int64]]

EDGES = (0, 1, 3, 10, 30, 10**6)  # of classes of true sizes
FULL, CLASSIC, BOTTOM_UP = "full", "classic", "bottom-up, all budget on the leaves"
LINEAR, EQUAL = "linear (fractional, negative)", "classic, all weights 1"
VARIANTS: dict[str, TopdownMethod] = {
    FULL: TopdownMethod("full"),
    CLASSIC: TopdownMethod("classic"),
    EQUAL: TopdownMethod("classic", weighting="equal"),
    BOTTOM_UP: TopdownMethod("bottom_up"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured: query texts with their shares of a level's budget, epsilon in all, and its shares by level."""

    queries: tuple[str, ...]
    shares: tuple[str, ...]
    epsilon: Fraction = Fraction(1)
    level_shares: tuple[str, ...] = ()

    def plan(self, tables: Tables, leaves_only: bool = False) -> TablePlan:
        """Return the plan: as the levels' shares say, even over the levels without any, or all on the leaves."""
        levels = tables.hierarchy.levels
        strategy = Strategy(parse_queries(self.queries, tables.schema), tuple(map(Fraction, self.shares)))
        shares = [*map(Fraction, self.level_shares)] or None
        if leaves_only:
            shares = [*[Fraction(0)] * (levels - 1), Fraction(1)]
        return TablePlan.product(strategy, Epsilon(self.epsilon), levels, level_shares=shares)

    def measure(self, tables: Tables, seed: int, leaves_only: bool = False) -> Measurement:
        """Return a seeded measurement (NOT PRIVATE)."""
        return measure_tables(tables.counts, self.plan(tables, leaves_only), source=SeededNoise(seed))


def make(tables: Tables, setting: Setting, name: str, seed: int, threads: int = 1) -> tuple[Answers, float, list[str]]:
    """Run one method by name on one seed; all but bottom-up share the seed's noise.

    Return its answers to any query at any level, the seconds, and a line for each kind of certificate.
    """
    measurement = setting.measure(tables, seed, leaves_only=name == BOTTOM_UP)
    start = perf_counter()
    if name == LINEAR:
        return linear_estimates(measurement).answers, perf_counter() - start, []
    result = estimate_tables(measurement, VARIANTS[name], SolverChoices(), threads=threads)
    seconds = perf_counter() - start
    lines = [
        f"{name}: {row.solves:,} x {row.problem} by {row.solver}, worst relative gap {row.relative_gap:.2g}, "
        f"{row.seconds:.2f} s in the solver"
        for row in result.certificates
    ]
    return result.answers, seconds, lines


def errors_of(tables: Tables, answers: Answers, query: Query, level: int) -> Floats:
    """Return estimate minus truth float64[regions of level, answers], in people."""
    exact = tables.counts.answers_to(query.operator, tables.hierarchy.level_range(level))
    return np.asarray(answers(query.operator, level) - exact, dtype=np.float64)


def mean_absolute(tables: Tables, answers: Answers, queries: Sequence[Query]) -> Floats:
    """Return the mean absolute error of an answer, float64[levels, queries]."""
    levels = range(tables.hierarchy.levels)
    return np.array(
        [[np.abs(errors_of(tables, answers, query, level)).mean() for query in queries] for level in levels]
    )


def sizes_of(edges: Sequence[int]) -> list[str]:
    """Return classes of sizes edges[k] .. edges[k + 1] - 1 in words; the last has no upper end."""
    names = [f"{low}" if high == low + 1 else f"{low} to {high - 1}" for low, high in pairwise(edges)]
    return [*names[:-1], f"{edges[-2]} and more"]


def bias_by_size(
    tables: Tables, answers: Answers, query: Query, edges: Sequence[int] = EDGES
) -> list[tuple[int, float]]:
    """Return for leaf answers of true size edges[k] .. edges[k + 1] - 1 their number and mean error."""
    level = tables.hierarchy.levels - 1
    exact = tables.counts.answers_to(query.operator, tables.hierarchy.level_range(level))
    error = errors_of(tables, answers, query, level)
    rows = []
    for low, high in pairwise(edges):
        inside = (exact >= low) & (exact < high)
        rows.append((int(inside.sum()), float(error[inside].mean()) if inside.any() else float("nan")))
    return rows
