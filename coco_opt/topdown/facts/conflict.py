"""A smallest set of facts that exclude each other: without any one of them, the others can all hold.

The prices of the least total violation name a set; facts are then left out one after the other while the rest still
excludes itself (deletion filter). That fractional tables do not exist is proved by multipliers in exact rationals; that
whole ones do not, by the solver alone, asked twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coco_opt.topdown.facts.intervals import empty_interval
from coco_opt.topdown.facts.presolve import tightened
from coco_opt.topdown.facts.programs import least_total, whole_program
from coco_opt.topdown.facts.system import FactSystem

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Fact = tuple[int, int]

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
    deadline = perf_counter() + time_limit
    for facts in _suspects(system):
        found = _smallest_of(system, facts, deadline)
        if found is not None:
            return found
    return None


def _suspects(system: FactSystem) -> Iterator[list[Fact]]:
    """Yield facts that may exclude each other: those of one leaf or one region whose bounds cross, then all."""
    lower, upper = tightened(system)
    crossed = np.flatnonzero((lower > upper).any(axis=1))
    if crossed.size:
        yield _within(system, system.hierarchy.levels - 1, int(crossed[0]))
    empty = empty_interval(system) if system.by_sums else None
    if empty is not None:
        yield _within(system, *empty)
    yield _within(system, 0, 0)


def _within(system: FactSystem, level: int, region: int) -> list[Fact]:
    """Return the facts of a region and of those in it."""
    first, last = system.leaf_starts[level][region : region + 2]
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
        for fact in list(found):
            rest = [other for other in found if other != fact]
            if least_total(*_rows(system, rest))[0] > _NOTHING:
                found = rest
        if not excluded(system, found):
            return None
        kept, smallest = _filtered(system, found, deadline)
        return Conflict(tuple(kept), fractional=len(kept) == len(found), smallest=smallest)
    component = _whole_component(system, facts, deadline)
    if component is None:
        return None
    kept, smallest = _filtered(system, component, deadline)
    return Conflict(tuple(kept), fractional=False, smallest=smallest)


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
