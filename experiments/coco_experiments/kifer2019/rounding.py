"""Rounding that sees the queries: totals of integer tables, of linear estimates and of cells rounded alone.

Five identical children of 200 cells (MADE) get no total for their place and one about as sure as the linear estimate's.
Hawaii's counties (made cells within real counts, see ``coco_experiments.topdown.data``) are released at two budgets,
half of it on totals; the workload's other answers are to lose nothing by the totals' going first.

``integrality``: rounding with totally unimodular rows and without. A region's children are rounded within their floors
and ceilings so that cells keep the parent's sums and some rows keep whole values. Totals, or one marginal, are a
network: the linear relaxation has integer vertices, and its optimum is the integer one. Two marginals at once with the
parent's sums are a three-way transport, which is not totally unimodular: vertices may be fractional, the relaxation may
promise less than any integer table has, and a mixed-integer program is needed ("solve is slow"). Instances are MADE:
random integer tables blurred by moves that keep all sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from coco_experiments.kifer2019.redistricting import people
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study, seeded
from coco_experiments.topdown.data import generated_blocks, hawaii
from coco_opt.array_types import Floats
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Grouping, Operator, stack, total
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.problems import TableRounding
from coco_opt.problems.linear_rows import LinearRows
from coco_opt.problems.table_rounding.program import relaxation
from coco_opt.solving import solve
from coco_opt.topdown import (
    Query,
    Schema,
    Strategy,
    TableCounts,
    TablePlan,
    TopdownMethod,
    estimate_tables,
    linear_estimates,
    measure_tables,
    parse_query,
)

SEEDS, SMALL_SEEDS = range(40), range(4)
EPSILON, EPSILONS = 4, (4, 20)
WORKLOAD = {"total": "1/2", "voting_age": "1/8", "residence": "1/8", "hispanic * race": "1/8", "detail": "1/8"}
CHILDREN = {"total": "1/2", "detail": "1/2"}
LINEAR, PASSES, NEAREST = "linear", "in passes", "nearest cells alone"
MOST_SPREAD, MOST_ERROR, MOST_WORSE = 1.3, 1.2, 1.02
NOTE = "Noise is seeded: NOT PRIVATE."
Errors = dict[str, list[Floats]]
"""What answers of level 1 are off, by way and query."""


@dataclass(frozen=True, eq=False, slots=True)
class Tables:
    """The table of a root's children, queries with their shares, and epsilon."""

    counts: TableCounts
    shares: Mapping[str, str]
    epsilon: int

    @property
    def queries(self) -> tuple[Query, ...]:
        """Return what is measured and compared."""
        return tuple(parse_query(text, self.counts.schema) for text in self.shares)


def measure_totals(tables: Tables, seed: int) -> Errors:
    """Return the errors of linear estimates, of integers rounded in passes and of cells rounded alone."""
    queries, counts = tables.queries, tables.counts
    strategy = Strategy(queries, tuple(map(Fraction, tables.shares.values())))
    plan = TablePlan.product(strategy, Epsilon(Fraction(tables.epsilon)), levels=2)
    measurement = measure_tables(counts, plan, source=SeededNoise(seed))
    ways: dict[str, Any] = {
        LINEAR: linear_estimates(measurement),
        PASSES: estimate_tables(measurement),
        NEAREST: estimate_tables(measurement, TopdownMethod(rounding="nearest")),
    }
    truth = [counts.answers_to(query.operator, counts.hierarchy.leaves) for query in queries]
    return {
        name: [estimate.answers(q.operator, 1) - exact for q, exact in zip(queries, truth, strict=True)]
        for name, estimate in ways.items()
    }


def identical() -> TableCounts:
    """Return five identical children of 200 cells."""
    schema = Schema({"a": [f"a{k}" for k in range(20)], "b": [f"b{k}" for k in range(10)]})
    table = np.tile(np.random.default_rng(0).poisson(1.0, 200), (5, 1))
    return TableCounts.from_counts(Hierarchy.from_paths([("nation", f"child {k}") for k in range(5)]), schema, table)


def counties(leaves: TableCounts) -> TableCounts:
    """Return the state's counties as leaves."""
    tree, schema = leaves.hierarchy, leaves.schema
    regions = tree.level_range(1)
    top = Hierarchy.from_paths([(tree.names[0], tree.names[region]) for region in regions])
    detail = parse_query("detail", schema).operator
    return TableCounts.from_counts(top, schema, leaves.answers_to(detail, regions))


