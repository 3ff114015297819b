"""A smallest set of constraints that exclude each other: without any one of them, the others can all hold.

Nested constraints are followed sum by sum, in exact integers, which decides them. Elsewhere the prices of the least
total violation name a set of constraints; where fractional tables meet all of them, connected constraints that no
integers meet are such a set. One after the other is left out while the rest is still contradictory (deletion filter).
That no fractional table exists is proved by multipliers in exact rationals; that no integer table exists is the verdict
of a mixed-integer solver, which is run again on the named constraints alone, after presolve has seen them among all.

Prove, before anything is paid, that some integer table meets all constraints, or name a smallest contradictory set.

Sums of bounds that cross exclude each other; where the constraints' sets are nested over regions and classes, sums
decide (``ConstraintSystem.by_sums``). Elsewhere a mixed-integer program looks for one integer table, which is checked
in integers: a table proves that all constraints can hold. Where there is none, ``conflict`` finds the set to name. What
is not settled in time is reported as UNDECIDED: nothing is refused for it, and estimation ends with tables or with the
constraints to blame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import Literal

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.execution.temporary_storage import stored_by_parts
from coco_opt.solution import Status
from coco_opt.topdown.feasibility.programs import TIME_LIMIT, integer_leaves, least_violation, solved
from coco_opt.topdown.feasibility.system import ConstraintRow, ConstraintSystem, Ranged, RegionConstraint
from coco_opt.topdown.rows import infinite

_NOTHING = 1e-7
_DENOMINATOR = 10**4
_SHOWN = 12  # constraints in a sentence


@dataclass(frozen=True, slots=True)
class Conflict:
    """Constraints (row, region) that exclude each other, ``smallest`` where each is needed, ``fractional`` even so."""

    constraints: tuple[RegionConstraint, ...]
    fractional: bool
    smallest: bool

    def words(self, system: ConstraintSystem) -> tuple[str, ...]:
        """Return the constraints in the user's words, with their regions."""
        return tuple(system.words(system.rows[row], region) for row, region in self.constraints)


def listed(words: Sequence[str]) -> str:
    """Return the first constraints of a conflict, and how many more there are."""
    more = f"; and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return "; ".join(words[:_SHOWN]) + more


def smallest_conflict(system: ConstraintSystem, time_limit: float) -> Conflict | None:
    """Return constraints that exclude each other, None where that could not be proved in time."""
    nested = conflict_by_sums(system)
    return conflict_by_programs(system, time_limit) if nested is None else nested


def conflict_by_sums(system: ConstraintSystem) -> Conflict | None:
    """Return nested constraints whose sums cross, in exact integers, None where none do. O(rows x regions)."""
    for part in (system,) if system.by_sums else system.nested_parts():
        nested = nested_conflict(part)
        if nested is not None:
            return Conflict(tuple(nested), fractional=True, smallest=True)
    return None


def conflict_by_programs(system: ConstraintSystem, time_limit: float) -> Conflict | None:
    """Return constraints that exclude each other, of a system in which no sums cross; None where none was proved to."""
    if system.by_sums:
        return None
    # A constraint of a level binds its own region alone, so all of them are those within the root.
    constraints = [(at, region) for at, regions in system.within(0, 0, 1) for region in regions.tolist()]
    return _smallest_of(system, constraints, perf_counter() + time_limit)


def _smallest_of(system: ConstraintSystem, constraints: Sequence[RegionConstraint], deadline: float) -> Conflict | None:
    """Return a smallest contradictory set of some constraints, None where there is none or it is not settled."""
    part = _priced(system, constraints, deadline) or _connected(system, constraints, deadline)
    if not part:
        return None
    needed, smallest = _deletion_filter(system, part, deadline)
    fractional = excluded(system, needed)
    if not fractional and not _excludes(system, needed, deadline):
        return None
    return Conflict(tuple(needed), fractional, smallest)


