"""Classes of cells with concentrations of their own: chains against enumeration, and how classes are chosen.

How the leaves' totals are distributed: draws against numerical integration.
"""

from __future__ import annotations

from math import lgamma

import numpy as np
import pytest
from scipy.special import betaln, logsumexp

from coco_opt import Hierarchy, Schema
from coco_opt.array_types import Floats, Ints
from coco_opt.kernels import posterior_table_shares
from coco_opt.kernels import posterior_table_totals as totals
from coco_opt.kernels.posterior_table_state import SIZES
from coco_opt.operators import Grouping
from coco_opt.topdown.estimating.posterior import model as models
from coco_opt.topdown.estimating.posterior.chains import TableChain
from coco_opt.topdown.estimating.posterior.model import best_division, divided, dividing, log_probability, one_class
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.queries import parse_query
from tests.posterior.tiny_tables import chain_of, distance, log_by_classes, log_likelihood, log_totals, model_of
from tests.topdown.estimation import measured

SCHEMA = Schema({"age": ["young", "grown", "old"]})
YOUNG = Grouping(np.array([1, 0, 0]), 2)
TREE = Hierarchy.from_paths([("land", "north"), ("land", "south")])
DEEP = Hierarchy.from_paths([("land", "state", "north"), ("land", "state", "south")])
TRUE = np.array([[0, 1, 1], [2, 1, 0]])
SHARE = np.array([0.5, 0.35, 0.15])
WITHIN, AMONG = 4.0, 0.5  # concentrations
MOST = 4


def leaves_of(most: int) -> list[Ints]:
    """Return all tables of two leaves of at most so many persons each."""
    every = np.indices((most + 1,) * 3).reshape(3, -1).T
    every = every[every.sum(axis=1) <= most].astype(np.int64)
    return [np.stack([first, second]) for first in every for second in every]


def test_moves_visit_tables_as_often_as_their_classes_are_probable() -> None:
    """Persons go within a class, between classes and between leaves, and entire tables are poured."""
    model = model_of(measured(2, TREE, SCHEMA, TRUE, ["age"], 2))
    chain = chain_of(model, TRUE, 5, YOUNG)
    up = divided(YOUNG)
    chain.prior.share[1:] = models.shares_within(up, SHARE[None])
    strengths = np.array([[4.0, 1.0, 3.0], [1.0, 1.0, 1.0], [0.5, 2.0, 0.3]])  # within two classes, and among them
    chain.prior.strength[-SIZES:][:3] = strengths[[0, 2]].T
    chain.prior.log_probability[:, MOST + 1 :] = -60.0  # few tables to enumerate
    posterior_table_shares.set_draw(chain.prior, 0.2)
    every = leaves_of(MOST)
    logs = [
        log_likelihood(model, leaves)
        + log_totals(chain, leaves)
        + sum(log_by_classes(table, YOUNG.labels, SHARE, strengths) for table in leaves)
        for leaves in every
    ]
    assert distance(chain, every, logs, 8_000, chain.sweep) < 0.1
    persons = chain.leaves().dense()
    assert chain.state.persons.tolist() == np.stack([persons[:, 1:].sum(axis=1), persons.sum(axis=1)], axis=1).tolist()


def _mass(base: float, strengths: tuple[float, float], grid: Floats) -> Floats:
    """Return the log weights of a share two levels below a base that is known."""

    def log_beta(x: Floats, a: Floats, b: Floats) -> Floats:
        constant = np.vectorize(lgamma)(a + b) - np.vectorize(lgamma)(a) - np.vectorize(lgamma)(b)
        return np.asarray((a - 1.0) * np.log(x) + (b - 1.0) * np.log(1.0 - x) + constant)

    first = log_beta(grid, np.full(grid.size, strengths[0] * base), np.full(grid.size, strengths[0] * (1.0 - base)))
    second = log_beta(grid[None], strengths[1] * grid[:, None], strengths[1] * (1.0 - grid[:, None]))
    return np.asarray(logsumexp(first[:, None] + second, axis=0))


