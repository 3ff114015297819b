"""Bounds of nested queries in a tree of regions, closed under sums: over children, and over the parts of a group.

A region's answer is the sum of its children's answers. Where one query refines another, a coarse answer is the sum of
fine ones. Each sum bounds the total by its terms, and each term by the total less the other terms. These conditions are
necessary. They suffice for a region whose queries form a chain; a region with several other queries can need more:
bounds on sums of two or more of a query's answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.operators import Grouping, Operator
from coco_opt.topdown.queries import Query

UNBOUNDED = 2**62
_PARENTS = 1 << 12

Sides = tuple[Ints, Ints]
Levels = tuple[tuple[Sides, ...], ...]
Refinement = tuple[int, int, Ints]


def close(hierarchy: Hierarchy, queries: Sequence[Query], own: Mapping[tuple[int, str], Sides]) -> Levels:
    """Return [levels][queries] (lower, upper) int64[regions, answers] implied by a level's own bounds and those below.

    ``own`` holds bounds by (level, text of the query), from 0 to ``UNBOUNDED``. Where no table meets them, some cross.
    """
    refinements = _refinements(queries)
    levels: list[tuple[Sides, ...]] = []
    for level in range(hierarchy.levels - 1, -1, -1):
        regions = len(hierarchy.level_range(level))
        sides = []
        for index, query in enumerate(queries):
            own_sides = own.get((level, query.text))
            if levels:
                lower, upper = _sums(hierarchy, level, levels[-1][index])
                if own_sides is not None:
                    lower, upper = np.maximum(lower, own_sides[0]), np.minimum(upper, own_sides[1])
                sides.append((lower, upper))
            else:
                shape = regions, query.answers
                free = np.zeros(shape, np.int64), np.full(shape, UNBOUNDED, np.int64)
                sides.append(free if own_sides is None else own_sides)
        _tighten(sides, refinements)
        levels.append(tuple(_read_only(pair) for pair in sides))
    return tuple(reversed(levels))


def selected(operator: Operator, rows: Ints) -> tuple[Operator, Ints]:
    """Return an operator with some answers only, where it is a grouping, and the answers it has."""
    if not rows.size or rows.size == operator.answers:
        return operator, rows
    if not isinstance(operator, Grouping):
        return operator, np.arange(operator.answers)
    place = np.full(operator.answers + 1, -1, np.int64)
    place[rows] = np.arange(rows.size)
    return Grouping(place[operator.labels], int(rows.size)), rows


def total_of(upper: Ints, starts: Ints, axis: int) -> Ints:
    """Return sums of uppers over runs along an axis, unbounded where a term is."""
    finite = np.add.reduceat(np.where(upper >= UNBOUNDED, 0, upper), starts, axis=axis)
    return np.where(np.logical_or.reduceat(upper >= UNBOUNDED, starts, axis=axis), UNBOUNDED, finite)


def _read_only(sides: Sides) -> Sides:
    for array in sides:
        array.setflags(write=False)
    return sides


def _sums(hierarchy: Hierarchy, level: int, below: Sides) -> Sides:
    """Return the sums over children, some parents at a time: for all, what is between takes much memory."""
    regions, first = hierarchy.level_range(level), hierarchy.level_range(level + 1).start
    lower, upper = (np.empty((len(regions), side.shape[1]), np.int64) for side in below)
    for begin in range(0, len(regions), _PARENTS):
        end = min(begin + _PARENTS, len(regions))
        bounds = hierarchy.first_child[regions.start + begin : regions.start + end + 1] - first
        children, starts = slice(int(bounds[0]), int(bounds[-1])), bounds[:-1] - bounds[0]
        lower[begin:end] = np.add.reduceat(below[0][children], starts, axis=0)
        upper[begin:end] = total_of(below[1][children], starts, 0)
    return lower, upper


def _refinements(queries: Sequence[Query]) -> list[Refinement]:
    """Return (fine, coarse, coarse answer of each fine one), fine queries first, for all nested pairs."""
    order = sorted(range(len(queries)), key=lambda index: -queries[index].answers)
    nested_pairs = []
    for at, fine in enumerate(order):
        for coarse in order[at + 1 :]:
            labels = refinement(queries[fine].operator, queries[coarse].operator)
            if labels is not None:
                nested_pairs.append((fine, coarse, labels))
    return nested_pairs


def refinement(fine: Operator, coarse: Operator) -> Ints | None:
    """Return each fine answer's coarse answer (-1: none) where all coarse answers are sums of fine ones, else None."""
    if not isinstance(fine, Grouping) or not isinstance(coarse, Grouping):
        return None
    if ((fine.labels < 0) & (coarse.labels >= 0)).any():
        return None
    counted = fine.labels >= 0
    labels = np.full(fine.answers, -1, np.int64)
    labels[fine.labels[counted]] = coarse.labels[counted]
    return labels if np.array_equal(labels[fine.labels[counted]], coarse.labels[counted]) else None


def _tighten(sides: list[Sides], refinements: Sequence[Refinement]) -> None:
    """Bound totals by terms, fine to coarse, then terms by totals, coarse to fine: exact where queries form a chain."""
    for fine, coarse, labels in refinements:
        lower, upper = _group_sums(sides[fine], labels, sides[coarse][0].shape[1])
        sides[coarse] = np.maximum(sides[coarse][0], lower), np.minimum(sides[coarse][1], upper)
    for fine, coarse, labels in reversed(refinements):
        sides[fine] = _parts(sides[fine], sides[coarse], labels)


def _group_sums(fine: Sides, labels: Ints, answers: int) -> Sides:
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    starts = np.searchsorted(labels[order], np.arange(answers))
    return np.add.reduceat(fine[0][:, order], starts, axis=1), total_of(fine[1][:, order], starts, 1)


def _parts(fine: Sides, coarse: Sides, labels: Ints) -> Sides:
    """Return fine bounds tightened by what the total leaves to one term when the others are least or most."""
    lower, upper = fine
    total_lower, total_upper = coarse
    counted = labels >= 0
    groups = labels[counted]
    least, _ = _group_sums(fine, labels, total_lower.shape[1])
    infinite = upper >= UNBOUNDED
    finite = np.where(infinite, 0, upper)
    most, _ = _group_sums((finite, upper), labels, total_lower.shape[1])
    unbounded, _ = _group_sums((infinite.astype(np.int64), upper), labels, total_lower.shape[1])
    slack = np.where(
        total_upper[:, groups] >= UNBOUNDED,
        UNBOUNDED,
        total_upper[:, groups] - least[:, groups] + lower[:, counted],
    )
    others_bounded = unbounded[:, groups] == infinite[:, counted]
    need = np.where(others_bounded, total_lower[:, groups] - most[:, groups] + finite[:, counted], 0)
    lower, upper = lower.copy(), upper.copy()
    lower[:, counted] = np.maximum(lower[:, counted], need)
    upper[:, counted] = np.minimum(upper[:, counted], slack)
    return lower, upper
