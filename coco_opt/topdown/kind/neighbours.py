"""Two neighbouring tables of persons, chosen so that as much as possible of what is measured differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator
from coco_opt.privacy.measurement import Asked
from coco_opt.releases.kind import Neighbours
from coco_opt.topdown.asked.counts import TableCounts
from coco_opt.topdown.estimated.estimate import TablesResult
from coco_opt.topdown.questions import TableQuestions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STARTS = 64  # cells a replaced person may start from that are tried


@dataclass(frozen=True, slots=True)
class _Move:
    """A person leaves a cell for another, in a leaf that shares the regions down to ``shared`` with the first."""

    gain: float
    cell: int
    other: int
    shared: int


def neighbouring(counts: TableCounts, questions: TableQuestions) -> Neighbours:
    """Return a pair whose noisy answers tell it apart best: a person of the leaf with the most persons.

    "add_remove": D' has one person more, in the cell that counts in the most answers, each weighted by how unlikely
    its noise makes a change of 1. "replace": one person is in another cell, of another leaf where that is possible,
    such that every exact answer stays; D and D' both have one person more than ``counts``. Raises ProblemError where
    exact answers leave no such pair. O(cells x queries x levels), for "replace" times the starting cells tried.
    """
    tree, schema = counts.hierarchy, counts.schema
    people = np.bincount(_leaf_of_run(counts), counts.counts, len(tree.leaves))
    leaf = tree.leaves.start + int(people.argmax())
    if questions.plan.neighbours == "add_remove":
        gains = _gains(questions)
        cell = int(sum(gains.values(), np.zeros(schema.size)).argmax())
        words = f"one person added in {tree.paths[leaf]!r}, {schema.label(cell)}"
        return Neighbours(counts, _with_person(counts, leaf, cell), words)
    move = _best_move(questions, leaf)
    other = _leaf_apart(tree, leaf, move.shared)
    words = (
        f"one person in {tree.paths[leaf]!r}, {schema.label(move.cell)} "
        f"replaced by one in {tree.paths[other]!r}, {schema.label(move.other)}"
    )
    return Neighbours(_with_person(counts, leaf, move.cell), _with_person(counts, other, move.other), words)


def cells_by_level(asked: Asked, table: TableCounts | TablesResult) -> Mapping[str, NDArray[Any]]:
    """Return all cells of every level's regions, one region after the other, int64; one person changes one a region."""
    found = {}
    for level in range(asked.hierarchy.levels):
        cells = table.level_tables(level) if isinstance(table, TableCounts) else table.level(level)
        found[asked.levels[level]] = cells.ravel()
    return found


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


def _worth(questions: TableQuestions) -> dict[tuple[int, int], float]:
    """Return, for what is asked, how much less likely noise makes an answer changed by 1: a log-likelihood."""
    plan = questions.plan
    return {pair: -float(plan.law(*pair).log_weight(np.ones(1))[0]) for pair in plan.asked}


def _gains(questions: TableQuestions) -> dict[tuple[int, int], Floats]:
    """Return, for what is asked, what a person more in each cell changes, float64[cells]."""
    queries = questions.plan.queries
    return {
        (level, query): queries[query].operator.absolute_columns * worth
        for (level, query), worth in _worth(questions).items()
    }


def _best_move(questions: TableQuestions, leaf: int) -> _Move:
    gains, worth = _gains(questions), _worth(questions)
    total = sum(gains.values(), np.zeros(questions.schema.size))
    starts = np.argsort(-total, kind="stable")[:_STARTS].tolist()
    depths = list(_depths(questions.hierarchy, leaf))
    moves = [_move_from(questions, cell, shared, gains, worth) for cell in starts for shared in depths]
    best = max(moves, key=lambda move: move.gain, default=_Move(0.0, 0, 0, 0))
    if best.gain <= 0:
        raise ProblemError("no replaced person keeps all exact answers and changes a noisy one: nothing to audit")
    return best


def _depths(tree: Hierarchy, leaf: int) -> Iterator[int]:
    """Yield the levels at which another leaf can part from this one, and the leaf's own level."""
    for region in reversed(tree.ancestors(leaf)):
        if len(tree.children(region)) > 1:
            yield int(tree.level[region])
    yield tree.levels - 1


def _move_from(
    questions: TableQuestions,
    cell: int,
    shared: int,
    gains: Mapping[tuple[int, int], Floats],
    worth: Mapping[tuple[int, int], float],
) -> _Move:
    """Return the best cell to move to from a cell, gain 0 where none keeps what is exact."""
    apart = [_distance(query.operator, cell) for query in questions.plan.queries]
    gain = np.zeros(questions.schema.size)
    for (level, query), one in gains.items():
        gain += one + one[cell] if level > shared else apart[query] * worth[level, query]
    for exact in questions.invariants:
        operator = exact.query.operator
        columns = operator.absolute_columns
        kept = _distance(operator, cell) == 0
        if exact.level > shared:
            kept = (columns == 0) & (columns[cell] == 0)
        gain[~kept] = 0.0
    other = int(gain.argmax())
    return _Move(float(gain[other]), cell, other, shared)


def _distance(operator: Operator, cell: int) -> Floats:
    """Return the L1 distance of every cell's column from one cell's, float64[cells]: entries are 0 or 1."""
    unit = np.zeros(operator.cells)
    unit[cell] = 1.0
    columns = operator.absolute_columns
    out: Floats = columns + columns[cell] - 2.0 * operator.adjoint(operator.apply(unit))
    return out


def _leaf_apart(tree: Hierarchy, leaf: int, shared: int) -> int:
    """Return a leaf that shares the regions down to a level with a leaf, and none below; the leaf at its own level."""
    lineage = [*reversed(tree.ancestors(leaf)), leaf]
    if shared == tree.levels - 1:
        return leaf
    sibling = next(child for child in tree.children(lineage[shared]) if child != lineage[shared + 1])
    return tree.leaf_range(sibling).start
