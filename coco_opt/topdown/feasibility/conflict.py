"""A smallest set of constraints that exclude each other: without any one of them, the others can all hold.

Nested constraints are followed sum by sum, exactly (``intervals``). Elsewhere the smallest region whose own constraints
exclude each other is searched for from above; the prices of the least total violation name a set of its constraints,
which are then left out one after the other while the rest is still contradictory (deletion filter). That no fractional
table exists is proved by multipliers in exact rationals; that no integer table exists is the verdict of a mixed-integer
solver, which is run again on the named constraints alone, after presolve has seen them among all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.topdown.feasibility.intervals import nested_conflict
from coco_opt.topdown.feasibility.programs import integer_program, least_total, tightened
from coco_opt.topdown.feasibility.system import ConstraintSystem, RegionConstraint

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_NOTHING = 1e-7
_DENOMINATOR = 10**4
_ONE_BY_ONE = 3_000  # constraints of an integer conflict up to which each is tried to be left out


@dataclass(frozen=True, slots=True)
class Conflict:
    """Constraints (row, region) that exclude each other, ``smallest`` where each is needed, ``fractional`` even so."""

    constraints: tuple[RegionConstraint, ...]
    fractional: bool
    smallest: bool


def smallest_conflict(system: ConstraintSystem, time_limit: float) -> Conflict | None:
    """Return constraints that exclude each other, None where that could not be proved in time."""
    nested = conflict_by_sums(system)
    return conflict_by_programs(system, time_limit) if nested is None else nested


def conflict_by_programs(system: ConstraintSystem, time_limit: float) -> Conflict | None:
    """Return constraints that exclude each other, of a system in which no sums cross; None where none was proved to."""
    if system.by_sums:
        return None
    deadline = perf_counter() + time_limit
    for constraints in _suspects(system, deadline):
        conflict = _smallest_of(system, constraints, deadline)
        if conflict is not None:
            return conflict
    return None


def conflict_by_sums(system: ConstraintSystem) -> Conflict | None:
    """Return nested constraints whose sums cross, in exact integers, None where none do. O(rows x regions)."""
    for part in (system,) if system.by_sums else system.nested_parts():
        nested = nested_conflict(part)
        if nested is not None:
            return Conflict(tuple(nested), fractional=True, smallest=True)
    return None


def _suspects(system: ConstraintSystem, deadline: float) -> Iterator[list[RegionConstraint]]:
    """Yield constraints that may be contradictory: those of a leaf whose bounds cross, of the smallest region, all."""
    lower, upper = tightened(system)
    crossed = np.flatnonzero((lower > upper).any(axis=1))
    if crossed.size:
        yield _within(system, system.hierarchy.levels - 1, int(crossed[0]), int(crossed[0]) + 1)
    now = perf_counter()
    level, region = _smallest_region(system, now + (deadline - now) / 2)  # what is left names the constraints
    if level:
        yield _within(system, level, region, region + 1)
    yield _within(system, 0, 0, 1)


def _smallest_region(system: ConstraintSystem, deadline: float) -> tuple[int, int]:
    """Return a (level, region) whose own constraints exclude each other while those of no part of it were found to."""
    smallest, hierarchy = (0, 0), system.hierarchy
    for level in range(1, hierarchy.levels):
        first, above = hierarchy.level_range(level).start, hierarchy.level_range(level - 1).start
        parts = hierarchy.children(above + smallest[1])
        inner = _first_excluded(system, level, parts.start - first, parts.stop - first, deadline)
        if inner is None:
            break
        smallest = (level, inner)
    return smallest


def _first_excluded(system: ConstraintSystem, level: int, start: int, stop: int, deadline: float) -> int | None:
    """Return the first of consecutive regions whose own constraints are contradictory, by halves; None without one.

    Constraints of different regions of a level do not meet: they exclude each other where those of one region do.
    """
    if not _excludes(system, _within(system, level, start, stop), deadline):
        return None
    if stop - start == 1:
        return start
    middle = (start + stop) // 2
    first = _first_excluded(system, level, start, middle, deadline)
    return _first_excluded(system, level, middle, stop, deadline) if first is None else first


def _within(system: ConstraintSystem, level: int, start: int, stop: int) -> list[RegionConstraint]:
    """Return the constraints of consecutive regions of a level and of those in them."""
    first, last = system.leaf_starts[level][start], system.leaf_starts[level][stop]
    constraints = []
    for at, row in enumerate(system.rows):
        if row.level >= level:
            starts = system.leaf_starts[row.level]
            inside = (starts[:-1] >= first) & (starts[1:] <= last) & row.binding
            constraints += [(at, region) for region in np.flatnonzero(inside).tolist()]
    return constraints


def _smallest_of(system: ConstraintSystem, constraints: Sequence[RegionConstraint], deadline: float) -> Conflict | None:
    """Return a smallest contradictory set of some constraints, None where there is none or it is not settled."""
    left = deadline - perf_counter()
    if left <= 0 or not constraints:
        return None
    total, prices = least_total(*_rows(system, constraints), left)
    if np.isfinite(total) and total > _NOTHING:
        priced = [constraint for constraint, price in zip(constraints, prices, strict=True) if abs(price) > _NOTHING]
        alone = system.only(priced)
        nested = nested_conflict(alone) if alone.by_sums else None
        if nested is not None:
            return Conflict(tuple(nested), fractional=True, smallest=True)
        priced = _fewest(system, priced, deadline)
        if not excluded(system, priced):
            return None
        needed, smallest = _deletion_filter(system, priced, deadline)
        return Conflict(tuple(needed), fractional=len(needed) == len(priced), smallest=smallest)
    component = _integer_conflict(system, constraints, deadline)
    if component is None:
        return None
    needed, smallest = _deletion_filter(system, component, deadline)
    return Conflict(tuple(needed), fractional=False, smallest=smallest)


def _fewest(
    system: ConstraintSystem, constraints: Sequence[RegionConstraint], deadline: float
) -> list[RegionConstraint]:
    """Return a subset, of constraints that no fractional table meets, that none meets; smallest if time allows.

    Where the rest is still contradictory without a constraint, the rest's own prices leave out more.
    """
    remaining, needed = list(constraints), set[RegionConstraint]()
    for constraint in constraints:
        left = deadline - perf_counter()
        if left <= 0:
            break
        if constraint not in remaining:
            continue
        rest = [other for other in remaining if other != constraint]
        total, prices = least_total(*_rows(system, rest), left)
        if np.isfinite(total) and total > _NOTHING:
            priced = {other for other, price in zip(rest, prices, strict=True) if abs(price) > _NOTHING}
            remaining = [other for other in rest if other in priced | needed]
        else:
            needed.add(constraint)
    return remaining


def _deletion_filter(
    system: ConstraintSystem, constraints: Sequence[RegionConstraint], deadline: float
) -> tuple[list[RegionConstraint], bool]:
    """Return contradictory constraints without the redundant ones, and whether time sufficed to try all."""
    remaining = list(constraints)
    if len(remaining) > _ONE_BY_ONE:
        return remaining, False
    for constraint in constraints:
        rest = [other for other in remaining if other != constraint]
        verdict = _excludes(system, rest, deadline)
        if verdict is None:
            return remaining, False
        if verdict:
            remaining = rest
    return remaining, True


def excluded(system: ConstraintSystem, constraints: Sequence[RegionConstraint]) -> bool:
    """Return whether multipliers prove in exact rationals that no fractional table meets some constraints (Farkas)."""
    matrix, low, high = _rows(system, constraints)
    _, prices = least_total(matrix, low, high)
    # Prices of a least violation in absolute values are small fractions: nearby ones are tried in exact arithmetic.
    exact = [Fraction(float(price)).limit_denominator(_DENOMINATOR) for price in prices]
    worth: dict[int, Fraction] = {}
    paid = Fraction(0)
    for row, price in enumerate(exact):
        if not price:
            continue
        side = low[row] if price > 0 else high[row]
        if not np.isfinite(side):
            return False
        paid += price * int(side)
        for place in range(int(matrix.indptr[row]), int(matrix.indptr[row + 1])):
            column = int(matrix.indices[place])
            worth[column] = worth.get(column, Fraction(0)) + price * int(matrix.data[place])
    return paid > 0 and all(value <= 0 for value in worth.values())


def _rows(system: ConstraintSystem, constraints: Sequence[RegionConstraint]) -> tuple[csr_array, Floats, Floats]:
    """Return some constraints, sorted, as rows over the variables they use."""
    from scipy.sparse import csr_array

    matrix, low, high = system.matrix(_regions_by_row(constraints))
    columns = np.unique(matrix.indices) if constraints else np.zeros(0, np.int64)
    return csr_array(matrix.tocsc()[:, columns]), low, high


def _regions_by_row(constraints: Sequence[RegionConstraint]) -> list[tuple[int, Ints]]:
    regions: dict[int, list[int]] = {}
    for at, region in constraints:
        regions.setdefault(at, []).append(region)
    return [(at, np.array(places)) for at, places in regions.items()]


def _excludes(system: ConstraintSystem, constraints: Sequence[RegionConstraint], deadline: float) -> bool | None:
    """Return whether no integer table meets some constraints, None where that is not settled in time."""
    if not constraints:
        return False
    matrix, low, high = _rows(system, constraints)
    left = deadline - perf_counter()
    if left <= 0:
        return None
    columns = matrix.shape[1]
    solution = integer_program(matrix, low, high, np.zeros(columns, np.int64), np.full(columns, np.inf), left, None)
    if solution.values is not None:
        return False
    return True if solution.infeasible else None


def _integer_conflict(
    system: ConstraintSystem, constraints: Sequence[RegionConstraint], deadline: float
) -> list[RegionConstraint] | None:
    """Return connected constraints that no integer table meets though fractional ones do, None without any in time."""
    from scipy.sparse import block_array
    from scipy.sparse.csgraph import connected_components

    matrix, _, _ = _rows(system, constraints)
    _, labels = connected_components(block_array([[None, matrix], [matrix.T, None]], format="csr"))
    own = labels[: len(constraints)]
    order = np.argsort(own, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(own[order])) + 1):
        part = [constraints[at] for at in sorted(group.tolist())]
        verdict = _excludes(system, part, deadline)
        if verdict:
            return part
        if verdict is None:
            return None
    return None
