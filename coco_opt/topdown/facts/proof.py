"""Prove, before anything is paid, that some whole table meets all facts, or name a smallest set that excludes itself.

Where the facts' sets are nested over regions and classes, sums of bounds decide (``FactSystem.by_sums``). Elsewhere a
mixed-integer program looks for one whole table, which is checked in integers: a table proves that all facts can hold.
Where there is none, ``conflict`` finds the set to name. Whatever is not settled in time is UNDECIDED and said to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coco_opt.topdown.facts.conflict import smallest_conflict
from coco_opt.topdown.facts.programs import solve_whole
from coco_opt.topdown.facts.system import FactSystem, infinite

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Verdict = Literal["holds", "conflict", "undecided"]

TIME_LIMIT = 60.0
"""Seconds that a proof may take unless told otherwise."""


@dataclass(frozen=True, eq=False, slots=True)
class Proof:
    """What was found: a whole table of all leaves and classes (where one was needed), or facts that exclude each other.

    ``how`` is by which means in words, ``conflict`` the facts in the user's words with their regions: without any one
    of them the others can hold (where ``smallest``). ``seconds`` is wall time.
    """

    verdict: Verdict
    how: str
    witness: Ints | None = None
    conflict: tuple[str, ...] = ()
    smallest: bool = True
    seconds: float = 0.0

    @property
    def message(self) -> str:
        """Return what excludes itself in one sentence, "" where nothing does."""
        if self.verdict != "conflict":
            return ""
        shown = "; ".join(self.conflict[:_SHOWN])
        more = f"; and {len(self.conflict) - _SHOWN} more" if len(self.conflict) > _SHOWN else ""
        kind = "each of them is needed for that" if self.smallest else "some of them may not be needed for that"
        return f"no whole table meets all of these facts, and {kind}: {shown}{more}"


_SHOWN = 12


def prove(system: FactSystem, *, time_limit: float = TIME_LIMIT, witness: bool = False) -> Proof:
    """Return whether some whole table meets all facts, deterministic but for the time limit.

    With ``witness`` such a table is found even where sums of bounds already prove that there is one.
    """
    start = perf_counter()
    if not system.rows:
        return Proof("holds", "no facts", _nobody(system))
    if system.by_sums and not witness and intervals_meet(system):
        return Proof("holds", "sums of bounds", seconds=perf_counter() - start)
    found = solve_whole(system, time_limit)
    if found.values is not None:
        table = found.values.reshape(system.leaves, system.classes.count)
        return Proof("holds", "a whole table was found", table, seconds=perf_counter() - start)
    if found.infeasible:
        left = max(1.0, time_limit - (perf_counter() - start))
        proved = smallest_conflict(system, left)
        if proved is not None:
            words = tuple(system.words(system.rows[row], region) for row, region in proved.facts)
            how = "in fractions" if proved.fractional else "in whole numbers"
            return Proof("conflict", how, None, words, proved.smallest, perf_counter() - start)
    return Proof("undecided", f"not settled within {time_limit:g} s", seconds=perf_counter() - start)


def intervals_meet(system: FactSystem) -> bool:
    """Return whether the bounds of nested sets leave every set some count, by sums from the smallest sets up.

    ``tops`` are the largest sets met so far, disjoint by ``by_sums``, with what the sets within leave them in every
    region of the level reached: numbers below 2^53, so floats hold them exactly.
    """
    tops: list[tuple[Ints, Floats, Floats]] = []
    for level in range(system.hierarchy.levels - 1, -1, -1):
        if level < system.hierarchy.levels - 1:
            here, below = system.hierarchy.level_range(level), system.hierarchy.level_range(level + 1)
            starts = system.hierarchy.first_child[here.start : here.stop] - below.start
            tops = [(mask, np.add.reduceat(low, starts), np.add.reduceat(high, starts)) for mask, low, high in tops]
        own = [row for row in system.rows if row.level == level]
        for row in sorted(own, key=lambda row: int(row.coefficients.sum())):
            inside = [top for top in tops if (row.coefficients >= top[0]).all()]
            rest = row.coefficients - sum((mask for mask, _, _ in inside), np.zeros_like(row.coefficients))
            low, high = infinite(np.maximum(row.lower, 0)), infinite(row.upper)
            low = np.maximum(low, sum((top[1] for top in inside), np.zeros_like(low)))
            if not rest.any():
                high = np.minimum(high, sum((top[2] for top in inside), np.zeros_like(high)))
            if (low > high).any():
                return False
            kept = [top for top in tops if not (row.coefficients >= top[0]).all()]
            tops = [*kept, (row.coefficients, low, high)]
    return True


def _nobody(system: FactSystem) -> Ints:
    return np.zeros((system.leaves, system.classes.count), np.int64)
