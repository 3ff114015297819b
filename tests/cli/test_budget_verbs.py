"""The verbs plan and ledger, and how release meets a spent budget, as a user sees them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from coco_opt.runs import release as release_module
from tests.cli.helpers import Runner, write_config, write_sizes, write_tables

SIZES = 'sizes = "sizes.csv"'


def private(folder: Path, privacy: str = "") -> Path:
    write_sizes(folder)
    return write_config(folder, SIZES, privacy=privacy)


def test_plan_prints_budget_errors_split_time_and_memory(tmp_path: Path, coco: Runner) -> None:
    ran = coco("plan", private(tmp_path), "--runs", "1")
    assert ran.code == 0
    for words in (
        "Budget",
        "noise scale",
        "least_squares",
        "planned",
        "simulated",
        "exact",
        "Memory",
        "zCDP rho = 1/2",
    ):
        assert words in ran.out
    assert "split = [" in ran.out
    assert not (tmp_path / "private").exists()


def test_plan_as_json_and_on_a_look_alike(tmp_path: Path, coco: Runner) -> None:
    config = private(tmp_path)
    ran = coco("plan", config, "--json", "--runs", "1", "--like", tmp_path / "sizes.csv")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert found["look_alike"] == "the look-alike sizes.csv"
    assert [level["epsilon"] for level in found["levels"]] == ["1/2", "1/2"]
    assert {"exact", "errors", "method", "shares", "split"} == set(found["predictions"][0])
    assert coco("plan", config, "--like", tmp_path / "absent.csv").code == 2


def test_plan_reads_no_entities(tmp_path: Path, coco: Runner) -> None:
    config = write_tables(tmp_path)
    (tmp_path / "entities.csv").unlink()
    ran = coco("plan", config, "--runs", "1")
    assert ran.code == 0, ran.err


def test_ledger_shows_spending_and_a_spent_budget_is_exit_3(tmp_path: Path, coco: Runner) -> None:
    config = private(tmp_path)
    assert json.loads(coco("ledger", config, "--json").out)["entries"] == []
    assert coco("ledger", config, "--grant", "1").code == 3
    assert coco("release", config).code == 0
    refused = coco("release", config)
    assert refused.code == 3
    assert "0 of 1 is left" in refused.err
    text = coco("ledger", config)
    assert text.code == 0
    for words in ("GRANTED", "RESERVED", "MEASURED", "RELEASED", "sizes.csv", "The chain of 4 entries holds"):
        assert words in text.out
    granted = json.loads(coco("ledger", config, "--grant", "3/2", "--json").out)
    assert granted["accounts"] == [
        {
            "dataset": "sizes.csv",
            "unit": "epsilon",
            "neighbours": "add_remove",
            "total": "5/2",
            "spent": "1",
            "left": "3/2",
        }
    ]
    assert coco("release", config).code == 0
    assert coco("release", config).code == 3
    assert coco("ledger", config, "--grant", "-1").code == 2


def test_a_broken_chain_is_shown_and_exit_1(tmp_path: Path, coco: Runner) -> None:
    config = private(tmp_path)
    assert coco("release", config).code == 0
    connection = sqlite3.connect(tmp_path / "private" / "ledger.sqlite")
    connection.execute("DROP TRIGGER no_update")
    connection.execute("UPDATE entries SET amount = '1/1000' WHERE kind = 'RESERVED'")
    connection.commit()
    connection.close()
    ran = coco("ledger", config)
    assert ran.code == 1
    assert "RELEASED" in ran.out
    assert "entry 2 of the ledger does not match its hash" in ran.err
    assert json.loads(coco("ledger", config, "--json").out)["verified"] is False
    assert coco("release", config).code == 3


def test_an_interrupted_run_is_resumed_or_given_up(
    tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = private(tmp_path, 'total = "2"')

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(release_module, "measure_hierarchy", stop)
        assert coco("release", config).code == 130
    resumed = coco("release", config)
    assert resumed.code == 0
    assert "paid for already: resumed" in resumed.out
    with monkeypatch.context() as patch:
        patch.setattr(release_module, "measure_hierarchy", stop)
        assert coco("release", config).code == 130
    (key,) = tmp_path.glob("private/runs/*/key")
    assert coco("ledger", config, "--abandon", "nobody").code == 3
    assert coco("ledger", config, "--abandon", key.parent.name).code == 0
    assert not key.exists()
    refused = coco("release", config)
    assert refused.code == 3
    assert "0 of 2 is left" in refused.err
