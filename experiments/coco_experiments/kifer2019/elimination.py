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
    """weights @ x >= side, in smallest integer weights; ``origin`` are the rows it combines."""

    weights: tuple[int, ...]
    side: Fraction
    origin: frozenset[int] = frozenset()

    @classmethod
    def of(cls, weights: Iterable[int | Fraction], side: int | Fraction, origin: Iterable[int] = ()) -> Inequality:
        """Return the row with its weights scaled to coprime integers."""
        exact = [Fraction(weight) for weight in weights]
        times = lcm(*(weight.denominator for weight in exact)) if exact else 1
        integers = [int(weight * times) for weight in exact]
        common = gcd(*integers) or 1
        return cls(tuple(weight // common for weight in integers), Fraction(side) * times / common, frozenset(origin))


def eliminated(rows: Sequence[Inequality], variables: Sequence[int]) -> list[Inequality]:
    """Return rows without some variables that hold exactly where values of these exist; weights of the rest alone.

    Chernikov's rule drops rows that combine more rows than one plus the variables eliminated; exact multipliers drop
    redundant ones. Raises ProblemError where more than ``MOST_ROWS`` rows arise.
    """
    current = [Inequality(row.weights, row.side, frozenset({place})) for place, row in enumerate(rows)]
    for done, variable in enumerate(variables, start=1):
        combined = [row for row in current if row.weights[variable] == 0]
        below = [row for row in current if row.weights[variable] > 0]
        above = [row for row in current if row.weights[variable] < 0]
        for lower in below:
            for upper in above:
                origin = lower.origin | upper.origin
                if len(origin) > done + 1:
                    continue
                up, down = -upper.weights[variable], lower.weights[variable]
                weights = [up * a + down * b for a, b in zip(lower.weights, upper.weights, strict=True)]
                combined.append(Inequality.of(weights, up * lower.side + down * upper.side, origin))
        current = _tightest(combined)
        if len(current) > MOST_ROWS:
            raise ProblemError(f"elimination comes to more than {MOST_ROWS:,} rows: the system is too large for it")
    gone = set(variables)
    left = [Inequality.of([w for place, w in enumerate(row.weights) if place not in gone], row.side) for row in current]
    return irredundant(_tightest(left))


def irredundant(rows: Sequence[Inequality]) -> list[Inequality]:
    """Return rows without those that others imply, as multipliers prove in exact rationals; the last first."""
    needed = [row for row in rows if any(row.weights) or row.side > 0]
    for row in list(reversed(needed)):
        rest = [other for other in needed if other is not row]
        if implied(row, rest):
            needed = rest
    return needed


def _tightest(rows: Iterable[Inequality]) -> list[Inequality]:
    """Return one row for each set of weights: that of the largest side, and of the shortest history among equals."""
    best: dict[tuple[int, ...], Inequality] = {}
    for row in rows:
        if not any(row.weights) and row.side <= 0:
            continue
        current = best.get(row.weights)
        if current is None or (row.side, -len(row.origin)) > (current.side, -len(current.origin)):
            best[row.weights] = row
    return list(best.values())


def implied(row: Inequality, rest: Sequence[Inequality]) -> bool:
    """Return whether nonnegative multipliers of the rest give the row's weights and at least its side, exactly."""
    if not rest:
        return False
    from scipy.optimize import linprog

    matrix = np.array([inequality.weights for inequality in rest], dtype=np.float64).T
    sides = np.array([float(inequality.side) for inequality in rest])
    solve: Any = linprog  # its stubs know results without an answer only
    result = solve(-sides, A_eq=matrix, b_eq=np.array(row.weights, dtype=np.float64), method="highs-ds")
    if result.status != 0 or -result.fun < float(row.side) - 1e-9:
        return False
    exact = [Fraction(float(value)).limit_denominator(10**6) for value in result.x]
    weights = [
        sum(m * inequality.weights[k] for m, inequality in zip(exact, rest, strict=True))
        for k in range(len(row.weights))
    ]
    side = sum((m * inequality.side for m, inequality in zip(exact, rest, strict=True)), Fraction(0))
    return weights == list(row.weights) and side >= row.side