def _priced(
    system: ConstraintSystem, constraints: Sequence[RegionConstraint], deadline: float
) -> list[RegionConstraint]:
    """Return those of some constraints that pay in the least total violation; none where fractional tables meet all."""
    left = deadline - perf_counter()
    if left <= 0:
        return []
    total, prices = least_violation(_rows(system, constraints), left)
    if not np.isfinite(total) or total <= _NOTHING:
        return []
    return [constraint for constraint, price in zip(constraints, prices, strict=True) if abs(price) > _NOTHING]


def _connected(
    system: ConstraintSystem, constraints: Sequence[RegionConstraint], deadline: float
) -> list[RegionConstraint]:
    """Return connected constraints that no integer table meets; none without any, or where that takes too long."""
    from scipy.sparse import block_array
    from scipy.sparse.csgraph import connected_components

    if not constraints:
        return []
    matrix, _, _ = _rows(system, constraints)
    _, labels = connected_components(block_array([[None, matrix], [matrix.T, None]], format="csr"))
    component = labels[: len(constraints)]
    for label in np.unique(component).tolist():
        part = [constraints[at] for at in np.flatnonzero(component == label).tolist()]
        verdict = _excludes(system, part, deadline)
        if verdict is not False:
            return part if verdict else []
    return []


def _deletion_filter(
    system: ConstraintSystem, constraints: Sequence[RegionConstraint], deadline: float
) -> tuple[list[RegionConstraint], bool]:
    """Return contradictory constraints without the redundant ones, and whether time sufficed to try all.

    Where no fractional table meets the rest without a constraint, the rest's own prices leave out more at once.
    """
    remaining, needed = list(constraints), set[RegionConstraint]()
    for constraint in constraints:
        if constraint not in remaining:
            continue
        rest = [other for other in remaining if other != constraint]
        priced = _priced(system, rest, deadline)
        verdict = True if priced else _excludes(system, rest, deadline)
        if verdict is None:
            return remaining, False
        if priced:
            remaining = [other for other in rest if other in needed.union(priced)]
        elif verdict:
            remaining = rest
        else:
            needed.add(constraint)
    return remaining, True


def excluded(system: ConstraintSystem, constraints: Sequence[RegionConstraint]) -> bool:
    """Return whether multipliers prove in exact rationals that no fractional table meets some constraints (Farkas)."""
    matrix, low, high = rows = _rows(system, constraints)
    _, prices = least_violation(rows)
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


def _rows(system: ConstraintSystem, constraints: Sequence[RegionConstraint]) -> Ranged:
    """Return some constraints, sorted, as rows over the variables they use."""
    from scipy.sparse import csr_array

    regions: dict[int, list[int]] = {}
    for at, region in constraints:
        regions.setdefault(at, []).append(region)
    matrix, low, high = system.matrix([(at, np.array(places)) for at, places in regions.items()])
    columns = np.unique(matrix.indices) if constraints else np.zeros(0, np.int64)
    return csr_array(matrix.tocsc()[:, columns]), low, high


def _excludes(system: ConstraintSystem, constraints: Sequence[RegionConstraint], deadline: float) -> bool | None:
    """Return whether no integer table meets some constraints, None where that is not settled in time."""
    left = deadline - perf_counter()
    if not constraints or left <= 0:
        return None if constraints else False
    rows = _rows(system, constraints)
    columns = rows[0].shape[1]
    answer = solved(np.zeros(columns), rows, integer=np.ones(columns, np.bool_), seconds=left)
    return False if answer.z is not None else True if answer.status is Status.INFEASIBLE else None


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
    lows, highs = (_terms(system, top, region, low=low) for low in (True, False))
    spare = sum(count for _, count in lows) - float(top.high[region])
    needed = []
    for constraint, count in sorted(lows, key=lambda item: item[1]):
        if spare - count > 0:
            spare -= count
        else:
            needed.append(constraint)
    return sorted({*needed, *(constraint for constraint, _ in highs)})


