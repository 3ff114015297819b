"""Ids as other programs write them: characters that nobody sees, through every reader, and differences in kind.

A refusal names the kind of difference, never an id.
"""

from __future__ import annotations

import re
from pathlib import Path
from unicodedata import category, name

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from coco_opt import configure
from coco_opt.errors import ConfigError, InputError
from coco_opt.files.column_checks import check_ids, check_listed, plain_texts
from coco_opt.files.inputs import ENTITIES, Columns, Input
from coco_opt.files.source import isolated, load
from coco_opt.histograms.texts import HIDDEN, is_plain_name
from coco_opt.topdown.kind.plan import schema_of_config

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
