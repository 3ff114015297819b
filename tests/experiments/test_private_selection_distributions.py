"""The laws of both selection rules against exact ones, their privacy constants, and audits of whole selections."""

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
    expected_runs,
    geometric,
    noisy_min,
    noisy_min_selection,
    random_stopping_selection,
    uniform,
)
from numpy.typing import NDArray

from coco_opt import CountOfCounts, Hierarchy, SeededNoise
from coco_opt.audit.bounds import lower_bound
from coco_opt.groups import GroupsMeasurements
from coco_opt.privacy import Measurement, RunKey, SecureNoise
from tests.experiments.test_private_selection import fixed, private, tables


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


def truncated_distribution(p: NDArray[np.float64], score: Sequence[int], stop: float) -> NDArray[np.float64]:
    """P(y) of the best of a geometric number of runs, by the formula of the module, least score best."""
    better = np.array([p[np.array(score) < mine].sum() for mine in score])
    as_well = np.array([p[np.array(score) <= mine].sum() for mine in score])
    return stop * p / ((stop + (1 - stop) * better) * (stop + (1 - stop) * as_well))


@pytest.mark.parametrize("stop", [0.9, 0.3, 0.01])
def test_the_law_of_random_stopping_and_its_constant(stop: float) -> None:
    """The formula against the sum over k, and the worst ratio over private pairs: above 2 e1 for rare stops, not 3."""
    rng = np.random.default_rng(3)
    score, e1 = [0, 1, 1, 2], 0.4
    p = rng.dirichlet(np.ones(4))
    direct = np.zeros(4)
    for k in range(1, int(60 / stop)):
        for place, mine in enumerate(score):
            same = p[np.array(score) == mine].sum()
            not_better = p[np.array(score) >= mine].sum()
            worse = p[np.array(score) > mine].sum()
            direct[place] += stop * (1 - stop) ** (k - 1) * (not_better**k - worse**k) * p[place] / same
    np.testing.assert_allclose(truncated_distribution(p, score, stop), direct, atol=1e-12)
    worst = 0.0
    for _ in range(2_000):
        q = p * np.exp(rng.uniform(-e1 / 2, e1 / 2, 4))
        q /= q.sum()
        loss = np.abs(np.log(q / p)).max()
        worst = max(
            worst,
            np.abs(np.log(truncated_distribution(q, score, stop) / truncated_distribution(p, score, stop))).max()
            / loss,
        )
    assert 1.0 < worst <= 3.0


def test_the_constant_three_is_needed() -> None:
    """Rare best answers that get rarer by e^e1 while the output looked at gets likelier: nearly 3 e1 is lost."""
    e1, rare = 0.5, 1e-3
    p = np.array([rare * math.exp(e1), rare, 0.0])
    q = np.array([rare, rare * math.exp(e1), 0.0])
    p[2], q[2] = 1 - p.sum(), 1 - q.sum()
    tiny = np.array([1e-4, 1e-4])
    p[1], q[1] = tiny[0], tiny[1] * math.exp(e1)
    p[2], q[2] = 1 - p[0] - p[1], 1 - q[0] - q[1]
    assert np.abs(np.log(q / p)).max() <= e1 + 1e-12
    loss = np.log(truncated_distribution(q, [0, 1, 2], 1e-7) / truncated_distribution(p, [0, 1, 2], 1e-7))
    assert 2.7 * e1 < loss[1] <= 3 * e1


def test_geometric_and_uniform_draws_have_their_laws() -> None:
    stream = SecureNoise(RunKey(bytes(32))).stream(Fraction(3), measurement="t", region="n")
    a, n = math.exp(-1 / 3), 2_500
    counts = np.bincount([geometric(stream) for _ in range(n)], minlength=60)
    expected = n * (1 - a) * a ** np.arange(0, 12)
    assert counts[0] == 0
    assert (np.abs(counts[1:13] - expected) < 5 * np.sqrt(expected)).all()
    assert (counts @ np.arange(counts.size)) / n == pytest.approx(expected_runs(Fraction(3)), rel=0.1)
    picks = np.bincount([uniform(stream, 5) for _ in range(n)], minlength=5)
    assert picks.size == 5
    assert (np.abs(picks - n / 5) < 5 * math.sqrt(n / 5)).all()
    assert uniform(stream, 1) == 0


