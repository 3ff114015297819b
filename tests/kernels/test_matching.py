"""Algorithm 2 on runs: fixtures, optimality, marginals, the dual certificate."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.histograms import CountOfCounts, emd
from coco_opt.kernels.matching import MAX_GROUPS, Matches, match_runs, potentials

Runs = tuple[Ints, Ints, Ints, Ints, Ints]


def transport_cost(parent_sizes: Ints, child_sizes: Ints, matches: Matches) -> int:
    """Return the total |size difference| of a matching in entities, exactly."""
    gaps = np.abs(parent_sizes[matches.parent_run] - child_sizes[matches.child_run])
    return sum(gap * count for gap, count in zip(gaps.tolist(), matches.groups.tolist(), strict=True))


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


@st.composite
def instances(draw: st.DrawFn) -> Runs:
    """Draw groups of children and a parent of as many groups; equal sizes may lie in several runs."""
    children = draw(st.lists(st.lists(st.integers(0, 6), max_size=6), min_size=1, max_size=4))
    total = sum(map(len, children))
    parent = sorted(draw(st.lists(st.integers(0, 6), min_size=total, max_size=total)))
    sizes: list[int] = []
    counts: list[int] = []
    offsets = [0]
    for child in children:
        for size in sorted(child):
            if draw(st.booleans()) and len(sizes) > offsets[-1] and sizes[-1] == size:
                counts[-1] += 1
            else:
                sizes.append(size)
                counts.append(1)
        offsets.append(len(sizes))
    own = CountOfCounts.from_ranks(parent)
    return own.sizes, own.counts, ints(*sizes), ints(*counts), ints(*offsets)


def test_the_papers_proportional_example() -> None:
    matches = match_runs(ints(1, 2), ints(300, 100), ints(1, 1, 1), ints(200, 100, 100), ints(0, 1, 2, 3))
    first = matches.parent_run == 0
    assert matches.child_run[first].tolist() == [0, 1, 2]
    assert matches.groups[first].tolist() == [150, 75, 75]
    assert matches.groups[~first].tolist() == [50, 25, 25]


def test_largest_fractions_and_ties_to_the_lowest_child() -> None:
    # Shares 5/3 each: floors 1, 1, 1 and two units for children 0 and 1.
    matches = match_runs(ints(1, 9), ints(5, 4), ints(1, 1, 1), ints(3, 3, 3), ints(0, 1, 2, 3))
    assert matches.groups[matches.parent_run == 0].tolist() == [2, 2, 1]
    # Shares 0.8, 1.2, 2.0: child 0 has the largest fraction.
    matches = match_runs(ints(1, 9), ints(4, 6), ints(1, 1, 1), ints(2, 3, 5), ints(0, 1, 2, 3))
    assert matches.groups[matches.parent_run == 0].tolist() == [1, 1, 2]


def test_equal_sizes_are_taken_in_their_given_order() -> None:
    matches = match_runs(ints(4, 4), ints(2, 3), ints(4, 4, 4), ints(1, 2, 2), ints(0, 2, 3))
    assert list(zip(*(part.tolist() for part in matches), strict=True)) == [
        (0, 0, 1), (0, 1, 1), (1, 1, 1), (1, 2, 2),
    ]  # fmt: skip


@given(instances())
def test_cost_is_the_optimal_assignment_and_the_emd(runs: Runs) -> None:
    parent_sizes, parent_counts, child_sizes, child_counts, _ = runs
    matches = match_runs(*runs)
    parents, children = np.repeat(parent_sizes, parent_counts), np.repeat(child_sizes, child_counts)
    costs = np.abs(parents[:, None] - children[None, :])
    best = int(costs[linear_sum_assignment(costs)].sum())
    assert transport_cost(parent_sizes, child_sizes, matches) == best
    assert best == emd(CountOfCounts.from_ranks(parents), CountOfCounts.from_ranks(children))


@given(instances())
def test_marginals_are_exact_and_runs_repeat(runs: Runs) -> None:
    parent_sizes, parent_counts, child_sizes, child_counts, _ = runs
    matches = match_runs(*runs)
    given_away = np.zeros_like(parent_counts)
    np.add.at(given_away, matches.parent_run, matches.groups)
    taken = np.zeros_like(child_counts)
    np.add.at(taken, matches.child_run, matches.groups)
    assert np.array_equal(given_away, parent_counts)
    assert np.array_equal(taken, child_counts)
    assert np.all(matches.groups > 0)
    assert np.all(np.diff(parent_sizes[matches.parent_run]) >= 0)
    assert np.all(np.diff(child_sizes[matches.child_run]) >= 0)
    for first, second in zip(matches, match_runs(*runs), strict=True):
        assert np.array_equal(first, second)


def reference(runs: Runs) -> dict[tuple[int, int, int], int]:
    """Say how many groups each child gives from size t to parent size s: Algorithm 2, written plainly."""
    parent_sizes, parent_counts, child_sizes, child_counts, offsets = runs
    parents = CountOfCounts.from_runs(parent_sizes, parent_counts).to_dense(6).tolist()
    children = [
        CountOfCounts.from_runs(child_sizes[a:b], child_counts[a:b]).to_dense(6).tolist() for a, b in pairwise(offsets)
    ]
    given_from: dict[tuple[int, int, int], int] = {}
    while sum(parents):
        s = next(j for j in range(7) if parents[j])
        t = next(j for j in range(7) if any(child[j] for child in children))
        have = [child[t] for child in children]
        gives = have
        if sum(have) > parents[s]:
            exact = [(parents[s] * h, sum(have)) for h in have]
            gives = [top // bottom for top, bottom in exact]
            by_fraction = sorted(range(len(have)), key=lambda c: (-(exact[c][0] % exact[c][1]), c))
            for c in by_fraction[: parents[s] - sum(gives)]:
                gives[c] += 1
        for c, give in enumerate(gives):
            children[c][t] -= give
            parents[s] -= give
            if give:
                given_from[s, c, t] = given_from.get((s, c, t), 0) + give
    return given_from


@given(instances())
def test_each_child_gives_what_algorithm_2_says(runs: Runs) -> None:
    matches = match_runs(*runs)
    child = np.searchsorted(runs[4], matches.child_run, side="right") - 1
    counts: dict[tuple[int, int, int], int] = {}
    for p, c, run, count in zip(matches.parent_run, child, matches.child_run, matches.groups, strict=True):
        key = (int(runs[0][p]), int(c), int(runs[2][run]))
        counts[key] = counts.get(key, 0) + int(count)
    assert counts == reference(runs)


@given(instances())
def test_potentials_certify_the_matching_and_expose_a_worse_one(runs: Runs) -> None:
    parent_sizes, parent_counts, child_sizes, child_counts, _ = runs
    f_parent, f_child = potentials(parent_sizes, parent_counts, child_sizes, child_counts)
    matches = match_runs(*runs)
    cost = transport_cost(parent_sizes, child_sizes, matches)
    assert int(parent_counts @ f_parent) - int(child_counts @ f_child) == cost
    reduced = np.abs(parent_sizes[:, None] - child_sizes[None, :]) - (f_parent[:, None] - f_child[None, :])
    assert np.all(reduced >= 0)
    assert int((matches.groups * reduced[matches.parent_run, matches.child_run]).sum()) == 0
    # Reversing the children of the expanded matching keeps both marginals: its gap is its excess cost.
    p, c = np.repeat(matches.parent_run, matches.groups), np.repeat(matches.child_run, matches.groups)[::-1]
    worse = Matches(p, c, np.ones_like(p))
    assert int(reduced[p, c].sum()) == transport_cost(parent_sizes, child_sizes, worse) - cost


def test_largest_allowed_pool_does_not_overflow() -> None:
    half = MAX_GROUPS // 2
    matches = match_runs(ints(1, 2), ints(MAX_GROUPS - 1, 1), ints(1, 1), ints(half, MAX_GROUPS - half), ints(0, 1, 2))
    assert sum(matches.groups.tolist()) == MAX_GROUPS
    assert matches.groups[matches.parent_run == 1].tolist() == [1]
    wide = Matches(ints(0, 0), ints(0, 0), ints(2**40, 2**40))
    assert transport_cost(ints(0), ints(2**40), wide) == 2**81


def test_no_groups_and_sizes_that_are_no_integers() -> None:
    none = ints()
    matches = match_runs(none, none, none, none, ints(0, 0, 0))
    assert all(part.size == 0 for part in matches)
    assert transport_cost(none, none, matches) == 0
    assert all(part.size == 0 for part in potentials(none, none, none, none))
    matches = match_runs(np.array([0.5, 1.5]), ints(2, 1), np.array([0.25, 0.25, 0.75]), ints(1, 1, 1), ints(0, 1, 3))
    assert matches.groups.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ((ints(1), ints(2), ints(1), ints(1), ints(0, 1)), "as many groups"),
        ((ints(2, 1), ints(1, 1), ints(1), ints(2), ints(0, 1)), "nondecreasing"),
        ((ints(1), ints(2), ints(2, 1), ints(1, 1), ints(0, 2)), "nondecreasing"),
        ((ints(1), ints(0), ints(1), ints(0), ints(0, 1)), "positive"),
        ((ints(1), np.array([1.0]), ints(1), ints(1), ints(0, 1)), "int64"),
        ((ints(1), ints(1, 1), ints(1), ints(1), ints(0, 1)), "same length"),
        ((ints(1), ints(1), ints(1), ints(1), ints(0, 2)), "offsets"),
        ((ints(1), ints(1), ints(1), ints(1), ints(1, 1)), "offsets"),
        ((ints(1), ints(1), ints(1), ints(1), ints()), "offsets"),
        ((np.array([np.nan]), ints(1), ints(1), ints(1), ints(0, 1)), "finite"),
        ((ints(1), ints(2**40), ints(1), ints(2**40), ints(0, 1)), "at most"),
    ],
)
def test_bad_runs_are_refused(runs: Runs, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        match_runs(*runs)
