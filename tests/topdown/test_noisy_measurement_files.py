"""Published noisy answers of others: what is read, what is refused, and that estimates are those of dense algebra.

The hierarchy that geocodes give: levels by length, parents by their first characters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coco_opt as co
from coco_opt import read_measurement, verify_release
from coco_opt.errors import InputError
from coco_opt.releases.verify import verify_folder, verify_paid
from coco_opt.topdown import UNBOUNDED, TableMeasurements, linear_estimates, parse_query
from coco_opt.topdown.kind.noisy_measurement_files.columns import regions_of
from tests.cli.helpers import Runner

HIERARCHY = "region_id,US,State,County\n" + "".join(f"{k},0,{k[:2]},{k}\n" for k in ("01001", "01003", "02005"))
CODES = ("0", "01", "02", "01001", "01003", "02005")
TOPDOWN: dict[str, Any] = {
    "attributes": {"sex": ["f", "m"], "age": ["child", "adult", "old"]},
    "groupings": {"grown": {"of": "age", "groups": {"minor": ["child"], "major": ["adult", "old"]}}},
    "structural_zeros": ["sex = m & age = old"],
    "workload": ["total", "sex * age", "grown"],
}
SHAPES = {"total_dpq": (), "age * sex_dpq": (2, 3), "grown_dpq": (2,), "detailed_dpq": (2, 3)}
VARIANCES = {"total_dpq": 2.5, "age * sex_dpq": 9.0, "grown_dpq": 4.0, "detailed_dpq": 33.3}


def config(folder: Path, **changes: Any) -> co.Config:
    """Return the configuration that reads published answers about two attributes in six regions."""
    (folder / "hierarchy.csv").write_text(changes.pop("hierarchy", HIERARCHY))
    return co.configure(
        folder=folder,
        data={"records": "nowhere.parquet", "hierarchy": "hierarchy.csv"},
        privacy={"epsilon": "1", "dataset": "theirs"},
        topdown={**TOPDOWN, **changes},
    )


def rows(seed: int = 0) -> list[dict[str, Any]]:
    """Return published rows: every query of every region."""
    rng = np.random.default_rng(seed)
    return [
        {
            "geocode": code,
            "query_name": name,
            "query_shape": list(shape),
            "value": rng.integers(-9, 90, int(np.prod(shape, dtype=int))).tolist(),
            "variance": VARIANCES[name] + len(code),
            "sign": None,
            "plb": "1/7",
        }
        for code in CODES
        for name, shape in SHAPES.items()
    ]


SCHEMA = pa.schema(
    {
        "geocode": pa.string(),
        "query_name": pa.string(),
        "query_shape": pa.list_(pa.int32()),
        "value": pa.list_(pa.int64()),
        "variance": pa.float64(),
        "sign": pa.string(),
        "plb": pa.string(),
    }
)


def publish(path: Path, listed: Sequence[dict[str, Any]], schema: pa.Schema = SCHEMA) -> Path:
    """Write rows in small row groups."""
    pq.write_table(pa.Table.from_pylist(list(listed), schema=schema), path, row_group_size=5)
    return path


def test_answers_are_read_by_region_query_and_cell(tmp_path: Path) -> None:
    listed = rows()
    constraint = {**listed[0], "query_name": "total_lb_con", "value": [3], "variance": None, "sign": ">="}
    order = np.random.default_rng(1).permutation(len(listed))
    file = publish(tmp_path / "nmf.parquet", [*(listed[k] for k in order), constraint])
    measurement = co.read_noisy_measurements(file, config(tmp_path))
    assert (measurement.status, measurement.private, measurement.noise) == ("as its publisher states", False, "foreign")
    measured = TableMeasurements.of(measurement)
    (bound,) = measured.invariants.bounds
    assert (bound.query.text, bound.level, bound.source) == ("total", 0, "public")
    assert (bound.lower.tolist(), bound.upper.tolist()) == ([[3]], [[UNBOUNDED]])
    names = {"total_dpq": "total", "age * sex_dpq": "sex * age", "grown_dpq": "grown", "detailed_dpq": "detail"}
    texts = [query.text for query in measured.queries]
    for row in listed:
        region = measured.hierarchy.names.index(row["geocode"])
        level, number = int(measured.hierarchy.level[region]), texts.index(names[row["query_name"]])
        answers = measured.answers[level][number]
        assert answers is not None
        # The cell (m, old) cannot occur: it is the last of six in the publisher's order, and is not asked here.
        expected = row["value"][:5] if len(row["value"]) == 6 else row["value"]
        local = region - int(measured.hierarchy.level_start[level])
        assert answers[local].tolist() == expected
        assert measured.variance(level, number) == pytest.approx(row["variance"], rel=1e-2)
    # What noise of these variances costs where a person is replaced: 1 / variance a query and level.
    assert float(measurement.cost.amount) == pytest.approx(
        sum(1 / (v + n) for v in VARIANCES.values() for n in (1, 2, 5))
    )


def test_regions_of_a_level_may_differ_and_be_bypassed(tmp_path: Path) -> None:
    listed = [row for row in rows() if row["geocode"] != "01003"]
    for row in listed:
        row["variance"] /= 3.0 if row["geocode"] == "02" else 1.0
    nothing = [{**row, "geocode": "01003", "value": None, "variance": float("inf")} for row in rows()[:1]]
    measurement = co.read_noisy_measurements(publish(tmp_path / "nmf.parquet", [*listed, *nothing]), config(tmp_path))
    measured = TableMeasurements.of(measurement)
    texts = [query.text for query in measured.queries]
    assert sorted(measured.by_region) == [(level, query) for level in (1, 2) for query in range(4)]
    for text, name in (("total", "total_dpq"), ("detail", "detailed_dpq")):
        query, variance = texts.index(text), VARIANCES[name]
        assert measured.region_variances(1, query).tolist() == pytest.approx([variance + 2, (variance + 2) / 3], 1e-2)
        expected = [variance + 5, float("inf"), variance + 5]
        assert measured.region_variances(2, query).tolist() == pytest.approx(expected, 1e-2)
    # Where the noise differs, the cost is that of the least.
    assert float(measurement.cost.amount) == pytest.approx(
        sum(1 / (v + 1) + 3 / (v + 2) + 1 / (v + 5) for v in VARIANCES.values())
    )
    words = [query.words for query in measurement.queries if query.level]
    assert all(text.endswith("(noise that differs by region, here the least)") for text in words)
    tables = co.estimate(measurement)
    assert [check.detail for check in verify_release(tables.save(tmp_path / "out")) if not check.passed] == []


def changed(number: int, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda listed: listed[number].update(values)


REFUSED: dict[str, tuple[Callable[[list[dict[str, Any]]], None], str, str]] = {
    "unknown query": (changed(3, query_name="race_dpq"), "unknown-query", "row 4, column 'query_name'"),
    "values": (changed(1, value=[1, 2, 3]), "bad-shape", "has 3 values, and 2 x 3 make 6"),
    "zero variance": (changed(2, variance=0.0), "bad-variance", "row 3, column 'variance'"),
    "negative variance": (changed(2, variance=-1.0), "bad-variance", "must be a number from 1/25"),
    "infinite variance": (changed(2, variance=float("inf")), "bad-variance", "must be a number from 1/25"),
    "tiny variance": (changed(2, variance=0.0399), "bad-variance", "row 3, column 'variance': .* by 'sign' '='"),
    "no variance": (changed(2, variance=None), "null-value", "column 'variance'"),
    "no value": (changed(2, value=None), "null-value", "column 'value'"),
    "empty entry": (changed(3, value=[1, 2, 3, 4, 5, None]), "null-value", "row 4, column 'value': the list"),
    "too large": (changed(3, value=[2**62] * 6), "too-large", "row 4, column 'value'"),
    "too large variance": (changed(3, variance=1e300), "bad-variance", "row 4, column 'variance'"),
    "constraint without values": (
        lambda listed: listed.append({**listed[0], "value": None, "variance": None, "sign": "="}),
        "null-value",
        "row 25, column 'value'",
    ),
    "missing region": (
        lambda listed: listed.pop(13),
        "missing-region",
        "'sex . age' is not answered for 1 of the .* of 'County'",
    ),
    "twice": (lambda listed: listed.append(dict(listed[9])), "duplicate-answer", "'age \\* sex_dpq' of '0/02'"),
    "twice in a batch": (lambda listed: listed.insert(2, dict(listed[1])), "duplicate-answer", "a second time"),
    "length": (changed(12, geocode="010011"), "bad-geocode", "has 6 characters, and the hierarchy's .* have 1, 2, 5"),
    "region": (changed(12, geocode="01009"), "unknown-region", "'01009' is not in the hierarchy"),
    "constraints alone": (
        lambda listed: [row.update(sign="=", value=[0] * len(row["value"])) for row in listed] and None,
        "empty-file",
        "no noisy",
    ),
    "sign": (changed(3, sign="<>"), "bad-sign", "row 4, column 'sign': '<>' is no sign of a constraint"),
    "impossible": (
        changed(3, sign=">=", query_name="age * sex_con", query_shape=[2, 3], value=[0, 0, 0, 0, 0, 1]),
        "inconsistent-bounds",
        "row 4, column 'value': .* of '0' requires persons where structural zeros leave none",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_refused_with_its_place(what: str, tmp_path: Path) -> None:
    change, code, words = REFUSED[what]
    listed = rows()
    change(listed)
    with pytest.raises(InputError, match=words) as refused:
        co.read_noisy_measurements(publish(tmp_path / "nmf.parquet", listed), config(tmp_path))
    assert refused.value.code == code


def test_answers_that_count_an_attribute_to_sum_over_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a product with one more attribute, what does not count it is read as if the product did not have it."""
    ways = {"total_dpq": ("*", "*"), "age * sex_dpq": ("sex", "age"), "grown_dpq": ("*", "grown")}
    listed = [
        row | dict(zip(("sex", "age", "home"), (*ways[row["query_name"]], "*"), strict=True))
        for row in rows()
        if row["query_name"] in ways
    ]
    crossed = [row | {"home": "detailed", "value": row["value"] * 3, "query_shape": [3]} for row in listed]
    schema = pa.schema([*SCHEMA, *(pa.field(name, pa.string()) for name in ("sex", "age", "home"))])
    file = publish(
        tmp_path / "more.parquet", [row for pair in zip(listed, crossed, strict=True) for row in pair], schema
    )
    settings = config(tmp_path)
    read = co.read_noisy_measurements(file, settings, sum_over=["home"])
    alone = co.read_noisy_measurements(publish(tmp_path / "alone.parquet", listed, schema), settings)
    assert read.identity == alone.identity
    toml = tmp_path / "c.toml"
    toml.write_text(
        '[data]\nhierarchy = "hierarchy.csv"\n[topdown]\nworkload = ["total"]\n'
        'structural_zeros = ["sex = m & age = old"]\n[topdown.attributes]\nsex = ["f", "m"]\n'
        'age = ["child", "adult", "old"]\n[topdown.groupings.grown]\nof = "age"\n'
        'groups = {minor = ["child"], major = ["adult", "old"]}\n'
    )
    ran = Runner(capsys)("import", toml, file, "--sum-over", "home", "--out", tmp_path / "m")
    assert ran.code == 0, ran.errors
    assert f"{sum(len(row['value']) for row in crossed):,} values that count home" in ran.out
    for change, code in (({"sum_over": ["sex"]}, "bad-option"), ({"sum_over": ["house"]}, "missing-column")):
        with pytest.raises(InputError) as refused:
            co.read_noisy_measurements(file, settings, **change)
        assert refused.value.code == code
    crossed[4]["home"] = None
    with pytest.raises(InputError, match="row 5, column 'home': is empty"):
        co.read_noisy_measurements(publish(tmp_path / "empty.parquet", crossed, schema), settings, sum_over=["home"])


