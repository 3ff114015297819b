"""``coco-opt init`` beside a table of persons: told apart by headers, or by the user; no value is ever shown."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.config import TablesConfig, load_any
from coco_opt.errors import ConfigError
from tests.cli.helpers import CANARY, ENTITIES, GROUPS, HIERARCHY, SIZES, Runner

PERSONS = "region_id,sex,age group\n" + "r1,f,0-17\nr2,m,18+\n" * 20
COUNTED = "region_id,sex,count\nr1,f,30\nr2,m,40\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("areas.csv").write_text(HIERARCHY)
    return tmp_path


def fill_in(path: Path, **values: str) -> TablesConfig:
    """Write each attribute's values where the config leaves them out, and return what it says."""
    text = path.read_text()
    for key, listed in values.items():
        name = key if f"\n{key} = []" in text else f'"{key.replace("_", " ")}"'
        assert f"\n{name} = []" in text
        text = text.replace(f"\n{name} = []", f"\n{name} = {listed}")
    path.write_text(text)
    found = load_any(path)
    assert isinstance(found, TablesConfig)
    return found


@pytest.mark.parametrize("files", [(), ("areas.csv",), ("areas.csv", "persons.csv"), ("persons.csv", "areas.csv")])
def test_writes_a_config_that_runs_once_values_are_listed(coco: Runner, files: tuple[str, ...]) -> None:
    pytest.importorskip("opendp")
    Path("persons.csv").write_text(PERSONS)
    ran = coco("init", *files, "--records", "persons.csv")
    assert (ran.code, ran.err) == (0, "")
    assert "list every attribute's values" in ran.out
    config = Path("coco-opt.toml")
    with pytest.raises(ConfigError, match=r"topdown\.attributes"):
        load_any(config)
    found = fill_in(config, sex='["f", "m"]', age_group='["0-17", "18+"]')
    assert (found.data.records, found.data.hierarchy) == (Path("persons.csv"), Path("areas.csv"))
    assert found.topdown.attributes == {"sex": ("f", "m"), "age group": ("0-17", "18+")}
    assert found.topdown.workload == ("total", "sex", "age group")
    assert coco("release", config, "--out", "out").code == 0
    assert coco("verify", "out").code == 0


def test_what_is_commented_out_can_be_used(coco: Runner) -> None:
    Path("persons.csv").write_text(PERSONS)
    assert coco("init", "--records", "persons.csv").code == 0
    config = Path("coco-opt.toml")
    text = config.read_text().replace("# invariants", "invariants").replace("# topdown_split", "topdown_split")
    config.write_text(text.replace('"add_remove"', '"replace"'))
    found = fill_in(config, sex='["f", "m"]', age_group='["0-17", "18+"]')
    assert [(one.query, one.level) for one in found.topdown.invariants] == [("total", "country")]
    assert coco("plan", config).code == 0


def test_a_count_as_last_column_tells_persons_from_a_hierarchy(coco: Runner) -> None:
    Path("persons.csv").write_text(COUNTED)
    assert coco("init").code == 0
    found = fill_in(Path("coco-opt.toml"), sex='["f", "m"]')
    assert found.data.records == Path("persons.csv")
    assert list(found.topdown.attributes) == ["sex"]


def test_two_tables_like_a_hierarchy_are_not_guessed_at(coco: Runner) -> None:
    Path("persons.csv").write_text(PERSONS.replace("0-17", CANARY))
    ran = coco("init")
    assert ran.code == 2
    assert "give it with --records FILE" in ran.err
    assert CANARY not in ran.err + ran.out
    assert "age group" not in ran.err + ran.out
    assert not Path("coco-opt.toml").exists()


def test_records_without_a_hierarchy_leave_it_to_fill_in(coco: Runner) -> None:
    Path("areas.csv").unlink()
    Path("persons.csv").write_text(COUNTED)
    assert "fill in the tables not found (hierarchy)" in coco("init").out
    assert "NOT FOUND" in Path("coco-opt.toml").read_text()


@pytest.mark.parametrize(("name", "text"), [("homes.csv", GROUPS), ("people.csv", ENTITIES), ("many.csv", SIZES)])
def test_records_go_with_a_hierarchy_alone(coco: Runner, name: str, text: str) -> None:
    Path("persons.csv").write_text(COUNTED)
    Path(name).write_text(text)
    assert "name the files to use" in coco("init").err
    assert coco("init", name, "areas.csv", "--records", "persons.csv").code == 2
    assert coco("init", "areas.csv", "--records", "persons.csv").code == 0


def test_an_option_that_names_no_records_is_an_error(coco: Runner) -> None:
    Path("people.csv").write_text(ENTITIES)
    for name, message in (("people.csv", "region_id first"), ("none.csv", "no such file"), ("areas", "no such file")):
        ran = coco("init", "--records", name)
        assert ran.code == 2
        assert message in ran.err


def test_any_column_name_becomes_a_key(coco: Runner) -> None:
    names = ['say "hi"', "a\nb", "größe", "x.y", ""]
    pq.write_table(pa.table({name: ["r1"] for name in ("region_id", *names)}), "persons.parquet")
    assert coco("init", "--records", "persons.parquet").code == 0
    config = Path("coco-opt.toml")
    config.write_text(config.read_text().replace(" = []", ' = ["v"]').replace(', ""]', "]"))
    found = load_any(config)
    assert isinstance(found, TablesConfig)
    assert list(found.topdown.attributes) == names
