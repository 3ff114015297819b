"""Certified integer arithmetic: real numbers between two integers over a power of two, and their exact floors.

An interval (low, high) at precision P promises low <= v 2^P <= high. No step rounds to nearest and none uses
floating point, so a floor on which both ends agree is the floor of the number itself.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from coco_opt.errors import ProblemError

Interval = tuple[int, int]
T = TypeVar("T")

_GUARD = 64  # bits beyond those requested: ends disagree with probability near 2^-50, and then precision doubles
_MAX_DOUBLINGS = 10


class UncertainFloorError(Exception):
    """The two ends of an interval have different floors: compute it again with more precision."""


def exp_neg(x: Fraction, precision: int) -> Interval:
    """Return an interval around exp(-x), x >= 0, whose ends differ by a few units.

    x is halved until it is at most 1/2, the alternating series is summed there, and the result is squared back.
    """
    if x > precision:  # exp(-x) < 2^-precision
        return 0, 1
    ceiling = -(-x.numerator // x.denominator)
    halvings = ceiling.bit_length() + 1
    work = precision + halvings + 16
    low, high = _series(x.numerator, x.denominator << halvings, work)
    for _ in range(halvings):
        low, high = low * low >> work, (high * high >> work) + 1
    return low >> (work - precision), (high >> (work - precision)) + 1


def _series(numerator: int, denominator: int, work: int) -> Interval:
    """Return an interval around exp(-y), 0 <= y = numerator / denominator <= 1/2."""
    term_low = term_high = low = high = 1 << work
    order = 0
    while term_high > 1:
        order += 1
        term_low = term_low * numerator // (denominator * order)
        term_high = -(-term_high * numerator // (denominator * order))
        if order % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    # Terms fall in size and alternate in sign: what is left out is smaller than the last one.
    return max(low - term_high, 0), high + term_high


def multiply(left: Interval, right: Interval, precision: int) -> Interval:
    """Return an interval around the product of two nonnegative numbers."""
    return left[0] * right[0] >> precision, (left[1] * right[1] >> precision) + 1


def divide(over: Interval, under: Interval, precision: int) -> Interval:
    """Return an interval around the quotient of a nonnegative and a positive number.

    Raises UncertainFloorError while the divisor is not certain to be positive.
    """
    if under[0] <= 0:
        raise UncertainFloorError
    return (over[0] << precision) // under[1], -(-(over[1] << precision) // under[0])


def complement(value: Interval, precision: int) -> Interval:
    """Return an interval around 1 - v, v in [0, 1]."""
    unit = 1 << precision
    return max(unit - value[1], 0), unit - value[0]


def floor_bits(value: Interval, precision: int, bits: int) -> int:
    """Return floor(2^bits v) of a number v that is no multiple of 2^-bits.

    Raises UncertainFloorError unless the interval lies strictly between two neighbouring multiples, or
    is so close above zero that the floor is 0.
    """
    shift = precision - bits
    floor = value[0] >> shift
    touches = value[0] == floor << shift and value[0] > 0
    if touches or floor != value[1] >> shift:
        raise UncertainFloorError
    return floor


def certified(compute: Callable[[int], T], bits: int, guard: int = _GUARD) -> T:
    """Return ``compute(precision)`` at the first precision that certifies it: bits + guard, then twice the guard.

    ``compute`` raises UncertainFloorError where it cannot. Raises ProblemError after ten doublings, which only
    a number that is exactly a multiple of 2^-bits could need.
    """
    for _ in range(_MAX_DOUBLINGS):
        try:
            return compute(bits + guard)
        except UncertainFloorError:
            guard *= 2
    raise ProblemError(f"the noise distribution could not be certified to {bits} bits: choose another scale")