def _first_crossing(system: ConstraintSystem) -> tuple[_Top, int] | None:
    """Return the first set and region whose bounds cross, by sums from the smallest sets up."""
    tops: list[_Top] = []  # the largest sets met so far, disjoint by ``by_sums``
    nothing = np.zeros(0, np.int64)
    for level in range(system.hierarchy.levels - 1, -1, -1):
        if level < system.hierarchy.levels - 1:
            regions, below = system.hierarchy.level_range(level), system.hierarchy.level_range(level + 1)
            bounds = system.hierarchy.first_child[regions.start : regions.stop + 1] - below.start
            sums = [(np.add.reduceat(top.low, bounds[:-1]), np.add.reduceat(top.high, bounds[:-1])) for top in tops]
            summed = zip(tops, sums, strict=True)
            tops = [_Top(top.mask, low, high, None, (top,), bounds) for top, (low, high) in summed]
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


def _terms(system: ConstraintSystem, top: _Top, region: int, *, low: bool) -> list[tuple[RegionConstraint, float]]:
    """Return the constraints whose sides add up to what a set in a region has at least, or at most, and these sides.

    For ``low`` they are lower sides above 0, else upper sides, of which the sum is finite.
    """
    value = (top.low if low else top.high)[region]
    if low and not value:
        return []
    if top.row is None:
        return [term for part in top.below(region) for term in _terms(system, top.parts[0], part, low=low)]
    row = system.rows[top.row]
    side = max(int(row.lower[region]), 0) if low else int(row.upper[region])
    if side >= value if low else side <= value:
        return [((top.row, region), float(side))]
    return [term for part in top.parts for term in _terms(system, part, region, low=low)]


Verdict = Literal["holds", "conflict", "undecided"]


@dataclass(frozen=True, eq=False, slots=True)
class Proof:
    """The result: an integer table of all leaves and classes (where needed), or constraints that exclude each other.

    ``how`` names the means in words, ``conflict`` the constraints in the user's words with their regions: without any
    one of them the others can hold (where ``smallest``). ``seconds`` is wall time.
    """

    verdict: Verdict
    how: str
    witness: Ints | None = None
    conflict: tuple[str, ...] = ()
    smallest: bool = True
    seconds: float = 0.0

    @property
    def message(self) -> str:
        """Return the contradiction in one sentence, "" where there is none."""
        if self.verdict != "conflict":
            return ""
        kind = "each of them is needed for that" if self.smallest else "some of them may not be needed for that"
        return f"no integer table meets all of these constraints, and {kind}: {listed(self.conflict)}"


def prove(system: ConstraintSystem, *, time_limit: float = TIME_LIMIT, witness: bool = False) -> Proof:
    """Return whether some integer table meets all constraints, deterministic but for the time limit.

    With ``witness`` such a table is found even where sums of bounds already prove that there is one.
    """
    start = perf_counter()
    if not system.rows:
        return Proof("holds", "no constraints", np.zeros((system.leaves, system.classes.count), np.int64))
    crossed = conflict_by_sums(system)
    if crossed is not None:
        return _conflict_proof(system, crossed, start)
    if system.by_sums and not witness:
        return Proof("holds", "sums of bounds", seconds=perf_counter() - start)
    table, infeasible = integer_leaves(system, time_limit)
    if table is not None:
        return Proof("holds", "an integer table was found", table, seconds=perf_counter() - start)
    if infeasible:
        left = max(1.0, time_limit - (perf_counter() - start))
        proved = conflict_by_programs(system, left)
        if proved is not None:
            return _conflict_proof(system, proved, start)
    return Proof("undecided", f"not settled within {time_limit:g} s", seconds=perf_counter() - start)


def _conflict_proof(system: ConstraintSystem, conflict: Conflict, start: float) -> Proof:
    how = "in fractions" if conflict.fractional else "in integers"
    return Proof("conflict", how, None, conflict.words(system), conflict.smallest, perf_counter() - start)
