"""What noisy answers guarantee together, as (epsilon, delta): by privacy loss distributions, or by zCDP's conversions.

Both are upper bounds, so the smaller bound holds. A budget stated as (epsilon, delta) buys as much rho as the
composition of the planned answers allows, which is more than what rho alone implies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any

from coco_opt.errors import ProblemError
from coco_opt.privacy.accounting import delta_of_rho, rho_of_epsilon_delta
from coco_opt.privacy.cost import DELTA, Cost, Epsilon, Rho, Sensitivity, cost_together, pair_words, total
from coco_opt.privacy.directed_rounding import round_above, round_below
from coco_opt.privacy.loss_distributions import LossDistribution, UncountableError, composed
from coco_opt.privacy.queries import LevelQuery

DELTAS = tuple(Fraction(1, 10**power) for power in (3, 6, 9, 12))
"""Where the curve of a guarantee is stated."""

_DIGITS = 6  # of what is stated
_BOUGHT_DIGITS = 5  # of rho: few enough that the last bits of a machine's sums never change the plan
_SEARCHES = 12
_COARSER = 8
_BISECTIONS = 50


@dataclass(frozen=True, eq=False, slots=True)
class Composition:
    """The guarantee of queries answered together: their cost, and the distribution of their loss (None: unknown)."""

    cost: Cost
    loss: LossDistribution | None

    @classmethod
    def of(cls, queries: Iterable[LevelQuery], *, adaptive: bool = False) -> Composition:
        """Compose all noisy queries, of one distribution or of several; ProblemError where there is none.

        ``adaptive``: some may have been chosen by the answers to others. Then only the sum of their costs counts, since
        the composition of privacy loss distributions holds for queries that were fixed beforehand.
        """
        noisy = tuple(_noisy(queries))
        return cls(cost_together(cost for cost, _ in noisy), None if adaptive else _loss(noisy))

    @classmethod
    def of_spent(cls, cost: Cost, queries: Iterable[LevelQuery]) -> Composition:
        """Compose the queries of several runs that cost so much together, be they under one distribution or several."""
        return cls(cost, _loss(tuple(_noisy(queries))))

    def delta(self, epsilon: Fraction) -> Fraction:
        """Return a delta at which ``epsilon`` >= 0 holds, rounded up; 0 where pure epsilon-privacy implies it."""
        if isinstance(self.cost, Epsilon):
            if epsilon >= self.cost.amount:
                return Fraction(0)
            converted = Fraction(1)
        else:
            converted = delta_of_rho(self.cost.amount, epsilon)
        return (
            converted if self.loss is None else min(converted, round_above(Fraction(self.loss.delta(epsilon)), _DIGITS))
        )

    def epsilon(self, delta: Fraction = DELTA) -> Fraction:
        """Return an epsilon that holds at ``delta``, rounded up."""
        converted = self.cost.epsilon(delta)
        if self.loss is None:
            return converted
        low, high = Fraction(0), converted
        for _ in range(_BISECTIONS):
            if high - low <= high / 10 ** (_DIGITS + 1):
                break
            middle = (low + high) / 2
            low, high = (low, middle) if Fraction(self.loss.delta(middle)) <= delta else (middle, high)
        if Fraction(self.loss.delta(round_below(high, _DIGITS))) <= delta:
            high = round_below(high, _DIGITS)
        return min(converted, round_above(high, _DIGITS))

    def guarantee(self, delta: Fraction | None = None) -> tuple[Fraction, Fraction]:
        """Return the (epsilon, delta) that holds; the delta of pure epsilon is 0, whatever ``delta`` says."""
        if isinstance(self.cost, Epsilon):
            return self.cost.guarantee()
        return self.epsilon(delta or DELTA), delta or DELTA

    def implied(self, delta: Fraction | None = None) -> dict[str, Any]:
        """Return plain values of what is guaranteed in other languages, and the curve of (epsilon, delta)."""
        plain = self.cost.implied(delta)
        if isinstance(self.cost, Rho) and self.loss is not None:
            plain = {**plain, "epsilon": str(self.epsilon(delta or DELTA)), "conversion": "loss_distributions"}
        return {**plain, "curve": {str(point): str(epsilon) for point, epsilon in self.curve()}}

    def meaning(self, delta: Fraction | None = None) -> str:
        """Return in a few words what the cost implies."""
        if isinstance(self.cost, Epsilon):
            return self.cost.meaning()
        epsilon, stated_delta = self.guarantee(delta)
        return f"zCDP: {pair_words(epsilon, stated_delta, _DIGITS)}"

    def curve(self, deltas: Sequence[Fraction] = DELTAS) -> tuple[tuple[Fraction, Fraction], ...]:
        """Return (delta, epsilon) pairs that all hold."""
        return tuple((delta, self.epsilon(delta)) for delta in deltas)

    def pure(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """Return the pair of delta 0 where the cost is a pure epsilon, else none."""
        return ((Fraction(0), self.cost.amount),) if isinstance(self.cost, Epsilon) else ()


def _noisy(queries: Iterable[LevelQuery]) -> Iterator[tuple[Cost, Sensitivity]]:
    for query in queries:
        if query.cost is not None and query.sensitivity is not None:
            yield query.cost, query.sensitivity


@lru_cache(maxsize=8)  # manifest, page and plan need the same value
def _loss(noisy: tuple[tuple[Cost, Sensitivity], ...]) -> LossDistribution | None:
    try:
        return composed([(cost.distribution(sensitivity), sensitivity) for cost, sensitivity in noisy])
    except UncountableError:
        return None


def shares_of(queries: Iterable[LevelQuery]) -> tuple[tuple[Fraction, Sensitivity], ...]:
    """Return the share of the total cost that each noisy query has, and its sensitivity."""
    noisy = tuple(_noisy(queries))
    full_cost = total(cost for cost, _ in noisy)
    return tuple((cost.amount / full_cost.amount, sensitivity) for cost, sensitivity in noisy)


@cache
def bought(epsilon: Fraction, delta: Fraction, shares: tuple[tuple[Fraction, Sensitivity], ...]) -> Fraction:
    """Return a rho that queries may cost together such that (epsilon, delta) holds, the largest of five digits.

    ``shares`` are those of the queries in rho, and by how much neighbours change the answers to each. At least what
    zCDP's conversion allows, which is returned where privacy loss distributions do not reach.
    """
    if sum(share for share, _ in shares) != 1:
        raise ProblemError("the shares of queries must sum to 1")
    least = rho_of_epsilon_delta(epsilon, delta)

    def excess(rho: Fraction, coarser: int) -> float:
        parts = [(Rho(rho * share).distribution(sensitivity), sensitivity) for share, sensitivity in shares]
        return math.log(max(composed(parts, coarser=coarser).delta(epsilon), 1e-300) / float(delta))

    try:
        # The looser bound of a coarse grid gives a start from below, and the fine grid refines it.
        near = _largest(partial(excess, coarser=_COARSER), least, Fraction(5, 4))
        return max(least, _largest(partial(excess, coarser=1), max(near, least), Fraction(1001, 1000)))
    except UncountableError:
        return least


def _largest(excess: Callable[[Fraction], float], least: Fraction, stride: Fraction) -> Fraction:
    """Return the largest number of five digits from ``least`` on where an increasing function is at most 0.

    ``least`` where it is above 0 there; ``stride`` is the factor by which the crossing is first looked for.
    """
    low, high = least, least * stride
    at_low, at_high = excess(low), excess(high)
    if at_low > 0:
        return least
    while at_high <= 0:
        low, at_low, high = high, at_high, high * stride
        at_high = excess(high)
    for _ in range(_SEARCHES):
        if high - low <= low / 10**_BOUGHT_DIGITS:
            break
        # Secants between the logarithms, kept inside, and a little to either side of the crossing in turn.
        slope = math.log(high / low) / (at_high - at_low)
        guess = low * Fraction(math.exp(-at_low * slope))
        margin = (high - low) / 50 if high - low > low / 10**3 else low / (2 * 10**_BOUGHT_DIGITS)
        for middle in (guess - margin, guess + margin):
            if not low < middle < high:
                continue
            at_middle = excess(middle)
            if at_middle <= 0:
                low, at_low = middle, at_middle
            else:
                high, at_high = middle, at_middle
    return round_below(low, _BOUGHT_DIGITS)