def test_values_may_be_unsigned(tmp_path: Path) -> None:
    listed = [{**row, "value": [abs(value) for value in row["value"]]} for row in rows()]
    schema = SCHEMA.set(3, pa.field("value", pa.list_(pa.uint64())))
    settings = config(tmp_path)
    signed = co.read_noisy_measurements(publish(tmp_path / "signed.parquet", listed), settings)
    unsigned = co.read_noisy_measurements(publish(tmp_path / "unsigned.parquet", listed, schema), settings)
    for first, second in zip(signed.answers, unsigned.answers, strict=True):
        np.testing.assert_array_equal(first.values, second.values)


def test_columns_and_files_are_checked(tmp_path: Path) -> None:
    settings = config(tmp_path)
    for column, kind, code in (
        ("value", pa.string(), "wrong-type"),
        ("geocode", pa.float64(), "wrong-type"),
        ("variance", pa.bool_(), "wrong-type"),
        ("variance", None, "missing-column"),
    ):
        position = SCHEMA.get_field_index(column)
        schema = SCHEMA.remove(position) if kind is None else SCHEMA.set(position, pa.field(column, kind))
        schema = schema.remove(schema.get_field_index("sign"))
        with pytest.raises(InputError, match=f"column '{column}'") as refused:
            co.read_noisy_measurements(publish(tmp_path / "wrong.parquet", [], schema), settings)
        assert refused.value.code == code
    texts = SCHEMA.set(0, pa.field("geocode", pa.binary()))
    no_text = publish(tmp_path / "bytes.parquet", [{**rows()[0], "geocode": b"\xff"}], texts)
    twice = tmp_path / "twice.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["0"])] * 2, names=["geocode", "geocode"]), twice)
    for path, code in ((no_text, "unreadable-file"), (twice, "duplicate-column")):
        with pytest.raises(InputError, match="column 'geocode'") as refused:
            co.read_noisy_measurements(path, settings)
        assert refused.value.code == code
    for path in (tmp_path / "nowhere.parquet", tmp_path / "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(InputError, match="file-not-found"):
            co.read_noisy_measurements(path, settings)
    for hierarchy in (HIERARCHY.replace("01003", "0103"), HIERARCHY.replace(",01,", ",0,")):
        with pytest.raises(InputError, match="bad-geocode"):
            co.read_noisy_measurements(tmp_path, config(tmp_path, hierarchy=hierarchy))


def summed(measurement: co.Measurement) -> int:
    """Return the sum of all answers."""
    return sum(int(part.values.sum()) for part in measurement.answers)


ATTRIBUTES = '[topdown]\nattributes = { sex = ["f", "m"], age = ["child", "adult", "old"] }\n'


def test_an_import_asks_for_what_it_reads_and_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coco, toml, out = Runner(capsys), tmp_path / "theirs.toml", tmp_path / "theirs"
    settings = config(tmp_path)
    publish(tmp_path / "nmf.parquet", [row for row in rows() if "grown" not in row["query_name"]])
    for text, missing in (
        ('[data]\nhierarchy = "hierarchy.csv"\n[topdown]\n', "[topdown.attributes] is required"),
        (f'[data]\nhierarchy = "hierarchy.csv"\n[privacy]\nseed = 1.5\n{ATTRIBUTES}', "[privacy.seed] must be"),
    ):
        toml.write_text(text)
        ran = coco("import", toml, tmp_path / "nmf.parquet", "--out", out)
        assert ran.code == 2
        assert missing in ran.err
        assert "records" not in ran.err
    toml.write_text(f'[data]\nhierarchy = "hierarchy.csv"\n{ATTRIBUTES}')
    ran = coco("import", toml, tmp_path / "nmf.parquet", "--out", out)
    assert (ran.code, ran.errors) == (0, [])
    assert "NOT MEASURED HERE" in ran.out
    assert coco("import", toml, tmp_path / "nmf.parquet", "--out", out).code == 2  # the folder is there
    by_path = co.read_noisy_measurements(tmp_path / "nmf.parquet", toml)
    assert summed(by_path) == summed(read_measurement(out)[0])
    ran = coco("estimate", out, toml, "--out", tmp_path / "out")
    assert (ran.code, ran.errors) == (0, [])
    assert all(check.passed for check in verify_release(tmp_path / "out"))
    assert all(check.passed for check in verify_paid(tmp_path / "out", settings))
    text = (tmp_path / "out" / "manifest.json").read_text()
    manifest = json.loads(text)
    assert (manifest["status"], manifest["budget"]["noise"]) == ("as its publisher states", "foreign")
    assert not manifest["private"]
    assert "unread" not in text
    ran = coco("measure", toml)  # what is measured needs it all
    assert ran.code == 2
    assert "records" in ran.err
    assert "privacy" in ran.err


def by_hand(folder: Path) -> Path:
    """Write a measurement with JSON and Arrow alone, as docs/reference/measurement.md says and nothing else."""
    folder.mkdir()
    regions = {
        "region": ["land", "land/north", "land/south"],
        "region_id": [None, "n", "s"],
        "parent": [None, "land", "land"],
        "level": pa.array([0, 1, 1], pa.int32()),
        "level_name": ["country", "part", "part"],
    }
    answers = {
        "query": ["table total"] + ["table sex"] * 4,
        "level": pa.array([0, 1, 1, 1, 1], pa.int32()),
        "region": pa.array([0, 1, 1, 2, 2], pa.int32()),
        "index": pa.array([0, 0, 1, 0, 1], pa.int64()),
        "value": pa.array([103, 20, 31, 27, 22], pa.int64()),
    }
    files = {"hierarchy.parquet": regions, "answers.parquet": answers}
    for name, columns in files.items():
        pq.write_table(pa.table(columns), folder / name)
    noise = {"law": "discrete_gaussian", "sensitivity": {"l1": 2, "l2_squared": 2}}
    index = {
        "format": "coco-opt measurement 2",
        "status": "as its publisher states",
        "private": False,
        "kind": "tables",
        "cost": {"rho": "3/8"},
        "neighbours": "replace",
        "noise": "foreign",
        "levels": ["country", "part"],
        "questions": [
            {
                "level": 0,
                "query": "table total",
                "words": "persons",
                "size": 1,
                "variance": "4",
                "cost": {"rho": "1/4"},
            },
            {"level": 1, "query": "table sex", "words": "by sex", "size": 2, "variance": "8", "cost": {"rho": "1/8"}},
        ],
        "facts": {
            "schema": {"attributes": [["sex", ["f", "m"]]], "structural_zeros": [], "groupings": []},
            "queries": [["total", "total"], ["sex", "sex"]],
            "invariants": [],
            "bounds": [],
            "constraints": [],
        },
        "files": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files},
    }
    for level_query in index["questions"]:  # type: ignore[attr-defined]
        level_query.update(noise)
    (folder / "measurement.json").write_text(json.dumps(index))
    return folder


