"""Privacy budgets as exact fractions, and how they are shared and add up.

Pure epsilon-differential privacy, where neighbouring databases differ by one entity: added or removed
("add_remove"), or replaced, which moves it from one group to another ("replace").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, Literal, TypeVar, get_args

from coco_opt.errors import ProblemError

Neighbours = Literal["add_remove", "replace"]
Unit = Literal["epsilon", "rho"]

NEIGHBOURS: tuple[Neighbours, ...] = get_args(Neighbours)

TableT = TypeVar("TableT")


@dataclass(frozen=True, eq=False, slots=True)
class Pair(Generic[TableT]):
    """D and D', tables that differ by one entity; ``words`` say how."""

    first: TableT
    second: TableT
    words: str


_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?|[0-9]+/[0-9]+")
_MAX_DIGITS = 64
_SHORT = 5  # such as 9/100, which nobody needs as a decimal
_LONG_EXPONENT = re.compile(r"[eE][-+]?[0-9_]{4}")


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


def stated_fraction(text: object) -> Fraction | None:
    """Return the number that a file states, as ``str`` of a fraction writes it; None for anything else.

    Of a long exponent in somebody's file Python would make a number of billions of digits.
    """
    if not isinstance(text, str) or _LONG_EXPONENT.search(text):
        return None
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


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


def sequential(epsilons: Iterable[Fraction]) -> Fraction:
    """Return the budget spent by measurements of the same entities: the sum."""
    return sum(epsilons, Fraction(0))


def noise_scale(sensitivity: int, epsilon: Fraction) -> Fraction:
    """Return the scale s = sensitivity / epsilon of the double-geometric distribution P(k) ~ exp(-|k| / s)."""
    if sensitivity < 1 or epsilon <= 0:
        raise ProblemError("a noise scale needs a sensitivity of at least 1 and an epsilon above zero")
    return Fraction(sensitivity) / epsilon


def with_decimal(amount: Fraction | str) -> str:
    """Return an exact amount, and behind a fraction of many digits its decimal: ``1133/25000 (0.04532)``."""
    text = str(amount)
    return f"{text} ({float(Fraction(amount)):.4g})" if "/" in text and len(text) > _SHORT else text
