"""A kind of release, estimators and a solver from another package: the engine and every verb serve them as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coco_opt as co
from coco_opt import Config, load_config, make_solver, read_measurement
from coco_opt.errors import InputError, ProblemError
from coco_opt.estimators import EstimatorRow, estimator_row, estimator_rows
from coco_opt.files.folder import read_columns
from coco_opt.releases import check, compare, estimate, forecast, measure, release, render_report, verify_release
from coco_opt.testing import check_solver
from tests.cli.helpers import KINDS, SECURE, Runner, paid

pytestmark = pytest.mark.usefixtures("toy_package")
CONFIG = """
[data]
persons = "persons.csv"
hierarchy = "hierarchy.csv"
[privacy]
epsilon = "2"
dataset = "persons-2026"
[totals]
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "hierarchy.csv").write_text("region_id,nation,state\nn,land,north\ns,land,south\n")
    rows = [f"p{k},{'n' if k % 3 else 's'}" for k in range(300)]
    (tmp_path / "persons.csv").write_text("\n".join(["person_id,region_id", *rows]) + "\n")
    (tmp_path / "totals.toml").write_text(CONFIG)
    return load_config(tmp_path / "totals.toml")


def test_the_engine_checks_measures_estimates_and_verifies(config: Config, tmp_path: Path) -> None:
    assert check(config).identity == {"rows_read": 300}
    first = measure(config, publish=tmp_path / "open")
    assert (first.paid, measure(config).paid) == (True, False)
    published, _ = read_measurement(tmp_path / "open")
    assert published.status == "private"
    folder = estimate(tmp_path / "open", config).save(tmp_path / "made", page=render_report)
    assert [row for row in verify_release(folder) if not row.passed] == []
    table = read_columns(folder / "totals.parquet", ("region", "region_id", "total"))
    assert table["region_id"].to_pylist() == [None, "n", "s"]
    nation, north, south = table["total"].to_pylist()
    assert nation == pytest.approx(north + south)
    assert abs(nation - 300) < 30
    assert "persons</p>" in (folder / "report.html").read_text()
    assert all(row.passed for row in verify_release(estimate(tmp_path / "open").save(tmp_path / "alone")))


def test_plans_and_comparisons_leave_the_private_table_closed(config: Config) -> None:
    config.data.persons.unlink()
    planned = forecast(config)
    assert [level_query.level for level_query in planned.queries] == ["nation", "state"]
    assert {row.problem for row in compare(config, size=3).rows} == {"tree_l2"}


def test_a_mistake_is_refused_before_anything_is_paid(config: Config) -> None:
    with config.data.persons.open("a") as file:
        file.write("p999,west\n")
    with pytest.raises(InputError, match="unknown-region"):
        release(config)
    rows = config.data.persons.read_text().splitlines()
    config.data.persons.write_text("\n".join([*rows[:-1], "p999,n"]) + "\n")
    assert release(config).paid


pytestmark = pytest.mark.usefixtures("toy_package")


def test_it_passes_the_conformance_tests() -> None:
    assert {result.problem for result in check_solver(make_solver("max-min"))} == {"isotonic_l2"}


def test_a_configuration_names_it(tmp_path: Path, coco: Runner) -> None:
    more = 'loss = "l2"\n[solvers]\nisotonic_l2 = "max-min"'
    config = KINDS["groups"].write(tmp_path, privacy=SECURE, more=more)
    assert "max-min" in coco("solvers").out
    assert coco("check", config).code == 0
    assert coco("release", config, "--out", tmp_path / "out").code == 0
    assert coco("verify", tmp_path / "out").code == 0
    solved = json.loads((tmp_path / "out" / "manifest.json").read_text())["solvers"]
    assert solved["isotonic_l2"]["solver"] == "max-min"


pytestmark = pytest.mark.usefixtures("toy_package")
KEYS = {
    "groups": ("groups.consistency", "leaf_squares"),
    "tables": ("topdown.estimation", "even_shares"),
    "ranges": ("ranges.estimator", "moving_mean"),
}


