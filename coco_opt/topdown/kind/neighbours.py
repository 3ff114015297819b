"""Two neighbouring tables of persons, chosen to make the measured answers differ as much as possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.releases.kind import Neighbours
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.table_queries import TableQueries

_STARTS = 64  # starting cells of a replaced person that are tried


@dataclass(frozen=True, slots=True)
class _Move:
    """A person moves from one cell to another, in a leaf that shares the regions down to ``shared`` with the first."""

    gain: float
    cell: int
    target: int
    shared: int


def neighbouring(counts: TableCounts, table_queries: TableQueries) -> Neighbours:
    """Return the pair that noisy answers distinguish best: one person differs, in the leaf with the most persons.

    "add_remove": D' has one person more, in the cell that counts in the most answers, each weighted by how unlikely
    a change of 1 is under its noise. "replace": one person is in another cell, of another leaf where that is possible,
    such that every exact answer stays; D and D' both have one person more than ``counts``. Raises ProblemError where
    exact answers leave no such pair. O(cells x queries x levels), for "replace" times the starting cells tried.
    """
    tree, schema = counts.hierarchy, counts.schema
    people = np.bincount(_leaf_of_run(counts), counts.counts, len(tree.leaves))
    leaf = tree.leaves.start + int(people.argmax())
    if table_queries.plan.neighbours == "add_remove":
        gains = _gains(table_queries)
        cell = int(sum(gains.values(), np.zeros(schema.size)).argmax())
        words = f"one person added in {tree.paths[leaf]!r}, {schema.label(cell)}"
        return Neighbours(counts, _with_person(counts, leaf, cell), words)
    move = _best_move(table_queries, leaf)
    target_leaf = _leaf_apart(tree, leaf, move.shared)
    words = (
        f"one person in {tree.paths[leaf]!r}, {schema.label(move.cell)} "
        f"replaced by one in {tree.paths[target_leaf]!r}, {schema.label(move.target)}"
    )
    return Neighbours(_with_person(counts, leaf, move.cell), _with_person(counts, target_leaf, move.target), words)


def cells_by_level(measurement_plan: MeasurementPlan, table: TableCounts | TablesResult) -> Mapping[str, NDArray[Any]]:
    """Return all cells of every level's regions, one region after the other, int64; a person changes one a region."""
    by_level = {}
    for level in range(measurement_plan.hierarchy.levels):
        cells = table.level_tables(level) if isinstance(table, TableCounts) else table.level(level)
        by_level[measurement_plan.levels[level]] = cells.ravel()
    return by_level


def _leaf_of_run(counts: TableCounts) -> Ints:
    return np.repeat(np.arange(counts.offsets.size - 1, dtype=np.int64), np.diff(counts.offsets))


def _with_person(counts: TableCounts, leaf: int, cell: int) -> TableCounts:
    return TableCounts.from_microdata(
        counts.hierarchy,
        counts.schema,
        np.append(_leaf_of_run(counts), leaf - counts.hierarchy.leaves.start),
        np.append(counts.cells, cell),
        np.append(counts.counts, 1),
    )


def _worth(table_queries: TableQueries) -> dict[tuple[int, int], float]:
    """Return, for each measured query, how much less likely its noise makes a change of 1: a log-likelihood."""
    plan = table_queries.plan
    return {pair: -float(plan.distribution(*pair).log_weight(np.ones(1))[0]) for pair in plan.measured_queries}


def _gains(table_queries: TableQueries) -> dict[tuple[int, int], Floats]:
    """Return, for each measured query, the change by one more person in each cell, float64[cells]."""
    queries = table_queries.plan.queries
    return {
        (level, query): queries[query].operator.absolute_columns * worth
        for (level, query), worth in _worth(table_queries).items()
    }


def _best_move(table_queries: TableQueries, leaf: int) -> _Move:
    gains, worth = _gains(table_queries), _worth(table_queries)
    total = sum(gains.values(), np.zeros(table_queries.schema.size))
    starts = np.argsort(-total, kind="stable")[:_STARTS].tolist()
    depths = list(_depths(table_queries.hierarchy, leaf))
    moves = [_move_from(table_queries, cell, shared, gains, worth) for cell in starts for shared in depths]
    best = max(moves, key=lambda move: move.gain, default=_Move(0.0, 0, 0, 0))
    if best.gain <= 0:
        raise ProblemError("no replaced person keeps all exact answers and changes a noisy one: nothing to audit")
    return best


def _depths(tree: Hierarchy, leaf: int) -> Iterator[int]:
    """Yield the levels at which another leaf can branch off from this leaf, and the leaf's own level."""
    for region in reversed(tree.ancestors(leaf)):
        if len(tree.children(region)) > 1:
            yield int(tree.level[region])
    yield tree.levels - 1


def _move_from(
    table_queries: TableQueries,
    cell: int,
    shared: int,
    gains: Mapping[tuple[int, int], Floats],
    worth: Mapping[tuple[int, int], float],
) -> _Move:
    """Return the best move from a cell; its gain is 0 if no move keeps all exact answers."""
    apart = [_distance(query.operator, cell) for query in table_queries.plan.queries]
    gain = np.zeros(table_queries.schema.size)
    for (level, query), change in gains.items():
        gain += change + change[cell] if level > shared else apart[query] * worth[level, query]
    for exact in table_queries.invariants:
        operator = exact.query.operator
        columns = operator.absolute_columns
        unchanged = _distance(operator, cell) == 0
        if exact.level > shared:
            unchanged = (columns == 0) & (columns[cell] == 0)
        gain[~unchanged] = 0.0
    target = int(gain.argmax())
    return _Move(float(gain[target]), cell, target, shared)


def _distance(operator: Operator, cell: int) -> Floats:
    """Return the L1 distance of every cell's column from one cell's, float64[cells]: entries are 0 or 1."""
    unit = np.zeros(operator.cells)
    unit[cell] = 1.0
    columns = operator.absolute_columns
    out: Floats = columns + columns[cell] - 2.0 * operator.adjoint(operator.apply(unit))
    return out


def _leaf_apart(tree: Hierarchy, leaf: int, shared: int) -> int:
    """Return a leaf that shares a leaf's regions down to a level and none below; the leaf itself at its own level."""
    lineage = [*reversed(tree.ancestors(leaf)), leaf]
    if shared == tree.levels - 1:
        return leaf
    sibling = next(child for child in tree.children(lineage[shared]) if child != lineage[shared + 1])
    return tree.leaf_range(sibling).start