def plan_totals(data: Path | None, small: bool) -> list[tuple[Tables, Sequence[int]]]:
    """Return the identical children, and Hawaii's or simulated counties at both budgets."""
    blocks = generated_blocks(np.random.default_rng(7), 5, 2, 1, 8) if small else hawaii(data)
    real = counties(people(blocks, structural_zeros=False))
    cases = [Tables(identical(), CHILDREN, EPSILON), *(Tables(real, WORKLOAD, epsilon) for epsilon in EPSILONS)]
    return seeded(cases, SMALL_SEEDS if small else SEEDS)


def report_totals(results: Sequence[Runs[Tables, Errors]], path: Path) -> Report:
    """Return both tables; it fails where a bound of the comparison is broken."""
    children, *by_county = results
    off = {way: np.array([found[way][0][:, 0] for found in children.found]) for way in (LINEAR, PASSES, NEAREST)}
    failures, rows, seeds = list[str](), list[Record](), len(children.seeds)
    for k, name in enumerate(children.case.counts.hierarchy.names[1:]):
        mean = Mean.of(off[PASSES][:, k].tolist())
        within = abs(mean.value) <= 3.0 * (mean.standard_error or 0.0)
        alone = {f"mean error, {NEAREST}": float(off[NEAREST][:, k].mean())}
        rows.append({"child": name, **mean.cells("mean error"), "within 3": within, **alone})
        failures += [] if within else [f"{name}: the mean error of its total is over three standard errors"]
    spread = {way: float(values.std()) for way, values in off.items()}
    if spread[PASSES] > MOST_SPREAD * spread[LINEAR]:
        failures.append(f"totals spread {spread[PASSES] / spread[LINEAR]:.2f} times as much as linear ones")
    each = ", ".join(f"{value:.3g} {way}" for way, value in spread.items())
    notes = (f"{seeds} seeds, epsilon {EPSILON}. Standard deviation of a total: {each}. {NOTE}",)
    first = Table.of("totals of five identical children of 200 cells", rows, notes)
    rows = []
    for runs in by_county:
        for place, text in enumerate(WORKLOAD):
            key: Record = {"epsilon": runs.case.epsilon, "query": text}
            means = {way: float(np.mean([np.abs(found[way][place]).mean() for found in runs.found])) for way in off}
            linear, nearest = (means[PASSES] / means[way] for way in (LINEAR, NEAREST))
            rows.append({**key, **means, "passes / linear": linear, "passes / nearest": nearest})
            where = f"epsilon {runs.case.epsilon}: {text!r}"
            if text == "total" and linear > MOST_ERROR:
                failures.append(f"{where} is off {linear:.2f} times as much as linear ones")
            if nearest > MOST_WORSE:
                failures.append(f"{where} loses by passes: {nearest:.3f} times the error")
    title = (
        f"Hawaii's counties of {by_county[0].case.counts.schema.size} cells: mean absolute error of an answer, people"
    )
    second = Table.of(title, rows, (f"{seeds} seeds. {NOTE}",))
    return Report({"_children": first, "_counties": second}, failures=failures)


# Means of few seeds prove nothing.
ROUNDING = Study("kifer2019/rounding", plan_totals, measure_totals, report_totals, fails_small=False)


SHAPES = ((3, 3, 3), (5, 4, 6), (10, 6, 8))  # children, rows and columns of a table
TRANSPORT_SEEDS, TRANSPORT_SMALL_SEEDS = range(10), range(2)
WHOLE = 1e-6
Shape = tuple[int, int, int]
Found = dict[str, float | bool]


