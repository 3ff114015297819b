"""The verbs on a configuration of tables: plan, release, verify, compare, ledger; and those that refuse one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.helpers import Runner

HIERARCHY = "region_id,land,county\nr0,land,north\nr1,land,south\nr2,land,west\n"
PERSONS = "region_id,sex,age,count\n" + "".join(
    f"r{region},{sex},{age},{3 + 5 * region + len(age)}\n"
    for region in range(3)
    for sex in ("female", "male")
    for age in ("child", "adult", "old")
)
CONFIG = """
[data]
records = "persons.csv"
hierarchy = "hierarchy.csv"
[privacy]
epsilon = "1"
{privacy}
[topdown]
attributes = {{ sex = ["female", "male"], age = ["child", "adult", "old"] }}
workload = ["total", "sex * age"]
"""
SEEDED = 'noise = "seeded"\nseed = 4'


def write(folder: Path, privacy: str = SEEDED) -> Path:
    (folder / "hierarchy.csv").write_text(HIERARCHY)
    (folder / "persons.csv").write_text(PERSONS)
    (folder / "run.toml").write_text(CONFIG.format(privacy=privacy))
    return folder / "run.toml"


def test_plan_states_exact_errors_and_opens_nothing(tmp_path: Path, coco: Runner) -> None:
    config = write(tmp_path, privacy="")
    (tmp_path / "persons.csv").unlink()
    ran = coco("plan", config, "--json")
    assert (ran.code, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert found["epsilon"] == "1"
    assert 0 < found["seconds"] < 60
    assert [row["epsilon"] for row in found["costs"]] == ["1/4"] * 4
    for row in found["predictions"]:
        assert 0 < row["standard_error"] <= row["standard_error_alone"] + 1e-9
    ran = coco("plan", config)
    assert ran.code == 0
    assert "Nothing was spent, and the private table was not opened." in ran.out
    assert coco("plan", config, "--like", tmp_path / "hierarchy.csv").code == 2
    assert list(tmp_path.glob("private*")) == []


def test_release_verify_and_ledger(tmp_path: Path, coco: Runner) -> None:
    config, out = write(tmp_path, privacy=""), tmp_path / "out"
    ran = coco("release", config, "--out", out)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("PRIVATE: epsilon = 1 spent (2 levels, 2 queries)")
    assert coco("verify", out).code == 0
    assert "RELEASED" in coco("ledger", config).out
    refused = coco("release", config, "--out", tmp_path / "again")
    assert refused.code == 3
    assert not (tmp_path / "again").exists()


def test_a_release_as_json(tmp_path: Path, coco: Runner) -> None:
    found = json.loads(coco("release", write(tmp_path), "--out", tmp_path / "out", "--json").out)
    assert found["status"] == "NOT PRIVATE"
    assert set(found["solvers"]) == {"table_rounding", "topdown_split"}
    assert all(row["worst_relative_gap"] <= 1e-6 for row in found["solvers"].values())


@pytest.mark.parametrize("privacy", ["", SEEDED])
def test_compare_runs_every_solver_and_catches_the_planted_answer(tmp_path: Path, coco: Runner, privacy: str) -> None:
    ran = coco("compare", write(tmp_path, privacy), "--size", "30", "--json")
    found = json.loads(ran.out)
    assert ran.code in (0, 4)
    kinds = {row["problem"] for row in found["rows"]}
    assert kinds == {"topdown_split", "table_rounding"}
    assert ("was not opened" in found["data"]) == (privacy == "")
    (planted,) = [row for row in found["rows"] if row["planted"]]
    assert (planted["solver"], planted["status"]) == ("even split", "GAP_TOO_LARGE")
    exact = [row for row in found["rows"] if row["status"] == "OPTIMAL"]
    assert {"split-newton", "piqp", "highs"} <= {row["solver"] for row in exact}


def test_a_wrong_key_or_table_is_one_line(tmp_path: Path, coco: Runner) -> None:
    config = write(tmp_path)
    config.write_text(config.read_text().replace("workload", "worklaod"))
    ran = coco("release", config)
    assert ran.code == 2
    assert "did you mean 'workload'?" in ran.err
    config = write(tmp_path)
    (tmp_path / "persons.csv").write_text(PERSONS.replace("child", "zebra", 1))
    ran = coco("release", config)
    assert ran.code == 2
    assert "persons.csv, row 2, column 'age'" in ran.err
    assert "zebra" not in ran.err
