"""From frames to a release and back to frames, for every kind, without a file of the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import coco_opt as co
from coco_opt.errors import BudgetError, ConfigError, InputError
from coco_opt.files.folder import read_columns
from coco_opt.releases.planning import planned
from coco_opt.releases.reporter import Silent

polars = pytest.importorskip("polars", reason="Polars is not installed")

PRIVACY = {"epsilon": "1", "noise": "seeded", "seed": 5}
REGIONS = {"region_id": ["n", "s"], "nation": ["all", "all"], "part": ["north", "south"]}
GROUPS = {
    "data": {
        "entities": {"entity_id": range(60), "group_id": [k % 20 for k in range(60)], "notes": ["x"] * 60},
        "groups": {"group_id": range(24), "region_id": ["n", "s"] * 12},
        "hierarchy": REGIONS,
    },
    "groups": {"max_size": 9, "bucket_growth": 0},
}
TABLES = {
    "data": {
        "records": {"region_id": ["n", "s", "s"] * 9, "sex": ["f", "m", "m"] * 9, "age": [0, 1, 2] * 9},
        "hierarchy": REGIONS,
    },
    "topdown": {"attributes": {"sex": ["f", "m"], "age": "0..2"}, "workload": ["total", "sex * age"]},
}
RANGES = {"data": {"values": {"value": [3, 1, 4, 1, 5, 9, 2, 6]}}, "ranges": {"cells": 10}}
KINDS = {"groups": GROUPS, "tables": TABLES, "ranges": RANGES}
FRAMES: dict[str, Callable[[Any], Any]] = {
    "pandas": pd.DataFrame,
    "polars": polars.DataFrame,
    "arrow": lambda columns: pa.table({name: list(values) for name, values in columns.items()}),
    "duckdb": lambda columns: duckdb.from_arrow(pa.table({name: list(values) for name, values in columns.items()})),
}


def configured(kind: str, library: str, folder: Path) -> co.Config:
    sections = {name: dict(section) for name, section in KINDS[kind].items()}
    data = {key: FRAMES[library](columns) for key, columns in sections.pop("data").items()}
    return co.configure(folder=folder, data=data, privacy=PRIVACY, **sections)


@pytest.mark.parametrize("kind", KINDS)
def test_every_library_gives_the_same_release_which_comes_back_as_frames(kind: str, tmp_path: Path) -> None:
    released = {}
    for library in FRAMES:
        made = co.estimate(co.measure(configured(kind, library, tmp_path)))
        released[library] = made.to_arrow()
        assert made.to_pandas().equals(released[library].to_pandas())
        assert made.to_polars().equals(polars.DataFrame(made))
        assert len(duckdb.from_arrow(pa.table(made)).fetchall()) == released[library].num_rows
    assert all(table.equals(released["pandas"]) for table in released.values())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_what_was_shown(kind: str, tmp_path: Path) -> None:
    made = co.estimate(co.measure(configured(kind, "pandas", tmp_path)))
    assert not list(tmp_path.glob("releases*"))
    folder = made.save(tmp_path / "out", page=co.render_report)
    assert all(check.passed for check in co.verify_release(folder))
    for name in made.tables:
        shown = made.to_pandas(name)
        assert read_columns(folder / f"{name}.parquet", ()).to_pandas().equals(shown)
    assert "NOT PRIVATE" in made._repr_html_()
    with pytest.raises(InputError, match=r"no table 'histogram'.*hierarchy"):
        made.to_arrow("histogram")
    with pytest.raises(InputError, match="exists already"):
        made.save(tmp_path / "out")


def test_a_paid_measurement_is_estimated_anew_for_free_and_its_releases_are_recorded(tmp_path: Path) -> None:
    config = co.configure(
        configured("groups", "polars", tmp_path), privacy={"noise": "secure", "seed": None, "dataset": "households"}
    )
    noisy = co.measure(config)
    assert noisy.paid
    first = co.estimate(noisy, config)
    joint = co.estimate(noisy, co.configure(config, groups={"consistency": "joint", "loss": "l2"}))
    assert first["all"].groups == joint["all/north"].groups + joint["all/south"].groups == 24
    assert not co.measure(config).paid
    where = joint.save()
    assert where.parent == tmp_path / "releases"
    assert all(check.passed for check in co.verify_release(where))
    with pytest.raises(BudgetError):
        co.measure(config, again=True)


def test_a_configuration_is_changed_key_by_key_and_mistakes_are_named(tmp_path: Path) -> None:
    config = configured("groups", "arrow", tmp_path)
    other = co.configure(config, privacy={"epsilon": "1/2"}, groups={"query": "ranks"}, name="ranks")
    assert (other.name, str(other.privacy.epsilon), other.privacy.seed, other.method.max_size) == ("ranks", "1/2", 5, 9)
    assert other.data.entities is config.data.entities
    assert other.output == config.output
    with pytest.raises(ConfigError, match=r"\[groups.consistncy\] unknown key; did you mean 'consistency'"):
        co.configure(config, groups={"consistncy": "joint"})
    with pytest.raises(ConfigError, match=r"\[ranges\] this is a configuration of \[groups\]"):
        co.configure(config, ranges={"cells": 5})
    with pytest.raises(ConfigError, match="a float is not exact"):
        co.configure(config, privacy={"epsilon": 0.5})


def test_a_library_call_that_names_no_folder_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = pd.DataFrame({"value": [3, 1, 4, 1, 5]})
    privacy = {"epsilon": "1", "noise": "seeded", "seed": 7}
    config = co.configure(data={"values": values}, privacy=privacy, ranges={"cells": 8})
    for changed in (config, co.configure(config, ranges={"estimator": "consistent"})):
        assert len(co.estimate(co.measure(changed)).to_pandas()) > 0
    assert list(tmp_path.iterdir()) == []
    assert co.measure(co.configure(config, output={"private": "kept"})).folder is not None


@pytest.mark.parametrize("kind", ["groups", "tables"])
def test_public_tables_are_read_once_whatever_the_budget_is_stated_in(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = {"mechanism": "discrete_gaussian", "epsilon": "1", "delta": "1/1000000", "noise": "seeded", "seed": 5}
    config = configured(kind, "pandas", tmp_path)
    rho = co.configure(config, privacy={"mechanism": "discrete_gaussian", "epsilon": None, "rho": "1/50"})
    stated = replace(rho, privacy=type(rho.privacy).model_validate(pair))
    module = import_module(f"coco_opt.{'groups' if kind == 'groups' else 'topdown'}.kind.plan")
    name, calls = "read_public" if kind == "groups" else "read_regions", []
    reader = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: calls.append(given) or reader(*given))
    plan = planned(stated, Silent())
    assert len(calls) == 1
    # More than zCDP alone would buy: it was planned again, for the budget that these questions use up.
    assert plan.measurement_plan.cost.amount > stated.privacy.cost.amount
    assert plan.config.privacy.cost == plan.measurement_plan.cost
