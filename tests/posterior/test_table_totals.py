"""How the leaves' totals are distributed: draws against numerical integration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import betaln

from coco_opt.array_types import Floats, Ints
from coco_opt.histograms import Hierarchy
from coco_opt.kernels import posterior_table_totals as totals
from coco_opt.topdown.estimating.posterior.chains import TableChain
from coco_opt.topdown.schema import Schema
from tests.posterior.tiny_tables import chain_of, model_of
from tests.topdown.estimation import measured

SCHEMA = Schema({"sex": ["female", "male"]})
TREE = Hierarchy.from_paths([("land", state, f"{state}{n}") for state in "ab" for n in range(4)])
PERSONS = np.array([0, 0, 0, 3, 2, 1, 0, 5])  # of the leaves: one of four in a state, and three of four, live somewhere


def chain_with(edge: list[int]) -> TableChain:
    """Return a chain at tables with these totals, in the bins of some edges."""
    leaves = np.stack([PERSONS, 0 * PERSONS], axis=1)
    chain = chain_of(model_of(measured(2, TREE, SCHEMA, leaves, ["sex"], 3)), leaves, 5)
    edges, bins = np.array(edge), len(edge) - 1
    chain.prior = chain.prior._replace(
        edge=edges,
        bin=np.repeat(np.arange(bins), np.diff(edges))[:6],
        log_probability=np.full((4, bins), -np.log(edge[-1])),
    )
    return chain


def shares(chain: TableChain) -> Floats:
    """Return the probabilities of the bins, a row each for the root and its states."""
    return np.asarray(np.exp(chain.prior.log_probability[1:]) * np.diff(chain.prior.edge))


def test_regions_distributions_are_around_the_root_s() -> None:
    chain, likeness = chain_with([0, 1, 8]), 3.0
    chain.prior.likeness[:] = likeness
    above, levels = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])
    sent, customers, opened = np.zeros((4, 2), np.int64), np.zeros(4, np.int64), np.zeros(2, np.int64)
    words, drawn = np.array([7], np.uint64), []
    for _ in range(20_000):
        tree = chain._layout.tree
        totals.send_totals(tree, chain.prior, chain.state, above, levels, sent, customers, opened)
        totals.draw_root(chain.prior, 1, sent[1], np.ones(1), np.zeros(2), words)
        totals.draw_below(chain.prior, above, levels, sent, np.zeros(2), words)
        drawn.append(shares(chain)[:, 0])
    # The root's probability of an empty leaf has the prior Beta(1/2, 1/2), a state's is Beta(3 p, 3 (1 - p)).
    p = (np.arange(4_000) + 0.5) / 4_000
    log = -0.5 * np.log(p) - 0.5 * np.log1p(-p)
    empty = np.array([3, 1])
    for number in empty.tolist():
        a, b = likeness * p, likeness * (1.0 - p)
        log += betaln(a + number, b + 4 - number) - betaln(a, b)
    weight = np.exp(log - log.max())
    root = float(weight @ p / weight.sum())
    exact = [root, *((likeness * root + empty) / (likeness + 4.0))]
    assert np.mean(drawn, axis=0) == pytest.approx(exact, abs=0.01)


def test_second_differences_of_the_logs_are_normal() -> None:
    chain, counts, precision = chain_with([0, 1, 2, 3, 4]), np.array([9, 3, 0, 5]), 2.0
    height, words, drawn = np.zeros(4), np.array([7], np.uint64), []
    width = np.array([totals.log_width(chain.prior, k) for k in (1, 2, 3)])
    for _ in range(10_000):
        totals.draw_heights(chain.prior, counts, height, precision, words)
        mass = np.exp(height[1:]) * width
        drawn.append(mass / mass.sum())
    assert np.mean(drawn, axis=0) == pytest.approx(_integrated(counts[1:], width, precision), abs=0.01)


def _integrated(counts: Ints, width: Floats, precision: float) -> Floats:
    """Return the mean probabilities of three bins whose logs have a normal second difference."""
    second, third = np.meshgrid(*[np.linspace(-9.0, 9.0, 400)] * 2)
    heights = np.stack([np.zeros_like(second), second, third], axis=-1)
    mass = np.exp(heights) * width
    shares = mass / mass.sum(axis=-1, keepdims=True)
    log = (counts * np.log(shares)).sum(axis=-1) - 0.5 * precision * (third - 2.0 * second) ** 2
    weight = np.exp(log - log.max())
    return np.asarray((weight[..., None] * shares).sum(axis=(0, 1)) / weight.sum())


def test_totals_that_no_leaf_has_are_between_their_neighbours() -> None:
    chain = chain_with([0, 1, 2, 3, 4, 5, 7, 9])
    counts, height, words = np.array([0, 40, 40, 0, 40, 40, 40]), np.zeros(7), np.array([7], np.uint64)
    middle = []
    for _ in range(4_000):
        totals.draw_heights(chain.prior, counts, height, 50.0, words)
        middle.append(height[3] - 0.5 * (height[2] + height[4]))
    assert abs(np.mean(middle)) < 0.5
    rough = [totals.draw_precision(np.array([0.0, *level * np.array([1.0, -1.0] * 6)]), words) for level in (0.1, 2.0)]
    assert rough[0] > 10.0 * rough[1]
