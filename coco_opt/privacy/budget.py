"""Privacy budgets as exact fractions, and the sensitivities they are divided by.

Pure epsilon-differential privacy, where neighbouring databases differ by one entity: added or removed
("add_remove"), or replaced, which moves it from one group to another ("replace").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from coco_opt.errors import ProblemError

Neighbours = Literal["add_remove", "replace"]
Query = Literal["naive", "cumulative", "rank"]

NEIGHBOURS: tuple[Neighbours, ...] = get_args(Neighbours)
QUERIES: tuple[Query, ...] = get_args(Query)

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?|[0-9]+/[0-9]+")
_MAX_DIGITS = 64
_UNIT_SENSITIVITY: dict[Query, int] = {"naive": 2, "cumulative": 1, "rank": 1}


def parse_fraction(text: str | int | Fraction) -> Fraction:
    """Return the exact nonnegative number written as a decimal ("0.1") or a fraction ("1/3").

    Raises ProblemError for anything else; floats are refused because 0.1 is not one tenth in binary.
    """
    if isinstance(text, Fraction) or (isinstance(text, int) and not isinstance(text, bool)):
        value = Fraction(text)
        if value < 0:
            raise ProblemError(f"{value} is negative: write a decimal or a fraction of at least zero")
        return value
    if not isinstance(text, str):
        raise ProblemError(f'{text!r} is not exact: write it in quotes, as "0.1" or "1/3"')
    stripped = text.strip()
    if len(stripped) > _MAX_DIGITS or _NUMBER.fullmatch(stripped) is None:
        raise ProblemError(f'{stripped[:_MAX_DIGITS]!r} is not a decimal ("0.1") or a fraction ("1/3")')
    denominator = stripped.partition("/")[2]
    if denominator and int(denominator) == 0:
        raise ProblemError(f"{stripped!r} divides by zero")
    return Fraction(stripped)


def parse_epsilon(text: str | int | Fraction) -> Fraction:
    """Return a privacy budget, exact and above zero; raise ProblemError for anything else."""
    epsilon = parse_fraction(text)
    if epsilon == 0:
        raise ProblemError("epsilon is zero: a budget must be above zero")
    return epsilon


def split(total: Fraction, shares: Sequence[str | int | Fraction]) -> tuple[Fraction, ...]:
    """Return ``total`` times each share, exactly; a share of 0 leaves its level unmeasured.

    Raises ProblemError unless the shares sum to exactly 1 (thirds are written "1/3").
    """
    parts = tuple(parse_fraction(share) for share in shares)
    if sum(parts, Fraction(0)) != 1:
        raise ProblemError(f"the shares sum to {sum(parts, Fraction(0))}, not to 1")
    return tuple(total * part for part in parts)


def uniform_split(total: Fraction, levels: int) -> tuple[Fraction, ...]:
    """Return ``levels`` equal parts of ``total`` (Kuo et al. 2018, Algorithm 1: epsilon / (L + 1))."""
    if levels < 1:
        raise ProblemError(f"cannot split a budget over {levels} levels: at least one is needed")
    return (total / levels,) * levels


def sequential(epsilons: Iterable[Fraction]) -> Fraction:
    """Return the budget spent by measurements of the same entities: the sum."""
    return sum(epsilons, Fraction(0))


def parallel(epsilons: Iterable[Fraction]) -> Fraction:
    """Return the budget spent by measurements of disjoint regions: the largest.

    Under "replace" an entity may move between two regions; each then changes by one unit only, while
    the noise of each is made for two, so the largest still covers the pair.
    """
    return max(epsilons, default=Fraction(0))


def sensitivity(query: Query, neighbours: Neighbours) -> int:
    """Return by how much neighbouring databases change a query's cells in total (L1 norm).

    One entity moves one group by one size: two cells of H ("naive"), one of Hc without its public last
    cell ("cumulative"), one of Hg ("rank"); clamping sizes to K never adds to it. Replacing an entity
    moves two groups, within one region or across two. Kuo et al. 2018, section 4.
    """
    if query not in _UNIT_SENSITIVITY:
        raise ProblemError(f"unknown query {query!r}: use one of {', '.join(QUERIES)}")
    if neighbours not in NEIGHBOURS:
        raise ProblemError(f"unknown neighbours {neighbours!r}: use one of {', '.join(NEIGHBOURS)}")
    return _UNIT_SENSITIVITY[query] * (2 if neighbours == "replace" else 1)


def noise_scale(sensitivity: int, epsilon: Fraction) -> Fraction:
    """Return the scale s = sensitivity / epsilon of the double-geometric law P(k) ~ exp(-|k| / s)."""
    if sensitivity < 1 or epsilon <= 0:
        raise ProblemError("a noise scale needs a sensitivity of at least 1 and an epsilon above zero")
    return Fraction(sensitivity) / epsilon


def check_levels(total: Fraction, levels: Sequence[Fraction], neighbours: Neighbours) -> None:
    """Raise ProblemError unless ``levels`` share a budget above zero exactly, none of them negative."""
    if total <= 0 or any(level < 0 for level in levels):
        raise ProblemError("a budget must be above zero and no level's part of it negative")
    if sequential(levels) != total:
        raise ProblemError(f"the levels spend {sequential(levels)}, not the budget {total}")
    if neighbours not in NEIGHBOURS:
        raise ProblemError(f"unknown neighbours {neighbours!r}: use one of {', '.join(NEIGHBOURS)}")


@dataclass(frozen=True, slots=True)
class PureBudget:
    """An epsilon and how it is shared by the levels, root first; 0 leaves a level unmeasured.

    Raises ProblemError when the levels do not sum to exactly ``epsilon`` or one is negative.
    """

    epsilon: Fraction
    levels: tuple[Fraction, ...]
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        check_levels(self.epsilon, self.levels, self.neighbours)

    @classmethod
    def uniform(cls, epsilon: Fraction, levels: int, neighbours: Neighbours = "add_remove") -> PureBudget:
        """Share ``epsilon`` evenly over ``levels`` levels."""
        return cls(epsilon, uniform_split(epsilon, levels), neighbours)

    @classmethod
    def shared(
        cls, epsilon: Fraction, shares: Sequence[str | int | Fraction], neighbours: Neighbours = "add_remove"
    ) -> PureBudget:
        """Share ``epsilon`` by fractions that sum to 1, root first."""
        return cls(epsilon, split(epsilon, shares), neighbours)

    def scale(self, level: int, query: Query) -> Fraction:
        """Return the noise scale of ``query`` at ``level``; raise ProblemError where nothing is measured."""
        return noise_scale(sensitivity(query, self.neighbours), self.levels[level])
