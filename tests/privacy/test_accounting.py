"""Conversions against their definitions and an independent evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr

from coco_opt.errors import ProblemError
from coco_opt.privacy import Geometric, LevelQuery
from coco_opt.privacy.accounting import (
    RENYI_ORDERS,
    Conversion,
    delta_of_rho,
    epsilon_of_rho,
    gaussian_variance,
    renyi_of_epsilon,
    renyi_of_rho,
    rho_of_epsilon,
    rho_of_epsilon_delta,
)
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import DELTA, Epsilon, Rho, Sensitivity, total
from coco_opt.privacy.directed_rounding import (
    exp_above,
    exp_below,
    ln_above,
    ln_below,
    round_above,
    round_below,
    sqrt_above,
)

SLIDES = {
    "1/100000000000000": (785.6, 199.4, 89.9, 51.3, 33.3),
    "1/1000000000": (509.3, 130.3, 59.2, 34.0, 22.2),
    "1/1000000": (343.5, 88.8, 40.7, 23.6, 15.6),
}
SLIDES_LAPLACE = (288.0, 72.0, 32.0, 18.0, 11.5)
LEVELS = 6

amounts = st.fractions(min_value=Fraction(1, 1000), max_value=20, max_denominator=1000)
deltas = st.integers(min_value=1, max_value=40).map(lambda power: Fraction(1, 2**power))


def one_digit(value: Fraction | float) -> float:
    """Round to one decimal, as printed on the slides."""
    return round(float(value), 1)


@pytest.mark.parametrize("delta", SLIDES)
def test_the_fifteen_variances_of_the_slides(delta: str) -> None:
    for epsilon, printed in enumerate(SLIDES[delta], start=1):
        rho = rho_of_epsilon_delta(Fraction(epsilon), Fraction(delta), "standard")
        # A cell of a histogram of people: replacing one changes two cells by one.
        assert one_digit(gaussian_variance(2, rho / LEVELS)) == printed


def test_the_laplace_variances_of_the_slides() -> None:
    for epsilon, printed in enumerate(SLIDES_LAPLACE, start=1):
        assert one_digit(Geometric(Fraction(2 * LEVELS, epsilon)).nominal_variance) == printed


@given(amounts, deltas)
def test_standard_and_its_inverse_agree(epsilon: Fraction, delta: Fraction) -> None:
    rho = rho_of_epsilon_delta(epsilon, delta, "standard")
    back = epsilon_of_rho(rho, delta, "standard")
    assert back == pytest.approx(epsilon, rel=1e-11)
    exact = float(rho) + 2 * math.sqrt(float(rho) * math.log(float(1 / delta)))
    assert float(back) == pytest.approx(exact, rel=1e-12)


@given(amounts, deltas)
def test_tight_is_never_worse_and_its_inverse_is_safe(epsilon: Fraction, delta: Fraction) -> None:
    rho = rho_of_epsilon_delta(epsilon, delta)
    assert rho >= rho_of_epsilon_delta(epsilon, delta, "standard")
    assert epsilon_of_rho(rho, delta) <= epsilon
    assert epsilon_of_rho(rho * (1 + Fraction(1, 10**9)), delta) > epsilon
    assert epsilon_of_rho(rho, delta) <= epsilon_of_rho(rho, delta, "standard")


@given(amounts, deltas)
def test_tight_is_the_infimum_over_orders(rho: Fraction, delta: Fraction) -> None:
    log = math.log(float(1 / delta))
    above_one = np.exp(np.linspace(-10, 25, 20_001))
    orders = 1 + above_one
    grid = orders * float(rho) + (log - np.log(orders)) / above_one - np.log1p(1 / above_one)
    expected = max(0.0, float(grid.min()))
    assert float(epsilon_of_rho(rho, delta)) == pytest.approx(expected, rel=1e-5, abs=1e-9)


FINE = Context(prec=60)


def exactly(value: Fraction) -> Decimal:
    return FINE.divide(Decimal(value.numerator), Decimal(value.denominator))


def least(bound: Callable[[Decimal, Decimal], Decimal]) -> Fraction:
    """Return the minimum of ``bound(a, a - 1)`` over orders a > 1 to some forty digits, by thirds of ln(a - 1)."""
    low, high = Decimal(-8), Decimal(12)

    def at(log: Decimal) -> Decimal:
        above_one = FINE.exp(log)
        return bound(FINE.add(above_one, 1), above_one)

    for _ in range(130):
        third = (high - low) / 3
        low, high = (low, high - third) if at(low + third) <= at(high - third) else (low + third, high)
    return Fraction(at(low))


@pytest.mark.parametrize("rho", ["1/7", "1/97", "3"])
@pytest.mark.parametrize("delta", ["1/1000003", "1/77"])
def test_every_conversion_is_rounded_in_the_safe_direction(rho: str, delta: str) -> None:
    """To the last of the digits that are stated, against sixty."""
    amount, failure = Fraction(rho), Fraction(delta)
    spent, log = exactly(amount), FINE.ln(exactly(1 / failure))
    standard = Fraction(spent + 2 * FINE.sqrt(FINE.multiply(spent, log)))
    assert standard <= epsilon_of_rho(amount, failure, "standard") <= standard * (1 + Fraction(1, 10**14))
    found = epsilon_of_rho(amount, failure)
    tight = least(lambda a, b: a * spent + FINE.divide(log - FINE.ln(a), b) - FINE.ln(FINE.divide(a, b)))
    assert tight <= found <= tight * (1 + Fraction(1, 10**13))
    epsilon = exactly(found)
    logarithm = least(lambda a, b: b * (a * spent - epsilon) - FINE.ln(b) - a * FINE.ln(FINE.divide(a, b)))
    lost = Fraction(FINE.exp(exactly(logarithm)))
    assert lost <= delta_of_rho(amount, found) <= lost * (1 + Fraction(1, 10**13))
    root = FINE.sqrt(log + spent) - FINE.sqrt(log)
    bought = rho_of_epsilon_delta(amount, failure, "standard")  # the same number as a budget in epsilon
    assert bought <= Fraction(root * root) <= bought * (1 + Fraction(1, 10**13))


@pytest.mark.parametrize("rho", ["1/7", "1/97", "3", "22/7"])
def test_what_is_shown_of_a_rho_holds(rho: str) -> None:
    shown = Rho(Fraction(rho)).meaning().partition("at most ")[2].partition(" ")[0]
    assert 0 <= Fraction(shown) - epsilon_of_rho(Fraction(rho), DELTA) <= Fraction(1, 10**4)


@given(st.fractions(min_value=Fraction(1, 100), max_value=4, max_denominator=100), amounts)
def test_delta_covers_the_gaussian_itself_and_inverts_epsilon(rho: Fraction, epsilon: Fraction) -> None:
    delta = delta_of_rho(rho, epsilon)
    assert float(delta) >= gaussian_delta(float(rho), float(epsilon)) * (1 - 1e-9)
    if Fraction(1, 10**30) < delta < Fraction(1, 2):
        assert float(epsilon_of_rho(rho, delta)) == pytest.approx(float(epsilon), rel=1e-6)


def gaussian_delta(rho: float, epsilon: float) -> float:
    """Return the exact delta of the continuous Gaussian mechanism (Balle and Wang 2018, theorem 8)."""
    shift = math.sqrt(2 * rho)
    first, second = log_ndtr(shift / 2 - epsilon / shift), log_ndtr(-shift / 2 - epsilon / shift)
    return math.exp(first) - math.exp(epsilon + second)


@pytest.mark.parametrize("epsilon", ["1/100", "1/2", "1", "5", "30"])
@pytest.mark.parametrize("order", [2, 3, 64, Fraction(3, 2)])
def test_renyi_of_pure_is_that_of_randomised_response(epsilon: str, order: int | Fraction) -> None:
    budget = Fraction(epsilon)
    found = renyi_of_epsilon(budget, order)
    context = Context(prec=80)
    power, eps = Decimal(str(float(order))), context.divide(budget.numerator, budget.denominator)
    truth = context.divide(1, context.add(1, context.exp(-eps)))
    lie = context.subtract(1, truth)
    terms = [
        context.multiply(context.power(a, power), context.power(b, context.subtract(1, power)))
        for a, b in ((truth, lie), (lie, truth))
    ]
    exact = Fraction(context.divide(context.ln(context.add(*terms)), context.subtract(power, 1)))
    assert exact <= found <= exact * (1 + Fraction(1, 10**13))
    assert found <= min(budget, Fraction(order) * rho_of_epsilon(budget))


def test_a_budget_beyond_all_use_can_be_stated_once_it_is_paid() -> None:
    epsilon = Fraction(2000)
    assert renyi_of_epsilon(epsilon, 64) == epsilon == pytest.approx(float(renyi_of_epsilon(epsilon, 32)))
    assert Composition.of([LevelQuery(0, "cumulative", "", 4, Sensitivity(1, 1), Epsilon(epsilon))]).implied(None)


def test_what_a_pure_release_implies() -> None:
    implied = Epsilon(Fraction(1)).implied()
    assert implied["rho"] == "1/2"
    assert tuple(map(int, implied["renyi"])) == RENYI_ORDERS
    values = [Fraction(value) for value in implied["renyi"].values()]
    assert values == sorted(values)
    assert values[-1] < 1
    assert renyi_of_rho(Fraction(1, 2), 3) == Fraction(3, 2)


def test_costs_compose_exactly() -> None:
    parts = Rho(Fraction(1, 3)).shared(("1/7", "2/7", "4/7"))
    assert total(parts) == Rho(Fraction(1, 3))
    assert parts[1].distribution(Sensitivity(4, 6)).parameter == 6 / (2 * Fraction(2, 21))


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**4))
def test_directed_rounding_brackets_the_number(x: Fraction) -> None:
    pairs = ((ln_below, ln_above), (exp_below, exp_above), (round_below, round_above))
    for below, above in pairs:
        low, high = below(x), above(x)
        assert low <= high
        assert float(high) == pytest.approx(float(low), rel=1e-13) if high < 10**300 else high > low
    assert x <= sqrt_above(x) ** 2 <= x * (1 + Fraction(1, 10**13))
    assert round_below(x) <= x <= round_above(x)
    assert ln_below(exp_below(x)) <= x <= ln_above(exp_above(x))


@pytest.mark.parametrize("conversion", ["tight", "standard"])
@pytest.mark.parametrize("delta", ["0", "1", "3/2"])
def test_delta_must_be_a_probability(delta: str, conversion: Conversion) -> None:
    with pytest.raises(ProblemError, match="delta"):
        epsilon_of_rho(Fraction(1), Fraction(delta), conversion)
    with pytest.raises(ProblemError, match="delta"):
        rho_of_epsilon_delta(Fraction(1), Fraction(delta), conversion)


def test_parameters_that_are_no_budget_are_refused() -> None:
    with pytest.raises(ProblemError, match="rho"):
        epsilon_of_rho(Fraction(0), Fraction(1, 2))
    with pytest.raises(ProblemError, match="epsilon"):
        rho_of_epsilon(Fraction(0))
    with pytest.raises(ProblemError, match="order"):
        renyi_of_epsilon(Fraction(1), 1)
    with pytest.raises(ProblemError, match="conversion"):
        epsilon_of_rho(Fraction(1), Fraction(1, 2), "loose")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="too large"):
        exp_above(Fraction(10**6))
    with pytest.raises(ProblemError, match="logarithm"):
        ln_above(Fraction(0))
