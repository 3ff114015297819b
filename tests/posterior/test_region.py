"""Rows drawn given all others, against their exact posterior by matrices."""

from __future__ import annotations

import numpy as np
import pytest

from coco_opt.kernels import posterior_region
from coco_opt.kernels.posterior_region import CellAnswers, Increments, Rows, Window
from tests.posterior import tiny

CELLS, GROUPS = 4, 5


def rows_of(window: Window, total: int, seed: int) -> Rows:
    """Return one region's row of zeros without answers' powers."""
    row, powers = np.zeros((1, window.low.size), np.int64), np.zeros((0, total + 2))
    return Rows(row, np.array([total]), window.low[None], window.start[None], powers, np.array([seed], np.uint64))


def test_no_path_through_the_windows_is_reported() -> None:
    window = Window(np.array([3, 0]), np.array([0, 1, 2]))
    prior = Increments(np.full((1, 3), 0.5), np.full((1, 3), 0.5))
    answers = CellAnswers(
        np.zeros((0, 2), np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(2, np.int64), np.zeros(0, np.int64)
    )
    assert not posterior_region.sweep(answers, rows_of(window, 4, 1), prior)


@pytest.mark.parametrize("distributions", [(0,), (1,), (0, 0, 0), (0, 1)])
@pytest.mark.parametrize(("low", "width"), [([0, 0, 1, 2], [3, 6, 5, 4]), ([0, 2, 2, 5], [1, 2, 1, 1])])
def test_rows_are_drawn_from_their_posterior(low: list[int], width: list[int], distributions: tuple[int, ...]) -> None:
    """Several answers about one row, as of its ancestors: the draws' frequencies against the exact marginals."""
    rng = np.random.default_rng(8)
    window = Window(np.array(low), np.concatenate([[0], np.cumsum(width)]))
    q, rho = rng.uniform(0.2, 0.8, CELLS + 1), rng.uniform(0.1, 0.8, CELLS + 1)
    steepness = rng.uniform(0.2, 0.9, len(distributions))
    answer = rng.integers(-2, GROUPS + 3, (len(distributions), CELLS))
    states = np.arange(GROUPS + 1)
    weight = ((states >= window.low[:, None]) & (states < (window.low + width)[:, None])).astype(float)
    for distribution, steep, own in zip(distributions, steepness, answer, strict=True):
        away = np.abs(states - own[:, None])
        weight *= np.exp(-steep * (away if distribution == 0 else away**2))
    wanted = tiny.marginals(weight, q, rho)
    chain = rows_of(window, GROUPS, 4)._replace(powers=np.exp(-steepness[:, None] * np.arange(GROUPS + 2.0)))
    blocks = np.arange(len(distributions))
    residual = chain.values - answer
    answers = CellAnswers(residual, np.array(distributions), steepness, np.array([0, len(distributions)]), blocks)
    every = Increments(q[None], rho[None])
    seen, draws = np.zeros(wanted.shape), 30_000
    for _ in range(draws):
        assert posterior_region.sweep(answers, chain, every)
        seen[np.arange(CELLS), chain.values[0]] += 1
    np.testing.assert_array_equal(answers.residual, chain.values - answer)
    error = np.sqrt(wanted * (1.0 - wanted) / draws) + 1e-9
    assert (np.abs(seen / draws - wanted) < 4.5 * error).all()
