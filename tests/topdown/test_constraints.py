"""Constraints between answers: read from text, held in released tables, said in files and on the page."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt import Hierarchy, check, estimate, forecast, measure, read_tables_release, release, render_report
from coco_opt.errors import ConfigError, HierarchyError, InputError
from coco_opt.topdown import LinearConstraint, Schema
from coco_opt.topdown.constraint import UNBOUNDED, parse_constraint
from coco_opt.topdown.facilities import Facilities, FacilityType, zeros_of
from coco_opt.topdown.feasibility.conflict import Proof
from coco_opt.topdown.measuring import measure as measuring
from tests.topdown.persons import SEEDED, TOPDOWN, Heard, failing, write

FAMILY = Schema({"relation": ["householder", "spouse", "partner", "child"], "age": ["minor", "adult"]})
COUNTS = {"householders": "relation = householder", "spouses": "relation = spouse", "partners": "relation = partner"}
TOWN = Hierarchy.from_paths([("land", f"town{t}", f"block{b}") for t in range(2) for b in range(3)])
NONE = UNBOUNDED


@pytest.mark.parametrize(
    ("text", "terms", "lower", "upper"),
    [
        (
            "householders >= spouses + partners",
            {"relation = householder": 1, "relation = spouse": -1, "relation = partner": -1},
            0,
            NONE,
        ),
        ("2 * householders - 3 <= total + 4", {"relation = householder": 2, "total": -1}, -NONE, 7),
        ("[relation = child & age = adult] = 0", {"relation = child & age = adult": 1}, 0, 0),
        ("5 >= 2*[age = minor | adult] - -1", {"age = minor | adult": -2}, -4, NONE),
        ("spouses + spouses == 4", {"relation = spouse": 2}, 4, 4),
    ],
)
def test_texts_are_read(text: str, terms: dict[str, int], lower: int, upper: int) -> None:
    read, *sides = parse_constraint(text, FAMILY, COUNTS)
    assert {count: weight for weight, count in read} == terms
    assert sides == [lower, upper]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("householders", "one of >=, <= and ="),
        ("householders > spouses", "one of >=, <= and ="),
        ("householders >= spouse", "did you mean 'spouses'"),
        ("householders >= ", "cannot be read"),
        ("2 3 >= spouses", "cannot be read"),
        ("spouses 3 >= 2", "cannot be read"),
        ("2 * - spouses >= 3", "cannot be read"),
        ("2 * * spouses >= 3", "cannot be read"),
        ("2 * 3 * spouses >= 3", "cannot be read"),
        ("[age = minr] <= 3", "did you mean 'minor'"),
        ("total - total <= 3", "says nothing"),
        ("spouses ! 3", "what is"),
        ("householders <= 3 <= spouses", "one of >=, <= and ="),
    ],
)
def test_what_cannot_be_read_is_said(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_constraint(text, FAMILY, COUNTS)


def test_a_constraint_binds_the_regions_it_names() -> None:
    constraint = LinearConstraint.of("total <= 5", TOWN, FAMILY, regions=["land/town1"], source="public")
    assert constraint.upper.tolist() == [NONE] * 3 + [5] * 3
    assert LinearConstraint.of("total <= 5", TOWN, FAMILY, 1, regions=["land/town1"]).upper.tolist() == [NONE, 5]
    again = pickle.loads(pickle.dumps(constraint))
    assert again.upper.tolist() == constraint.upper.tolist()
    assert (again.text, again.terms, again.source) == (constraint.text, constraint.terms, constraint.source)
    with pytest.raises(InputError, match="below the level"):
        LinearConstraint.of("total <= 5", TOWN, FAMILY, 1, regions=["land/town1/block0"])
    with pytest.raises(HierarchyError):
        LinearConstraint.of("total <= 5", TOWN, FAMILY, regions=["land/town7"])


CONFIG = TOPDOWN + (
    'counts = { women = "sex = female", men = "sex = male" }\n'
    'constraints = [{ holds = "women <= 3 * men + 5", level = "county" }, '
    '{ holds = "[age = child] <= 40", regions = ["land/s1"], source = "public" }]\n'
)


def test_a_release_holds_its_constraints_and_says_where_they_come_from(tmp_path: Path) -> None:
    outcome = release(write(tmp_path, topdown=CONFIG), tmp_path / "out", page=render_report)
    assert failing(outcome.folder) == []
    assert [constraint["source"] for constraint in outcome.manifest["facts"]] == ["structural", "public"]
    page = (outcome.folder / "report.html").read_text()
    assert "women &lt;= 3 * men + 5" in page
    assert "structural: true of every possible table" in page
    file = outcome.folder / "constraints.parquet"
    stated = pq.read_table(file)
    assert stated.num_rows == 6 + 3
    table = read_tables_release(outcome.folder).table("land/s1/c0")
    assert table[[0, 3]].sum() <= 40
    columns = stated.to_pydict()
    changes = {
        "does not hold": {"upper": [None if side is None else side - 1000 for side in columns["upper"]]},
        "row 5: not the region's level": {"level": [at + (row == 4) for row, at in enumerate(columns["level"])]},
        "row 7: another constraint than its number says": {
            "constraint": ["men >= women" if row == 6 else text for row, text in enumerate(columns["constraint"])]
        },
    }
    for words, change in changes.items():
        pq.write_table(pa.table({**columns, **change}, schema=stated.schema), file)
        assert any(words in failure for failure in failing(outcome.folder))


@pytest.mark.parametrize(
    ("file", "promise", "says"),
    [
        ("constraints.parquet", "constraints", "are not those of the manifest"),
        ("invariants.parquet", "invariants", "leaves out answers of 'sex' by county"),
    ],
)
def test_facts_that_are_left_out_are_found(tmp_path: Path, file: str, promise: str, says: str) -> None:
    exact = 'invariants = [{ query = "sex", level = "county" }]\n'
    folder = release(write(tmp_path, SEEDED + 'neighbours = "replace"\n', CONFIG + exact), tmp_path / "out").folder
    assert failing(folder) == []
    rows = pq.read_table(folder / file)
    pq.write_table(rows.slice(0, 3), folder / file)
    assert any(says in failure for failure in failing(folder))
    (folder / file).unlink()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["promises"].remove(promise)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert any(failure.startswith("facts: ") and promise in failure for failure in failing(folder))


def test_constraints_stay_those_that_were_measured(tmp_path: Path) -> None:
    measurement = measure(write(tmp_path, topdown=CONFIG)).measurement
    other = write(tmp_path, topdown=CONFIG.replace("<= 40", "<= 41"))
    with pytest.raises(ConfigError, match="not one that was stated"):
        estimate(measurement, other)
    exact = 'invariants = [{ query = "sex", level = "county" }]\n'
    with pytest.raises(ConfigError, match=r"constraints\] leave out 'women <= 3 \* men \+ 5'.*state it here too"):
        estimate(measurement, write(tmp_path, topdown=TOPDOWN))
    seen = measure(write(tmp_path, SEEDED + 'neighbours = "replace"\n', TOPDOWN + exact)).measurement
    without = write(tmp_path, SEEDED + 'neighbours = "replace"\n', TOPDOWN)
    with pytest.raises(ConfigError, match=r"invariants\] leave out 'sex' by 'county'"):
        estimate(seen, without)
    again = estimate(measurement)
    again.save(tmp_path / "again")
    assert failing(tmp_path / "again") == []


FACILITIES = (
    '[topdown.facilities]\nattribute = "age"\n'
    'types.old = { may = "sex = female", least = 2, most = 9 }\n'
    'types.child = { must = ["sex = male"] }\n'
)


def test_facilities_bind_their_types(tmp_path: Path) -> None:
    rows = "region_id,old,child\n" + "".join(f"r{s}{c},{1 if c else 0},{c}\n" for s in range(2) for c in range(3))
    (tmp_path / "facilities.csv").write_text(rows)
    people = "region_id,sex,age\n" + "".join(
        f"r{s}{c},{sex},{age}\n"
        for s in range(2)
        for c in range(3)
        for sex, age, count in [
            ("female", "old", 4 if c else 0),
            ("male", "child", 3 * c),
            ("female", "child", c),
            ("female", "adult", 9),
        ]
        for _ in range(count)
    )
    config = write(tmp_path, topdown=TOPDOWN + FACILITIES, persons=people, data='facilities = "facilities.csv"\n')
    outcome = release(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    tables_release = read_tables_release(outcome.folder)
    for state in range(2):
        for county in range(3):
            table = dict(
                zip(tables_release.schema.labels(), tables_release.table(f"land/s{state}/c{county}"), strict=True)
            )
            assert "sex = male, age = old" not in table
            assert (2 if county else 0) <= table["sex = female, age = old"] <= (9 if county else 0)
            assert table["sex = male, age = child"] >= county
            assert county or not table["sex = female, age = child"]


@pytest.mark.parametrize("counted", [False, True])
def test_check_names_the_rows_that_contradict_public_facilities_and_nothing_else_does(
    counted: bool, tmp_path: Path
) -> None:
    """A person in a facility that is not listed comes out elsewhere: its row is named, as for structural zeros."""
    (tmp_path / "facilities.csv").write_text("region_id,old,child\nr00,1,2\nr01,0,2\n")
    extra = ",count" if counted else ""
    people = [f"r{s}{c},{sex},adult" + ",9" * counted for s in range(2) for c in range(3) for sex in ("female", "male")]
    held = [f"r00,female,old{',2' * counted}"] * 2
    astray = [f"r11,female,old{',1' * counted}", f"r01,female,old{',3' * counted}"]
    lines = [*people, astray[0], *held, astray[1], *([f"r01,female,old{',0' * counted}"] if counted else [])]
    persons = f"region_id,sex,age{extra}\n" + "\n".join(lines) + "\n"
    config = write(tmp_path, topdown=TOPDOWN + FACILITIES, persons=persons, data='facilities = "facilities.csv"\n')
    remarks = check(config).remarks
    assert "contradicts: 6" in remarks[0]
    county = {remark.split("land/")[1][:5]: remark for remark in remarks[1:] if "= old" in remark}
    assert sorted(county) == ["s0/c1", "s1/c1"]
    assert "stated 0, found 1, in persons.csv, row 14" in county["s1/c1"]
    found = "3" if counted else "1"
    assert f"stated 0, found {found}, in persons.csv, row 17" in county["s0/c1"]
    children = [remark for remark in remarks[1:] if "= child" in remark]
    assert len(children) == 4
    assert all("row" not in remark for remark in children)  # too few: no row is wrong
    outcome = release(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or b"contradict" not in path.read_bytes()
    fine = "region_id,sex,age\n" + "r00,female,old\n" * 2 + "r00,male,child\n" * 2 + "r01,male,child\n" * 2
    config = write(tmp_path, topdown=TOPDOWN + FACILITIES, persons=fine, data='facilities = "facilities.csv"\n')
    assert check(config).remarks == ()


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ("region_id,old\nr00,1\n", "missing-type"),
        ("region_id,old,child,adults\nr00,1,2,3\n", "unknown-type"),
        ("region_id,old,child\nr99,1,2\n", "unknown-region"),
        ("region_id,old,child\nr00,1,x\n", "not-an-integer"),
        ("region_id,old,child\nr00,1,1\nr00,1,1\n", "duplicate-region"),
    ],
)
def test_wrong_tables_of_facilities_are_refused(tmp_path: Path, rows: str, code: str) -> None:
    (tmp_path / "facilities.csv").write_text(rows)
    config = write(tmp_path, topdown=TOPDOWN + FACILITIES, data='facilities = "facilities.csv"\n')
    with pytest.raises(InputError) as caught:
        measure(config)
    assert caught.value.code == code


def test_facilities_need_their_table_and_their_types(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs data\.facilities"):
        measure(write(tmp_path, topdown=TOPDOWN + FACILITIES))
    typo = "\n".join(line.replace("types.old", "types.odl") for line in (TOPDOWN + FACILITIES).splitlines())
    with pytest.raises(ConfigError, match=r"\[topdown\.facilities\] 'types.odl': no value of 'age' 'odl'"):
        measure(write(tmp_path, topdown=typo, data='facilities = "facilities.csv"\n'))
    with pytest.raises(ConfigError, match=r"topdown\.facilities\.types\] names no type"):
        write(tmp_path, topdown=TOPDOWN + '[topdown.facilities]\nattribute = "age"\ntypes = {}\n')
    with pytest.raises(InputError, match="no value of 'age'"):
        Facilities("age", {"elder": FacilityType()}, np.zeros((6, 1), np.int64)).constraints(FAMILY, 2)
    for least, most in ((2**62, None), (1, 2**63 - 1), (1, 10**30)):
        with pytest.raises(InputError, match="too-large"):  # three of them would wrap around to few persons
            FacilityType(least, most)
    assert zeros_of("age", {"old": FacilityType(may="a != x & b = y | z")}) == (
        "age = old & a = x",
        "age = old & b != y | z",
    )


def test_data_facts_need_replace_in_a_configuration(tmp_path: Path) -> None:
    topdown = TOPDOWN + 'constraints = [{ holds = "total <= 300", level = "state", source = "data" }]\n'
    with pytest.raises(ConfigError, match="replace"):
        measure(write(tmp_path, topdown=topdown))
    outcome = release(write(tmp_path, SEEDED + 'neighbours = "replace"\n', topdown), tmp_path / "out")
    assert failing(outcome.folder) == []
    assert outcome.manifest["facts"][0]["source"] == "data"


def test_a_fact_that_is_said_to_be_in_the_data_and_is_not_is_refused_before_payment(tmp_path: Path) -> None:
    topdown = TOPDOWN + 'constraints = [{ holds = "total <= 3", level = "state", source = "data" }]\n'
    for verb in (check, measure):
        with pytest.raises(
            InputError, match=r"'total <= 3' is declared as taken from the data, and does not hold"
        ) as caught:
            verb(write(tmp_path, SEEDED + 'neighbours = "replace"\n', topdown))
        assert caught.value.code == "false-fact"


def test_what_is_undecided_is_said_before_anything_is_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "prove", lambda *_, **__: Proof("undecided", "not settled within 60 s"))
    config, reporter = write(tmp_path, topdown=CONFIG), Heard()
    check(config, reporter=reporter)
    assert [line for line in reporter.lines if "UNDECIDED" in line and "not settled within 60 s" in line]
    monkeypatch.undo()
    assert "proved" in dict(forecast(config).predicted.notes)["Public constraints"]


def test_a_contradiction_stops_every_verb_before_payment(tmp_path: Path) -> None:
    topdown = TOPDOWN + 'constraints = [{ holds = "2 * total = 7", level = "state", regions = ["land/s1"] }]\n'
    config = write(tmp_path, topdown=topdown)
    for verb in (check, forecast, measure):
        with pytest.raises(InputError, match=r"'2 \* total = 7' in 'land/s1'"):
            verb(config)
