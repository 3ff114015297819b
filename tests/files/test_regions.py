"""The table of regions, by either reader; ids as other programs write them, with characters that nobody sees."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from unicodedata import category, name

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from coco_opt import configure
from coco_opt.errors import ConfigError, HierarchyError, InputError
from coco_opt.files import regions
from coco_opt.files.column_checks import check_ids, check_listed, plain_texts
from coco_opt.files.inputs import ENTITIES, Columns, Input
from coco_opt.files.regions import read_regions
from coco_opt.files.source import isolated, load
from coco_opt.histograms.texts import HIDDEN, is_plain_name
from coco_opt.topdown.kind.plan import schema_of_config

NAMES = ("region_id", "land", "place")
SOUND = [("2", "l", "b"), ("1", "l", "cafe\u0301"), ("3", "l", "Å"), ("4", "l", "\u212b\u0301")]
ODD = [
    [("1", "l", "a"), ("2", "l", " b")],
    [("1", "l", "a"), ("2", "l\u200b", "b")],
    [("1", "l", "a"), ("2", "l", "")],
    [("1", "l", "a"), ("", "l", "b")],
    [("1", "l", "a"), ("1", "l", "b")],
    [("1", "l", "é"), ("2", "l", "e\u0301")],
    [("1", "l", "a"), ("2", "m", "b")],
    [("1", "l", "a"), ("2", "l", "b\ue000")],
]


def _written(folder: Path, rows: list[tuple[str, ...]]) -> tuple[Path, Path]:
    text, table = folder / "r.csv", folder / "r.parquet"
    with text.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES, *rows])
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(columns, names=NAMES), table)
    return text, table


def test_a_sound_table_is_read_without_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, table = _written(tmp_path, SOUND)
    slow = read_regions(text)
    monkeypatch.delattr(regions, "isolated")
    fast = read_regions(table)
    assert (fast.hierarchy.paths, fast.levels, fast.ids) == (slow.hierarchy.paths, slow.levels, slow.ids)
    assert fast.leaf.tolist() == slow.leaf.tolist() == [0, 1, 2, 3]
    assert fast.region_ids == slow.region_ids == (None, "2", "1", "3", "4")
    assert fast.hierarchy.names[2] == "caf\xe9"


@pytest.mark.parametrize("rows", ODD)
def test_what_is_wrong_is_said_as_of_a_csv_file(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    found = []
    for path in _written(tmp_path, rows):
        with pytest.raises((InputError, HierarchyError)) as caught:
            read_regions(path)
        place = caught.value.place
        assert place is not None
        assert place.row is not None
        found.append((caught.value.code, place.row - (path.suffix == ".csv"), place.column))
    assert found[0] == found[1]


MEASURED = "area,land,county,km2,place\n1,l,a,2.5,x\n2,l,a,7,x\n3,l,b,0.75,y\n"


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_levels_are_named_and_the_id_may_be_the_last(tmp_path: Path, form: str) -> None:
    path = tmp_path / "r.csv"
    path.write_text(MEASURED, encoding="utf-8")
    if form == "parquet":
        path = tmp_path / "r.parquet"
        rows = list(csv.reader(MEASURED.splitlines()))
        pq.write_table(pa.table([pa.array(column) for column in zip(*rows[1:], strict=True)], names=rows[0]), path)
    found = read_regions(Input(path, {"region_id": "area"}, ("land", "county", "area")))
    assert found.levels == ("land", "county", "area")
    assert found.hierarchy.paths == ("l", "l/a", "l/b", "l/a/1", "l/a/2", "l/b/3")
    assert found.leaf_of == {"1": 0, "2": 1, "3": 2}
    with pytest.raises(InputError, match="missing-column"):
        read_regions(Input(path, {"region_id": "area"}, ("land", "county", "tract")))


@pytest.mark.parametrize(
    ("text", "column", "advice"),
    [
        (MEASURED, "km2", 'levels = ["land", "county", "place"]'),
        ("region_id,land,county,people\n1,l,a,25\n2,l,b,7\n", "people", 'levels = ["land", "county"]'),
        ("region_id,land,county,km2\n1,l,a,2.5\n2,l,a,7\n", "km2", 'levels = ["land", "county"]'),
    ],
)
def test_a_column_that_is_no_level_is_refused_unless_it_is_named(
    tmp_path: Path, text: str, column: str, advice: str
) -> None:
    path = tmp_path / "r.csv"
    path.write_text(text, encoding="utf-8")
    names = {"region_id": text.split(",", 1)[0]}
    with pytest.raises(InputError, match="not-a-level") as caught:
        read_regions(Input(path, names))
    assert caught.value.place is not None
    assert caught.value.place.column == column
    assert advice in str(caught.value)
    header = tuple(text.splitlines()[0].split(",")[1:])
    assert read_regions(Input(path, names, header)).levels == header


def test_one_region_alone_divides_nothing_and_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("region_id,land,county\n1,l,a\n", encoding="utf-8")
    assert read_regions(path).levels == ("land", "county")


def test_a_root_that_no_column_has_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("region_id,part,root\n1,n,a\n2,n,b\n3,s,c\n", encoding="utf-8")
    with pytest.raises(HierarchyError, match=r'row 4: .*root = "all".*several-roots'):
        read_regions(path)
    found = read_regions(Input(path, root="land"))
    assert found.levels == ("all", "part", "root")
    assert found.hierarchy.paths == ("land", "land/n", "land/s", "land/n/a", "land/n/b", "land/s/c")
    with pytest.raises(HierarchyError, match="bad-name"):
        read_regions(Input(path, root=""))
    path.write_text("region_id,root,all,root level\n1,n,a,b\n2,n,a,d\n", encoding="utf-8")
    assert read_regions(Input(path, root="land")).levels == ("root 1", "root", "all", "root level")


def test_levels_that_are_listed_smallest_first_are_named_in_order(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("region_id,place,county,land\n1,a,n,l\n2,b,n,l\n3,c,s,l\n", encoding="utf-8")
    for source in (Input(path), Input(path, levels=("place", "county", "land"))):
        with pytest.raises(HierarchyError, match=r'root first, such as levels = \["land", "county", "place"\]'):
            read_regions(source)


UNDRAWN = re.compile(
    "HANGUL .*FILLER|SCRIPT FILLER|VARIATION SELECTOR|GRAPHEME JOINER|VOWEL INHERENT|PATTERN BLANK|NULL NOTEHEAD"
)
RESERVED = {0x2065, *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)}
"""Code points that the standard ignores by default although no character has them yet."""
TEXTS = [chr(code) for code in range(0x110000) if category(chr(code)) != "Cs"]


def is_hidden(text: str) -> bool:
    """Return what this Python's own tables of Unicode say."""
    blank = category(text) in ("Cc", "Cf", "Zl", "Zp") or (category(text) == "Zs" and text != " ")
    return blank or ord(text) in RESERVED or UNDRAWN.search(name(text, "")) is not None


