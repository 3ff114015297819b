"""Rounding with totally unimodular rows and without: what changes.

A region's children are rounded within their floors and ceilings so that cells keep the parent's sums and some rows keep
whole values. Totals, or one marginal, are a network: the linear relaxation has integer vertices, and its optimum is the
integer one. Two marginals at once with the parent's sums are a three-way transport, which is not totally unimodular:
vertices may be fractional, the relaxation may promise less than any integer table has, and a mixed-integer program is
needed ("solve is slow"). Instances are MADE: random integer tables blurred by moves that keep all sums.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import numpy as np

from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_opt.operators import Grouping, Operator, stack, total
from coco_opt.problems import TableRounding
from coco_opt.problems.table_rounding import IntegerRows
from coco_opt.problems.table_rounding.program import relaxation
from coco_opt.solving import solve

NAME = "kifer2019/integrality"
SHAPES = ((3, 3, 3), (5, 4, 6), (10, 6, 8))  # children, rows and columns of a table
SEEDS, SMALL_SEEDS = range(10), range(2)
WHOLE = 1e-6
COLUMNS = (
    "children",
    "cells",
    "kept exact",
    "network",
    "fractional vertices %",
    "largest share fractional %",
    "integer above linear",
    "ms linear",
    "ms integer",
)


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


def row_of(shape: tuple[int, int, int], name: str, seeds: range) -> tuple[tuple[Cell, ...], list[str]]:
    """Return the row of one shape and kind of exact answers, and what did not hold."""
    shares, above, linear, integer, wrong, network = [], [], [], [], [], True
    for seed in seeds:
        tables, x = blurred(np.random.default_rng([seed, *shape]), *shape)
        operator = exact_rows(*shape[1:])[name]
        values = operator.apply(tables)
        problem = TableRounding(x, tables.sum(axis=0), IntegerRows(operator, values, values))
        network = problem.nested is not None
        objective, fractional, milliseconds = relaxed(problem)
        start = perf_counter()
        solution = solve(problem, check=False)
        integer.append(1e3 * (perf_counter() - start))
        shares.append(fractional)
        linear.append(milliseconds)
        above.append(solution.objective - objective)
        if network and (solution.gap > 1e-9 or above[-1] > WHOLE):
            wrong.append(f"{name}, seed {seed}: a network's relaxation is not an integer table")
        if solution.violation > 0.0:
            wrong.append(f"{name}, seed {seed}: the integer tables do not keep what is exact")
    some = 100.0 * float(np.mean(np.array(shares) > 0))
    figures = (some, 100.0 * max(shares), max(above), float(np.median(linear)), float(np.median(integer)))
    return (shape[0], shape[1] * shape[2], name, network, *figures), wrong


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Round instances of growing size; fails where a network's relaxation is not integer, or a row is missed."""
    shapes, seeds = (SHAPES[:1], SMALL_SEEDS) if small else (SHAPES, SEEDS)
    rows, failures = [], []
    for shape in shapes:
        for name in exact_rows(*shape[1:]):
            row, wrong = row_of(shape, name, range(seeds.start, seeds.stop))
            rows.append(row)
            failures += wrong
            reporter.progress(NAME, len(rows), 3 * len(shapes))
    notes = (
        f"{len(seeds)} instances a row; distances in people. Vertices are those that HiGHS' simplex ends at.",
        "integer above linear: the largest distance that no integer table can save.",
    )
    table = Table("linear relaxation and integer optimum of rounding", COLUMNS, tuple(rows), notes)
    return publish(NAME, {"": table}, out, reporter, failures=failures)
