"""What a configuration of tables leaves out is chosen from public numbers, paid once, and rehearsed on few values."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coco_opt as co
from coco_opt import Epsilon, Hierarchy, Rho, Schema, Strategy, configure, measure, parse_queries
from coco_opt.errors import ConfigError
from coco_opt.privacy.cost import Cost
from coco_opt.privacy.planner import uniform_shares
from coco_opt.problems.tree import Tree, TreePosterior
from coco_opt.ranges import kind as ranges_kind
from coco_opt.releases import Silent, render_report
from coco_opt.releases.planning import planned
from coco_opt.releases.rehearsal import rehearse
from coco_opt.topdown.kind import TABLES, automatic
from coco_opt.topdown.kind.plan import plan_tables
from coco_opt.topdown.kind.rehearsal import small_instance
from coco_opt.topdown.measuring.automatic import ranked_allocations, ranked_strategies, tree_errors
from coco_opt.topdown.measuring.predicted import predicted_variance
from tests.cli.helpers import paid
from tests.topdown.persons import HIERARCHY, records

ATTRIBUTES = {"sex": ["female", "male"], "age": ["child", "adult", "old"]}
SCHEMA = Schema({name: tuple(values) for name, values in ATTRIBUTES.items()})
WORKLOAD = ("total", "sex", "sex * age")
ONE = Fraction(1)


def test_errors_of_a_regular_tree_are_those_of_least_squares() -> None:
    tree = Hierarchy.from_paths([("r", f"a{k // 12}", f"b{k // 3}", f"c{k}") for k in range(36)])
    widths = np.diff(tree.level_start).tolist()
    for variances in (np.array([1.0, 2.0, 3.0, 4.0]), np.array([np.inf, 5.0, 1.0, 0.5])):
        posterior = TreePosterior.from_variances(Tree(tree.parent), variances[tree.level]).variance
        expected = np.sqrt(np.add.reduceat(posterior, tree.level_start[:-1]) / widths)
        assert tree_errors(widths, variances) == pytest.approx(expected, rel=1e-9)


def test_the_allocation_follows_the_aim_and_beats_the_even_one() -> None:
    widths, cost = [1, 5, 50, 800], Epsilon(ONE)
    root, leaves = (ranked_allocations(widths, cost, weights)[0][0] for weights in ((1, 0, 0, 0), (0, 0, 0, 1)))
    assert root[0] > Fraction(1, 4) > root[-1]
    assert leaves[-1] > Fraction(1, 4) > leaves[0]
    variances = [np.array([2.0 / float(share) ** 2 for share in shares]) for shares in (leaves, uniform_shares(4))]
    chosen, even = (tree_errors(widths, each)[-1] for each in variances)
    assert chosen < even
    assert ranked_allocations([1], cost, (1.0,))[0][0] == (ONE,)


@pytest.mark.parametrize("cost", [Epsilon(ONE), Rho(ONE)])
def test_the_strategy_has_no_larger_standard_errors_than_the_workload(cost: Cost) -> None:
    workload = parse_queries(WORKLOAD, SCHEMA)
    strategies = ranked_strategies(workload, SCHEMA, type(cost))[0][0], Strategy.uniform(workload)
    chosen, even = (
        np.mean([np.log(predicted_variance(strategy, query, SCHEMA, cost=cost)) for query in workload])
        for strategy in strategies
    )
    assert chosen < even - 0.02


def sections(folder: Path, **topdown: Any) -> dict[str, Any]:
    (folder / "hierarchy.csv").write_text(HIERARCHY)
    (folder / "persons.csv").write_text(records())
    return {
        "data": {"records": "persons.csv", "hierarchy": "hierarchy.csv"},
        "privacy": {"epsilon": "2", "dataset": "persons"},
        "topdown": {"attributes": ATTRIBUTES, "workload": list(WORKLOAD), **topdown},
    }


@pytest.mark.parametrize(
    ("keys", "strategy", "shares"),
    [
        ({"strategy": "workload"}, "workload", "uniform"),
        ({"strategy": ["detail"]}, ("detail",), "uniform"),
        ({"shares": ["1/2", "1/4", "1/4"]}, "workload", (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))),
        ({"passes": [{"queries": ["total"]}, {"queries": ["sex * age"]}]}, "workload", "uniform"),
    ],
)
def test_keys_that_are_set_stay(keys: dict[str, Any], strategy: object, shares: object, tmp_path: Path) -> None:
    config = configure(folder=tmp_path, **sections(tmp_path, **keys))
    measured = measure(configure(config, privacy={"noise": "seeded", "seed": 1}))
    assert (measured.config.method.strategy, measured.config.method.shares) == (strategy, shares)


def test_a_plan_shows_the_choice_and_the_next_best(tmp_path: Path) -> None:
    config = configure(folder=tmp_path, **sections(tmp_path))
    planned = plan_tables(config)
    (table,) = planned.ranking()
    assert len(table.rows) == 4
    assert len(set(table.rows)) == 4
    assert table.rows[0][0] == "; ".join(planned.config.method.strategy)
    assert table.rows[0][2] == " ".join(f"{float(share):.3g}" for share in planned.config.privacy.split)
    times = [float(row[3]) for row in table.rows]
    assert times[0] == 1
    assert times == sorted(times)
    stated = sections(tmp_path, strategy="workload")
    stated["privacy"]["split"] = "uniform"
    assert plan_tables(configure(folder=tmp_path, **stated)).ranking() == ()


def test_another_version_of_the_choice_takes_up_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(folder=tmp_path, **sections(tmp_path))
    first = measure(config)
    assert first.paid
    chosen = first.config
    assert sum(chosen.method.shares) == sum(chosen.privacy.split) == 1
    workload = parse_queries(WORKLOAD, SCHEMA)
    monkeypatch.setattr(automatic, "ranked_strategies", lambda *_: [(Strategy.uniform(workload), 0.0)])
    monkeypatch.setattr(
        automatic, "ranked_allocations", lambda *_: [((Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)), 0.0)]
    )
    again = measure(configure(folder=tmp_path, **sections(tmp_path)))
    assert not again.paid
    assert again.measurement.measurement_plan.digest == first.measurement.measurement_plan.digest
    assert again.config.privacy.split == chosen.privacy.split
    assert paid(tmp_path).count("RESERVED") == 1
    # Another aim is another choice.
    other = configure(config, auto={"aim": "leaves"}, privacy={"total": "4"})
    assert other.auto.aim == "leaves"
    assert automatic.choice_digest(other) != automatic.choice_digest(config)


def test_a_fan_out_chosen_by_another_version_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "values.csv").write_text("value\n" + "\n".join(str(k % 60) for k in range(200)) + "\n")
    text = {"data": {"values": "values.csv"}, "privacy": {"epsilon": "1", "dataset": "d"}, "ranges": {"cells": 64}}
    first = measure(configure(folder=tmp_path, **text))
    monkeypatch.setattr(ranges_kind, "choose_fan_out", lambda *_, **__: 3)
    again = measure(configure(folder=tmp_path, **text))
    assert first.config.method.fan_out == again.config.method.fan_out != 3
    assert not again.paid
    assert paid(tmp_path).count("RESERVED") == 1


AGES, RACES = [f"y{age}" for age in range(90)], [f"race {n}" for n in range(12)]
PARENTS = {"adults": "relation = head & age = y18.."}


def config_of(folder: Path, **topdown: Any) -> co.Config:
    """Return a release of 3,240 cells with constraints of every kind, some of which name single values."""
    regions = pd.DataFrame({"region_id": ["a", "b"], "land": ["x", "x"], "part": ["a", "b"]})
    record = {"region_id": "a", "age": "y30", "relation": "head", "race": "race 7"}
    private = pd.DataFrame([record, {**record, "relation": "child", "age": "y4"}, {**record, "region_id": "b"}])
    bounds = pd.DataFrame(
        {"region": ["x/a"] * 2, "query": "relation", "answer": ["relation = head", "relation = other"]}
    )
    return co.configure(
        folder=folder,
        data={
            "records": private,
            "hierarchy": regions,
            "levels": ["land", "part"],
            "bounds": bounds.assign(lower=0, upper=9),
        },
        privacy={"dataset": "large", "epsilon": "1", "neighbours": "replace"},
        topdown={
            "attributes": {"age": AGES, "relation": ["head", "child", "other"], "race": RACES},
            "structural_zeros": ["age = y0..y14 & relation = head"],
            "groupings": {"band": {"of": "age", "groups": {"young": AGES[:18], "old": AGES[65:]}}},
            "workload": [
                "total",
                "band * relation",
                "age[y20..y29, y30..y39] * race",
                "cumulative(age)",
                "race",
                "detail",
            ],
            "counts": PARENTS,
            "constraints": [{"holds": "2 * adults >= [relation = child & race = race 7]"}, {"holds": "adults <= 500"}],
            "invariants": [{"query": "total", "level": "part"}],
            **topdown,
        },
    )


@pytest.mark.parametrize("estimation", ["full", "classic"])
def test_few_values_keep_all_that_is_named(estimation: str, tmp_path: Path) -> None:
    plan = planned(config_of(tmp_path, estimation=estimation), Silent())
    simulated, _ = small_instance(plan, TABLES.method(plan.config, plan.measurement_plan))
    full, small = plan.detail.table_queries, simulated.plan.detail.table_queries
    assert small.schema.size < full.schema.size / 5
    for attribute, values in {"age": ["y0", "y14", "y18", "y65", "y39"], "race": ["race 7"]}.items():
        assert set(values) <= set(small.schema.attributes[attribute])
    assert [query.text for query in small.plan.queries] == [query.text for query in full.plan.queries]
    assert [bounds.query.labels() for bounds in small.bounds] == [bounds.query.labels() for bounds in full.bounds]
    assert [constraint.text for constraint in small.linear] == [constraint.text for constraint in full.linear]
    assert all(constraint.row(small.schema).any() for constraint in small.linear)
    assert small.invariants[0].query.text == full.invariants[0].query.text
    rehearse(plan, render_report, Silent())


def test_a_solver_that_cannot_answer_is_found_on_few_values(tmp_path: Path) -> None:
    config = config_of(tmp_path, estimation="classic")
    solvers = config.solvers.model_validate({"table_rounding": "osqp", "fallback": False})
    with pytest.raises(ConfigError, match="table_rounding"):
        co.check(replace(config, solvers=solvers))
