"""Prove, before anything is paid, that some whole table meets all facts, or name a smallest set that excludes itself.

Sums of bounds that cross exclude each other; where the facts' sets are nested over regions and classes, sums decide
(``FactSystem.by_sums``). Elsewhere a mixed-integer program looks for one whole table, which is checked in integers: a
table proves that all facts can hold. Where there is none, ``conflict`` finds the set to name. Whatever is not settled
in time is UNDECIDED and said to be: nothing is refused for it, and estimation ends with tables or the facts to blame.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coco_opt.topdown.facts.conflict import Conflict, conflict_by_programs, conflict_by_sums
from coco_opt.topdown.facts.programs import solve_whole
from coco_opt.topdown.facts.system import FactSystem

Ints = NDArray[np.int64]
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
    crossed = conflict_by_sums(system)
    if crossed is not None:
        return _refused(system, crossed, start)
    if system.by_sums and not witness:
        return Proof("holds", "sums of bounds", seconds=perf_counter() - start)
    found = solve_whole(system, time_limit)
    if found.values is not None:
        table = found.values.reshape(system.leaves, system.classes.count)
        return Proof("holds", "a whole table was found", table, seconds=perf_counter() - start)
    if found.infeasible:
        left = max(1.0, time_limit - (perf_counter() - start))
        proved = conflict_by_programs(system, left)
        if proved is not None:
            return _refused(system, proved, start)
    return Proof("undecided", f"not settled within {time_limit:g} s", seconds=perf_counter() - start)


def _refused(system: FactSystem, found: Conflict, start: float) -> Proof:
    words = tuple(system.words(system.rows[row], region) for row, region in found.facts)
    how = "in fractions" if found.fractional else "in whole numbers"
    return Proof("conflict", how, None, words, found.smallest, perf_counter() - start)


def _nobody(system: FactSystem) -> Ints:
    return np.zeros((system.leaves, system.classes.count), np.int64)
