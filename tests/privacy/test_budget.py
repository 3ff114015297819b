"""Budgets are exact, and each declared sensitivity is reached and never exceeded (brute force)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import ProblemError
from coco_opt.privacy.budget import (
    NEIGHBOURS,
    QUERIES,
    Neighbours,
    PureBudget,
    Query,
    noise_scale,
    parallel,
    parse_epsilon,
    sensitivity,
    sequential,
    split,
    uniform_split,
)


def answer(sizes: tuple[int, ...], query: Query, clamp: int) -> list[int]:
    """Compute a query from its definition, cell by cell, on group sizes clamped to ``clamp``."""
    ranked = sorted(min(size, clamp) for size in sizes)
    if query == "rank":
        return ranked
    if query == "naive":
        return [ranked.count(size) for size in range(clamp + 1)]
    return [sum(size <= bound for size in ranked) for bound in range(clamp)]


def distance(left: tuple[int, ...], right: tuple[int, ...], query: Query, clamp: int) -> int:
    pairs = zip(answer(left, query, clamp), answer(right, query, clamp), strict=True)
    return sum(abs(a - b) for a, b in pairs)


def neighbours_of(sizes: tuple[int, ...], neighbours: Neighbours) -> Iterator[tuple[int, ...]]:
    """Yield every database one entity away (each unordered pair comes up from one of its ends)."""
    if neighbours == "add_remove":
        for group in range(len(sizes)):
            yield (*sizes[:group], sizes[group] + 1, *sizes[group + 1 :])
        return
    for source, target in permutations(range(len(sizes)), 2):
        if sizes[source] > 0:
            moved = list(sizes)
            moved[source] -= 1
            moved[target] += 1
            yield tuple(moved)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("clamp", [2, 3, 9])
def test_sensitivity_is_reached_and_never_exceeded_on_all_small_databases(
    query: Query, neighbours: Neighbours, clamp: int
) -> None:
    seen = {
        distance(sizes, other, query, clamp)
        for groups in range(1, 5)
        for sizes in combinations_with_replacement(range(6), groups)
        for other in neighbours_of(sizes, neighbours)
    }
    assert max(seen) == sensitivity(query, neighbours)


def _row_counts(ranked: np.ndarray, cells: int) -> np.ndarray:
    rows = np.repeat(np.arange(len(ranked)), ranked.shape[1])
    flat = np.bincount(rows * cells + ranked.ravel(), minlength=len(ranked) * cells)
    return flat.reshape(len(ranked), cells)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("clamp", [6, 30])
def test_sensitivity_on_a_hundred_thousand_random_pairs(neighbours: Neighbours, clamp: int) -> None:
    rng = np.random.default_rng(20)
    pairs, groups, largest = 100_000, 7, 12
    left = rng.integers(1, largest, size=(pairs, groups))
    right = left.copy()
    chosen = rng.permuted(np.tile(np.arange(groups), (pairs, 1)), axis=1)
    right[np.arange(pairs), chosen[:, 0]] += 1
    if neighbours == "replace":
        right[np.arange(pairs), chosen[:, 1]] -= 1
    ranks = [np.sort(np.minimum(sizes, clamp), axis=1) for sizes in (left, right)]
    counts = [_row_counts(ranked, clamp + 1) for ranked in ranks]
    cumulative = [cells.cumsum(axis=1)[:, :-1] for cells in counts]
    for query, (a, b) in {"rank": ranks, "naive": counts, "cumulative": cumulative}.items():
        assert np.abs(a - b).sum(axis=1).max() == sensitivity(query, neighbours)  # type: ignore[arg-type]


@pytest.mark.parametrize("query", QUERIES)
def test_moving_an_entity_between_regions_costs_no_more_than_within_one(query: Query) -> None:
    # Parallel composition over the regions of a level must hold for "replace" as well.
    worst = 0
    for left in combinations_with_replacement(range(4), 2):
        for right in combinations_with_replacement(range(4), 2):
            for moved in neighbours_of(left + right, "replace"):
                change = distance(left, moved[:2], query, 3) + distance(right, moved[2:], query, 3)
                worst = max(worst, change)
    assert worst == sensitivity(query, "replace")


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


def test_uniform_thirds_sum_to_the_whole() -> None:
    assert sequential(uniform_split(parse_epsilon("0.1"), 3)) == Fraction(1, 10)
    with pytest.raises(ProblemError, match="at least one"):
        uniform_split(Fraction(1), 0)


def test_shares_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(ProblemError, match="sum to 99/100"):
        split(Fraction(1), ["0.33", "0.33", "0.33"])
    assert split(Fraction(3), ["1/3", "2/3", "0"]) == (Fraction(1), Fraction(2), Fraction(0))


def test_levels_add_and_regions_do_not() -> None:
    assert sequential([Fraction(1, 3), Fraction(1, 6)]) == Fraction(1, 2)
    assert parallel([Fraction(1, 3), Fraction(1, 6)]) == Fraction(1, 3)
    assert (sequential([]), parallel([])) == (Fraction(0), Fraction(0))


def test_noise_scale_is_exact() -> None:
    assert noise_scale(2, Fraction(3, 10)) == Fraction(20, 3)
    for bad in [(0, Fraction(1)), (1, Fraction(0)), (1, Fraction(-1))]:
        with pytest.raises(ProblemError):
            noise_scale(*bad)


def test_a_budget_knows_the_scale_of_each_level() -> None:
    budget = PureBudget.uniform(Fraction(1), 3)
    assert budget.scale(0, "naive") == 6
    assert PureBudget.uniform(Fraction(1), 3, "replace").scale(2, "rank") == 6
    bottom = PureBudget.shared(Fraction(1), ["0", "0", "1"])
    assert bottom.scale(2, "cumulative") == 1
    with pytest.raises(ProblemError):
        bottom.scale(0, "cumulative")


@pytest.mark.parametrize("levels", [(Fraction(1, 2),), (Fraction(2), Fraction(-1)), (Fraction(1), Fraction(1))])
def test_a_budget_whose_levels_do_not_add_up_is_refused(levels: tuple[Fraction, ...]) -> None:
    with pytest.raises(ProblemError):
        PureBudget(Fraction(1), levels)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ProblemError, match="unknown query"):
        sensitivity("H", "add_remove")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="unknown neighbours"):
        sensitivity("naive", "swap")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="unknown neighbours"):
        PureBudget(Fraction(1), (Fraction(1),), "swap")  # type: ignore[arg-type]