def test_a_measurement_written_by_hand_is_read_estimated_and_verified(tmp_path: Path) -> None:
    folder = by_hand(tmp_path / "hand")
    measurement, _ = read_measurement(folder)
    assert measurement.status == "as its publisher states"
    estimates = linear_estimates(measurement)
    # total = 103 +- 4 against 100 +- 32, from four answers of variance 8: (103 / 4 + 100 / 32) / (1 / 4 + 1 / 32).
    total = parse_query("total", TableMeasurements.of(measurement).schema).operator
    assert estimates.answers(total, 0)[0, 0] == pytest.approx((103 / 4 + 100 / 32) / (1 / 4 + 1 / 32), abs=1e-2)
    assert all(check.passed for check in verify_folder(folder))
    tables = co.estimate(folder)
    assert tables.manifest["status"] == "as its publisher states"
    assert [check.detail for check in verify_release(tables.save(tmp_path / "out")) if not check.passed] == []
    index = json.loads((folder / "measurement.json").read_text())
    for change, words in (
        ({"status": "private"}, "status contradicts itself"),
        ({"noise": "secure"}, "has lost its seal"),
        ({"digest": "0" * 64}, "digest is not that of its queries"),
    ):
        (folder / "measurement.json").write_text(json.dumps({**index, **change}))
        with pytest.raises(InputError, match=words):
            read_measurement(folder)


