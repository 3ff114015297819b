"""A rehearsal of large tables: few values of every attribute, and everything that queries, rules and bounds name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import coco_opt as co
from coco_opt.errors import ConfigError
from coco_opt.releases import Silent, render_report
from coco_opt.releases.planning import planned
from coco_opt.releases.rehearsal import rehearse
from coco_opt.topdown.kind import TABLES
from coco_opt.topdown.kind.rehearsal import small_instance

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
