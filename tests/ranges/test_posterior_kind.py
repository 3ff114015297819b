"""Releases of ranges by their posterior: the files of intervals and draws, what verifies them, how they are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt import Config, parse_config, read_ranges_release, render_report, verify_release
from coco_opt import release as release_of
from coco_opt.errors import ProblemError
from coco_opt.files.folder import FileTable, parquet, read_columns
from coco_opt.files.release_checks import Regions
from coco_opt.ranges.kind import RANGES
from coco_opt.ranges.kind.intervals import DRAWS, INTERVALS
from coco_opt.releases.kind import Folder

TEXT = """
[data]
values = "visits.csv"
[privacy]
epsilon = "1"
noise = "seeded"
seed = 5
[ranges]
edges = [0, 10, 20, 30, 40, 50, 60, 70, 80, 100]
fan_out = 3
"""
POSTERIOR = 'estimator = "posterior"\nworkload = [[0, 20], [10, 100]]\n'


def config(folder: Path, more: str) -> Config:
    return parse_config(TEXT + more, folder, file="visits.toml")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("visits")
    values = np.random.default_rng(3).binomial(99, 0.4, 800)
    (folder / "visits.csv").write_text("\n".join(["value", *map(str, values)]) + "\n")
    return release_of(config(folder, POSTERIOR + "draws = 20\n"), page=render_report)


def test_a_release_verifies_and_its_intervals_are_read(made: Any) -> None:
    checks = {check.name: check for check in verify_release(made.folder)}
    assert all(check.passed for check in checks.values())
    assert {"intervals", "draws", "whole_numbers", "nonnegative", "children_sum_to_parents"} <= checks.keys()
    fitted = made.estimate.result.histogram
    table = read_columns(made.folder / INTERVALS, ("start", "stop", "lower", "upper")).to_pandas()
    assert len(table) == 13 + 2  # of the tree, and of the workload
    begin, end = fitted.domain.cells_of(table["start"]), np.searchsorted(fitted.domain.edges, table["stop"])
    spans = fitted.intervals(begin, end)
    assert (table["lower"] == spans.lower).all()
    assert (table["upper"] == spans.upper).all()
    assert len(made.estimate.intervals()) == len(table)
    read = read_ranges_release(made.folder)  # from draws: of any range
    own = read.intervals([2, 0], [5, 9], 0.5)
    assert (own.lower <= read.ranges([2, 0], [5, 9]).estimate).all()
    assert made.manifest["posterior"]["draws"] >= 192
    assert "90 % interval" in (made.folder / "report.html").read_text()


def test_without_draws_the_published_intervals_are_read(made: Any) -> None:
    (made.folder / DRAWS).rename(made.folder / "aside")
    try:
        read = read_ranges_release(made.folder)
        fitted = made.estimate.result.histogram
        assert read.intervals([0, 3], [2, 4]).lower.tolist() == fitted.intervals([0, 3], [2, 4]).lower.tolist()
        with pytest.raises(ProblemError, match="no interval of the cells 2:5"):
            read.intervals([2], [5])
        with pytest.raises(ProblemError, match=r"0.9 alone"):
            read.intervals([0], [1], 0.8)
    finally:
        (made.folder / "aside").rename(made.folder / DRAWS)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (INTERVALS, lambda table: table["lower"].__setitem__(4, 10_000), "released count"),
        (INTERVALS, lambda table: table["start"].__setitem__(0, 3), "no range of cells"),
        (INTERVALS, lambda table: [column.pop() for column in table.values()], "has no row"),
        (DRAWS, lambda table: table["count"].__setitem__(0, 0), "no count of a cell"),
        (DRAWS, lambda table: table["draw"].__setitem__(0, 99), "no count of a cell"),
        (DRAWS, lambda table: [column.append(column[-1]) for column in table.values()], "twice"),
    ],
)
def test_verification_finds_changed_files(
    made: Any, name: str, change: Callable[[dict[str, list[int]]], object], words: str
) -> None:
    content = (made.folder / name).read_bytes()
    columns = ("draw", "start", "stop", "count") if name == DRAWS else ("start", "stop", "lower", "upper")
    table = read_columns(made.folder / name, columns).to_pydict()
    change(table)
    try:
        (made.folder / name).write_bytes(parquet(FileTable.of(table, dict.fromkeys(columns, "int64"))))
        manifest = json.loads((made.folder / "manifest.json").read_text())
        regions = Regions(["all"], np.array([-1]), np.array([0]), {})
        failed = [check for check in RANGES.verify(Folder(made.folder, manifest, regions)) if not check.passed]
        assert [check.name for check in failed] == [name.partition(".")[0]]
        assert words in failed[0].detail
    finally:
        (made.folder / name).write_bytes(content)


@pytest.mark.parametrize(("cells", "time", "estimator"), [(4096, 600.0, "posterior"), (2**18, 5.0, "nonnegative")])
def test_an_automatic_estimator_takes_the_time_that_it_may(
    tmp_path: Path, cells: int, time: float, estimator: str
) -> None:
    text = TEXT.replace(
        "edges = [0, 10, 20, 30, 40, 50, 60, 70, 80, 100]\nfan_out = 3", f"cells = {cells}\nfan_out = 16"
    )
    written = parse_config(f'{text}estimator = "auto"\n[auto]\ntime = {time}\n', tmp_path, file="visits.toml")
    method = RANGES.method(written, RANGES.plan(written).measurement_plan)
    assert (method.estimator, method.coverage) == (estimator, 0.9 if estimator == "posterior" else 0.0)