def blurred(rng: np.random.Generator, children: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return integer tables and fractional tables with the same sums over children, rows and columns."""
    tables = rng.poisson(1.5, (children, rows, columns))
    x = tables.astype(np.float64)
    for _ in range(40 * x.size):
        (a, b), (i, k), (m, n) = (rng.choice(size, 2, replace=False) for size in x.shape)
        amount = rng.uniform(-0.4, 0.4)
        corners = [(a, i, m), (a, k, n), (b, i, n), (b, k, m)], [(a, i, n), (a, k, m), (b, i, m), (b, k, n)]
        if all(x[index] + amount >= 0.0 for index in corners[0]) and all(
            x[index] - amount >= 0.0 for index in corners[1]
        ):
            for index, opposite in zip(*corners, strict=True):
                x[index] += amount
                x[opposite] -= amount
    return tables.reshape(children, -1), x.reshape(children, -1)


def exact_rows(rows: int, columns: int) -> dict[str, Operator]:
    """Return what is exact in each child, by name."""
    cells = np.arange(rows * columns)
    by_row, by_column = Grouping(cells // columns, rows), Grouping(cells % columns, columns)
    return {"totals": total(cells.size), "one marginal": by_row, "two marginals": stack([by_row, by_column])}


def relaxed(problem: TableRounding) -> tuple[float, float, float]:
    """Return the linear relaxation's objective, its share of fractional variables at a vertex, and milliseconds."""
    from coco_solvers.generic.highs import HiGHS

    program = relaxation(problem).program
    start = perf_counter()
    solution = HiGHS(form="lp").solve_program(program)
    seconds = perf_counter() - start
    assert solution.z is not None
    fractional = float((np.abs(solution.z - np.rint(solution.z)) > WHOLE).mean())
    return float(program.c @ solution.z) + program.offset, fractional, 1e3 * seconds


def measure(case: tuple[Shape, str], seed: int) -> Found:
    """Return what one instance's relaxation and rounding give."""
    shape, name = case
    tables, x = blurred(np.random.default_rng([seed, *shape]), *shape)
    operator = exact_rows(*shape[1:])[name]
    values = operator.apply(tables)
    problem = TableRounding(x, tables.sum(axis=0), LinearRows(operator, values, values))
    objective, fractional, milliseconds = relaxed(problem)
    start = perf_counter()
    solution = solve(problem, check=False)
    return {
        "integer": 1e3 * (perf_counter() - start),
        "network": problem.nested is not None,
        "fractional": fractional,
        "linear": milliseconds,
        "above": solution.objective - objective,
        "gap": solution.gap,
        "violation": solution.violation,
    }


def plan(data: Path | None, small: bool) -> list[tuple[tuple[Shape, str], Sequence[int]]]:
    """Return every shape with every kind of exact answers."""
    shapes, seeds = (SHAPES[:1], TRANSPORT_SMALL_SEEDS) if small else (SHAPES, TRANSPORT_SEEDS)
    return [((shape, name), seeds) for shape in shapes for name in exact_rows(*shape[1:])]


def report(results: Sequence[Runs[tuple[Shape, str], Found]], path: Path) -> Report:
    """Return a row a shape and kind; it fails where a network's relaxation is not integer, or a row is missed."""
    rows: list[Record] = []
    failures = []
    for runs in results:
        (shape, name), found = runs.case, {key: [one[key] for one in runs.found] for key in runs.found[0]}
        rows.append(
            {
                "children": shape[0],
                "cells": shape[1] * shape[2],
                "kept exact": name,
                "network": bool(found["network"][-1]),
                "fractional vertices %": 100.0 * float(np.mean(np.array(found["fractional"]) > 0)),
                "largest share fractional %": 100.0 * max(found["fractional"]),
                "integer above linear": max(found["above"]),
                "ms linear": float(np.median(found["linear"])),
                "ms integer": float(np.median(found["integer"])),
            }
        )
        for seed, one in zip(runs.seeds, runs.found, strict=True):
            if one["network"] and (one["gap"] > 1e-9 or one["above"] > WHOLE):
                failures.append(f"{name}, seed {seed}: a network's relaxation is not an integer table")
            if one["violation"] > 0.0:
                failures.append(f"{name}, seed {seed}: the integer tables do not keep what is exact")
    notes = (
        f"{len(results[0].seeds)} instances a row; distances in people. Vertices are where HiGHS' simplex ends.",
        "integer above linear: the largest distance that no integer table can save.",
    )
    table = Table.of("linear relaxation and integer optimum of rounding", rows, notes)
    return Report({"": table}, failures=failures, statements=claims(rows))


def claims(rows: Sequence[Record]) -> list[Statement]:
    """Return what the slides say of the linear program that rounds."""
    networks, others = ([row for row in rows if row["network"] == network] for network in (True, False))
    fractional = [max(row["fractional vertices %"] for row in group) for group in (networks, others)]
    above = [max(row["integer above linear"] for row in group) for group in (networks, others)]
    return [
        Statement(
            "slides, rounding by a linear program",
            "with totally unimodular rows a simplex method gives integers",
            f"fractional vertices in {fractional[0]:.0f} % of the instances; integers err by {above[0]:.1g} more",
            fractional[0] == 0.0,
        ),
        Statement(
            "slides, TopDown with invariants",
            "rows that are not totally unimodular do not always have an integer optimum, and are slower",
            f"two marginals: fractional vertices in {fractional[1]:.0f} %, integers up to {above[1]:.3g} above",
            fractional[1] > 0.0,
            "" if fractional[1] else "no instance of these few is fractional",
        ),
    ]


INTEGRALITY = Study("kifer2019/integrality", plan, measure, report)
