"""Integer tables near fractional tables, in passes: the most important queries are rounded first, cells last.

A pass rounds the answers to one query: among the integer tables that keep the parent's sums, all constraints and the
answers of the passes before, those whose answers are nearest. The last pass does so for the cells. While queries and
constraints are nested each pass is a flow, and every answer stays within one of the fractional one; others are
mixed-integer programs with a time limit and a proven gap (``coco_opt.problems.table_rounding``).

Ties in roundings, decided by a hash: no child and no cell is favoured for its place, or in every release.

Which of several cells with the same fraction is rounded up must not depend on positions: the first child would gain in
every cell. A fixed hash would favour the same regions in every release. So fractions within a solver's precision of
each other are ordered by a hash of what was measured, the region, the cell and the pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError, SolverError
from coco_opt.operators import Operator, stack
from coco_opt.privacy.measurement import Measurement
from coco_opt.problems.sparse_rows import stacked
from coco_opt.problems.table_rounding import TableRounding
from coco_opt.problems.topdown_split import LinearRows


def round_in_passes(
    x: Floats,
    parent: Ints | None,
    rows: LinearRows | None,
    queries: Sequence[Operator],
    ties: Ties,
    first: int,
    solvers: SolverChoices,
    together: Sequence[Operator] = (),
) -> Ints:
    """Return integer tables int64[children, cells] next to x, ``queries`` in order and then the cells.

    Queries that cross are rounded ``together`` in place of the cells, each of which is a floor or a ceiling then, too.
    ``first`` is the first child's region. A query whose solvers find nothing is passed over and counted as not
    certified. Raises ProblemError or SolverError where no integer tables are found.
    """
    for number, query in enumerate(queries):
        try:
            tables = round_tables(ties.broken(x, first, number), parent, rows, solvers, [query])
        except SolverError:
            if not solvers.fallback:
                raise
            solvers.note_missed(TableRounding, np.inf)
            continue
        rows = _with_answers(rows, query, query.apply(tables))
    seed = ties.number(first, len(queries)) if together else 0
    return round_tables(ties.broken(x, first, len(queries)), parent, rows, solvers, together, seed)


def round_tables(
    x: Floats,
    parent: Ints | None,
    rows: LinearRows | None,
    solvers: SolverChoices,
    queries: Sequence[Operator] = (),
    seed: int = 0,
) -> Ints:
    """Return the nearest integer tables; further away than the next integers only where none are that near.

    The distance is that of the answers to ``queries``, where there are any. An integer table that keeps every sum and
    row but is not proved nearest, as happens where rows overlap, is taken and its gap noted. Raises ProblemError or
    SolverError where no integer tables are found.
    """
    most = max(float(x.max(initial=1.0)), 0.0 if parent is None else float(parent.max(initial=0)))
    slack, furthest = 1, 2 * int(np.ceil(most)) + 2
    while True:
        last = slack >= furthest or (rows is None and parent is None)
        try:
            problem = TableRounding(x, parent, rows, slack=slack, queries=queries, seed=seed)
            fallback = last and len(queries) < 2
            return np.asarray(solvers.solve(problem, fallback=fallback), dtype=np.int64)
        except (ProblemError, SolverError) as error:
            solution = error.solution if isinstance(error, SolverError) else None
            if solution is not None and solution.usable:
                solvers.note_missed(TableRounding, solution.relative_gap)
                return np.asarray(solution.value, dtype=np.int64)
            if last:
                raise
            slack = min(slack * 4, furthest)


def nested_passes(queries: Sequence[Operator], constraints: Operator | None) -> tuple[Operator, ...]:
    """Return the queries, in order, that are nested with those before them and with the constraints: a network.

    A query of single cells alone is what the last pass rounds, and left out. Where the constraints are no network by
    themselves every pass is a mixed-integer program: the first query alone is kept then.
    """
    passes: list[Operator] = [] if constraints is None else [constraints]
    candidates = [query for query in queries if not is_of_cells(query)]
    if passes and not nested(passes):
        return tuple(candidates[:1])
    for query in candidates:
        if nested([*passes, query]):
            passes.append(query)
    return tuple(passes[constraints is not None :])


def nested(operators: Sequence[Operator]) -> bool:
    """Return whether the rows of one or more queries count cells once and are nested or disjoint, all of them."""
    from coco_opt.kernels import table_rounding

    cells = operators[0].cells
    rows = stacked(operators, np.arange(cells))
    room, binds = np.ones((1, cells), np.int64), np.ones((1, rows.shape[0]), np.bool_)
    return bool(table_rounding.nest(rows.start, rows.cell, rows.value, room, binds)[0])


def is_of_cells(query: Operator) -> bool:
    """Return whether each of a query's answers counts one cell at most."""
    return bool((np.diff(stacked([query], np.arange(query.cells)).start) <= 1).all())


