"""Budgets are exact fractions: how they are read, shared and added up, what they are predicted to buy and promise.

Predicted errors are compared with full covariance matrices and simulation, joint promises with enumerated neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import ProblemError
from coco_opt.privacy import Epsilon, Rho, Sensitivity
from coco_opt.privacy.budget import noise_scale, parse_epsilon, sequential, split, with_decimal
from coco_opt.privacy.noise_distributions import geometric_variance
from coco_opt.privacy.planner import DENOMINATOR, NoisePlan, rounded_shares
from coco_opt.privacy.promise import Promise, joint


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


REPLACED = (Sensitivity(4, 6), Sensitivity(2, 2), Sensitivity(2, 2))


def test_costs_and_sensitivities_enter_the_variances() -> None:
    plan = NoisePlan(Rho(Fraction(1, 2)), REPLACED)
    np.testing.assert_allclose(plan.variances([0.5, 0.5, 0.0]), [12.0, 4.0, np.inf])
    pure = NoisePlan(Epsilon(Fraction(2)), REPLACED)
    expected = [geometric_variance(4.0), geometric_variance(4.0), geometric_variance(2.0)]
    np.testing.assert_allclose(pure.variances([0.5, 0.25, 0.5]), expected)


def test_rounded_shares_sum_to_one_exactly() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        shares = rounded_shares(rng.exponential(size=int(rng.integers(1, 8))) ** 3 + 1e-12)
        assert sum(shares) == 1
        assert min(shares) >= Fraction(1, DENOMINATOR)


COUNTS = ("persons", "women", "northerners")
PROMISES = st.builds(
    Promise,
    neighbours=st.sampled_from(["add_remove", "replace"]),
    unit=st.sampled_from(["entity", "person", "household"]),
    contributions=st.integers(1, 3),
    groups=st.sampled_from(["", "public", "private"]),
    exact=st.none()
    | st.sets(st.sampled_from(COUNTS)).map(lambda words: tuple(sorted(("nation", name) for name in words))),
)
Person = tuple[str, ...]  # the rows of a person: "nf" is a woman in the north


def data_sets(most: int) -> Iterator[frozenset[tuple[int, Person]]]:
    """Yield all data sets of two persons, of none to ``most`` rows each."""
    persons = [rows for count in range(most + 1) for rows in combinations_with_replacement(("nf", "nm", "sf"), count)]
    for pair in product(persons, repeat=2):
        yield frozenset(enumerate(pair))


def answers(data: frozenset[tuple[int, Person]]) -> dict[str, int]:
    rows = [row for _, person in data for row in person]
    return dict(zip(COUNTS, (len(rows), sum("f" in row for row in rows), sum("n" in row for row in rows)), strict=True))


def covers(promise: Promise, one: frozenset[tuple[int, Person]], other: frozenset[tuple[int, Person]]) -> bool:
    """Return whether two data sets are neighbours under a promise, by its definition."""
    changed = sorted(one ^ other)
    if len(changed) != 2 or any(len(rows) > promise.contributions for _, rows in changed):
        return False
    gone = () in (rows for _, rows in changed)
    if gone != (promise.neighbours == "add_remove"):
        return False
    equal = {name for name, count in answers(one).items() if answers(other)[name] == count}
    return {words for _, words in promise.exact or ()} <= equal


PAIRS = [(one, other) for one in data_sets(2) for other in data_sets(2) if one != other and len(one ^ other) == 2][::7]


@given(st.lists(PROMISES, min_size=1, max_size=3))
def test_neighbours_of_a_joint_promise_are_neighbours_of_all(promises: list[Promise]) -> None:
    together = joint(promises)
    assert together == joint(reversed(promises))
    if together is None:
        assert len({promise.neighbours for promise in promises}) > 1 or len({p.unit for p in promises}) > 1
        return
    assert joint([*promises, together]) == together
    for one, other in PAIRS:
        assert covers(together, one, other) == all(covers(promise, one, other) for promise in promises)
    assert (together.groups == "public") == any(promise.groups == "public" for promise in promises)


@given(PROMISES, PROMISES)
def test_what_an_account_admits_leaves_its_neighbours_as_they_are(account: Promise, later: Promise) -> None:
    if account.admits(later):
        together = joint((account, later))
        assert together is not None
        assert all(covers(together, *pair) == covers(account, *pair) for pair in PAIRS)
        assert (together.groups == "public") == (account.groups == "public")
    assert account.admits(account)


@pytest.mark.parametrize("change", [{"contributions": 2}, {"groups": "public"}, {"exact": (("nation", "persons"),)}])
def test_each_difference_is_seen_both_ways_round(change: dict[str, object]) -> None:
    promise = Promise("replace", "person", 1, "private", ())
    other = replace(promise, **change)  # type: ignore[arg-type]
    assert not promise.admits(other)
    assert not other.admits(promise)


@given(PROMISES)
def test_words_name_all_that_is_exact_and_plain_values_are_read_back(promise: Promise) -> None:
    assert Promise.of(promise.as_dict()) == promise
    for level, words in promise.exact or ():
        assert f"{words} by {level}" in promise.words
    assert ("number of groups of every region" in promise.words) == (promise.groups == "public")
    assert "exactly, without noise" in promise.words