def write(folder: Path, kind: str, privacy: str) -> Path:
    """Write a kind's data and a configuration that names the estimator."""
    (section, key), name = KEYS[kind][0].split("."), KEYS[kind][1]
    own = KINDS[kind].section.replace('consistency = "matching"\n', "")
    assert f"[{section}]" in own
    config = KINDS[kind].write(folder, privacy=privacy)
    config.write_text(config.read_text().replace(KINDS[kind].section, f'{own}\n{key} = "{name}"'))
    return config


@pytest.mark.parametrize("kind", KINDS)
def test_every_verb_serves_it(kind: str, tmp_path: Path, coco: Runner) -> None:
    config, (key, name) = write(tmp_path, kind, SECURE), KEYS[kind]
    assert coco("check", config).code == 0
    assert coco("plan", config).code == 0
    assert name in coco("plan", config, "--runs", "2").out or kind != "groups"
    assert coco("release", config, "--out", tmp_path / "out").code == 0
    assert coco("verify", tmp_path / "out").code == 0
    assert ("{toy2026," in coco("cite", tmp_path / "out").out) == (kind != "ranges")
    other = {"groups": "matching", "tables": "classic", "ranges": "consistent"}[kind]
    compared = coco("compare", config, "--vary", f"{key}={name},{other}", "--runs", "1")
    assert compared.code == 0
    assert {name, other} <= set(compared.out.replace(",", " ").split())
    assert name in coco("solvers").out
    assert name in coco("cite").out


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_nobody_defines_is_refused_with_the_nearest(kind: str, tmp_path: Path, coco: Runner) -> None:
    config, (key, name) = write(tmp_path, kind, SECURE), KEYS[kind]
    config.write_text(config.read_text().replace(name, f"{name}s"))
    refused = coco("release", config)
    assert (refused.code, paid(tmp_path)) == (2, [])
    assert key in refused.err
    assert f"did you mean {name!r}" in refused.err


@pytest.mark.parametrize(
    ("kind", "returned"),
    [
        ("groups", lambda answers: []),
        ("groups", lambda answers: [co.CountOfCounts.from_ranks([1])] * 3),
        ("tables", lambda answers: [np.zeros((1, 1))]),
        ("ranges", lambda answers: np.array([np.nan])),
        ("ranges", lambda answers: 1 / 0),
    ],
)
def test_what_it_must_not_return_is_refused_before_a_payment(
    kind: str, returned: Any, tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(tmp_path, kind, SECURE)
    monkeypatch.setattr(EstimatorRow, "load", lambda _: lambda answers, *_: returned(answers))
    for verb in ("check", "release"):
        assert coco(verb, config).code == 2
    assert paid(tmp_path) == []


def test_tables_are_moved_to_the_nearest_that_meet_all_constraints(tmp_path: Path) -> None:
    config = write(tmp_path, "tables", f'{SECURE}\nneighbours = "replace"')
    text = config.read_text() + 'invariants = [{ query = "total", level = "county" }]\n'
    config.write_text(text)
    release = co.read_release(co.release(load_config(config)).folder)
    totals = [int(np.asarray(release[path]).sum()) for path in ("land/north", "land/south")]
    truth = [sum(3 + 5 * region + len(age) for _ in range(2) for age in ("child", "adult", "old")) for region in (1, 2)]
    assert totals == truth


def test_two_rows_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (*estimator_rows("groups"), estimator_row("groups", "joint"))
    estimator_rows.cache_clear()
    monkeypatch.setattr("coco_opt.plugins.table_of", lambda *_, **__: table)
    with pytest.raises(InputError, match="two tables define the estimator"):
        estimator_rows("groups")


def test_an_unknown_estimator_in_python() -> None:
    with pytest.raises(ProblemError, match="did you mean 'leaf_squares'"):
        co.GroupsMethod(consistency="leaf_square")