def test_shares_of_classes_and_within_them_are_drawn_along() -> None:
    model = model_of(measured(4, DEEP, SCHEMA, TRUE, ["age"], 4))
    chain = chain_of(model, TRUE, 7, YOUNG)
    chain.prior.log_probability[:, MOST + 1 :] = -60.0
    chain.prior.strength[:] = [[3.0, 4.0], [2.0, 2.5], *[[WITHIN, AMONG]] * SIZES]
    grid = (np.arange(60) + 0.5) / 60
    # Equal shares of three cells: the class of one has a third, and each cell of the other a half of it.
    masses = _mass(1.0 / 3.0, (4.0, 2.5), grid), _mass(0.5, (3.0, 2.0), grid)
    every = leaves_of(MOST)
    logs = []
    for leaves in every:
        value = log_likelihood(model, leaves) + log_totals(chain, leaves)
        both = np.stack([leaves[:, 0], leaves[:, 1:].sum(axis=1)], axis=1)
        for part, mass, strength in ((both, masses[0], AMONG), (leaves[:, 1:], masses[1], WITHIN)):
            value += float(logsumexp(mass + _of_pairs(part, grid, strength)))
        logs.append(value)

    def sweep() -> None:
        chain.sweep()
        chain.draw_tables()
        chain.draw_shares()

    assert distance(chain, every, logs, 8_000, sweep) < 0.1


def _of_pairs(pairs: Ints, grid: Floats, strength: float) -> Floats:
    """Return the log probability of two parts [leaves, 2] given their sums, for each share of the first."""
    value = np.zeros(grid.size)
    for pair in pairs.tolist():
        value += lgamma(sum(pair) + 1.0) + lgamma(strength) - lgamma(sum(pair) + strength)
        for h, share in zip(pair, (grid, 1.0 - grid), strict=True):
            value += np.vectorize(lgamma)(h + strength * share) - np.vectorize(lgamma)(strength * share)
            value -= lgamma(h + 1.0)
    return value


HOMES = Schema({"sex": ["female", "male"], "home": ["house", "prison"]})


def homes(rng: np.random.Generator, *, clustered: bool) -> Ints:
    """Return sixty leaves; persons in prison are in one leaf of five, or anywhere."""
    prisons = np.where(rng.random(60) < 0.2, 50, 0) if clustered else np.full(60, 10)
    tables = np.zeros((60, 2, 2), np.int64)
    tables[:, :, 0] = rng.multinomial(200, [0.5, 0.5], 60)
    tables[:, :, 1] = rng.multinomial(rng.poisson(prisons), [0.2, 0.8])
    return tables.reshape(60, 4)


@pytest.mark.parametrize("clustered", [True, False])
def test_cells_are_divided_by_what_few_leaves_have(clustered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = homes(np.random.default_rng(3), clustered=clustered)
    queries = dividing([parse_query(text, HOMES) for text in ("sex", "home", "total", "detail")], HOMES.size)
    assert [query.text for query in queries] == ["sex", "home"]
    share = (tables.sum(axis=0) / tables.sum())[None]
    for most in (4096, 30):
        monkeypatch.setattr(models, "_MOST_LEAVES", most)
        found = best_division(queries, SparseTables.of(tables), share, np.zeros(60, np.int64))
        assert (None if found is None else found.text) == ("home" if clustered else None)


def test_trees_are_compared_by_their_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_CONCENTRATIONS", np.array([2.0]))
    rng = np.random.default_rng(3)
    tables, home = homes(rng, clustered=True)[:9], parse_query("home", HOMES).operator
    share, row, sparse = rng.dirichlet(np.ones(4), 3), np.arange(9) // 3, SparseTables.of(tables)
    assert isinstance(home, Grouping)
    whole = np.zeros(4, np.int64)
    exact = [
        sum(
            log_by_classes(table, labels, share[r], np.full((3, SIZES), 2.0))
            for table, r in zip(tables, row, strict=True)
        )
        for labels in (home.labels, whole)
    ]
    found = [log_probability(up, sparse, share, row) for up in (divided(home), one_class(4))]
    assert found[0] - found[1] == pytest.approx(exact[0] - exact[1])


TWO_CELLS = Schema({"sex": ["female", "male"]})
STATES = Hierarchy.from_paths([("land", state, f"{state}{n}") for state in "ab" for n in range(4)])
PERSONS = np.array([0, 0, 0, 3, 2, 1, 0, 5])  # of the leaves: one of four in a state, and three of four, live somewhere


def chain_with(edge: list[int]) -> TableChain:
    """Return a chain at tables with these totals, in the bins of some edges."""
    leaves = np.stack([PERSONS, 0 * PERSONS], axis=1)
    chain = chain_of(model_of(measured(2, STATES, TWO_CELLS, leaves, ["sex"], 3)), leaves, 5)
    edges, bins = np.array(edge), len(edge) - 1
    chain.prior = chain.prior._replace(
        edge=edges,
        bin=np.repeat(np.arange(bins), np.diff(edges))[:6],
        log_probability=np.full((4, bins), -np.log(edge[-1])),
    )
    return chain


def bin_shares(chain: TableChain) -> Floats:
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
        drawn.append(bin_shares(chain)[:, 0])
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