@pytest.mark.slow
def test_noisy_min_follows_its_exact_law() -> None:
    scores, n = [3, 0, 4, 0], 20_000
    stream = SecureNoise(RunKey(bytes(32))).stream(Fraction(4), measurement="t", region="n")
    counts = np.bincount([noisy_min(scores, stream) for _ in range(n)], minlength=4)
    expected = n * np.array(wins(scores, 4.0))
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # chi-square, 3 degrees of freedom, 0.1 %


@pytest.mark.slow
def test_random_stopping_follows_its_exact_law() -> None:
    """Candidates whose scores are 0, 3 and 3 and are told apart by the score's noise."""
    truth = tables(((0, 1), (2,)))
    others = tables(((1, 1), (2,))), tables(((0, 1), (1,)))
    candidates = [fixed("x", truth), *(fixed("y", other) for other in others)]
    scale, n = Fraction(2), 1_500
    selections = [
        random_stopping_selection(private(truth, SeededNoise(seed)), candidates, epsilon=Fraction(1), scale=scale)
        for seed in range(n)
    ]
    reach = 60
    distribution = pmf(2.0, reach)
    values = np.arange(-reach - 2, reach + 5)
    runs = np.zeros(values.size)
    for shift in (0, 2, 2):
        runs[shift + 2 : shift + 2 + distribution.size] += distribution / 3
    exact = truncated_distribution(runs, values.tolist(), 1 - math.exp(-1 / 2))
    assert exact.sum() == pytest.approx(1.0)
    counts = np.bincount(
        [int(selection.noisy_score or 0) + reach + 2 for selection in selections], minlength=values.size
    )
    frequent = n * exact > 5
    expected = np.append(n * exact[frequent], n * exact[~frequent].sum())
    seen = np.append(counts[frequent], counts[~frequent].sum())
    assert ((seen - expected) ** 2 / expected).sum() < expected.size + 4 * math.sqrt(2 * expected.size)


def followed(measurement: Measurement) -> list[CountOfCounts]:
    """Estimate a group of size 0 where the noisy first cell says so, otherwise of size 1."""
    noisy = int(GroupsMeasurements(measurement)[0].values[0])
    return [CountOfCounts.from_runs([0 if noisy >= 1 else 1], [1])]


def audited(select: Callable[[PrivateGroups, list[Candidate]], Selection], size: int, runs: int) -> NDArray[np.int64]:
    """Return the outputs of many selections: who won, by what noisy score, and what it measured."""
    region = Hierarchy.from_paths([("n",)])
    truth = [CountOfCounts.from_runs([size], [1])]
    each: dict[str, Any] = {"queries": ("cumulative",), "epsilons": (Fraction(1),)}
    constant = [CountOfCounts.from_runs([0], [1])]
    candidates = [Candidate("followed", estimate=followed, **each), Candidate("0", estimate=lambda _: constant, **each)]
    outputs = np.empty((runs, 4), np.int64)
    for run in range(runs):
        data = private(truth, SeededNoise(2 * run + size), hierarchy=region, max_size=1)
        result = select(data, candidates)
        won, noisy = candidates.index(result.candidate), int(result.noisy_score or 0)
        paid = sum(int(one.answers[0].values[0]) for one in result.paid)
        outputs[run] = won, noisy, paid, paid + 4 * won
    return outputs


@pytest.mark.slow
def test_neither_rule_loses_more_than_it_says() -> None:
    """A sound lower bound on epsilon from runs on two neighbours: below the total, well above nothing."""
    least = partial(noisy_min_selection, epsilon=Fraction(1))
    stopping = partial(random_stopping_selection, epsilon=Fraction(1, 2), scale=Fraction(2))
    for select, total in ((least, Fraction(3)), (stopping, Fraction(9, 2))):
        bound = lower_bound(audited(select, 0, 1_000), audited(select, 1, 1_000)).epsilon
        assert 0.5 < bound <= total


@pytest.mark.slow
def test_the_audit_sees_a_choice_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: exact scores choose, as if choosing were free."""
    monkeypatch.setattr(
        "coco_experiments.kuo2018.private_selection.noisy_min", lambda scores, _: scores.index(min(scores))
    )
    select = partial(noisy_min_selection, epsilon=Fraction(1))
    assert lower_bound(audited(select, 0, 1_500), audited(select, 1, 1_500)).epsilon > 3
