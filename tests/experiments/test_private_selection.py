"""Selection with an honest budget: sensitivity by brute force, exact totals, exact laws, and which candidate wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from coco_experiments.kuo2018.private_selection import (
    Candidate,
    PrivateGroups,
    Selection,
    noisy_min_selection,
    score_sensitivity,
)
from numpy.typing import NDArray

from coco_opt import CountOfCounts, GroupsMethod, Hierarchy, SeededNoise
from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms import sum_of_leaves
from coco_opt.privacy import NoiseSource, NoiseStream, RunKey, SecureNoise

Sizes = tuple[tuple[int, ...], ...]  # the groups of each leaf
HIERARCHY = Hierarchy.from_paths([("n", "a"), ("n", "b")])
TINY_SIZE = 2


def tables(leaves: Sizes) -> tuple[CountOfCounts, ...]:
    return tuple(sum_of_leaves(HIERARCHY, [CountOfCounts.from_ranks(list(leaf)) for leaf in leaves]))


def private(
    truth: Sequence[CountOfCounts],
    source: NoiseSource,
    *,
    hierarchy: Hierarchy = HIERARCHY,
    max_size: int = TINY_SIZE,
    neighbours: str = "add_remove",
    levels: tuple[int, ...] | None = None,
) -> PrivateGroups:
    counts = np.array([histogram.groups for histogram in truth])
    return PrivateGroups(hierarchy, tuple(truth), counts, max_size, neighbours, source, levels)


def fixed(name: str, histograms: Sequence[CountOfCounts], epsilon: Fraction = Fraction(1, 4)) -> Candidate:
    """Return a candidate whose estimate does not depend on what it measured."""
    return Candidate(name, ("cumulative",) * 2, (epsilon / 2,) * 2, lambda _: histograms)


def added(leaves: Sizes) -> Iterator[Sizes]:
    """Yield all databases with one entity more."""
    for leaf, sizes in enumerate(leaves):
        for group, size in enumerate(sizes):
            grown = (*sizes[:group], size + 1, *sizes[group + 1 :])
            yield (*leaves[:leaf], grown, *leaves[leaf + 1 :])


def replaced(leaves: Sizes) -> Iterator[Sizes]:
    """Yield all databases with one entity moved between two groups."""
    for more in added(leaves):
        for leaf, sizes in enumerate(more):
            for group, size in enumerate(sizes):
                if size > 0:
                    yield (*more[:leaf], (*sizes[:group], size - 1, *sizes[group + 1 :]), *more[leaf + 1 :])


@pytest.mark.parametrize("levels", [None, (1,), (0,)])
@pytest.mark.parametrize(("neighbours", "others"), [("add_remove", added), ("replace", replaced)])
def test_the_sensitivity_holds_and_is_reached(
    neighbours: str, others: Callable[[Sizes], Iterator[Sizes]], levels: tuple[int, ...] | None
) -> None:
    """Every database of two and one groups with sizes to 3 (bound 2), every neighbour, every estimate of some."""
    databases = [((x, y), (z,)) for x, y, z in product(range(4), repeat=3)]
    estimates = [tables(((x, y), (z,))) for x, y, z in product(range(3), repeat=3)]
    claimed = score_sensitivity(2 if levels is None else 1, neighbours)
    scores: dict[Sizes, list[int]] = {}

    def scored(leaves: Sizes) -> list[int]:
        if leaves not in scores:
            data = private(tables(leaves), SeededNoise(0), neighbours=neighbours, levels=levels)
            scores[leaves] = [data.score(estimate) for estimate in estimates]
        return scores[leaves]

    worst = max(
        abs(a - b) for one in databases for two in others(one) for a, b in zip(scored(one), scored(two), strict=True)
    )
    assert worst == claimed


def test_totals_are_exact_and_cover_every_candidate() -> None:
    truth = tables(((0, 1), (2,)))
    candidates = [fixed("x", truth, Fraction(1, 3)), fixed("y", truth, Fraction(1, 7)), fixed("z", truth)]
    least = noisy_min_selection(private(truth, SeededNoise(1)), candidates, epsilon=Fraction(1, 10))
    assert least.epsilon == Fraction(1, 3) + Fraction(1, 7) + Fraction(1, 4) + Fraction(1, 10)
    assert sum(one.cost.amount for one in least.paid) + Fraction(1, 10) == least.epsilon
    assert [one.cost.amount for one in least.paid] == [one.epsilon for one in candidates]
    assert not least.private


class Recording:
    """Adds nothing and records every stream that was opened."""

    name: ClassVar[str] = "recording"
    private: ClassVar[bool] = False

    def __init__(self) -> None:
        self.opened: list[tuple[Fraction, str, str]] = []

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        self.opened.append((scale, measurement, region))
        return Silent()


class Silent:
    def add_to(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return values.copy()

    def draw(self, n: int) -> NDArray[np.int64]:
        return np.zeros(n, dtype=np.int64)


@pytest.mark.parametrize(("neighbours", "factor"), [("add_remove", 1), ("replace", 2)])
def test_noise_is_scaled_for_the_claim_and_never_shared(neighbours: str, factor: int) -> None:
    truth = tables(((0, 1), (2,)))
    source = Recording()
    data = private(truth, source, neighbours=neighbours)
    noisy_min_selection(data, [fixed("x", truth), fixed("y", truth)], epsilon=Fraction(1, 5))
    assert len({opened[1:] for opened in source.opened}) == len(source.opened) == 2 * 3 + 1
    assert source.opened[-1] == (2 * 2 * factor * Fraction(5), "selection of a candidate", "n")
    assert {scale for scale, what, _ in source.opened if "candidate " in what and ":" in what} == {Fraction(8 * factor)}


def test_secure_noise_gives_the_same_selection_again_and_no_second_one() -> None:
    truth = tables(((0, 1), (2,)))
    secret = bytes(range(32))

    def chosen() -> tuple[Selection, PrivateGroups]:
        data = private(truth, SecureNoise(RunKey(secret)))
        return noisy_min_selection(data, [fixed("x", truth), fixed("y", truth)], epsilon=Fraction(1, 2)), data

    (first, data), (second, _) = chosen(), chosen()
    assert first.candidate.name == second.candidate.name
    assert [each.answers[0].values.tolist() for each in first.paid] == [
        each.answers[0].values.tolist() for each in second.paid
    ]
    assert first.private
    with pytest.raises(ProblemError, match="already drawn"):
        noisy_min_selection(data, [fixed("x", truth)], epsilon=Fraction(1, 2))


def one_region(groups: CountOfCounts, max_size: int, seed: int) -> PrivateGroups:
    return private([groups], SeededNoise(seed), hierarchy=Hierarchy.from_paths([("n",)]), max_size=max_size)


def of_query(query: str, epsilon: Fraction) -> Candidate:
    return Candidate.of_method(query, GroupsMethod(losses=("l2",), consistency="matching"), [query], [epsilon])


RANK_WINS = CountOfCounts.from_runs(range(50, 2_000, 65), [1] * 30)  # few groups, far apart
CUMULATIVE_WINS = CountOfCounts.from_runs(range(1, 60), np.arange(400, 105, -5))  # many groups, every size


@pytest.mark.parametrize(
    ("groups", "max_size", "winner"), [(RANK_WINS, 3_000, "ranks"), (CUMULATIVE_WINS, 80, "cumulative")]
)
def test_the_better_query_is_chosen(groups: CountOfCounts, max_size: int, winner: str) -> None:
    candidates = [of_query("cumulative", Fraction(1)), of_query("ranks", Fraction(1))]
    for seed in range(10):
        data = one_region(groups, max_size, seed)
        least = noisy_min_selection(data, candidates, epsilon=Fraction(1))
        assert least.candidate.name == winner
        assert least.epsilon == 3


def test_private_numbers_are_not_shown() -> None:
    data = private(tables(((0, 1), (2,))), SeededNoise(1))
    assert "CountOfCounts" not in repr(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": []}, "at least one candidate"),
        ({"epsilons": (Fraction(1),)}, "2 levels need as many epsilons"),
        ({"epsilons": (Fraction(2), Fraction(-1))}, "may be negative"),
        ({"epsilons": (Fraction(0), Fraction(0))}, "nor all of them zero"),
        ({"epsilon": Fraction(0)}, "epsilon above zero"),
    ],
)
def test_budgets_are_checked_before_any_noise(change: dict[str, Any], message: str) -> None:
    truth = tables(((0, 1), (2,)))
    source = Recording()
    epsilons = change.get("epsilons", (Fraction(1), Fraction(1)))
    candidate = Candidate("x", ("ranks",) * 2, epsilons, lambda _: truth)
    epsilon = change.get("epsilon", Fraction(1))
    with pytest.raises(ProblemError, match=message):
        noisy_min_selection(private(truth, source), change.get("candidates", [candidate]), epsilon=epsilon)
    assert source.opened == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": ("cumulative", "rank")}, "unknown query"),
        ({"epsilons": (Fraction(1, 2**41), Fraction(1))}, "at most 2\\*\\*40"),
    ],
)
def test_every_candidate_is_checked_before_the_first_one_draws(change: dict[str, Any], message: str) -> None:
    truth = tables(((0, 1), (2,)))
    source = Recording()
    bad = replace(fixed("bad", truth), **change)
    with pytest.raises(ProblemError, match=message):
        noisy_min_selection(private(truth, source), [fixed("good", truth), bad], epsilon=Fraction(1))
    assert source.opened == []


def test_a_wrong_number_of_groups_is_refused_before_any_noise_and_not_shown() -> None:
    truth = (*tables(((0, 1), (2,)))[:2], CountOfCounts.from_runs([2], [98_765]))
    with pytest.raises(InputError, match="public number of groups") as error:
        PrivateGroups(HIERARCHY, truth, np.array([3, 2, 1]), TINY_SIZE, "add_remove", SeededNoise(1))
    assert "98" not in str(error.value)


def test_estimates_must_be_tables_of_the_hierarchy() -> None:
    truth = tables(((0, 1), (2,)))
    with pytest.raises(ProblemError, match="one histogram for each region"):
        noisy_min_selection(private(truth, SeededNoise(1)), [fixed("x", truth[:1])], epsilon=Fraction(1))
    wrong = (truth[0], truth[2], truth[1])
    with pytest.raises(InputError, match="same number of groups"):
        noisy_min_selection(private(truth, SeededNoise(1)), [fixed("x", wrong)], epsilon=Fraction(1))
    with pytest.raises(ProblemError, match="each once"):
        private(truth, SeededNoise(1), levels=(0, 0))
