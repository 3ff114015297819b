"""Selection with an honest budget: sensitivity by brute force, exact totals and distributions, audits of the whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from coco_experiments.groups import Case
from coco_experiments.kuo2018.selection import Candidate, noisy_min, noisy_min_selection, score
from numpy.typing import NDArray

from coco_opt import CountOfCounts, GroupsMethod, Hierarchy, SeededNoise, SolverChoices, estimate_groups
from coco_opt.audit.bounds import lower_bound
from coco_opt.errors import ProblemError
from coco_opt.groups import GroupsMeasurements
from coco_opt.privacy import Measurement, NoiseStream, RunKey, SecureNoise

Sizes = tuple[tuple[int, ...], ...]  # the groups of each leaf
HIERARCHY, REGION = Hierarchy.from_paths([("n", "a"), ("n", "b")]), Hierarchy.from_paths([("n",)])


def case_of(leaves: Sizes, hierarchy: Hierarchy = HIERARCHY, max_size: int = 2) -> Case:
    return Case.of_leaves("tiny", hierarchy, map(np.array, leaves), max_size)


TINY = case_of(((0, 1), (2,)))


def fixed(name: str, epsilon: Fraction = Fraction(1, 4)) -> Candidate:
    """Return a candidate whose estimate does not depend on what it measured."""
    return Candidate(name, ("cumulative",) * 2, (epsilon / 2,) * 2, lambda _: TINY.truth)


def added(leaves: Sizes) -> Iterator[Sizes]:
    """Yield all databases with one entity more."""
    for leaf, sizes in enumerate(leaves):
        for group, size in enumerate(sizes):
            grown = (*sizes[:group], size + 1, *sizes[group + 1 :])
            yield (*leaves[:leaf], grown, *leaves[leaf + 1 :])


def test_the_sensitivity_holds_and_is_reached() -> None:
    """Every database of two and one groups with sizes to 3 (bound 2), every neighbour, every estimate of some."""
    databases = [((x, y), (z,)) for x, y, z in product(range(4), repeat=3)]
    estimates = [case_of(((x, y), (z,))).truth for x, y, z in product(range(3), repeat=3)]
    scores = {}
    for leaves in {other for one in databases for other in (one, *added(one))}:
        case = case_of(leaves)
        scores[leaves] = [score(case, estimate) for estimate in estimates]
    worst = max(
        abs(a - b) for one in databases for other in added(one) for a, b in zip(scores[one], scores[other], strict=True)
    )
    assert worst == HIERARCHY.levels


def test_totals_are_exact_and_cover_every_candidate() -> None:
    candidates = [fixed("x", Fraction(1, 3)), fixed("y", Fraction(1, 7)), fixed("z")]
    least = noisy_min_selection(TINY, candidates, SeededNoise(1), epsilon=Fraction(1, 10))
    assert least.epsilon == Fraction(1, 3) + Fraction(1, 7) + Fraction(1, 4) + Fraction(1, 10)
    assert [one.cost.amount for one in least.paid] == [one.epsilon for one in candidates]


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


def test_noise_is_scaled_for_the_claim_and_never_shared() -> None:
    source = Recording()
    noisy_min_selection(TINY, [fixed("x"), fixed("y")], source, epsilon=Fraction(1, 5))
    assert len({opened[1:] for opened in source.opened}) == len(source.opened) == 2 * 3 + 1
    assert source.opened[-1] == (2 * 2 * Fraction(5), "selection of a candidate", "n")
    assert {scale for scale, what, _ in source.opened if "candidate " in what and ":" in what} == {Fraction(8)}


def test_secure_noise_gives_the_same_selection_again_and_no_second_one() -> None:
    candidates, sources = [fixed("x"), fixed("y")], [SecureNoise(RunKey(bytes(range(32)))) for _ in range(2)]
    first, second = (noisy_min_selection(TINY, candidates, one, epsilon=Fraction(1, 2)) for one in sources)
    assert first.candidate.name == second.candidate.name
    assert [each.answers[0].values.tolist() for each in first.paid] == [
        each.answers[0].values.tolist() for each in second.paid
    ]
    with pytest.raises(ProblemError, match="already drawn"):
        noisy_min_selection(TINY, candidates[:1], sources[0], epsilon=Fraction(1, 2))


RANK_WINS = np.arange(50, 2_000, 65)  # few groups, far apart
CUMULATIVE_WINS = np.repeat(range(1, 60), np.arange(400, 105, -5))  # many groups, every size


@pytest.mark.parametrize(
    ("groups", "max_size", "winner"), [(RANK_WINS, 3_000, "ranks"), (CUMULATIVE_WINS, 80, "cumulative")]
)
def test_the_better_query_is_chosen(groups: NDArray[np.int64], max_size: int, winner: str) -> None:
    def released(measurement: Measurement) -> Sequence[CountOfCounts]:
        method = GroupsMethod(losses=("l2",), consistency="matching")
        return estimate_groups(measurement, method, SolverChoices()).histograms

    candidates = [Candidate(query, (query,), (Fraction(1),), released) for query in ("cumulative", "ranks")]
    case = case_of((groups,), REGION, max_size)
    for seed in range(10):
        least = noisy_min_selection(case, candidates, SeededNoise(seed), epsilon=Fraction(1))
        assert (least.candidate.name, least.epsilon) == (winner, 3)


@pytest.mark.parametrize(
    ("change", "epsilon", "message"),
    [
        ({"queries": ("cumulative", "rank")}, 1, "unknown query"),
        ({"epsilons": (Fraction(1),)}, 1, "2 levels need as many"),
        ({"epsilons": (Fraction(1, 2**41), Fraction(1))}, 1, "at most 2\\*\\*40"),
        ({"epsilons": (Fraction(2), Fraction(-1))}, 1, "negative"),
        ({"epsilons": (Fraction(0), Fraction(0))}, 1, "no query has noise"),
        ({}, 0, "epsilon above zero"),
    ],
)
def test_every_candidate_is_checked_before_the_first_one_draws(
    change: dict[str, Any], epsilon: int, message: str
) -> None:
    source, bad = Recording(), replace(fixed("bad"), **change)
    with pytest.raises(ProblemError, match=message):
        noisy_min_selection(TINY, [fixed("good"), bad], source, epsilon=Fraction(epsilon))
    assert source.opened == []


def pmf(scale: float, reach: int) -> NDArray[np.float64]:
    a = math.exp(-1 / scale)
    return (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1))


def wins(scores: Sequence[int], scale: float) -> list[float]:
    """Return the exact law of ``noisy_min``: the sum over the winner's noise of the others' chances to stay behind."""
    reach = int(60 * scale) + max(scores)
    distribution = pmf(scale, reach)
    above = 1.0 - np.cumsum(distribution)  # P(noise > x), x = -reach .. reach
    probabilities = []
    for place, own in enumerate(scores):
        noisy = own + np.arange(-reach, reach + 1)
        behind = np.ones(noisy.size)
        for other, beside in enumerate(scores):
            if other != place:  # an earlier one must be above, a later one at least as large
                least = noisy - beside - (other > place)
                at = np.clip(least + reach, -1, 2 * reach)
                behind *= np.where(at < 0, 1.0, above[at])
        probabilities.append(float(distribution @ behind))
    return probabilities


def test_a_neighbour_changes_no_chance_to_win_by_more_than_the_claim() -> None:
    """The exact law at scale 2 D / epsilon, over all shifts of three scores by at most D = 2; ties included."""
    epsilon, most = 0.8, 2
    base = [10, 11, 13]
    reference = wins(base, 2 * most / epsilon)
    assert sum(reference) == pytest.approx(1.0)
    ratios = []
    for shift in product(range(-most, most + 1), repeat=3):
        moved = wins([score + by for score, by in zip(base, shift, strict=True)], 2 * most / epsilon)
        ratios.append(max(abs(math.log(a / b)) for a, b in zip(reference, moved, strict=True)))
    assert 0.5 * epsilon < max(ratios) <= epsilon + 1e-9


@pytest.mark.slow
def test_noisy_min_follows_its_exact_law() -> None:
    scores, n = [3, 0, 4, 0], 20_000
    stream = SecureNoise(RunKey(bytes(32))).stream(Fraction(4), measurement="t", region="n")
    counts = np.bincount([noisy_min(scores, stream) for _ in range(n)], minlength=4)
    expected = n * np.array(wins(scores, 4.0))
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # chi-square, 3 degrees of freedom, 0.1 %


def followed(measurement: Measurement) -> list[CountOfCounts]:
    """Estimate a group of size 0 where the noisy first cell says so, otherwise of size 1."""
    noisy = int(GroupsMeasurements(measurement)[0].values[0])
    return [CountOfCounts.from_runs([0 if noisy >= 1 else 1], [1])]


def audited(size: int, runs: int) -> NDArray[np.int64]:
    """Return the outputs of many selections: who won, and what was measured."""
    case, budget = case_of(((size,),), REGION, 1), (("cumulative",), (Fraction(1),))
    candidates = [
        Candidate("followed", *budget, followed),
        Candidate("0", *budget, lambda _: [CountOfCounts.from_runs([0], [1])]),
    ]
    outputs = np.empty((runs, 3), np.int64)
    for run in range(runs):
        result = noisy_min_selection(case, candidates, SeededNoise(2 * run + size), epsilon=Fraction(1))
        won = candidates.index(result.candidate)
        paid = sum(int(one.answers[0].values[0]) for one in result.paid)
        outputs[run] = won, paid, paid + 4 * won
    return outputs


@pytest.mark.slow
def test_a_selection_loses_no_more_than_it_says() -> None:
    """A sound lower bound on epsilon from runs on two neighbours: below the total, well above nothing."""
    assert 0.5 < lower_bound(audited(0, 1_000), audited(1, 1_000)).epsilon <= Fraction(3)


@pytest.mark.slow
def test_the_audit_sees_a_choice_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: exact scores choose, as if choosing were free."""
    monkeypatch.setattr("coco_experiments.kuo2018.selection.noisy_min", lambda scores, _: scores.index(min(scores)))
    assert lower_bound(audited(0, 1_500), audited(1, 1_500)).epsilon > 3
