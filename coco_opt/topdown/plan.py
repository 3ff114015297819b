"""What every query of every level costs: exact amounts of a budget, and the noise they buy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from coco_opt.errors import ProblemError
from coco_opt.privacy.accounting import gaussian_variance
from coco_opt.privacy.budget import NEIGHBOURS, Neighbours, noise_scale, parse_epsilon, sequential, split, uniform_split
from coco_opt.privacy.ledger_chain import Unit
from coco_opt.privacy.mechanism import Mechanism, check_mechanism, check_parameter, unit_of
from coco_opt.privacy.planner import geometric_variance
from coco_opt.topdown.queries import Query
from coco_opt.topdown.strategy import Strategy

Amounts = tuple[tuple[Fraction, ...], ...]

LEAST_VARIANCE = 1e-12  # a weight 1 / variance stays finite however large the budget
_CONTINUOUS = 10.0  # above it, integer and continuous Gaussian variances differ by less than 1e-80


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TablePlan:
    """The amount of each query at each level, in the mechanism's unit (epsilon or rho); 0 is not asked.

    ``amounts`` [levels][queries], root first. One person is in one region of a level, so a level's regions are
    charged once, and the plan costs the sum of all amounts. Raises ProblemError where amounts are negative or all
    zero, queries share a name, or noise is too wide for 64 bits.
    """

    queries: tuple[Query, ...]
    amounts: Amounts
    mechanism: Mechanism = "geometric"
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        check_mechanism(self.mechanism)
        if self.neighbours not in NEIGHBOURS:
            raise ProblemError(f"unknown neighbours {self.neighbours!r}: use one of {', '.join(NEIGHBOURS)}")
        names = [query.name for query in self.queries]
        if not names or len(set(names)) < len(names):
            raise ProblemError("a plan needs at least one query, and queries of different names")
        amounts = tuple(tuple(Fraction(amount) for amount in level) for level in self.amounts)
        if any(len(level) != len(names) for level in amounts):
            raise ProblemError(f"{len(names)} queries need as many amounts at every level")
        if any(amount < 0 for level in amounts for amount in level) or not any(map(any, amounts)):
            raise ProblemError("no amount may be negative and at least one must be above zero")
        object.__setattr__(self, "queries", tuple(self.queries))
        object.__setattr__(self, "amounts", amounts)
        for level, query in self.asked:
            check_parameter(self.mechanism, self.parameter(level, query))

    @classmethod
    def product(
        cls,
        strategy: Strategy,
        budget: Fraction,
        levels: int,
        *,
        level_shares: Sequence[str | int | Fraction] | None = None,
        mechanism: Mechanism = "geometric",
        neighbours: Neighbours = "add_remove",
    ) -> TablePlan:
        """Share a budget over levels (evenly unless shares are given, root first) and each level's by the strategy.

        Raises ProblemError unless the level shares are one a level and sum to exactly 1.
        """
        if level_shares is not None and len(level_shares) != levels:
            raise ProblemError(f"{levels} levels need as many shares, not {len(level_shares)}")
        budget = parse_epsilon(budget)
        parts = uniform_split(budget, levels) if level_shares is None else split(budget, level_shares)
        amounts = tuple(tuple(part * share for share in strategy.shares) for part in parts)
        return cls(strategy.queries, amounts, mechanism, neighbours)

    @classmethod
    def table(
        cls,
        queries: Sequence[Query],
        budget: Fraction,
        shares: Sequence[Sequence[str | int | Fraction]],
        *,
        mechanism: Mechanism = "geometric",
        neighbours: Neighbours = "add_remove",
    ) -> TablePlan:
        """Share a budget by a whole table [levels][queries] of fractions; ProblemError unless they sum to 1."""
        flat = split(parse_epsilon(budget), [share for level in shares for share in level])
        rest = iter(flat)
        amounts = tuple(tuple(next(rest) for _ in level) for level in shares)
        return cls(tuple(queries), amounts, mechanism, neighbours)

    @property
    def levels(self) -> int:
        """Return the number of levels."""
        return len(self.amounts)

    @property
    def asked(self) -> tuple[tuple[int, int], ...]:
        """Return the (level, query) pairs that have an amount, root first."""
        return tuple((lv, q) for lv, level in enumerate(self.amounts) for q, amount in enumerate(level) if amount)

    @property
    def unit(self) -> Unit:
        """Return what the amounts are in."""
        return unit_of(self.mechanism)

    @property
    def spent(self) -> Fraction:
        """Return what measuring costs: the sum over levels and queries."""
        return sequential(amount for level in self.amounts for amount in level)

    def parameter(self, level: int, query: int) -> Fraction:
        """Return the noise's scale (geometric) or variance (discrete Gaussian); ProblemError where not asked."""
        asked, amount = self.queries[query], self.amounts[level][query]
        if amount == 0:
            raise ProblemError(f"query {asked.name!r} is not asked at level {level}")
        if self.mechanism == "geometric":
            return noise_scale(asked.sensitivity(self.neighbours), amount)
        return gaussian_variance(asked.sensitivity(self.neighbours, norm=2), amount)

    def variance(self, level: int, query: int) -> float:
        """Return the variance of one answer's noise (people squared), at least 1e-12; infinite where not asked."""
        if self.amounts[level][query] == 0:
            return math.inf
        return noise_variance(self.mechanism, self.parameter(level, query))

    def __repr__(self) -> str:
        levels = " / ".join(str(sequential(level)) for level in self.amounts)
        names = ", ".join(query.name for query in self.queries)
        return f"TablePlan({names}; {self.unit} {self.spent} by level: {levels}; {self.mechanism}, {self.neighbours})"


def noise_variance(mechanism: Mechanism, parameter: Fraction) -> float:
    """Return the variance of integer noise: 2 a / (1 - a)^2, or the discrete Gaussian's own, at least 1e-12.

    The discrete Gaussian's is a little below its parameter sigma^2, by less than one part in 1e80 from 10 on.
    """
    if mechanism == "geometric":
        return max(LEAST_VARIANCE, geometric_variance(float(parameter)))
    squared = float(parameter)
    if squared >= _CONTINUOUS:
        return squared
    outcomes = range(1, 2 + int(40 * math.sqrt(squared)))
    masses = [(k * k, math.exp(-k * k / (2 * squared))) for k in outcomes]
    moment = math.fsum(2 * square * mass for square, mass in masses)
    return max(LEAST_VARIANCE, moment / (1.0 + math.fsum(2 * mass for _, mass in masses)))
