"""A measurement on disk: what is written comes back, the same bytes each time, and nothing else is accepted."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import stat
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import InputError
from coco_opt.files.folder import as_json, sealed
from coco_opt.files.measurement import FORMAT, read_measurement, write_measurement
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import (
    Cost,
    Epsilon,
    Exact,
    LevelQuery,
    Measurement,
    MeasurementPlan,
    Rho,
    SeededNoise,
    Sensitivity,
)
from coco_opt.privacy.measurement import Drawing
from coco_opt.releases.verify import verify_folder

TREE = Hierarchy.from_paths([("land", "é"), ("land", "south"), ("land", "west")])


THIRD = Epsilon(Fraction(1, 3))


def measured(cost: Cost = THIRD, seed: int = 3) -> Measurement:
    """Return noisy answers to three questions on two levels, with public facts of every form."""
    groups = np.array([5, 2, 0, 3])
    queries = (
        LevelQuery(0, "cumulative", "groups up to each size", 4, Sensitivity(1, 1), cost),
        LevelQuery(1, "ranks", "sizes in order", "groups", Sensitivity(2, 2), cost * 2),
        LevelQuery(1, "total", "declared", 1, None, None),
    )
    measurement_plan = MeasurementPlan(
        kind="groups",
        hierarchy=TREE,
        levels=("nation", "state"),
        queries=queries,
        neighbours="replace",
        parameters={"max_size": 4, "names": [["a", ["ö"]]]},
        per_region={"groups": groups},
        tables={"lower": np.arange(3), "upper": np.array([2**62, -1])},
        region_ids=(None, "01", "2", None),
    )
    parts = [
        Exact(queries[0], "land", np.arange(4)),
        *(Exact(queries[1], f"r{k}", np.arange(size)) for k, size in enumerate((2, 0, 3))),
        Exact(queries[2], "all", np.array([2, 0, 3])),
    ]
    return Drawing.of(measurement_plan, parts, SeededNoise(seed)).measurement()


@pytest.mark.parametrize("cost", [Epsilon(Fraction(1, 3)), Rho(Fraction(1, 7))])
def test_what_is_sealed_comes_back(cost: Cost, tmp_path: Path) -> None:
    before = measured(cost)
    digest = write_measurement(tmp_path / "sealed", before, private=True)
    after, known = read_measurement(tmp_path / "sealed", digest)
    assert known == digest
    assert after.measurement_plan.digest == before.measurement_plan.digest
    assert (after.measurement_plan.levels, after.measurement_plan.region_ids) == (
        before.measurement_plan.levels,
        before.measurement_plan.region_ids,
    )
    assert (after.noise, after.private, after.cost) == (before.noise, before.private, before.cost)
    for one, other in zip(before.answers, after.answers, strict=True):
        assert one.query == other.query
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.offsets, other.offsets)


@pytest.mark.parametrize("private", [True, False])
def test_answers_that_are_many_are_read_where_they_lie(
    private: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = measured()
    for module in ("coco_opt.privacy.queries", "coco_opt.files.packed_file"):
        monkeypatch.setattr(f"{module}.DENSE", 0)
    monkeypatch.setattr("coco_opt.privacy.queries.LEAST_PIECE", 2)
    monkeypatch.setattr("coco_opt.privacy.queries._LARGEST_PIECE", 3)
    monkeypatch.setattr("coco_opt.files.packed_file._ROWS", 3)
    drawn = Drawing(before.measurement_plan, before.parts(), before.noise, private=False)
    write_measurement(tmp_path / "one", drawn, private=private)
    after, _ = read_measurement(tmp_path / "one")
    for one, other in zip(before.answers, after.answers, strict=True):
        assert not isinstance(other.stored, np.ndarray)
        np.testing.assert_array_equal(one.values, other.values)
        for region in range(one.regions):
            np.testing.assert_array_equal(one.region(region), other.region(region))
    # Another process is told where they lie, and reads them alone.
    with monkeypatch.context() as patched:
        patched.setattr("coco_opt.files.packed_file.read_columns", None)
        elsewhere = pickle.loads(pickle.dumps(after.answers))
    for one, other in zip(before.answers, elsewhere, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    # Read where they lie and written again, they are the same measurement.
    write_measurement(tmp_path / "again", after, private=False)
    again = pq.read_table(tmp_path / "again" / "answers.parquet")
    write_measurement(tmp_path / "plain", before, private=False)
    assert again.equals(pq.read_table(tmp_path / "plain" / "answers.parquet"))


def test_packed_answers_that_are_not_those_asked_for_are_refused(tmp_path: Path) -> None:
    write_measurement(tmp_path / "sealed", measured(), private=True)
    path, index = tmp_path / "sealed" / "packed.parquet", tmp_path / "sealed" / "measurement.json"
    packed, stated = pq.read_table(path), json.loads(index.read_text())
    assert packed.num_rows == 3
    types = {"question": pa.array(["0", "1", "2"])}
    changes = [
        packed.slice(0, 2),
        pa.concat_tables([packed, packed.slice(2)]),
        packed.set_column(1, "start", pa.array([0, 1, 0])),
        packed.set_column(2, "count", pa.array([4, 5, 4])),
        packed.set_column(3, "width", pa.array([2, 1, 1], pa.int32())),
        packed.set_column(0, "question", types["question"]),
        packed.drop_columns(["wide"]),
        pa.concat_tables([packed, packed.slice(2).set_column(0, "question", pa.array([3], pa.int32()))]),
    ]
    for changed in changes:
        pq.write_table(changed, path)
        code = hashlib.sha256(path.read_bytes()).hexdigest()
        edited(tmp_path / "sealed", files={**stated["files"], "packed.parquet": code})
        with pytest.raises(InputError, match="damaged-measurement"):
            read_measurement(tmp_path / "sealed")


def rewritten(folder: Path, name: str, table: pa.Table) -> None:
    """Write a file of a measurement anew, its digest, and a seal that fits."""
    pq.write_table(table, folder / name)
    files = json.loads((folder / "measurement.json").read_text())["files"]
    edited(folder, files={**files, name: hashlib.sha256((folder / name).read_bytes()).hexdigest()})


@pytest.mark.parametrize("batch", [1, 4, 1 << 20])
def test_answers_in_any_order_are_those_that_their_columns_name(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coco_opt.files.answer_rows._ROWS", batch)
    before = measured()
    write_measurement(tmp_path / "open", before, private=False)
    rows = pq.read_table(tmp_path / "open" / "answers.parquet")
    large = rows.set_column(0, "query", rows.column("query").cast(pa.large_string()))
    coded = rows.set_column(0, "query", rows.column("query").dictionary_encode())
    others = [large, coded, rows.take(list(range(11, -1, -1)))]
    for table in [*others, *(rows.take(np.random.default_rng(seed).permutation(12)) for seed in range(3))]:
        rewritten(tmp_path / "open", "answers.parquet", table)
        after, _ = read_measurement(tmp_path / "open")
        for one, other in zip(before.answers, after.answers, strict=True):
            np.testing.assert_array_equal(one.values, other.values)


ANSWERS, REGIONS = "answers.parquet", "hierarchy.parquet"


@pytest.mark.parametrize(
    ("file", "column", "row", "value", "where"),
    [
        (ANSWERS, "level", 5, 0, "row 6, column 'query'"),
        (ANSWERS, "level", 5, 2, "row 6, column 'level'"),
        (ANSWERS, "query", 9, "ranks", "row 10, column 'index'"),  # an answer that an earlier row has
        (ANSWERS, "query", 0, "sum", "row 1, column 'query'"),
        (ANSWERS, "region", 11, 9, "row 12, column 'region'"),
        (ANSWERS, "region", 11, 0, "row 12, column 'region'"),
        (ANSWERS, "region", 5, 2, "row 6, column 'index'"),  # of a region that has no groups
        (ANSWERS, "index", 3, 4, "row 4, column 'index'"),
        (ANSWERS, "index", 3, -1, "row 4, column 'index'"),
        (ANSWERS, "index", 3, 2, "row 4, column 'index'"),  # twice
        (ANSWERS, "value", 3, None, "row 4, column 'value'"),
        (ANSWERS, "region", 3, None, "row 4, column 'region'"),
        (REGIONS, "level", 2, 0, "row 3, column 'level': is not the level of this region, 1"),
        (REGIONS, "level", 3, None, "row 4, column 'level': is empty"),
        (REGIONS, "level_name", 2, "county", "row 3, column 'level_name': is not the one name of level 1"),
        (REGIONS, "level_name", 0, None, "row 1, column 'level_name': is not the one name of level 0"),
    ],
)
def test_an_answer_of_another_name_is_refused_by_its_row(
    file: str, column: str, row: int, value: object, where: str, tmp_path: Path
) -> None:
    """And a level that is not that of its region."""
    write_measurement(tmp_path / "open", measured(), private=False)
    rows = pq.read_table(tmp_path / "open" / file)
    values = rows.column(column).to_pylist()
    values[row] = value
    place = rows.column_names.index(column)
    changed = rows.set_column(place, column, pa.array(values, rows.schema.field(column).type))
    rewritten(tmp_path / "open", file, changed)
    with pytest.raises(InputError, match=f"{file}, {where}"):
        read_measurement(tmp_path / "open")
    assert [check.passed for check in verify_folder(tmp_path / "open")] == [False]


def test_a_missing_answer_is_named_and_none_may_come_twice(tmp_path: Path) -> None:
    write_measurement(tmp_path / "open", measured(), private=False)
    rows = pq.read_table(tmp_path / "open" / "answers.parquet")
    for table, message in (
        (rows.slice(0, 11), "no row for the answer 0 to 'total' at level 1, region 3"),
        (rows.slice(1), "no row for the answer 0 to 'cumulative' at level 0, region 0"),
        (rows.take([*range(8), 7, *range(9, 12)]), "row 9, column 'index': is an answer that an earlier row has"),
        (pa.concat_tables([rows, rows.slice(2, 1)]), "row 13, column 'index': is an answer that an earlier row has"),
        (rows.drop_columns(["region"]), "column 'region': must occur once"),
    ):
        rewritten(tmp_path / "open", "answers.parquet", table)
        with pytest.raises(InputError, match=message):
            read_measurement(tmp_path / "open")


def test_public_numbers_are_read_by_their_index(tmp_path: Path) -> None:
    write_measurement(tmp_path / "open", measured(), private=False)
    rows = pq.read_table(tmp_path / "open" / "facts.parquet")
    rewritten(tmp_path / "open", "facts.parquet", rows.take([4, 1, 0, 3, 2]))
    tables = read_measurement(tmp_path / "open")[0].measurement_plan.tables
    assert {name: values.tolist() for name, values in tables.items()} == {"lower": [0, 1, 2], "upper": [2**62, -1]}
    rewritten(tmp_path / "open", "facts.parquet", rows.take([0, 0, 2, 3, 4]))
    with pytest.raises(InputError, match="must count the numbers of 'lower' from 0, each once"):
        read_measurement(tmp_path / "open")


def test_answers_that_were_edited_do_not_fit_the_seal(tmp_path: Path) -> None:
    write_measurement(tmp_path / "open", measured(), private=False)
    path, index = tmp_path / "open" / "answers.parquet", tmp_path / "open" / "measurement.json"
    before = json.loads(index.read_text())
    rows = pq.read_table(path)
    rewritten(tmp_path / "open", path.name, rows.set_column(4, "value", pa.array([999] * 12)))
    changed = json.loads(index.read_text())
    for seal, message in (({"seal": before["seal"]}, "was changed since it was sealed"), ({}, "has lost its seal")):
        plain = {name: value for name, value in changed.items() if name != "seal"}
        index.write_bytes(as_json({**plain, **seal}))
        with pytest.raises(InputError, match=f"{message}.*restore it"):
            read_measurement(tmp_path / "open")
        (check,) = verify_folder(tmp_path / "open")
        assert (check.name, check.passed) == ("seal", False)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_regions_may_be_texts_of_any_of_arrows_types(kind: pa.DataType, tmp_path: Path) -> None:
    write_measurement(tmp_path / "open", measured(), private=False)
    rows = pq.read_table(tmp_path / "open" / "hierarchy.parquet")
    fields = [pa.field(field.name, kind if field.type == pa.string() else field.type) for field in rows.schema]
    columns = [rows.column(field.name) for field in fields]
    if pa.types.is_dictionary(kind):
        columns = [
            column.dictionary_encode() if field.type == kind else column
            for field, column in zip(fields, columns, strict=True)
        ]
    else:
        columns = [column.cast(field.type) for field, column in zip(fields, columns, strict=True)]
    rewritten(tmp_path / "open", "hierarchy.parquet", pa.table(columns, pa.schema(fields)))
    after = read_measurement(tmp_path / "open")[0].measurement_plan
    assert after.digest == measured().measurement_plan.digest
    assert list(after.region_ids) == [None, "01", "2", None]


def test_the_same_measurement_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    digests = {write_measurement(tmp_path / name, measured(), private=name in "ab") for name in "abcd"}
    assert len(digests) == 2
    assert write_measurement(tmp_path / "e", measured(seed=4), private=True) not in digests
    for name, mode in (("a", 0o700), ("c", 0o755)):
        assert os.name != "posix" or stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    for path in (tmp_path / "a").iterdir():
        assert os.name != "posix" or stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_open_form_is_a_plain_table(tmp_path: Path) -> None:
    write_measurement(tmp_path / "open", measured(), private=False)
    table = pq.read_table(tmp_path / "open" / "answers.parquet")
    assert table.column_names == ["query", "level", "region", "index", "value"]
    assert table.column("query").to_pylist() == ["cumulative"] * 4 + ["ranks"] * 5 + ["total"] * 3
    assert table.column("region").to_pylist() == [0] * 4 + [1, 1, 3, 3, 3] + [1, 2, 3]
    assert table.column("index").to_pylist() == [0, 1, 2, 3, 0, 1, 0, 1, 2, 0, 0, 0]
    index = json.loads((tmp_path / "open" / "measurement.json").read_text())
    assert index["format"] == FORMAT
    assert index["status"] == "NOT PRIVATE"
    assert index["cost"] == {"epsilon": "1"}
    assert [level_query["law"] for level_query in index["questions"]] == ["geometric", "geometric", "exact"]
    assert [level_query.get("scale") for level_query in index["questions"]] == ["3", "3", None]


@pytest.mark.parametrize("name", ["packed.parquet", "hierarchy.parquet", "facts.parquet", "measurement.json"])
def test_a_flipped_bit_anywhere_is_found(name: str, tmp_path: Path) -> None:
    digest = write_measurement(tmp_path / "sealed", measured(), private=True)
    path = tmp_path / "sealed" / name
    content = bytearray(path.read_bytes())
    for at in range(0, len(content), max(1, len(content) // 40)):
        flipped = bytes([*content[:at], content[at] ^ 4, *content[at + 1 :]])
        path.write_bytes(flipped)
        with pytest.raises(InputError):
            read_measurement(tmp_path / "sealed", digest)
    path.unlink()
    with pytest.raises(InputError):
        read_measurement(tmp_path / "sealed", digest)


NO_COST, OTHER_LEVELS = "its 'cost' is not that of its queries, epsilon = 1", "its 'levels' are not those of hierarchy"


def edited(folder: Path, **changes: object) -> None:
    """Rewrite entries of a measurement's index, and its seal."""
    path = folder / "measurement.json"
    path.write_bytes(as_json(sealed({**json.loads(path.read_text()), **changes})))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "coco-opt measurement 9"}, "reads 'coco-opt measurement 2'"),
        ({"questions": []}, "cannot be read"),
        ({"kind": None, "levels": 3, "questions": 7}, "cannot be read"),
        ({"files": 3}, "no measurement"),
        ({"files": {}}, "no digest of answers.parquet, hierarchy.parquet"),
        ({"digest": "0" * 64}, "not that of its queries"),
        ({"private": True}, "contradicts itself"),
        ({"private": True, "status": "private"}, "says private, and its noise was 'seeded'"),
        ({"private": "no"}, "contradicts itself"),
        ({"questions": [{"cost": {"epsilon": "1/0"}}]}, "cannot be read"),
        ({"facts": [3]}, "cannot be read"),
        ({"cost": {"epsilon": "1/2"}}, NO_COST),
        ({"cost": {"rho": "1"}}, NO_COST),
        ({"cost": {"epsilon": "1", "rho": "0"}}, NO_COST),
        ({"cost": {}}, NO_COST),
        ({"levels": ["nation", "county"]}, OTHER_LEVELS),
        ({"levels": ["nation"]}, OTHER_LEVELS),
    ],
)
def test_an_edited_index_is_refused_by_name(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    write_measurement(tmp_path / "open", measured(), private=False)
    edited(tmp_path / "open", **changes)
    with pytest.raises(InputError, match=message):
        read_measurement(tmp_path / "open")
    assert not all(check.passed for check in verify_folder(tmp_path / "open"))


def test_noise_that_its_cost_does_not_buy_is_refused(tmp_path: Path) -> None:
    write_measurement(tmp_path / "open", measured(), private=False)
    queries = json.loads((tmp_path / "open" / "measurement.json").read_text())["questions"]
    queries[0]["cost"] = {"epsilon": "1/100"}
    edited(tmp_path / "open", questions=queries)
    with pytest.raises(InputError, match="not what its cost buys"):
        read_measurement(tmp_path / "open")


def test_a_folder_is_never_overwritten_and_the_same_content_is_no_conflict(tmp_path: Path) -> None:
    digest = write_measurement(tmp_path / "open", measured(), private=False)
    assert write_measurement(tmp_path / "open", measured(), private=False) == digest
    with pytest.raises(InputError, match="folder-exists"):
        write_measurement(tmp_path / "open", measured(seed=4), private=False)
    assert not list(tmp_path.glob(".*"))
    shutil.rmtree(tmp_path / "open")
    with pytest.raises(InputError, match="this is no measurement"):
        read_measurement(tmp_path / "open")
