"""The unit of privacy of tables: a person of several rows, by a person_id and a public maximum of rows."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt import Schema, TablePlan, check, load_config, release, render_report, verify_release
from coco_opt.errors import ConfigError, InputError
from coco_opt.privacy import NEIGHBOURS, Epsilon, Neighbours, Rho
from coco_opt.topdown.queries import parse_query
from tests.topdown import persons

SCHEMA = Schema({"sex": ("f", "m"), "age": ("child", "adult", "old")})
ROWS = "person_id," + persons.records(60).splitlines()[0]


def table(*people: int, rows: int = 1) -> str:
    """Return records, ``rows`` for each of these people, in whatever order."""
    lines = persons.records(rows * len(people)).splitlines()[1:]
    each = [f"p{who},{line}" for who, line in zip(people * rows, lines, strict=True)]
    return "\n".join([ROWS, *each]) + "\n"


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("text", ["total", "sex", "sex * age"])
def test_no_neighbours_differ_by_more_and_some_by_as_much(text: str, rows: int, neighbours: Neighbours) -> None:
    """Brute force: every way to place a person's rows (here: all into one cell each, or spread), added or replaced."""
    query = parse_query(text, SCHEMA)
    plan = TablePlan((query,), ((Epsilon(Fraction(1)),),), neighbours, rows)
    declared, regions = plan.sensitivity(0), 3
    rng, worst = np.random.default_rng(5), np.zeros(2, np.int64)

    def answers(places: np.ndarray) -> np.ndarray:
        dense = np.zeros((regions, SCHEMA.size), np.int64)
        np.add.at(dense, (places // SCHEMA.size, places % SCHEMA.size), 1)
        return np.stack([query.operator.apply(dense[k]) for k in range(regions)])

    corners = [np.full(rows, place) for place in range(regions * SCHEMA.size)]
    spread = [rng.integers(0, regions * SCHEMA.size, rows) for _ in range(200)]
    none = np.zeros(0, np.int64)
    for first in (*corners, *spread):
        for second in (corners + spread[:20]) if neighbours == "replace" else [none]:
            change = answers(first) - answers(second)
            worst = np.maximum(worst, [np.abs(change).sum(), (change**2).sum()])
    assert worst.tolist() == [declared.l1, declared.l2_squared]


def test_noise_is_wider_by_the_rows() -> None:
    query = parse_query("sex", SCHEMA)
    one, four = (TablePlan((query,), ((Rho(Fraction(1, 2)),),), "add_remove", rows) for rows in (1, 4))
    assert four.distribution(0, 0).nominal_variance == 16 * one.distribution(0, 0).nominal_variance
    one, four = (TablePlan((query,), ((Epsilon(Fraction(1)),),), "add_remove", rows) for rows in (1, 4))
    assert four.distribution(0, 0).scale == 4 * one.distribution(0, 0).scale  # type: ignore[union-attr]


def test_a_release_hides_people_of_several_rows_and_says_so(tmp_path: Path) -> None:
    config = persons.write(tmp_path, topdown=persons.TOPDOWN + "rows_a_person = 3\n", persons=table(*range(20), rows=3))
    released = release(config, tmp_path / "out", page=render_report)
    assert all(check.passed for check in verify_release(released.folder))
    assert {check["sensitivity"]["l1"] for check in released.manifest["budget"]["questions"]} == {3}
    assert "up to 3 rows" in (released.folder / "report.html").read_text()
    plain = persons.write(tmp_path)
    released = release(plain, tmp_path / "plain", page=render_report)
    text = (released.folder / "report.html").read_text()
    assert "One row of the records is taken to be one person" in text
    assert "for five, epsilon = 10" in text


@pytest.mark.parametrize(
    ("text", "code", "row"),
    [
        (table(1, 2, 3, 1, 4, 1), "too-many-rows", "row 7"),
        (table(1, 2).replace("p2", ""), "null-id", "row 3"),
        (table(1, 2).replace("p2", "p\u200b2"), "control-in-id", "row 3"),
        (persons.records(9), "missing-column", "person_id"),
        ("count," + table(1).replace("\n", "\n1,", 1), "unexpected-column", "persons.csv"),
        (table(1, 2, 3).replace("p2", "e\u0301").replace("p3", "\u00e9").replace("p1", "\u00e9"), "too-many-rows", "4"),
    ],
)
def test_who_a_row_is_of_is_checked(text: str, code: str, row: str, tmp_path: Path) -> None:
    config = persons.write(tmp_path, topdown=persons.TOPDOWN + "rows_a_person = 2\n", persons=text)
    with pytest.raises(InputError) as refused:
        check(config)
    assert refused.value.code == code
    assert row in str(refused.value)


def test_a_person_id_is_no_attribute(tmp_path: Path) -> None:
    topdown = persons.TOPDOWN.replace("age =", "person_id =") + "rows_a_person = 2\n"
    with pytest.raises(ConfigError, match="identifies persons"):
        persons.write(tmp_path, topdown=topdown)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("rows", ["", "rows_a_person = 1\n"])
def test_a_person_occurs_once_unless_several_rows_are_stated(form: str, rows: str, tmp_path: Path) -> None:
    """A row copied whole and an id on another row are named; without ids nothing can be said."""
    lines = table(1, 2, 3).splitlines()
    twice = "\n".join([*lines, lines[1], lines[2].replace("p2", "p3")]).replace("person_id", "pid") + "\n"
    persons.write(tmp_path, topdown=persons.TOPDOWN + rows, persons=twice)
    columns = [line.split(",") for line in twice.splitlines()]
    table_of = pa.table({name: list(column) for name, *column in zip(*columns, strict=True)})
    pq.write_table(table_of, tmp_path / "persons.parquet")
    text = (tmp_path / "run.toml").read_text().replace("persons.csv", f"persons.{form}")
    (tmp_path / "run.toml").write_text(text.replace("[data]\n", '[data]\ncolumns = { person_id = "pid" }\n'))
    with pytest.raises(InputError) as refused:
        check(load_config(tmp_path / "run.toml"))
    shift = 0 if form == "csv" else 1
    (entry,) = refused.value.bad_rows
    assert (entry["code"], entry["column"], entry["count"]) == ("duplicate-entity", "pid", 2)
    assert entry["rows"] == [5 - shift, 6 - shift]
    (tmp_path / "run.toml").write_text(text)
    if not rows:
        check(load_config(tmp_path / "run.toml"))
