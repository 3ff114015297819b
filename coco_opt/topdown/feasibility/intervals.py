"""Bounds of nested sets closed under sums: enough to decide them, in integers too, and to name a conflict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.execution.temporary_storage import stored_by_parts
from coco_opt.topdown.feasibility.system import ConstraintRow, ConstraintSystem, RegionConstraint, infinite


@dataclass(frozen=True, eq=False, slots=True)
class _Top:
    """A set of classes in every region of a level: what it leaves its count, float64[regions], and why.

    ``row`` is the constraint that states it, with the ``parts`` inside; None for the sums of one part over the level
    below, whose regions begin at ``starts``. Counts are below 2^53, so floats hold them exactly.
    """

    mask: Ints
    low: Floats
    high: Floats
    row: int | None
    parts: tuple[_Top, ...]
    starts: Ints

    def below(self, region: int) -> range:
        """Return the regions of the level below within one."""
        return range(int(self.starts[region]), int(self.starts[region + 1]))


def nested_conflict(system: ConstraintSystem) -> list[RegionConstraint] | None:
    """Return a smallest contradictory set of nested constraints, None where all can hold; for ``by_sums`` systems.

    Where a set's count crosses, either its own upper side is below the sum of disjoint lower sides within it, of which
    the smallest are left out while the rest still exceeds it, or its own lower side is above the sum of upper sides
    that cover it, each of which is needed. Without any one of the constraints left, no sum crosses. O(rows x regions).
    """
    crossing = _first_crossing(system)
    if crossing is None:
        return None
    top, region = crossing
    lows, highs = _lows(system, top, region), _highs(system, top, region)
    spare = sum(count for _, count in lows) - float(top.high[region])
    needed = []
    for constraint, count in sorted(lows, key=lambda item: item[1]):
        if spare - count > 0:
            spare -= count
        else:
            needed.append(constraint)
    return sorted({*needed, *highs})


def _first_crossing(system: ConstraintSystem) -> tuple[_Top, int] | None:
    """Return the first set and region whose bounds cross, by sums from the smallest sets up."""
    tops: list[_Top] = []  # the largest sets met so far, disjoint by ``by_sums``
    nothing = np.zeros(0, np.int64)
    for level in range(system.hierarchy.levels - 1, -1, -1):
        if level < system.hierarchy.levels - 1:
            regions, below = system.hierarchy.level_range(level), system.hierarchy.level_range(level + 1)
            bounds = system.hierarchy.first_child[regions.start : regions.stop + 1] - below.start
            tops = [_sum_over_children(top, bounds) for top in tops]
        own = [(at, row) for at, row in enumerate(system.rows) if row.level == level and row.binding.any()]
        for at, row in sorted(own, key=lambda item: int(item[1].coefficients.sum())):
            inside = tuple(top for top in tops if (row.coefficients >= top.mask).all())
            rest = row.coefficients - sum((top.mask for top in inside), np.zeros_like(row.coefficients))
            low, high = _sides(row, inside, covered=not rest.any())
            current = _Top(row.coefficients, low, high, at, inside, nothing)
            crossed = np.flatnonzero(low > high)
            if crossed.size:
                return current, int(crossed[0])
            tops = [*(top for top in tops if not (row.coefficients >= top.mask).all()), current]
    return None


def _sides(row: ConstraintRow, inside: Sequence[_Top], *, covered: bool) -> tuple[Floats, Floats]:
    """Return the sides that a row and the sets ``inside`` its own leave, which together are it where ``covered``.

    They are computed some regions at a time, and lie in files if there are many.
    """

    def low(some: slice) -> Floats:
        own = infinite(np.maximum(row.lower[some], 0))
        return np.maximum(own, sum((top.low[some] for top in inside), np.zeros_like(own)))

    def high(some: slice) -> Floats:
        own = infinite(row.upper[some])
        return np.minimum(own, sum((top.high[some] for top in inside), np.zeros_like(own))) if covered else own

    size, kind = row.lower.size, np.dtype(np.float64)
    return stored_by_parts(size, kind, low), stored_by_parts(size, kind, high)


def _sum_over_children(top: _Top, bounds: Ints) -> _Top:
    low, high = (np.add.reduceat(side, bounds[:-1]) for side in (top.low, top.high))
    return _Top(top.mask, low, high, None, (top,), bounds)


def _lows(system: ConstraintSystem, top: _Top, region: int) -> list[tuple[RegionConstraint, float]]:
    """Return the constraints whose lower sides add up to what a set in a region has at least, and these sides."""
    if not top.low[region]:
        return []
    if top.row is None:
        return [term for part in top.below(region) for term in _lows(system, top.parts[0], part)]
    own = max(int(system.rows[top.row].lower[region]), 0)
    if own >= top.low[region]:
        return [((top.row, region), float(own))]
    return [term for part in top.parts for term in _lows(system, part, region)]


def _highs(system: ConstraintSystem, top: _Top, region: int) -> list[RegionConstraint]:
    """Return the constraints whose upper sides add up to what a set in a region has at most, which is finite."""
    if top.row is None:
        return [constraint for part in top.below(region) for constraint in _highs(system, top.parts[0], part)]
    if int(system.rows[top.row].upper[region]) <= top.high[region]:
        return [(top.row, region)]
    return [constraint for part in top.parts for constraint in _highs(system, part, region)]
