"""The experiment table, its shapes and what they write."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from coco_experiments.bench.rows import Bench
from coco_experiments.console import ConsoleReporter
from coco_experiments.experiment import Experiment
from coco_experiments.outcome import Outcome, Reporter, Statement, Table, readable, statements_table, write_csv
from coco_experiments.page import write_page
from coco_experiments.table import EXPERIMENTS

from coco_opt.cli.experiments import _select, find
from tests.experiments.recorder import Recorder

TABLE = Table("A title", ("name", "value", "ok"), (("one", 1.25, True), ("two", None, False)), ("a note",))


def test_entry_point_leads_to_the_table() -> None:
    (point,) = [p for p in entry_points(group="coco_opt.experiments") if p.name == "coco_experiments"]
    assert point.load() is EXPERIMENTS


@pytest.mark.parametrize("row", EXPERIMENTS, ids=lambda row: row.name)
def test_every_row_names_a_declared_study_or_a_module(row: Experiment) -> None:
    function: Any = row.function()
    study = getattr(function, "__self__", None)
    assert row.name == (sys.modules[function.__module__].NAME if study is None else study.name)
    assert row.summary
    assert bool(row.paper) == (row.kind == "paper")


def test_names_are_unique() -> None:
    assert len({row.name for row in EXPERIMENTS}) == len(EXPERIMENTS)


def test_what_is_heavy_runs_only_by_a_name_that_means_no_other() -> None:
    rows = find("bench")
    heavy = {row.name for row in rows if row.heavy}
    assert heavy == {
        "bench/country",
        "bench/ingestion_large",
        "bench/joint_nation",
        "bench/nation_posterior",
    }
    assert not heavy & {row.name for row in _select(rows, [])}
    assert [row.name for row in _select(rows, ["bench/ingestion"])] == ["bench/ingestion"]
    assert [row.name for row in _select(rows, ["bench/ingestion_l"])] == ["bench/ingestion_large"]
    assert _select(rows, [], listing=True) == rows


def test_run_passes_everything_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}

    def stand_in(*, small: bool, out: Path, reporter: Reporter, data: Path | None) -> Outcome:
        given.update(small=small, out=out, reporter=reporter, data=data)
        return Outcome((TABLE,), failures=("one thing",))

    monkeypatch.setattr(Experiment, "function", lambda _: stand_in)
    recorder = Recorder()
    outcome = EXPERIMENTS[0].run(small=True, out=tmp_path, reporter=recorder, data=tmp_path / "data")
    assert given == {"small": True, "out": tmp_path, "reporter": recorder, "data": tmp_path / "data"}
    assert not outcome.ok
    assert Outcome((TABLE,)).ok


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        (1234567, "1,234,567"),
        (2793.4, "2,793"),
        (0.012345, "0.01235"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        ("text", "text"),
    ],
)
def test_readable(cell: str | int | float | bool | None, text: str) -> None:
    assert readable(cell) == text


def test_csv_keeps_every_digit(tmp_path: Path) -> None:
    table = Table("t", ("x",), ((1.0 / 3.0,), (None,), (2**60 + 1,)))
    with write_csv(tmp_path / "deep" / "t.csv", table).open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["x"]
    assert float(rows[1][0]) == 1.0 / 3.0
    assert rows[2] == [""]
    assert int(rows[3][0]) == 2**60 + 1


SAID = (
    Statement("Table 1", "3 at <most>", "2.5", holds=True),
    Statement("Table 2", "first", "second", holds=False, why="another sampler"),
    Statement("Table 3", "7", "9", holds=None, why="other data"),
)


def test_a_statement_is_reproduced_refuted_or_not_comparable() -> None:
    assert [row["verdict"] for row in statements_table(SAID).records()] == ["reproduced", "refuted", "not comparable"]
    assert SAID[0].line == "reproduced: Table 1: published: 3 at <most>; measured: 2.5"
    assert SAID[1].line.endswith("(another sampler)")


def test_a_paper_has_one_page_of_all_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(*, small: bool, out: Path, reporter: Reporter, data: Path | None) -> Outcome:
        return Outcome((TABLE,), (out / "kuo2018" / "a.png", out / "kuo2018" / "a.pdf"), statements=SAID)

    recorder = Recorder()
    monkeypatch.setattr(Experiment, "function", lambda _: stand_in)
    for name in ("table3", "table4"):
        next(row for row in EXPERIMENTS if row.name == f"kuo2018/{name}").run(out=tmp_path, reporter=recorder)
    page = (tmp_path / "kuo2018.html").read_text()
    assert recorder.notes == [one.line for one in SAID] * 2
    assert page.count("<td>not comparable</td>") == 2
    assert page.count("3 at &lt;most&gt;") == 2
    assert page.count('src="kuo2018/a.png"') == 2
    assert ".pdf" not in page
    assert "<summary>A title</summary>" in page
    assert "://" not in page


ABOUT = {"summary": "", "paper": ""}


def test_the_page_of_the_bench_keeps_runs(tmp_path: Path) -> None:
    bench = Bench("bench/tree", Recorder())
    bench.row("binary, 8 leaves", "kernel", 15, 0.25)
    outcome = bench.finish("Seconds", tmp_path)
    for _ in range(7):
        page = write_page(tmp_path, bench.name, outcome, ABOUT, small=True).read_text()
    assert "<summary>Recorded runs: 5</summary>" in page
    assert "binary, 8 leaves, kernel, n = 15" in page
    assert "://" not in page


def test_the_page_of_the_bench_keeps_the_seconds_of_any_table(tmp_path: Path) -> None:
    plans = Table("Plans", ("case", "plan, clock s", "release MB"), (("one region", 1.5, 20.0),))
    page = write_page(tmp_path, "bench/plan", Outcome((plans,), ()), ABOUT, small=True).read_text()
    assert "one region: plan, clock s" in page
    assert "one region: release MB" not in page


def test_a_table_too_wide_for_the_screen_is_named_only() -> None:
    output = io.StringIO()
    ConsoleReporter(output, io.StringIO()).table(Table("Wide", ("a",), (("x" * 300,),), ("a note",)))
    assert "x" * 50 not in output.getvalue()
    assert "Wide: 1 rows, too large" in output.getvalue()
    assert "a note" in output.getvalue()


def test_console_prints_cells_and_notes_and_no_progress_into_a_pipe() -> None:
    output, errors = io.StringIO(), io.StringIO()
    reporter = ConsoleReporter(output, errors)
    reporter.progress("task", 1, 2)
    reporter.table(TABLE)
    text = output.getvalue()
    assert errors.getvalue() == ""
    assert "1.25" in text
    assert "[a note" not in text
    assert text.rstrip().endswith("a note")


def test_console_redraws_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    yes: Callable[[], bool] = lambda: True  # noqa: E731
    monkeypatch.setattr(errors, "isatty", yes)
    reporter = ConsoleReporter(io.StringIO(), errors)
    reporter.progress("task", 1, 2)
    reporter.progress("task", 2, 2)
    assert "task: 1/2" in errors.getvalue()
    assert errors.getvalue().endswith("task: 2/2\n")


def test_numbers_that_are_not_finite_are_null_in_json() -> None:
    table = Table.of("Gaps", [{"solver": "short", "gap": float("inf")}, {"solver": "sound", "gap": 0.5}])
    record = Outcome((table,)).record("bench/gaps")
    assert json.loads(json.dumps(record, allow_nan=False))["tables"][0]["rows"] == [
        {"solver": "short", "gap": None},
        {"solver": "sound", "gap": 0.5},
    ]
