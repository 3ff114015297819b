"""The distribution of the selection against the exact one, its privacy constant, and audits of whole selections."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from coco_experiments.kuo2018.private_selection import (
    Candidate,
    PrivateGroups,
    Selection,
    noisy_min,
    noisy_min_selection,
)
from numpy.typing import NDArray

from coco_opt import CountOfCounts, Hierarchy, SeededNoise
from coco_opt.audit.bounds import lower_bound
from coco_opt.groups import GroupsMeasurements
from coco_opt.privacy import Measurement, RunKey, SecureNoise
from tests.experiments.test_private_selection import private


def pmf(scale: float, reach: int) -> NDArray[np.float64]:
    a = math.exp(-1 / scale)
    return (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1))


def wins(scores: Sequence[int], scale: float) -> list[float]:
    """Return the exact law of ``noisy_min``: the sum over the winner's noise of the others' chances to stay behind."""
    reach = int(60 * scale) + max(scores)
    distribution = pmf(scale, reach)
    above = 1.0 - np.cumsum(distribution)  # P(noise > x), x = -reach .. reach
    probabilities = []
    for place, score in enumerate(scores):
        noisy = score + np.arange(-reach, reach + 1)
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


def audited(select: Callable[[PrivateGroups, list[Candidate]], Selection], size: int, runs: int) -> NDArray[np.int64]:
    """Return the outputs of many selections: who won, and what was measured."""
    region = Hierarchy.from_paths([("n",)])
    truth = [CountOfCounts.from_runs([size], [1])]
    each: dict[str, Any] = {"queries": ("cumulative",), "epsilons": (Fraction(1),)}
    constant = [CountOfCounts.from_runs([0], [1])]
    candidates = [Candidate("followed", estimate=followed, **each), Candidate("0", estimate=lambda _: constant, **each)]
    outputs = np.empty((runs, 3), np.int64)
    for run in range(runs):
        data = private(truth, SeededNoise(2 * run + size), hierarchy=region, max_size=1)
        result = select(data, candidates)
        won = candidates.index(result.candidate)
        paid = sum(int(one.answers[0].values[0]) for one in result.paid)
        outputs[run] = won, paid, paid + 4 * won
    return outputs


@pytest.mark.slow
def test_a_selection_loses_no_more_than_it_says() -> None:
    """A sound lower bound on epsilon from runs on two neighbours: below the total, well above nothing."""
    select = partial(noisy_min_selection, epsilon=Fraction(1))
    assert 0.5 < lower_bound(audited(select, 0, 1_000), audited(select, 1, 1_000)).epsilon <= Fraction(3)


@pytest.mark.slow
def test_the_audit_sees_a_choice_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: exact scores choose, as if choosing were free."""
    monkeypatch.setattr(
        "coco_experiments.kuo2018.private_selection.noisy_min", lambda scores, _: scores.index(min(scores))
    )
    select = partial(noisy_min_selection, epsilon=Fraction(1))
    assert lower_bound(audited(select, 0, 1_500), audited(select, 1, 1_500)).epsilon > 3
