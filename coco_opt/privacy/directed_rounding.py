"""Exponentials, logarithms and roots of fractions, rounded in a stated direction.

Decimal's exp, ln and sqrt are correctly rounded, so the next number beyond the result bounds the exact value; the
functions increase, so an argument rounded the same way keeps the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from coco_opt.errors import ProblemError

_DIGITS = 60
MAX_EXPONENT = 10**5  # exponents up to here fit in a Decimal's range
_UP = Context(prec=_DIGITS, rounding=ROUND_CEILING)
_DOWN = Context(prec=_DIGITS, rounding=ROUND_FLOOR)


def exp_above(x: Fraction) -> Fraction:
    """Return a fraction at least exp(x), |x| <= 10^5."""
    return _above(_exponent(x), Context.exp)


def exp_below(x: Fraction) -> Fraction:
    """Return a positive fraction at most exp(x), |x| <= 10^5."""
    return _below(_exponent(x), Context.exp)


def ln_above(x: Fraction) -> Fraction:
    """Return a fraction at least ln(x), x > 0."""
    return _above(_positive(x), Context.ln)


def ln_below(x: Fraction) -> Fraction:
    """Return a fraction at most ln(x), x > 0."""
    return _below(_positive(x), Context.ln)


def sqrt_above(x: Fraction) -> Fraction:
    """Return a fraction at least the square root of x >= 0."""
    return _above(x, Context.sqrt)


def round_above(x: Fraction, digits: int = 15) -> Fraction:
    """Return the smallest decimal of ``digits`` significant digits that is at least x."""
    return Fraction(_quotient(x, Context(prec=digits, rounding=ROUND_CEILING)))


def round_below(x: Fraction, digits: int = 15) -> Fraction:
    """Return the largest decimal of ``digits`` significant digits that is at most x."""
    return Fraction(_quotient(x, Context(prec=digits, rounding=ROUND_FLOOR)))


def _above(x: Fraction, function: Callable[[Context, Decimal], Decimal]) -> Fraction:
    return Fraction(function(_UP, _quotient(x, _UP)).next_plus(_UP))


def _below(x: Fraction, function: Callable[[Context, Decimal], Decimal]) -> Fraction:
    return Fraction(function(_DOWN, _quotient(x, _DOWN)).next_minus(_DOWN))


def _quotient(x: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(x.numerator), Decimal(x.denominator))


def _exponent(x: Fraction) -> Fraction:
    if abs(x) > MAX_EXPONENT:
        raise ProblemError("this budget is too large for a conversion: exp(100,000) is beyond any use")
    return x


def _positive(x: Fraction) -> Fraction:
    if x <= 0:
        raise ProblemError("only a number above zero has a logarithm")
    return x
