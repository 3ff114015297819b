"""Budgets are exact fractions: how they are read, shared and added up."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import ProblemError
from coco_opt.privacy.budget import noise_scale, parse_epsilon, sequential, split, with_decimal


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", Fraction(1)),
        ("0.1", Fraction(1, 10)),
        (" 1/3 ", Fraction(1, 3)),
        (2, Fraction(2)),
        ("00.50", Fraction(1, 2)),
    ],
)
def test_epsilon_is_read_exactly(text: str | int, value: Fraction) -> None:
    assert parse_epsilon(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "0.0",
        "-1",
        "1e-3",
        "nan",
        "inf",
        "",
        "1/0",
        "1.",
        ".5",
        "1/2/3",
        "1_0",
        "٣",
        "1" * 65,
        0.1,
        True,
        -1,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ProblemError):
        parse_epsilon(text)


@given(
    st.fractions(min_value=Fraction(1, 10**6), max_value=1000),
    st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any),
)
def test_a_split_loses_nothing(total: Fraction, weights: list[int]) -> None:
    parts = split(total, [Fraction(weight, sum(weights)) for weight in weights])
    assert sequential(parts) == total
    assert [part == 0 for part in parts] == [weight == 0 for weight in weights]


def test_shares_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(ProblemError, match="sum to 99/100"):
        split(Fraction(1), ["0.33", "0.33", "0.33"])
    assert split(Fraction(3), ["1/3", "2/3", "0"]) == (Fraction(1), Fraction(2), Fraction(0))


def test_noise_scale_is_exact() -> None:
    assert noise_scale(2, Fraction(3, 10)) == Fraction(20, 3)
    for bad in [(0, Fraction(1)), (1, Fraction(0)), (1, Fraction(-1))]:
        with pytest.raises(ProblemError):
            noise_scale(*bad)


def test_a_decimal_follows_fractions_of_many_digits() -> None:
    amounts = Fraction(1133, 25000), Fraction(3, 50), Fraction(2), "0.12345678"
    assert [with_decimal(amount) for amount in amounts] == ["1133/25000 (0.04532)", "3/50", "2", "0.12345678"]
