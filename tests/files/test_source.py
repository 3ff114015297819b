"""The connection that reads users' files: those and nothing else, and errors that show no data."""

from __future__ import annotations

from pathlib import Path

import pytest

from coco_opt.errors import InputError
from coco_opt.files.columns import Columns
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import Input
from coco_opt.files.source import isolated, load
from tests.files.helpers import Write


def test_the_connection_reads_its_files_only_and_never_writes(write: Write, tmp_path: Path) -> None:
    allowed, other = write("a.csv", "x\n1\n"), write("b.csv", "x\n2\n")
    with isolated([Input(allowed)]) as con:
        assert con.execute("SELECT * FROM read_csv(?)", [str(allowed)]).fetchall() == [(1,)]
        for query in (
            f"SELECT * FROM read_csv('{other}')",
            f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
            "SET temp_directory = '/tmp'",
            "SET enable_external_access = true",
            "INSTALL httpfs",
        ):
            with pytest.raises(Exception, match=r"(?i)disabled|locked|not allowed|permission"):
                con.execute(query)
        assert con.execute("SELECT current_setting('temp_directory')").fetchone() == ("",)
    assert not (tmp_path / "out.csv").exists()


def test_an_interrupted_query_is_an_interrupt(tmp_path: Path) -> None:
    """DuckDB answers Ctrl-C by RuntimeError("Query interrupted")."""

    def interrupted() -> None:
        raise RuntimeError("Query interrupted")

    def broken() -> None:
        raise RuntimeError("something else")

    with pytest.raises(KeyboardInterrupt) as caught:
        quietly(tmp_path, interrupted)
    assert caught.value.__context__ is None
    with pytest.raises(RuntimeError, match="something else"):
        quietly(tmp_path, broken)
    with pytest.raises(KeyboardInterrupt), isolated([]):
        interrupted()
    with pytest.raises(RuntimeError, match="something else"), isolated([]):
        broken()


def test_all_rows_of_other_widths_are_named(write: Write) -> None:
    """Blank lines count as rows of the file, empty fields after the last column do no harm."""
    lines = ["a;b", "1;2", "", "1", "1;2;;", "1;2;x", *["1;2"] * 3, *["1"] * 12]
    source = Input(write("a.csv", "\n".join(lines) + "\n"))
    with isolated([source]) as con, pytest.raises(InputError, match="malformed-row") as caught:
        load(con, "t", source, Columns(first=("a", "b"), others=True))
    (entry,) = caught.value.bad_rows
    assert (entry["rows"], entry["count"]) == ([4, 6, *range(10, 18)], 14)
