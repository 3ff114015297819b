"""The release of a nation and the first call in the bench, small: verified, weighed, and wrong where bits differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coco_experiments.bench import first_call, nation, nation_posterior
from coco_experiments.bench.apart import Apart
from coco_experiments.bench.release import write_sizes

import coco_opt.groups.noisy_measurements
from coco_opt.files.release_checks import Check
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.releases import verify_release
from tests.experiments.recorder import Recorder


@pytest.fixture(scope="module")
def counts() -> PrivateCounts:
    return nation.counts_of(small=True, data=None)[1]


@pytest.mark.slow
def test_a_released_nation_is_weighed_and_verified(counts: PrivateCounts, tmp_path: Path) -> None:
    write_sizes(tmp_path / "sizes.csv", counts)
    found = nation.released(str(tmp_path), "l2", 50)
    assert all(check.passed for check in verify_release(tmp_path / "release l2"))
    assert 0 < found["sealed"] < found["written"]
    assert (tmp_path / "release l2" / "report.html").exists()


def test_packed_answers_are_estimated_as_arrays_are(counts: PrivateCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coco_opt.groups.noisy_measurements, "DENSE", 10)
    monkeypatch.setattr("coco_opt.privacy.queries.DENSE", 10)
    assert nation.same_bits(counts, "l1", 40)


def test_rows_and_faults_of_a_nation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(target: str, folder: str, loss: str, max_size: int) -> Apart:
        return Apart(13.0, 20.0, 900.0, {"sealed": 251.0, "written": 3.0})

    def checked(folder: Path) -> list[Check]:
        return [Check("sums", passed=folder.name == "release l1", detail="one")]

    monkeypatch.setattr(nation, "apart", found)
    monkeypatch.setattr(nation, "verify_release", checked)
    monkeypatch.setattr(nation, "same_bits", lambda counts, loss, max_size: loss == "l2")
    outcome = nation.run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.failures == (
        "loss l1: packed answers are estimated otherwise than arrays",
        "loss l2: sums: one",
    )
    (read,) = json.loads((tmp_path / "bench" / "nation.json").read_text())
    assert [(row["met"], row["peak MB"]) for row in read["rows"]] == [(False, 900.0)] * 2
    assert "251.0 MB (at most 250: no)" in read["notes"][0]


@pytest.mark.slow
def test_the_posterior_of_a_small_nation_is_whole() -> None:
    found = nation_posterior.estimated(None, nation_posterior.SMALL_MAX_SIZE)
    assert found["whole"]
    assert len(found["errors"]) == len(found["matching"]) == 3


def test_the_posterior_of_a_nation_is_weighed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"seconds": 301.0, "used": 500.0, "errors": [1.5], "matching": [2.5], "told": "250 draws", "whole": False}
    monkeypatch.setattr(nation_posterior, "apart", lambda *_: Apart(1.0, 1.0, 3_000.0, value))
    outcome = nation_posterior.run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.failures == ("a region has not its number of groups",)
    (read,) = json.loads((tmp_path / "bench" / "nation_posterior.json").read_text())
    (row,) = read["rows"]
    assert (row["seconds"], row["cores' seconds"], row["peak MB"]) == (301.0, 500.0, 3_000.0)
    assert read["notes"][:2] == ["250 draws", "mean distance of a region by level: 1.5; matching 2.5"]


def test_a_first_call_that_compiles_nothing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def found(target: str, folder: str, environment: dict[str, str]) -> Apart:
        given.append(environment)
        return Apart(1.0, 1.0, 300.0, len(given) - 1)

    monkeypatch.setattr(first_call, "apart", found)
    outcome = first_call.run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.failures == (
        f"{first_call.THERE}: exit code 1",
        "no kernel was compiled into the cache folder",
    )
    assert given[0] == given[1]


def test_rows_not_measured_apart_show_no_empty_columns(tmp_path: Path) -> None:
    from coco_experiments.bench.rows import COLUMNS, Row, finish

    for cpu, hidden in ((None, 2), (1.0, 1)):
        outcome = finish("n", "t", [Row("i", "w", 1, 1.0, cpu=cpu)], [], [], tmp_path, Recorder())
        assert len(outcome.tables[0].columns) == len(COLUMNS) - hidden
        assert len(outcome.tables[0].rows[0]) == len(COLUMNS) - hidden