def test_no_name_holds_a_character_that_nobody_sees() -> None:
    assert [hex(ord(text)) for text in TEXTS if is_hidden(text) and is_plain_name(f"a{text}b")] == []
    assert not is_plain_name("a\ud800")
    assert not any(map(is_plain_name, ("", " a", "a ", None, 3)))


def test_every_other_character_is_allowed() -> None:
    refused = {text for text in TEXTS if not is_plain_name(f"a{text}b") and not is_hidden(text)}
    assigned = {name(text) for text in refused if category(text) not in ("Cn", "Co")}
    joining = {"TIFINAGH CONSONANT JOINER", "BRAHMI NUMBER JOINER"}  # marks that are not drawn either
    assert assigned - {"EGYPTIAN HIEROGLYPH FULL BLANK", "EGYPTIAN HIEROGLYPH HALF BLANK"} == joining


def test_tables_and_names_have_one_rule() -> None:
    refused = pc.match_substring_regex(pa.array(TEXTS), HIDDEN).to_pylist()
    assert refused == [not is_plain_name(f"a{text}b") for text in TEXTS]


def test_each_is_refused_in_ids_of_every_table() -> None:
    hidden = [text for text in TEXTS[1:] if is_hidden(text)]
    ids = ["p", *(f"p{text}p" for text in hidden), "q é 東"]
    source = Input.of(pa.table({"entity_id": ids, "group_id": ["g"] * len(ids)}), "entities")
    with isolated([source]) as con, pytest.raises(InputError) as caught:
        check_ids(load(con, "entities", source, ENTITIES), (0,))
    assert caught.value.place is not None
    assert (caught.value.code, caught.value.place.count) == ("control-in-id", len(hidden))
    assert all(plain_texts(pa.array([text])) is None for text in ids[1:-1])
    assert plain_texts(pa.array(["p", ids[-1]])).to_pylist() == ["p", ids[-1]]


