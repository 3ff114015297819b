"""Chains under random constraints that nest visit every table of tiny hierarchies as often as it is probable."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.histograms import Hierarchy
from coco_opt.kernels import posterior_table_shares
from coco_opt.topdown.constraint import RegionBounds
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema
from tests.posterior.tiny_tables import chain_of, log_table, log_totals, model_of
from tests.topdown.estimation import measured, random_hierarchy, sums_of_leaves

SCHEMA = Schema({"sex": ["female", "male"]})
QUERIES = {"total": np.array([[1, 1]]), "sex": np.eye(2, dtype=np.int64)}
SHARE, STRENGTH = np.array([0.7, 0.3]), 1.5
BATCHES, SWEEPS = 25, 160


@dataclass(frozen=True)
class Stated:
    """Sides [regions, answers] of a query at a level, and at all levels above if it is ``exact``."""

    query: str
    level: int
    low: Ints
    high: Ints
    exact: bool

    def holds(self, tree: Hierarchy, every: Ints) -> NDArray[np.bool_]:
        """Return which tables int64[tables, leaves, cells] meet the sides; sums above follow from those below."""
        answers = np.einsum("rl,nlc,ac->nra", _below(tree, self.level), every, QUERIES[self.query])
        return np.asarray(((answers >= self.low) & (answers <= self.high)).all(axis=(1, 2)))


def _below(tree: Hierarchy, level: int) -> Ints:
    return np.array([sums_of_leaves(tree, region) for region in tree.level_range(level)], np.int64)


def _case(rng: np.random.Generator) -> tuple[Hierarchy, Ints, list[Stated]]:
    """Return a tree of two or three leaves, their tables, and none to two constraints of one or both queries."""
    tree = random_hierarchy(rng, int(rng.integers(2, 4)), 2)
    while len(tree.leaves) not in (2, 3):
        tree = random_hierarchy(rng, int(rng.integers(2, 4)), 2)
    truth = rng.integers(0, 3, (len(tree.leaves), 2))
    stated = []
    for _ in range(int(rng.integers(3))):
        query, level = ["total", "sex"][rng.integers(2)], int(rng.integers(tree.levels))
        answers = np.einsum("rl,lc,ac->ra", _below(tree, level), truth, QUERIES[query])
        exact = bool(rng.random() < 0.4)
        less, more = (np.zeros((2, *answers.shape), np.int64)) if exact else rng.integers(0, 3, (2, *answers.shape))
        stated.append(Stated(query, level, np.maximum(answers - less, 0), answers + more, exact))
    return tree, truth, stated


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 51))])
def test_chains_agree_with_enumeration_within_monte_carlo_error(seed: int) -> None:
    rng = np.random.default_rng([2032, seed])
    while True:
        tree, truth, stated = _case(rng)
        invariants = [(fact.query, fact.level) for fact in stated if fact.exact]
        bounds = [
            RegionBounds(parse_query(fact.query, SCHEMA), fact.level, fact.low, fact.high, "public")
            for fact in stated
            if not fact.exact
        ]
        model = model_of(measured(seed, tree, SCHEMA, truth, ["sex", "total"], 3, invariants, bounds))
        if model.connected:
            break
    chain = chain_of(model, truth, seed)
    chain.prior.share[1:, :-1] = SHARE
    chain.prior.strength[:] = STRENGTH
    posterior_table_shares.set_draw(chain.prior, 0.2)
    most = 8 if len(truth) == 2 else 5
    every = np.array(list(product(range(most), repeat=truth.size)), np.int64).reshape(-1, *truth.shape)
    every = every[np.logical_and.reduce([fact.holds(tree, every) for fact in stated] or [np.ones(len(every), bool)])]
    of_table = {(a, b): log_table(np.array([a, b]), SHARE, STRENGTH) for a, b in product(range(most), repeat=2)}
    logs = np.array([log_totals(chain, leaves) + sum(of_table[tuple(table)] for table in leaves) for leaves in every])
    for block in model.noisy:
        counted = np.einsum("rl,nlc,ac->nra", _below(tree, block.level), every, block.matrix.toarray().astype(np.int64))
        logs += block.distribution.log_weight(block.answers[:] - counted).sum(axis=(1, 2))
    exact = np.exp(logs - logs.max())
    exact /= exact.sum()
    place = {leaves.tobytes(): number for number, leaves in enumerate(every)}
    found = np.zeros((BATCHES, len(every) + 1))
    for batch, _ in product(range(BATCHES), range(SWEEPS)):
        chain.sweep()
        leaves = chain.leaves().dense()
        number = place.get(leaves.tobytes(), -1)
        # Tables that are not enumerated have larger counts; none breaks a constraint.
        assert number >= 0 or (leaves.max() >= most and all(fact.holds(tree, leaves[None]).all() for fact in stated))
        found[batch, number] += 1.0
    assert found[:, -1].sum() < 0.1 * found.sum()
    seen = found[:, :-1] / found[:, :-1].sum(axis=1, keepdims=True)
    traits = np.concatenate([every.reshape(len(every), -1), every.reshape(len(every), -1) == 0], axis=1)
    means = seen @ traits
    error = np.maximum(means.std(axis=0, ddof=1) / np.sqrt(BATCHES), 2e-3)
    assert (np.abs(means.mean(axis=0) - exact @ traits) < 5.0 * error + 0.02).all()
