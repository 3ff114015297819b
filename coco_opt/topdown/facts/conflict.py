"""A smallest set of facts that exclude each other: without any one of them, the others can all hold.

Nested facts are followed sum by sum, exactly (``intervals``). Elsewhere the smallest region whose own facts exclude
each other is looked for from above; the prices of the least total violation name a set of its facts, which are then
left out one after the other while the rest still excludes itself (deletion filter). That no fractional table exists is
proved by multipliers in exact rationals; that no whole one does is the word of a mixed-integer solver, which is asked
about the named facts alone again, after presolve has seen them among all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coco_opt.topdown.facts.intervals import nested_conflict
from coco_opt.topdown.facts.presolve import tightened
from coco_opt.topdown.facts.programs import least_total, whole_program
from coco_opt.topdown.facts.system import Fact, FactSystem

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NOTHING = 1e-7
_DENOMINATOR = 10**4
_ONE_BY_ONE = 3_000  # facts in whole numbers up to which they are left out one after the other


@dataclass(frozen=True, slots=True)
class Conflict:
    """Facts (row, region) that exclude each other, ``smallest`` where each is needed, ``fractional`` even so."""

    facts: tuple[Fact, ...]
    fractional: bool
    smallest: bool


def smallest_conflict(system: FactSystem, time_limit: float) -> Conflict | None:
    """Return facts that exclude each other, None where that could not be proved in time."""
    nested = conflict_by_sums(system)
    return conflict_by_programs(system, time_limit) if nested is None else nested


def conflict_by_programs(system: FactSystem, time_limit: float) -> Conflict | None:
    """Return facts that exclude each other, of a system in which no sums cross; None where none was proved to."""
    if system.by_sums:
        return None
    deadline = perf_counter() + time_limit
    for facts in _suspects(system, deadline):
        found = _smallest_of(system, facts, deadline)
        if found is not None:
            return found
    return None


def conflict_by_sums(system: FactSystem) -> Conflict | None:
    """Return nested facts whose sums cross, in exact integers, None where no nested ones do. O(rows x regions)."""
    for part in (system,) if system.by_sums else system.nested_parts():
        nested = nested_conflict(part)
        if nested is not None:
            return Conflict(tuple(nested), fractional=True, smallest=True)
    return None


def _suspects(system: FactSystem, deadline: float) -> Iterator[list[Fact]]:
    """Yield facts that may exclude each other: those of a leaf whose bounds cross, of the smallest region, then all."""
    lower, upper = tightened(system)
    crossed = np.flatnonzero((lower > upper).any(axis=1))
    if crossed.size:
        yield _within(system, system.hierarchy.levels - 1, int(crossed[0]), int(crossed[0]) + 1)
    now = perf_counter()
    level, region = _smallest_region(system, now + (deadline - now) / 2)  # what is left names the facts
    if level:
        yield _within(system, level, region, region + 1)
    yield _within(system, 0, 0, 1)


def _smallest_region(system: FactSystem, deadline: float) -> tuple[int, int]:
    """Return a (level, region) whose own facts exclude each other while those of no part of it were found to."""
    found, hierarchy = (0, 0), system.hierarchy
    for level in range(1, hierarchy.levels):
        first, above = hierarchy.level_range(level).start, hierarchy.level_range(level - 1).start
        parts = hierarchy.children(above + found[1])
        inner = _first_excluded(system, level, parts.start - first, parts.stop - first, deadline)
        if inner is None:
            break
        found = (level, inner)
    return found


def _first_excluded(system: FactSystem, level: int, start: int, stop: int, deadline: float) -> int | None:
    """Return the first of consecutive regions whose own facts exclude each other, by halves; None where none is found.

    Facts of different regions of a level do not meet: they exclude each other where those of one region do.
    """
    if not _excludes(system, _within(system, level, start, stop), deadline):
        return None
    if stop - start == 1:
        return start
    middle = (start + stop) // 2
    found = _first_excluded(system, level, start, middle, deadline)
    return _first_excluded(system, level, middle, stop, deadline) if found is None else found


def _within(system: FactSystem, level: int, start: int, stop: int) -> list[Fact]:
    """Return the facts of consecutive regions of a level and of those in them."""
    first, last = system.leaf_starts[level][start], system.leaf_starts[level][stop]
    found = []
    for at, row in enumerate(system.rows):
        if row.level >= level:
            starts = system.leaf_starts[row.level]
            inside = (starts[:-1] >= first) & (starts[1:] <= last) & row.stated
            found += [(at, region) for region in np.flatnonzero(inside).tolist()]
    return found


def _smallest_of(system: FactSystem, facts: Sequence[Fact], deadline: float) -> Conflict | None:
    """Return a smallest set of some facts that exclude each other, None where they do not or it is not settled."""
    left = deadline - perf_counter()
    if left <= 0 or not facts:
        return None
    total, prices = least_total(*_rows(system, facts), left)
    if np.isfinite(total) and total > _NOTHING:
        found = [fact for fact, price in zip(facts, prices, strict=True) if abs(price) > _NOTHING]
        alone = system.only(found)
        nested = nested_conflict(alone) if alone.by_sums else None
        if nested is not None:
            return Conflict(tuple(nested), fractional=True, smallest=True)
        found = _fewest(system, found, deadline)
        if not excluded(system, found):
            return None
        kept, smallest = _filtered(system, found, deadline)
        return Conflict(tuple(kept), fractional=len(kept) == len(found), smallest=smallest)
    component = _whole_component(system, facts, deadline)
    if component is None:
        return None
    kept, smallest = _filtered(system, component, deadline)
    return Conflict(tuple(kept), fractional=False, smallest=smallest)


def _fewest(system: FactSystem, facts: Sequence[Fact], deadline: float) -> list[Fact]:
    """Return some of facts that no fractional table meets which none does either; all of them needed if time allows.

    Where the rest still excludes itself without a fact, the rest's own prices leave out more.
    """
    kept, needed = list(facts), set[Fact]()
    for fact in facts:
        left = deadline - perf_counter()
        if left <= 0:
            break
        if fact not in kept:
            continue
        rest = [other for other in kept if other != fact]
        total, prices = least_total(*_rows(system, rest), left)
        if np.isfinite(total) and total > _NOTHING:
            priced = {other for other, price in zip(rest, prices, strict=True) if abs(price) > _NOTHING}
            kept = [other for other in rest if other in priced | needed]
        else:
            needed.add(fact)
    return kept


def _filtered(system: FactSystem, facts: Sequence[Fact], deadline: float) -> tuple[list[Fact], bool]:
    """Return those of some facts that no whole table meets which it takes, and whether time sufficed for the least."""
    kept = list(facts)
    if len(kept) > _ONE_BY_ONE:
        return kept, False
    for fact in facts:
        rest = [other for other in kept if other != fact]
        verdict = _excludes(system, rest, deadline)
        if verdict is None:
            return kept, False
        if verdict:
            kept = rest
    return kept, True


def excluded(system: FactSystem, facts: Sequence[Fact]) -> bool:
    """Return whether multipliers prove in exact rationals that no fractional table meets some facts (Farkas)."""
    matrix, low, high = _rows(system, facts)
    _, prices = least_total(matrix, low, high)
    # Prices of a least violation in absolute values are small fractions; nearby ones are tried in exact arithmetic.
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


def _rows(system: FactSystem, facts: Sequence[Fact]) -> tuple[csr_array, Floats, Floats]:
    """Return some facts, sorted, as rows over the variables they use."""
    from scipy.sparse import csr_array

    matrix, low, high = system.matrix(_merged(facts))
    columns = np.unique(matrix.indices) if facts else np.zeros(0, np.int64)
    return csr_array(matrix.tocsc()[:, columns]), low, high


def _merged(facts: Sequence[Fact]) -> list[tuple[int, Ints]]:
    regions: dict[int, list[int]] = {}
    for at, region in facts:
        regions.setdefault(at, []).append(region)
    return [(at, np.array(found)) for at, found in regions.items()]


def _excludes(system: FactSystem, facts: Sequence[Fact], deadline: float) -> bool | None:
    """Return whether no whole table meets some facts, None where that is not settled in time."""
    if not facts:
        return False
    matrix, low, high = _rows(system, facts)
    left = deadline - perf_counter()
    if left <= 0:
        return None
    columns = matrix.shape[1]
    found = whole_program(matrix, low, high, np.zeros(columns, np.int64), np.full(columns, np.inf), left, None)
    if found.values is not None:
        return False
    return True if found.infeasible else None


def _whole_component(system: FactSystem, facts: Sequence[Fact], deadline: float) -> list[Fact] | None:
    """Return connected facts that no whole table meets though fractional ones do, None where none is found in time."""
    from scipy.sparse import block_array
    from scipy.sparse.csgraph import connected_components

    matrix, _, _ = _rows(system, facts)
    _, labels = connected_components(block_array([[None, matrix], [matrix.T, None]], format="csr"))
    own = labels[: len(facts)]
    order = np.argsort(own, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(own[order])) + 1):
        part = [facts[at] for at in sorted(group.tolist())]
        verdict = _excludes(system, part, deadline)
        if verdict:
            return part
        if verdict is None:
            return None
    return None
