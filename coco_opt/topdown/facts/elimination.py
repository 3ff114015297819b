"""Fourier-Motzkin elimination in exact rationals, redundant rows removed: implied constraints of small systems.

Rows say ``weights @ x >= side``. Eliminating a variable pairs every row that bounds it from below with every one that
bounds it from above; what is left is necessary and sufficient for a fractional value to exist. Doubly exponential: for
small general systems, and the oracle of the other ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any

import numpy as np

from coco_opt.errors import ProblemError

MOST_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Inequality:
    """weights @ x >= side, in smallest whole weights; ``origin`` are the rows it was made of."""

    weights: tuple[int, ...]
    side: Fraction
    origin: frozenset[int] = frozenset()

    @classmethod
    def of(cls, weights: Iterable[int | Fraction], side: int | Fraction, origin: Iterable[int] = ()) -> Inequality:
        """Return the row with its weights made whole and divided by what they have in common."""
        exact = [Fraction(one) for one in weights]
        times = lcm(*(one.denominator for one in exact)) if exact else 1
        whole = [int(one * times) for one in exact]
        common = gcd(*whole) or 1
        return cls(tuple(one // common for one in whole), Fraction(side) * times / common, frozenset(origin))


def eliminated(rows: Sequence[Inequality], variables: Sequence[int]) -> list[Inequality]:
    """Return rows without some variables that hold exactly where values of these exist; weights of the rest alone.

    Chernikov's rule drops rows made of more rows than variables eliminated and one; exact multipliers drop redundant
    ones. Raises ProblemError where more than ``MOST_ROWS`` rows come up.
    """
    current = [Inequality(row.weights, row.side, frozenset({place})) for place, row in enumerate(rows)]
    for done, variable in enumerate(variables, start=1):
        kept = [row for row in current if row.weights[variable] == 0]
        below = [row for row in current if row.weights[variable] > 0]
        above = [row for row in current if row.weights[variable] < 0]
        for one in below:
            for other in above:
                origin = one.origin | other.origin
                if len(origin) > done + 1:
                    continue
                up, down = -other.weights[variable], one.weights[variable]
                weights = [up * a + down * b for a, b in zip(one.weights, other.weights, strict=True)]
                kept.append(Inequality.of(weights, up * one.side + down * other.side, origin))
        current = _tightest(kept)
        if len(current) > MOST_ROWS:
            raise ProblemError(f"elimination comes to more than {MOST_ROWS:,} rows: the system is too large for it")
    gone = set(variables)
    left = [Inequality.of([w for place, w in enumerate(row.weights) if place not in gone], row.side) for row in current]
    return irredundant(_tightest(left))


def irredundant(rows: Sequence[Inequality]) -> list[Inequality]:
    """Return rows without those that others imply, as multipliers prove in exact rationals; the last first."""
    kept = [row for row in rows if any(row.weights) or row.side > 0]
    for row in list(reversed(kept)):
        rest = [other for other in kept if other is not row]
        if implied(row, rest):
            kept = rest
    return kept


def _tightest(rows: Iterable[Inequality]) -> list[Inequality]:
    """Return one row for each set of weights: that of the largest side, and of the shortest history among equals."""
    best: dict[tuple[int, ...], Inequality] = {}
    for row in rows:
        if not any(row.weights) and row.side <= 0:
            continue
        known = best.get(row.weights)
        if known is None or (row.side, -len(row.origin)) > (known.side, -len(known.origin)):
            best[row.weights] = row
    return list(best.values())


def implied(row: Inequality, rest: Sequence[Inequality]) -> bool:
    """Return whether nonnegative multipliers of the rest give the row's weights and at least its side, exactly."""
    if not rest:
        return False
    from scipy.optimize import linprog

    matrix = np.array([other.weights for other in rest], dtype=np.float64).T
    sides = np.array([float(other.side) for other in rest])
    solve: Any = linprog  # its stubs know results without an answer only
    found = solve(-sides, A_eq=matrix, b_eq=np.array(row.weights, dtype=np.float64), method="highs-ds")
    if found.status != 0 or -found.fun < float(row.side) - 1e-9:
        return False
    exact = [Fraction(float(one)).limit_denominator(10**6) for one in found.x]
    weights = [sum(m * other.weights[k] for m, other in zip(exact, rest, strict=True)) for k in range(len(row.weights))]
    side = sum((m * other.side for m, other in zip(exact, rest, strict=True)), Fraction(0))
    return weights == list(row.weights) and side >= row.side