@pytest.mark.parametrize("text", ["\u034f", "\ufe0f", "\U000e0100", "\u3164", "\u115f", "\uffa0", "\u2800", "\u17b4"])
def test_names_of_a_config_are_seen(text: str, tmp_path: Path) -> None:
    frame = pa.table({"region_id": ["r"], "nation": ["n"]})

    def config(dataset: str, sex: str, group: str) -> object:
        return configure(
            data={"records": tmp_path / "none.csv", "hierarchy": frame},
            privacy={"dataset": dataset, "epsilon": "1"},
            topdown={
                "attributes": {sex: ["f", "m"], "age": ["0", "1"]},
                "workload": [sex],
                "groupings": {"band": {"of": "age", "groups": {group: "0..1"}}},
            },
        )

    schema_of_config(config("d", "sex", "all"))
    with pytest.raises(ConfigError, match="dataset"):
        config(f"d{text}", "sex", "all")
    for names in (("d", f"sex{text}", "all"), ("d", "sex", f"all{text}")):
        with pytest.raises(ConfigError, match="nobody sees"):
            schema_of_config(config(*names))


ZEROS, DECIMAL, NUMBER = "leading zeros", "a decimal part of zeros", "how a number is written"
CASE, BLANKS, ACCENTS, SIGNS = "the case of letters", "blanks", "accents", "punctuation"
SEVERAL = "several ways of writing"
REWRITTEN = [
    ("077810", "77810", ZEROS),
    ("1", "0001", ZEROS),
    ("1", "1.0", DECIMAL),
    ("3.0", "3", DECIMAL),
    ("100000", "1e5", NUMBER),
    ("1234", "1,234", NUMBER),
    ("12", "+12", NUMBER),
    ("0012", "12.0", NUMBER),
    ("DE-BY", "de-by", CASE),
    ("żółw", "ŻÓŁW", CASE),
    ("a 1", "a  1", BLANKS),
    ("0 12", "012", BLANKS),
    ("Kärnten", "Karnten", ACCENTS),
    ("São Paulo", "Sao Paulo", ACCENTS),
    ("A-01", "A01", SIGNS),
    ("O'Brien", "O`Brien", SIGNS),
    ('"7"', "7", SIGNS),
    ("A-01", "a01", SEVERAL),
    ("Nový Bor", "NOVYBOR", SEVERAL),
    ("île de france", "Ile-de-France", SEVERAL),
]


def refused(folder: Path, known: str, written: str) -> str:
    """Return the refusal of an id in a private table, beside one that is known."""
    (folder / "rows.csv").write_text('id\n"other"\n"' + written.replace('"', '""') + '"\n', encoding="utf-8")
    source = Input(folder / "rows.csv")
    with isolated([source]) as con:
        table = load(con, "rows", source, Columns(("id",)))
        con.execute("CREATE TABLE listed AS SELECT unnest(?) AS id", [["other", "another", known]])
        with pytest.raises(InputError) as caught:
            check_listed(table, 0, "listed.id", "unknown-group", "this group is not listed", "'id' of groups.csv")
    return str(caught.value)


@pytest.mark.parametrize(("known", "written", "difference"), REWRITTEN)
def test_a_refusal_names_the_difference(known: str, written: str, difference: str, tmp_path: Path) -> None:
    message = refused(tmp_path, known, written)
    assert f"one that differs only in {difference} is" in message
    assert "row 3" in message
    if len(written) > 3:
        assert written not in message


@pytest.mark.parametrize("written", ["something", "77811", "1.5", "-", "0"])
def test_an_id_that_is_not_known_in_any_writing_gets_no_such_word(written: str, tmp_path: Path) -> None:
    assert "differs only" not in refused(tmp_path, "77810", written)
