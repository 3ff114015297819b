"""Ids that another program wrote differently: the refusal names the kind of difference, never an id."""

from __future__ import annotations

from pathlib import Path

import pytest

from coco_opt.errors import InputError
from coco_opt.files.column_checks import check_listed
from coco_opt.files.columns import Columns
from coco_opt.files.inputs import Input
from coco_opt.files.source import isolated, load

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