STATE = {
    **dict.fromkeys(["050", "150"], "State"),
    **dict.fromkeys(["050100011", "050100012", "150100011"], "County"),
    **dict.fromkeys(["05010001110", "05010001111", "05010001210", "15010001110"], "Tract"),
}


@pytest.mark.parametrize("seed", range(3))
def test_regions_are_those_whose_codes_begin_theirs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = list(STATE)
    public = regions_of({codes[k]: STATE[codes[k]] for k in rng.permutation(len(codes))})
    tree = public.hierarchy
    assert public.levels == ("root", "State", "County", "Tract")
    assert tree.names[0] == "all"
    for region in range(1, tree.regions):
        above = tree.names[int(tree.parent[region])]
        assert above == "all" or (tree.names[region].startswith(above) and STATE[tree.names[region]] != STATE[above])
    assert sorted(tree.names[1:]) == sorted(codes)
    assert list(public.ids) == [tree.names[region] for region in tree.leaves]


def test_a_code_alone_at_the_top_is_the_root() -> None:
    public = regions_of({"0": "US", **STATE})
    assert public.levels == ("US", "State", "County", "Tract")
    assert public.hierarchy.regions == 1 + len(STATE)
    assert public.hierarchy.parent[1:3].tolist() == [0, 0]


def test_levels_that_share_a_name_are_called_by_their_length() -> None:
    assert regions_of({"0": "part", "01": "part", "02": "part"}).levels == ("length 1", "length 2")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"2501": "Tract"}, "'2501' begins with no code of 3 characters"),
        ({"0501": "County"}, "no code of 4 characters begins with '150'"),
        ({"060": "State"}, "no code of 9 characters begins with '060'"),
    ],
)
def test_codes_that_are_no_tree_are_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        regions_of({**STATE, **change})
    assert refused.value.code == "bad-geocode"
