"""Rounding with totally unimodular rows and without: what changes.

A region's children are rounded within their floors and ceilings so that cells keep the parent's sums and some rows keep
whole values. Totals, or one marginal, are a network: the linear relaxation has integer vertices, and its optimum is the
integer one. Two marginals at once with the parent's sums are a three-way transport, which is not totally unimodular:
vertices may be fractional, the relaxation may promise less than any integer table has, and a mixed-integer program is
needed ("solve is slow"). Instances are MADE: random integer tables blurred by moves that keep all sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from coco_experiments.outcome import Cell, Table
from coco_experiments.study import Report, Runs, Study
from coco_opt.operators import Grouping, Operator, stack, total
from coco_opt.problems import TableRounding
from coco_opt.problems.table_rounding import IntegerRows
from coco_opt.problems.table_rounding.program import relaxation
from coco_opt.solving import solve

SHAPES = ((3, 3, 3), (5, 4, 6), (10, 6, 8))  # children, rows and columns of a table
SEEDS, SMALL_SEEDS = range(10), range(2)
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
    problem = TableRounding(x, tables.sum(axis=0), IntegerRows(operator, values, values))
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
    shapes, seeds = (SHAPES[:1], SMALL_SEEDS) if small else (SHAPES, SEEDS)
    return [((shape, name), seeds) for shape in shapes for name in exact_rows(*shape[1:])]


def report(results: Sequence[Runs[tuple[Shape, str], Found]], path: Path) -> Report:
    """Return a row a shape and kind; it fails where a network's relaxation is not integer, or a row is missed."""
    rows: list[dict[str, Cell]] = []
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