def _with_answers(rows: LinearRows | None, query: Operator, answers: Ints) -> LinearRows:
    """Return the rows with a finished pass's answers added."""
    if rows is None:
        return LinearRows(query, answers, answers)
    sides = (np.hstack([side, answers]) for side in (rows.lower, rows.upper))
    return LinearRows(stack([rows.operator, query]), *sides)


Bits = NDArray[np.uint64]

PRECISION = 1e-6  # people; a solver's numbers this near an integer, or each other, are not distinguished
_READ = 1 << 12  # answers to each query that make the seed
_STEP, _FIRST, _SECOND = (np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def seed_of(measurement: Measurement) -> int:
    """Return a seed from the queries and from the first answers to every query of every level.

    The same measurement has the same one, on any machine. Two measurements of the same data have different seeds,
    because their noise differs in thousands of answers: so nobody is favoured in every release. Within one, the seed
    says nothing of a region or a cell; which of them gain is for ``Ties`` to spread, and does not depend on whose
    answers made the seed. All this is post-processing: privacy does not depend on it. O(queries) time and memory.
    """
    code = hashlib.sha256(f"coco-opt rounding {measurement.identity}".encode())
    for query_answers in (answers for each in measurement.every for answers in each.answers):
        code.update(
            np.ascontiguousarray(query_answers.read(0, min(int(query_answers.offsets[-1]), _READ)), dtype="<i8").data
        )
    return int.from_bytes(code.digest()[:8], "little")


@dataclass(frozen=True, slots=True)
class Ties:
    """Distinguishes numbers that are equal to a solver's precision; ``seed`` is a number of 64 bits."""

    seed: int

    def broken(self, x: Floats, first: int, number: int) -> Floats:
        """Return tables [children, cells] whose fractions are moved by less than half of ``PRECISION``, both ways.

        ``first`` is the first child's region and ``number`` that of the pass. Numbers within ``PRECISION`` of a whole
        one become it, so no number moves past one.
        """
        nearest = np.rint(x)
        near_integer = np.abs(x - nearest) <= PRECISION
        children, cells = x.shape
        with np.errstate(over="ignore"):
            start = _mixed(_mixed(np.full(1, self.seed, np.uint64)) + np.uint64(number))
            regions = _stepped(start, first, first + children)
            bits = _stepped(regions[:, None], 0, cells)
        moved = x + PRECISION * ((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5)
        return np.maximum(np.where(near_integer, nearest, moved), 0.0)

    def number(self, first: int, number: int) -> int:
        """Return a seed of 63 bits for a pass of the children from region ``first`` on."""
        with np.errstate(over="ignore"):
            start = _mixed(_mixed(np.full(1, self.seed, np.uint64)) + np.uint64(number))
            return int(_stepped(start, first, first + 1)[0] >> np.uint64(1))


def _stepped(state: Bits, begin: int, end: int) -> Bits:
    """Return the numbers begin + 1 to end of the generators that start from some states, in the last axis."""
    steps: Bits = np.multiply(_STEP, np.arange(begin + 1, end + 1, dtype=np.uint64), dtype=np.uint64)
    return _mixed(np.add(state, steps, dtype=np.uint64))


def _mixed(state: Bits) -> Bits:
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014) of each number."""
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
