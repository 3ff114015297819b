"""Classes of cells with concentrations of their own: chains against enumeration, and how classes are chosen."""

from __future__ import annotations

from math import lgamma

import numpy as np
import pytest
from scipy.special import logsumexp

from coco_opt.array_types import Floats, Ints
from coco_opt.histograms import Hierarchy
from coco_opt.kernels import posterior_table_shares
from coco_opt.kernels.posterior_table_state import SIZES
from coco_opt.operators import Grouping
from coco_opt.topdown.estimating.posterior import model as models
from coco_opt.topdown.estimating.posterior.model import best_division, divided, dividing, log_probability, one_class
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema
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


def test_a_cell_alone_needs_no_class() -> None:
    assert divided(YOUNG).tolist() == [4, 3, 3, 4, 4]
    assert one_class(3).tolist() == [3, 3, 3, 3]


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
