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

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import numpy as np

from coco_experiments.kifer2019.redistricting import people
from coco_experiments.outcome import Cell, Outcome, Record, Reporter, Table, publish
from coco_experiments.study import Report, Runs, Study
from coco_experiments.topdown.data import generated_blocks, hawaii
from coco_opt.array_types import Floats
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Grouping, Operator, stack, total
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
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

NAME = "kifer2019/rounding"
SEEDS, SMALL_SEEDS = 40, 4
EPSILON, EPSILONS = 4, (4, 20)
WORKLOAD = {"total": "1/2", "voting_age": "1/8", "residence": "1/8", "hispanic * race": "1/8", "detail": "1/8"}
LINEAR, PASSES, NEAREST = "linear", "in passes", "nearest cells alone"
MOST_SPREAD, MOST_ERROR, MOST_WORSE = 1.3, 1.2, 1.02
CHILD_COLUMNS = ("child", "mean error", "standard error", "within 3", f"mean error, {NEAREST}")
COUNTY_COLUMNS = ("epsilon", "query", LINEAR, PASSES, NEAREST, "passes / linear", "passes / nearest")
NOTE = "Noise is seeded: NOT PRIVATE."


def errors(measurement: Measurement, queries: Sequence[Query], truth: Sequence[Floats]) -> dict[str, list[Floats]]:
    """Return what answers of level 1 are off, by way and query."""
    linear = linear_estimates(measurement)
    ways = {
        PASSES: estimate_tables(measurement),
        NEAREST: estimate_tables(measurement, TopdownMethod(rounding="nearest")),
    }
    by_way: dict[str, list[Floats]] = {LINEAR: [linear.answers(query.operator, 1) for query in queries]}
    for name, estimate in ways.items():
        by_way[name] = [estimate.answers(query.operator, 1).astype(np.float64) for query in queries]
    return {name: [a - b for a, b in zip(answers, truth, strict=True)] for name, answers in by_way.items()}


def identical(seeds: int, reporter: Reporter, steps: int) -> tuple[Table, list[str]]:
    """Return the children's errors over seeds, and what is out of bounds."""
    tree = Hierarchy.from_paths([("nation", f"child {k}") for k in range(5)])
    schema = Schema({"a": [f"a{k}" for k in range(20)], "b": [f"b{k}" for k in range(10)]})
    table = np.random.default_rng(0).poisson(1.0, 200)
    counts = TableCounts.from_counts(tree, schema, np.tile(table, (5, 1)))
    queries = [parse_query(text, schema) for text in ("total", "detail")]
    plan = TablePlan.product(Strategy.uniform(queries), Epsilon(Fraction(EPSILON)), levels=2)
    truth = [np.full((5, 1), float(table.sum()))]
    by_way: dict[str, list[Floats]] = {LINEAR: [], PASSES: [], NEAREST: []}
    for seed in range(seeds):
        measurement = measure_tables(counts, plan, source=SeededNoise(seed))
        for name, values in errors(measurement, queries[:1], truth).items():
            by_way[name].append(values[0][:, 0])
        reporter.progress(NAME, seed + 1, steps)
    off = {name: np.array(values) for name, values in by_way.items()}
    mean, error = off[PASSES].mean(axis=0), off[PASSES].std(axis=0, ddof=1) / np.sqrt(seeds)
    alone, within = off[NEAREST].mean(axis=0), np.abs(mean) <= 3.0 * error
    rows = tuple((f"child {k}", float(mean[k]), float(error[k]), bool(within[k]), float(alone[k])) for k in range(5))
    spread = {name: float(values.std()) for name, values in off.items()}
    each = ", ".join(f"{spread[name]:.3g} {name}" for name in spread)
    notes = (f"{seeds} seeds, epsilon {EPSILON}. Standard deviation of a total: {each}. {NOTE}",)
    wrong = [f"{row[0]}: the mean error of its total is over three standard errors" for row in rows if not row[3]]
    if spread[PASSES] > MOST_SPREAD * spread[LINEAR]:
        wrong.append(f"totals spread {spread[PASSES] / spread[LINEAR]:.2f} times as much as linear ones")
    return Table("totals of five identical children of 200 cells", CHILD_COLUMNS, rows, notes), wrong


def counties(leaves: TableCounts, seeds: int, reporter: Reporter, steps: int) -> tuple[Table, list[str]]:
    """Return mean absolute errors of the counties' answers over seeds, and what is out of bounds."""
    tree, schema = leaves.hierarchy, leaves.schema
    regions = tree.level_range(1)
    top = Hierarchy.from_paths([(tree.names[0], tree.names[region]) for region in regions])
    queries = [parse_query(text, schema) for text in WORKLOAD]
    counts = TableCounts.from_counts(top, schema, leaves.answers_to(parse_query("detail", schema).operator, regions))
    truth = [counts.answers_to(query.operator, top.leaves).astype(np.float64) for query in queries]
    strategy = Strategy(tuple(queries), tuple(map(Fraction, WORKLOAD.values())))
    rows: list[tuple[Cell, ...]] = []
    wrong = []
    for epsilon in EPSILONS:
        plan = TablePlan.product(strategy, Epsilon(Fraction(epsilon)), levels=2)
        sums = {name: np.zeros(len(queries)) for name in (LINEAR, PASSES, NEAREST)}
        for seed in range(seeds):
            measurement = measure_tables(counts, plan, source=SeededNoise(seed))
            for name, off in errors(measurement, queries, truth).items():
                sums[name] += [np.abs(error).mean() / seeds for error in off]
            reporter.progress(NAME, seeds * (1 + EPSILONS.index(epsilon)) + seed + 1, steps)
        for i, text in enumerate(WORKLOAD):
            linear, passes, nearest = (float(sums[name][i]) for name in (LINEAR, PASSES, NEAREST))
            rows.append((epsilon, text, linear, passes, nearest, passes / linear, passes / nearest))
            if text == "total" and passes > MOST_ERROR * linear:
                wrong.append(f"epsilon {epsilon}: totals are off {passes / linear:.2f} times as much as linear ones")
            if passes > MOST_WORSE * nearest:
                wrong.append(f"epsilon {epsilon}: {text!r} loses by passes: {passes / nearest:.3f} times the error")
    title = f"Hawaii's counties of {schema.size} cells: mean absolute error of an answer, people"
    return Table(title, COUNTY_COLUMNS, tuple(rows), (f"{seeds} seeds. {NOTE}",)), wrong


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Compare totals and workload; fails where a bound of the comparison is broken."""
    seeds = SMALL_SEEDS if small else SEEDS
    blocks = generated_blocks(np.random.default_rng(7), 5, 2, 1, 8) if small else hawaii(data)
    steps = seeds * (1 + len(EPSILONS))
    parts = [
        identical(seeds, reporter, steps),
        counties(people(blocks, structural_zeros=False), seeds, reporter, steps),
    ]
    tables = {ending: table for ending, (table, _) in zip(("_children", "_counties"), parts, strict=True)}
    # Means of few seeds prove nothing.
    wrong = [] if small else [line for _, lines in parts for line in lines]
    return publish(NAME, tables, out, reporter, failures=wrong)


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
    return Report({"": table}, failures=failures)


INTEGRALITY = Study("kifer2019/integrality", plan, measure, report)
