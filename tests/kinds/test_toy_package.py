"""A kind of release from another package: found by its entry point, and carried by the engine as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from coco_opt.config import Config, load_config
from coco_opt.errors import InputError
from coco_opt.files.folder import read_columns
from coco_opt.files.measurement import read_measurement
from coco_opt.releases import check, compare, estimate, forecast, measure, release, render_report, verify_release

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
