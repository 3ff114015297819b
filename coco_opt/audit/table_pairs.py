"""Two neighbouring databases of tables of persons, chosen so that as much as possible of what is measured differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator
from coco_opt.topdown.counts import TableCounts
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.plan import TablePlan

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STARTS = 64  # cells a replaced person may start from that are tried


@dataclass(frozen=True, eq=False, slots=True)
class TablePair:
    """D and D', which differ by one person; ``what`` says how, ``leaves`` are the regions in which they do."""

    first: TableCounts
    second: TableCounts
    leaves: tuple[int, ...]
    what: str

    def changed(self, level: int) -> tuple[int, ...]:
        """Return the regions of a level in which the two may differ, in order."""
        tree = self.first.hierarchy
        lineages = [(leaf, *tree.ancestors(leaf)) for leaf in self.leaves]
        return tuple(sorted({region for lineage in lineages for region in lineage if tree.level[region] == level}))


@dataclass(frozen=True, slots=True)
class _Move:
    """A person leaves a cell for another, in a leaf that shares the regions down to ``shared`` with the first."""

    gain: float
    cell: int
    other: int
    shared: int


def table_pair(counts: TableCounts, plan: TablePlan, invariants: Sequence[Invariant] = ()) -> TablePair:
    """Return a pair whose noisy answers tell it apart best: a person of the leaf with the most persons.

    "add_remove": D' has one person more, in the cell that counts in the most answers, each weighted by 1 / its noise.
    "replace": one person is in another cell, of another leaf where that is possible, such that every exact answer
    stays; D and D' both have one person more than ``counts``. Raises ProblemError where exact answers leave no such
    pair. O(cells x queries x levels), for "replace" times the starting cells tried.
    """
    tree, schema = counts.hierarchy, counts.schema
    people = np.bincount(_leaf_of_run(counts), counts.counts, len(tree.leaves))
    leaf = tree.leaves.start + int(people.argmax())
    gains = _gains(plan)
    if plan.neighbours == "add_remove":
        if invariants:
            raise ProblemError("exact answers and neighbours that add or remove a person exclude each other")
        cell = int(sum(gains.values(), np.zeros(schema.size)).argmax())
        what = f"one person added in {tree.paths[leaf]!r}, {schema.label(cell)}"
        return TablePair(counts, _with_person(counts, leaf, cell), (leaf,), what)
    move = _best_move(counts, plan, invariants, leaf, gains)
    other = _leaf_apart(tree, leaf, move.shared)
    what = (
        f"one person in {tree.paths[leaf]!r}, {schema.label(move.cell)} "
        f"replaced by one in {tree.paths[other]!r}, {schema.label(move.other)}"
    )
    first, second = _with_person(counts, leaf, move.cell), _with_person(counts, other, move.other)
    return TablePair(first, second, (leaf, other), what)


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


def _gains(plan: TablePlan) -> dict[tuple[int, int], Floats]:
    """Return, for what is asked, what a person in each cell changes in units of the noise, float64[cells]."""
    return {
        (level, query): plan.queries[query].operator.absolute_columns / float(plan.parameter(level, query))
        for level, query in plan.asked
    }


def _best_move(
    counts: TableCounts,
    plan: TablePlan,
    invariants: Sequence[Invariant],
    leaf: int,
    gains: dict[tuple[int, int], Floats],
) -> _Move:
    total = sum(gains.values(), np.zeros(counts.schema.size))
    starts = np.argsort(-total, kind="stable")[:_STARTS].tolist()
    depths = list(_depths(counts.hierarchy, leaf))
    moves = [_move_from(plan, invariants, cell, shared, gains) for cell in starts for shared in depths]
    best = max(moves, key=lambda move: move.gain, default=_Move(0.0, 0, 0, 0))
    if best.gain <= 0:
        raise ProblemError("no replaced person keeps all exact answers and changes a noisy one: nothing to audit")
    return best


def _depths(tree: Hierarchy, leaf: int) -> Iterator[int]:
    """Return the levels at which another leaf can part from this one, and the leaf's own level."""
    for region in reversed(tree.ancestors(leaf)):
        if len(tree.children(region)) > 1:
            yield int(tree.level[region])
    yield tree.levels - 1


def _move_from(
    plan: TablePlan, invariants: Sequence[Invariant], cell: int, shared: int, gains: dict[tuple[int, int], Floats]
) -> _Move:
    """Return the best cell to move to from a cell, gain 0 where none keeps what is exact."""
    operators = [query.operator for query in plan.queries]
    apart = [_distance(operator, cell) for operator in operators]
    gain = np.zeros(operators[0].cells)
    for (level, query), one in gains.items():
        if level > shared:
            gain += one + one[cell]
        else:
            gain += apart[query] / float(plan.parameter(level, query))
    for one_exact in invariants:
        operator = one_exact.query.operator
        columns = operator.absolute_columns
        kept = _distance(operator, cell) == 0
        if one_exact.level > shared:
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
