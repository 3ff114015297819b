"""Prove, before anything is paid, that some integer table meets all constraints, or name a smallest contradictory set.

Sums of bounds that cross exclude each other; where the constraints' sets are nested over regions and classes, sums
decide (``ConstraintSystem.by_sums``). Elsewhere a mixed-integer program looks for one integer table, which is checked
in integers: a table proves that all constraints can hold. Where there is none, ``conflict`` finds the set to name. What
is not settled in time is reported as UNDECIDED: nothing is refused for it, and estimation ends with tables or with the
constraints to blame.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.topdown.feasibility.conflict import Conflict, conflict_by_programs, conflict_by_sums, listed
from coco_opt.topdown.feasibility.programs import TIME_LIMIT, solve_integer
from coco_opt.topdown.feasibility.system import ConstraintSystem

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
    solution = solve_integer(system, time_limit)
    if solution.values is not None:
        table = solution.values.reshape(system.leaves, system.classes.count)
        return Proof("holds", "an integer table was found", table, seconds=perf_counter() - start)
    if solution.infeasible:
        left = max(1.0, time_limit - (perf_counter() - start))
        proved = conflict_by_programs(system, left)
        if proved is not None:
            return _conflict_proof(system, proved, start)
    return Proof("undecided", f"not settled within {time_limit:g} s", seconds=perf_counter() - start)


def _conflict_proof(system: ConstraintSystem, conflict: Conflict, start: float) -> Proof:
    how = "in fractions" if conflict.fractional else "in integers"
    return Proof("conflict", how, None, conflict.words(system), conflict.smallest, perf_counter() - start)
