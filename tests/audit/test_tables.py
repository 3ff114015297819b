"""The audit of tables of persons: telling neighbours, sound bounds for honest noise, and planted faults caught."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from coco_opt.audit import (
    TablePair,
    TablesMechanism,
    answer_scores,
    audit_tables,
    bulk_table_scores,
    lower_bound,
    table_pair,
    tables_witness,
)
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError, VerificationError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import NEIGHBOURS, Neighbours, SeededNoise
from coco_opt.privacy.mechanism import Mechanism
from coco_opt.topdown import measure
from coco_opt.topdown.counts import TableCounts
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.method import Estimation, TopdownMethod
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.queries import Query, parse_queries, parse_query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.strategy import Strategy

ONE = Fraction(1)
DELTA = Fraction(1, 10**6)
SCHEMA = Schema({"sex": ("female", "male"), "age": ("child", "adult", "old")}, ("sex = male & age = old",))
TREE = Hierarchy.from_paths([("all", "east", "a"), ("all", "east", "b"), ("all", "west", "c")])
LEAVES = np.array([[4, 0, 2, 0, 3], [0, 1, 0, 4, 0], [5, 0, 0, 0, 1]], np.int64)
COUNTS = TableCounts.from_counts(TREE, SCHEMA, LEAVES)
QUERIES = ("total", "cumulative(age)", "sex * age")
MECHANISMS: tuple[Mechanism, ...] = ("geometric", "discrete_gaussian")


def _mechanism(
    queries: tuple[str, ...] = QUERIES,
    neighbours: Neighbours = "add_remove",
    law: Mechanism = "geometric",
    *,
    amount: Fraction = ONE,
    levels: int = 3,
    estimation: Estimation = "full",
    seed: int = 40,
    invariants: tuple[Invariant, ...] = (),
) -> TablesMechanism:
    strategy = Strategy.uniform(parse_queries(queries, SCHEMA))
    return TablesMechanism(
        TablePlan.product(strategy, amount, levels, mechanism=law, neighbours=neighbours),
        amount,
        TopdownMethod(estimation=estimation),
        lambda run: SeededNoise(1_000 * seed + run),
        SolverChoices(),
        invariants,
        DELTA if law == "discrete_gaussian" else Fraction(0),
    )


def _pair(mechanism: TablesMechanism) -> TablePair:
    return table_pair(COUNTS, mechanism.plan, mechanism.invariants)


def _bound(mechanism: TablesMechanism, draws: int = 100_000) -> float:
    scores = answer_scores(tables_witness(_pair(mechanism), mechanism), mechanism, draws, mechanism.sources)
    return lower_bound(*scores, delta=float(mechanism.delta)).epsilon


def _distance(pair: TablePair, query: Query, level: int) -> int:
    """Return by how much all answers of a level differ, from dense tables."""
    one, two = (query.operator.apply(counts.level_tables(level)) for counts in (pair.first, pair.second))
    return int(np.abs(one - two).sum())


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_pairs_differ_by_one_person_and_as_much_as_the_sensitivity_allows(neighbours: Neighbours) -> None:
    mechanism = _mechanism(neighbours=neighbours)
    pair = _pair(mechanism)
    change = pair.second.level_tables(2) - pair.first.level_tables(2)
    assert sorted(change[change != 0].tolist()) == ([1] if neighbours == "add_remove" else [-1, 1])
    for query in mechanism.plan.queries:
        assert _distance(pair, query, 2) == query.sensitivity(neighbours)
    assert [len(pair.changed(level)) for level in range(3)] == ([1, 1, 1] if neighbours == "add_remove" else [1, 2, 2])
    assert "'all/east/a', sex = " in pair.what


def test_a_replaced_person_keeps_what_is_exact() -> None:
    exact = (Invariant(parse_query("total", SCHEMA), 1), Invariant(parse_query("sex", SCHEMA), 2))
    mechanism = _mechanism(neighbours="replace", invariants=exact)
    pair = _pair(mechanism)
    assert _distance(pair, exact[0].query, 1) == _distance(pair, exact[1].query, 2) == 0
    assert _distance(pair, parse_query("age", SCHEMA), 2) == 2
    assert tables_witness(pair, mechanism).first.size > 0
    within_a_region = (Invariant(parse_query("total", SCHEMA), 1),)
    assert _pair(_mechanism(neighbours="replace", invariants=within_a_region)).leaves == (3, 4)


def test_no_pair_where_everything_is_exact_or_neighbours_change_it() -> None:
    every = (Invariant(parse_query("detail", SCHEMA), 2),)
    with pytest.raises(ProblemError, match="nothing to audit"):
        _pair(_mechanism(neighbours="replace", invariants=every))
    with pytest.raises(ProblemError, match="exclude each other"):
        table_pair(COUNTS, _mechanism().plan, every)


@pytest.mark.parametrize("law", MECHANISMS)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_witness_has_the_exact_answers_and_the_noise_of_the_release(neighbours: Neighbours, law: Mechanism) -> None:
    mechanism = _mechanism(neighbours=neighbours, law=law)
    pair = _pair(mechanism)
    found = tables_witness(pair, mechanism)
    assert len(set(found.labels)) == found.first.size
    for level in range(3):
        here = found.at(level)
        steps = [_distance(pair, query, level) for query in mechanism.plan.queries]
        assert int(np.abs(here.first - here.second).sum()) == sum(steps)
        assert set(here.scales) == {mechanism.plan.parameter(level, query) for query in range(3) if steps[query]}


def test_witness_costs_no_more_than_the_budget() -> None:
    for neighbours in NEIGHBOURS:
        found = tables_witness(_pair(_mechanism(neighbours=neighbours)), _mechanism(neighbours=neighbours))
        steps = np.abs(found.first - found.second).tolist()
        spent = sum(Fraction(step) / scale for step, scale in zip(steps, found.scales, strict=True))
        assert ONE * 2 / 3 < spent <= ONE


def test_an_answer_that_goes_around_the_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = measure._measure

    def peek(counts: TableCounts, plan: TablePlan, level: int, query: int, source: Any) -> Any:
        return real(counts, plan, level, query, source) + (level == 2)

    mechanism = _mechanism()
    monkeypatch.setattr(measure, "_measure", peek)
    with pytest.raises(VerificationError, match="another way"):
        tables_witness(_pair(mechanism), mechanism)


def test_exact_answers_that_neighbours_change_are_found() -> None:
    mechanism = _mechanism(neighbours="replace")
    exact = (Invariant(parse_query("sex * age", SCHEMA), 2),)
    with pytest.raises(VerificationError, match="exact answers of 'sex \\* age'"):
        tables_witness(_pair(mechanism), replace(mechanism, invariants=exact))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_geometric_answers_lose_no_more_than_they_claim(neighbours: Neighbours) -> None:
    # A replaced person changes twice as many answers half as much each, of which many must be unlikely together.
    assert {"add_remove": 0.6, "replace": 0.3}[neighbours] < _bound(_mechanism(("total", "sex"), neighbours)) <= 1.0


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_gaussian_answers_lose_no_more_than_their_rho_implies(neighbours: Neighbours) -> None:
    mechanism = _mechanism(("total", "sex"), neighbours, "discrete_gaussian", amount=Fraction(1, 2))
    bound = _bound(mechanism)
    # Of N(0, 1) against N(1, 1), which rho = 1/2 is, events of any use have far smaller ratios than epsilon(delta).
    assert 1.5 < bound <= float(mechanism.claimed) < 6


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_half_the_sensitivity_is_caught(neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Query.sensitivity
    monkeypatch.setattr(Query, "sensitivity", lambda self, who, norm=1: Fraction(real(self, who, norm), 2))
    query = "cumulative(age)" if neighbours == "add_remove" else "detail"
    mechanism = _mechanism((query,), neighbours, amount=Fraction(4))
    assert 4.0 < _bound(mechanism) <= 8.0
    found = audit_tables(_pair(mechanism), mechanism, draws=60_000, runs=0)
    assert [row.what for row in found.violated] == [
        *(f"measurement, level {level} ({query})" for level in range(3)),
        "all measurements together",
    ]


def test_a_query_measured_twice_on_one_budget_is_caught() -> None:
    honest = _mechanism(("detail",))
    level = (Fraction(1, 3), Fraction(1, 3))
    twice = TablePlan((*honest.plan.queries, parse_query("detail", SCHEMA, "again")), (level,) * 3)
    found = audit_tables(_pair(honest), replace(honest, plan=twice), draws=60_000, runs=0)
    assert [row.what for row in found.violated] == ["all measurements together"]


def test_noise_for_replaced_persons_that_was_scaled_for_added_ones_is_caught() -> None:
    honest, scaled = _mechanism(("detail",), "replace"), _mechanism(("detail",), "add_remove")
    pair = _pair(honest)
    for plan, caught in ((honest.plan, False), (scaled.plan, True)):
        found = audit_tables(pair, replace(honest, plan=plan), draws=60_000, runs=0)
        assert ("all measurements together" in [row.what for row in found.violated]) == caught


@pytest.mark.parametrize(("law", "factor"), [("geometric", 2), ("discrete_gaussian", 20)])
def test_too_little_noise_is_caught(law: Mechanism, factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A quarter of the Gaussian's variance stays below the epsilon at delta in all events that 100,000 draws can show.
    real = TablePlan.parameter
    monkeypatch.setattr(TablePlan, "parameter", lambda self, level, query: real(self, level, query) / factor)
    mechanism = _mechanism(("detail",), law=law, amount=Fraction(1, 2))
    assert _bound(mechanism) > mechanism.claimed


def test_a_delta_belongs_to_gaussian_noise() -> None:
    for law in MECHANISMS:
        good = _mechanism(law=law)
        with pytest.raises(ProblemError, match="delta"):
            replace(good, delta=Fraction(0) if good.delta else DELTA)


@pytest.mark.parametrize("estimation", ["full", "classic", "bottom_up"])
def test_audit_has_a_row_for_everything(estimation: Estimation) -> None:
    mechanism = _mechanism(("total", "detail"), estimation=estimation)
    told: list[tuple[int, int]] = []
    found = audit_tables(_pair(mechanism), mechanism, draws=4_000, runs=4, progress=lambda *step: told.append(step))
    assert [row.what for row in found.rows] == [
        *(f"measurement, level {level} (total, sex * age)".replace("sex * age", "detail") for level in range(3)),
        "all measurements together",
        *(f"release ({estimation}), level {level}" for level in range(3)),
        f"release ({estimation}), direct",
    ]
    assert [str(row.claimed) for row in found.rows] == ["1/3"] * 3 + ["1"] * 5
    assert found.violated == ()
    assert told[-1] == (4, 4)
    json.dumps([row.as_dict() for row in found.rows], allow_nan=False)


def _tiny(amount: Fraction = ONE) -> tuple[TablePair, TablesMechanism]:
    schema = Schema({"anyone": ("person",)})
    mechanism = _mechanism(("total",), levels=1, amount=amount)
    plan = TablePlan.product(Strategy.identity(schema), amount, 1)
    counts = TableCounts.from_counts(Hierarchy.from_paths([("all",)]), schema, [[9]])
    return table_pair(counts, plan), replace(mechanism, plan=plan)


def test_without_noise_the_release_tells_everything() -> None:
    pair, mechanism = _tiny(Fraction(200))
    one, two = bulk_table_scores(pair, mechanism, 50, mechanism.sources)
    assert np.unique(one).tolist() == [-1.0]
    assert np.unique(two).tolist() == [1.0]


def test_released_tables_lose_no_more_than_they_claim_and_faults_show(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, mechanism = _tiny()
    assert 0.8 < lower_bound(*bulk_table_scores(pair, mechanism, 50_000, mechanism.sources)).epsilon <= 1.0
    real = TablePlan.parameter
    monkeypatch.setattr(TablePlan, "parameter", lambda self, level, query: real(self, level, query) / 2)
    assert 1.0 < lower_bound(*bulk_table_scores(pair, mechanism, 50_000, mechanism.sources)).epsilon <= 2.0


@pytest.mark.slow
@pytest.mark.parametrize("estimation", ["full", "classic"])
def test_whole_releases_of_two_levels_lose_no_more_than_they_claim(estimation: Estimation) -> None:
    mechanism = _mechanism(("total", "detail"), levels=2, estimation=estimation, amount=Fraction(4))
    counts = TableCounts.from_counts(Hierarchy.from_paths([("all", "a"), ("all", "b")]), SCHEMA, LEAVES[:2])
    found = audit_tables(table_pair(counts, mechanism.plan), mechanism, draws=200_000, runs=400)
    assert found.violated == ()
    direct = found.rows[-1].bound
    assert direct is not None
    assert direct.epsilon > 0.2
