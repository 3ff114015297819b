"""The posterior of tables against the enumeration of all tables of tiny hierarchies, some with random constraints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import lgamma, log
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt import Epsilon, Hierarchy, Measurement, Rho, Schema, SeededNoise, TableCounts, measure_tables
from coco_opt.array_types import Ints
from coco_opt.kernels import posterior_table_shares, posterior_table_summaries
from coco_opt.kernels.posterior_table_state import SIZES
from coco_opt.posterior.chains import Criterion
from coco_opt.topdown import RegionBounds, parse_queries, parse_query
from coco_opt.topdown.budget_plan import RegionVariances, Strategy, TablePlan
from coco_opt.topdown.estimating.posterior.correction import Counting, DrawnTables, central
from coco_opt.topdown.estimating.posterior.sampler import SamplerOptions, sample_tables
from tests.posterior.tiny_tables import (
    all_leaves,
    chain_of,
    distance,
    levels_of,
    log_likelihood,
    log_table,
    log_totals,
    model_of,
    of_size,
)
from tests.topdown.estimation import measured, random_hierarchy, sums_of_leaves, with_variances

TREE = Hierarchy.from_paths([("land", "north"), ("land", "south")])
DEEP = Hierarchy.from_paths([("land", "state", "north"), ("land", "state", "south")])
SCHEMA = Schema({"sex": ["female", "male"]})
TRUE = np.array([[2, 0], [1, 1]])
SHARE = np.array([0.7, 0.3])
STRENGTHS = np.array([1.0, 1.2, 3.0, *[2.0] * (SIZES - 3)])  # of leaves of 0 or 1, 2 or 3, 4 to 7 persons, ...


def _away(measurement: Measurement, sweeps: int, most: int, start: NDArray[np.int64] = TRUE) -> float:
    """Return how far a chain under a fixed prior is from the enumerated posterior."""
    model = model_of(measurement)
    assert model.connected
    chain = chain_of(model, start, 5)
    chain.prior.share[1:, :-1] = SHARE
    chain.prior.strength[-SIZES:, 0] = STRENGTHS
    posterior_table_shares.set_draw(chain.prior, 0.2)
    every = [leaves for leaves in all_leaves(2, 2, most) if log_likelihood(model, leaves) > -np.inf]
    logs = [
        log_likelihood(model, leaves)
        + log_totals(chain, leaves)
        + sum(log_table(table, SHARE, of_size(STRENGTHS, table.sum())) for table in leaves)
        for leaves in every
    ]
    return distance(chain, every, logs, sweeps, chain.sweep)


@pytest.mark.parametrize("budget", [Epsilon(Fraction(3)), Rho(Fraction(2))])
def test_chains_visit_tables_as_often_as_they_are_probable(budget: Epsilon | Rho) -> None:
    plan = TablePlan.product(Strategy.uniform(parse_queries(["total", "sex"], SCHEMA)), budget, levels=2)
    people = TableCounts.from_counts(TREE, SCHEMA, TRUE)
    assert _away(measure_tables(people, plan, source=SeededNoise(3)), 5_000, 6) < 0.08


@pytest.mark.parametrize("classes", [[0, 1], [1, 2]])
def test_chains_take_the_variance_of_each_region(classes: list[int]) -> None:
    """One leaf may have more noise than another, or none of its answers."""
    queries = parse_queries(["total", "sex"], SCHEMA)
    plan = TablePlan.product(Strategy.uniform(queries), Rho(Fraction(2)), levels=2, neighbours="replace")
    plain = measure_tables(TableCounts.from_counts(TREE, SCHEMA, TRUE), plan, source=SeededNoise(6))
    stated = {"total": (Fraction(1, 2), Fraction(4), None), "sex": (Fraction(1), Fraction(2), None)}
    differing = with_variances(plain, (RegionVariances(1, np.array(classes), stated),))
    assert _away(differing, 5_000, 6) < 0.08


@pytest.mark.parametrize(
    ("invariants", "bounds"),
    [
        ([("total", 0)], []),
        ([("total", 1)], []),
        ([("sex", 0)], []),
        ([], [("total", 0, [[3]], [[5]]), ("sex", 1, [[1, 0], [0, 1]], [[9, 9], [1, 9]])]),
        ([("total", 1)], [("sex", 1, [[1, 0], [0, 0]], [[9, 9], [1, 9]])]),
    ],
)
def test_constraints_hold_and_chains_reach_all_tables_that_meet_them(
    invariants: list[tuple[str, int]], bounds: list[tuple[str, int, list[list[int]], list[list[int]]]]
) -> None:
    stated = [
        RegionBounds(parse_query(text, SCHEMA), level, np.array(low), np.array(high), "public")
        for text, level, low, high in bounds
    ]
    measurement = measured(2, TREE, SCHEMA, TRUE, ["sex"], 2, invariants, stated)
    assert _away(measurement, 10_000, 5) < 0.08


@pytest.mark.parametrize(("times", "width"), [(1, np.int32), (2**30, np.int64)])
def test_what_tables_leave_of_the_answers_has_32_bits_where_it_fits(
    monkeypatch: pytest.MonkeyPatch, times: int, width: type[np.signedinteger[Any]]
) -> None:
    monkeypatch.setattr("coco_opt.topdown.estimating.posterior.model._REGIONS", 1)
    model = model_of(measured(2, TREE, SCHEMA, times * TRUE, ["sex"], 2))
    tables = levels_of(model, TRUE)
    _, values = model.answers(tables)
    left = [block.answers[:] - tables[block.level].dense() @ block.matrix.toarray().T for block in model.noisy]
    assert values.dtype == width
    assert values.tolist() == [number for part in left for number in part.reshape(-1).tolist()]


def test_chains_begin_at_different_tables_that_meet_the_constraints() -> None:
    measurement = measured(2, TREE, SCHEMA, 20 * TRUE, ["sex"], 2, [("sex", 0)])
    model = model_of(measurement)
    distances = []
    for temperature in (1.0, 16.0):
        chain = chain_of(model, 20 * TRUE, 5)
        tables = []
        for _ in range(100):
            chain.disperse(8, temperature)
            tables.append(chain.leaves().dense())
        assert (np.sum(tables, axis=1) == 20 * TRUE.sum(axis=0)).all()
        _, values = model.answers(levels_of(model, tables[-1]))
        assert (chain.state.value == values).all()
        distances.append(np.abs(np.array(tables) - 20 * TRUE).mean())
    assert distances[1] > 1.5 * distances[0]


def test_shares_are_drawn_along_down_the_hierarchy() -> None:
    model = model_of(measured(4, DEEP, SCHEMA, TRUE, ["sex"], 4))
    chain = chain_of(model, TRUE, 7)
    chain.prior.strength[:] = np.array([[3.0], [2.0], *[[1.5]] * SIZES])
    every = all_leaves(2, 2, 6)
    grid = (np.arange(60) + 0.5) / 60
    weights = np.array([[_log_beta(s, 1.5, 1.5) + _log_beta(t, 2.0 * s, 2.0 * (1.0 - s)) for t in grid] for s in grid])
    mass = np.exp(weights).sum(axis=0)
    logs = []
    for leaves in every:
        given = [sum(log_table(table, np.array([t, 1.0 - t]), 1.5) for table in leaves) for t in grid]
        logs.append(log_likelihood(model, leaves) + log_totals(chain, leaves) + log(float(mass @ np.exp(given))))

    def sweep() -> None:
        chain.sweep()
        chain.draw_tables()
        chain.draw_shares()

    assert distance(chain, every, logs, 5_000, sweep) < 0.08


def _log_beta(s: float, a: float, b: float) -> float:
    return (a - 1.0) * log(s) + (b - 1.0) * log(1.0 - s) + lgamma(a + b) - lgamma(a) - lgamma(b)


@pytest.mark.parametrize("precision", [0.0, 2.0])
def test_concentrations_follow_their_likelihood_near_those_of_other_sizes(precision: float) -> None:
    words, sizes, value, found = np.array([9], np.uint64), np.array([5, 8, 0, 12]), 1.0, []
    for _ in range(20_000):
        value = posterior_table_shares.draw_strength(sizes, 9, value, 0.01, 100.0, 3.0, precision, words)
        found.append(log(value))
    grid = np.linspace(log(0.01), log(100.0), 2_001)
    logs = np.array([posterior_table_shares.log_strength(sizes, float(np.exp(x)), 9) for x in grid])
    weight = np.exp(logs - 0.5 * precision * (grid - 3.0) ** 2)
    assert np.mean(found) == pytest.approx(float(grid @ weight / weight.sum()), abs=0.05)


@pytest.mark.parametrize("weight", [0.2, 1.0])
def test_targets_add_up_and_have_the_least_expected_error_with_their_sums(weight: float) -> None:
    """Three regions of two cells, whose sums over the regions are given, and those over the cells count as answers."""
    rng = np.random.default_rng(3)
    draws = rng.poisson(rng.gamma(1.0, 4.0, (3, 2, 1)), (3, 2, 64)).astype(np.int32)
    values, of_sums = np.sort(draws.reshape(6, 64)), np.sort(draws.sum(axis=1))
    given = np.array([9.0, 14.0])
    across = posterior_table_summaries.Sums(np.arange(6), np.array([0, 2, 4, 6]), np.zeros(0))
    down = posterior_table_summaries.Sums(np.array([0, 2, 4, 1, 3, 5]), np.array([0, 3, 6]), given)
    added, (levels, x) = np.zeros(5), np.zeros((2, 6))
    posterior_table_summaries.fit(values, across, of_sums, weight, down, added, levels, x)
    assert x.reshape(3, 2).sum(axis=0) == pytest.approx(given, abs=1e-5)

    def expected(table: NDArray[np.float64]) -> float:
        sums = np.abs(of_sums - table.reshape(3, 2).sum(axis=1)[:, None]).mean(axis=1).sum()
        return float(np.abs(values - table[:, None]).mean(axis=1).sum() + weight * sums)

    for place in np.ndindex(3, 3, 3, 3):
        moved = x.reshape(3, 2).copy()
        for cell, (source, target) in enumerate((place[:2], place[2:])):
            moved[source, cell] -= 1.0
            moved[target, cell] += 1.0
        assert expected(x) <= expected(moved.reshape(6)) + 0.15


def test_chains_stop_after_their_time_with_the_same_draws_on_any_machine() -> None:
    model = model_of(measured(2, TREE, SCHEMA, TRUE, ["sex"], 2))
    often = SamplerOptions(r_hat=0.0)
    assert often.affordable(10**6)[1] > replace(often, seconds=40.0).affordable(10**6)[1] > often.briefest
    few = replace(often, seconds=1e-6)
    one, two = (sample_tables(model, levels_of(model, TRUE), 3, replace(few, threads=threads)) for threads in (1, 2))
    assert one.stopped
    assert one.sweeps <= often.briefest
    assert all((first == second).all() for first, second in zip(one.draws, two.draws, strict=True))
    assert not sample_tables(model, levels_of(model, TRUE), 3, replace(often, most=240)).stopped


def test_a_few_slow_regions_are_waited_for_where_that_takes_seconds() -> None:
    """Most regions are enough to end the chains of many, but not those of a small release."""
    tree = Hierarchy.from_paths([("land", f"part {town % 4}", f"town {town}") for town in range(40)])
    schema, rng = Schema({"sex": ["f", "m"], "age": ["a", "b", "c"]}), np.random.default_rng(1)
    true = rng.poisson(rng.gamma(2.0, 60.0, (40, 1)) * np.ones((40, 6)))
    model = model_of(measured(1, tree, schema, true, ["sex", "sex * age"], 2))
    settled = []
    for options in (SamplerOptions(seconds=60.0, patience=0.0), SamplerOptions(seconds=60.0)):
        sampled = sample_tables(model, levels_of(model, true), 1, options)
        settled.append(bool(Criterion().met(sampled.r_hat, sampled.effective).all()))
    assert settled == [False, True]


def test_intervals_leave_out_ranks_as_if_the_truth_were_one_more_draw() -> None:
    numbers = np.random.default_rng(3).permutation(99) + 1
    offset = np.stack([np.arange(99), np.arange(99) + 1], axis=1)
    draws = posterior_table_summaries.Draws(offset, np.zeros(99, np.uint16), numbers.astype(np.uint16))
    drawn = DrawnTables(Hierarchy.from_paths([("land",)]), draws, 2)
    values = drawn.sorted_answers(range(1), Counting.of(parse_query("sex", SCHEMA).operator))
    lower, upper = central(values, 0.9)
    # Of the 100 ranks of one more draw, those below 5 and above 95 are outside.
    assert (lower.tolist(), upper.tolist()) == ([5, 0], [95, 0])


QUERIES = {"total": np.array([[1, 1]]), "sex": np.eye(2, dtype=np.int64)}
STRENGTH = 1.5
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
