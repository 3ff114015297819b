"""Privacy accounting beyond pure epsilon: zCDP, (epsilon, delta) and Renyi, converted in the safe direction.

Amounts are fractions. A conversion states a guarantee, so what it says was spent (epsilon, delta, Renyi) is rounded
up and what it allows to spend (rho) is rounded down. rho adds up as epsilon does: ``sequential`` sums over levels and
queries, ``parallel`` takes the largest over regions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, get_args

from coco_opt.errors import ProblemError
from coco_opt.privacy.directed_rounding import (
    MAX_EXPONENT,
    exp_above,
    exp_below,
    ln_above,
    ln_below,
    round_above,
    round_below,
    sqrt_above,
)

Conversion = Literal["tight", "standard"]
CONVERSIONS: tuple[Conversion, ...] = get_args(Conversion)
RENYI_ORDERS = (2, 4, 8, 16, 32, 64)

_SEARCH_STEPS = 120
_BISECTIONS = 60


def gaussian_variance(squared_sensitivity: int, rho: Fraction) -> Fraction:
    """Return the variance squared_sensitivity / (2 rho) of (discrete) Gaussian noise that is rho-zCDP.

    Bun and Steinke 2016, proposition 1.6; Canonne, Kamath and Steinke 2020, theorem 14, for integers.
    """
    if squared_sensitivity < 1 or rho <= 0:
        raise ProblemError("a noise variance needs a sensitivity of at least 1 and a rho above zero")
    return Fraction(squared_sensitivity) / (2 * rho)


def rho_of_epsilon(epsilon: Fraction) -> Fraction:
    """Return the zCDP parameter epsilon^2 / 2 that pure epsilon implies (Bun and Steinke 2016, proposition 1.4)."""
    _check_positive(epsilon, "epsilon")
    return epsilon * epsilon / 2


def renyi_of_epsilon(epsilon: Fraction, order: Fraction | int) -> Fraction:
    """Return the Renyi divergence of an order above 1 that pure epsilon implies, rounded up.

    That of randomised response, the worst pair there is: ln((e^(a eps) + e^((1 - a) eps)) / (1 + e^eps)) / (a - 1),
    at most min(epsilon, a epsilon^2 / 2); epsilon itself where e^(a eps) leaves the range of decimals. Mironov 2017,
    proposition 6; Bun and Steinke 2016, proposition 3.3.
    """
    _check_positive(epsilon, "epsilon")
    order = _order(order)
    if order * epsilon > MAX_EXPONENT:
        return epsilon
    above = (exp_above(order * epsilon) + exp_above((1 - order) * epsilon)) / (1 + exp_below(epsilon))
    return round_above(ln_above(above) / (order - 1))


def renyi_of_rho(rho: Fraction, order: Fraction | int) -> Fraction:
    """Return the Renyi divergence rho x order that rho-zCDP allows at an order above 1, by its definition."""
    _check_positive(rho, "rho")
    return rho * _order(order)


def epsilon_of_rho(rho: Fraction, delta: Fraction, conversion: Conversion = "tight") -> Fraction:
    """Return an epsilon such that rho-zCDP implies (epsilon, delta), rounded up.

    standard: rho + 2 sqrt(rho ln(1 / delta)), Bun and Steinke 2016, proposition 1.3. tight: the infimum over orders
    a > 1 of a rho + (ln(1 / delta) - ln a) / (a - 1) + ln(1 - 1/a), Canonne, Kamath and Steinke 2020, corollary 13;
    every order gives a bound, so the order is searched in floating point and the bound at it certified.
    """
    _check_positive(rho, "rho")
    _check_delta(delta)
    _check_conversion(conversion)
    standard = rho + 2 * sqrt_above(rho * ln_above(1 / delta))
    if conversion == "standard":
        return round_above(standard)
    log = float(ln_above(1 / delta))
    rate = float(rho)
    order = _best_order(lambda a, b: a * rate + (log - math.log(a)) / b - math.log(a / b))
    above = order * rho + (ln_above(1 / delta) - ln_below(order)) / (order - 1) + ln_above(1 - 1 / order)
    return round_above(min(standard, max(above, Fraction(0))))  # both bounds hold, so the smaller does


def delta_of_rho(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return a delta such that rho-zCDP implies (epsilon, delta), rounded up and at most 1.

    The infimum over orders a > 1 of e^((a - 1)(a rho - epsilon)) (1 - 1/a)^a / (a - 1), certified at one order.
    Canonne, Kamath and Steinke 2020, proposition 12.
    """
    _check_positive(rho, "rho")
    if epsilon < 0:
        raise ProblemError("epsilon must not be negative")
    rate, budget = float(rho), float(epsilon)
    order = _best_order(lambda a, b: b * (a * rate - budget) - math.log(b) - a * math.log(a / b))
    exponent = (order - 1) * (order * rho - epsilon) + order * ln_above(1 - 1 / order) - ln_below(order - 1)
    return min(round_above(exp_above(max(min(exponent, Fraction(1)), Fraction(-(10**5))))), Fraction(1))


def rho_of_epsilon_delta(epsilon: Fraction, delta: Fraction, conversion: Conversion = "tight") -> Fraction:
    """Return a rho such that rho-zCDP implies (epsilon, delta), the largest up to 13 digits, rounded down.

    standard: (sqrt(ln(1 / delta) + epsilon) - sqrt(ln(1 / delta)))^2, the inverse of ``epsilon_of_rho``; tight: its
    inverse by bisection, each step certified.
    """
    _check_positive(epsilon, "epsilon")
    _check_delta(delta)
    _check_conversion(conversion)
    # epsilon^2 / (sqrt(l + epsilon) + sqrt(l))^2 is the same number without the cancellation.
    log = ln_above(1 / delta)
    low = round_below((epsilon / (sqrt_above(log + epsilon) + sqrt_above(log))) ** 2)
    if conversion == "standard":
        return low
    high = 2 * low
    while epsilon_of_rho(high, delta) <= epsilon:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        if high - low <= low / 10**13:
            break
        middle = round_below((low + high) / 2)
        if epsilon_of_rho(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def _best_order(bound: Callable[[float, float], float]) -> Fraction:
    """Return an order a near the minimum of ``bound(a, a - 1)``, by golden sections over ln(a - 1)."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = -12.0, 46.0

    def bound_at(log: float) -> float:
        above_one = math.exp(log)
        return bound(1 + above_one, above_one)

    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = bound_at(left), bound_at(right)
    for _ in range(_SEARCH_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = bound_at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = bound_at(right)
    return 1 + Fraction(math.exp((low + high) / 2))


def _order(order: Fraction | int) -> Fraction:
    if order <= 1:
        raise ProblemError("a Renyi order must be above 1")
    return Fraction(order)


def _check_positive(amount: Fraction, name: str) -> None:
    if amount <= 0:
        raise ProblemError(f"{name} must be above zero")


def _check_delta(delta: Fraction) -> None:
    if not 0 < delta < 1:
        raise ProblemError("delta must lie between 0 and 1")


def _check_conversion(conversion: Conversion) -> None:
    if conversion not in CONVERSIONS:
        raise ProblemError(f"unknown conversion {conversion!r}: use one of {', '.join(CONVERSIONS)}")
