"""The performance table on tiny sizes: every peer gives the same answer; no time is judged."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.bench import ingestion, isotonic_l1, isotonic_l2, release
from coco_experiments.bench.apart import Apart, apart
from coco_experiments.bench.heap_isotonic_l1 import heap_fit
from coco_experiments.bench.instances import INSTANCES
from coco_experiments.bench.isotonic import over_instances
from coco_experiments.bench.rows import Row, worst
from coco_experiments.bench.timing import Timing, take_turns
from coco_experiments.simulated import generated_counts

from coco_opt.files.release_checks import Check
from coco_opt.groups.measuring.sizes import read_sizes
from tests.experiments.recorder import Recorder, small_run


def test_timing_warms_up_and_alternates() -> None:
    order: list[str] = []
    timings = take_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b") or 7}, 3)
    assert order == ["a", "b"] * 4
    assert timings["b"].value == 7
    assert len(timings["a"].seconds) == 3
    assert min(timings["a"].seconds) >= 0


def test_ratios_are_taken_pair_by_pair() -> None:
    ours, theirs = Timing((1.0, 2.0, 10.0), None), Timing((3.0, 4.0, 20.0), None)
    assert ours.ratio(theirs) == 2.0
    assert (ours.median, ours.best) == (2.0, 1.0)


def test_rows_judge_ratios_and_limits() -> None:
    row = Row("i", "w", 1_000, 0.001, "peer", 1.5, 1.2)
    assert row.met is True
    assert replace(row, ratio=1.1).met is False
    assert replace(row, target=None).met is None
    assert replace(row, target=None, limit=0.0005).met is False
    assert row.cells() == ("i", "w", 1_000, 0.001, 1_000.0, None, None, "peer", 1.5, ">= 1.2 times", True)
    both = replace(row, cpu=0.002, peak=300.0, peak_limit=299.0)
    assert both.met is False
    assert both.cells()[5:] == (0.002, 300.0, "peer", 1.5, ">= 1.2 times, <= 299 MB", False)
    assert replace(both, peak_limit=300.0).met is True


def test_worst_instance_is_the_least_ratio() -> None:
    rows = [Row("one", "w", 1, 1.0, "p", 3.0, 2.0), Row("two", "w", 1, 1.0, "p", 0.5, 2.0), Row("x", "v", 1, 1.0)]
    assert worst(rows, "w") == "worst instance of w: two, 0.50 times as fast as p (target 2)"
    assert worst(rows, "v") == "v: nothing to compare with"


@pytest.mark.parametrize("name", INSTANCES)
def test_instances_are_integers_and_repeat(name: str) -> None:
    first, second = INSTANCES[name](501), INSTANCES[name](501)
    assert first.dtype == np.int64
    assert first.size == 501
    assert np.array_equal(first, second)
    assert np.any(np.diff(first) < 0)


@pytest.mark.parametrize("name", INSTANCES)
def test_heap_is_the_lower_fit(name: str) -> None:
    from coco_opt.kernels import isotonic_l1 as kernel

    y = INSTANCES[name](2_000)
    assert np.array_equal(heap_fit(y), kernel.fit(y, upper=False))


@pytest.mark.parametrize("module", [isotonic_l2, isotonic_l1], ids=["l2", "l1"])
def test_isotonic_rows_are_positive_and_peers_agree(module: object) -> None:
    assert module in (isotonic_l2, isotonic_l1)
    rows, wrong = over_instances(
        module.NAME, 400, 2, module.candidates, module.rows_of, module.disagreements, Recorder()
    )
    assert wrong == []
    assert {row.instance for row in rows} == set(INSTANCES)
    assert all(row.seconds > 0 and row.n == 400 for row in rows)
    assert all((row.ratio is None) == (row.peer is None) and (row.ratio or 1.0) > 0 for row in rows)
    assert any(row.what == "solve with certificate" for row in rows)


def test_a_wrong_peer_is_reported_l2() -> None:
    y = INSTANCES["slope"](300)
    timings = take_turns(isotonic_l2.candidates(y), 1)
    timings[isotonic_l2.SCIPY] = Timing((1.0,), timings[isotonic_l2.SCIPY].value + 1e-3)
    (line,) = isotonic_l2.disagreements("slope", y, timings)
    assert "SciPy" in line


def test_a_wrong_peer_is_reported_l1() -> None:
    y = INSTANCES["slope"](300)
    timings = take_turns(isotonic_l1.candidates(y), 1)
    timings[isotonic_l1.HEAP] = Timing((1.0,), timings[isotonic_l1.HEAP].value + 5)
    (line,) = isotonic_l1.disagreements("slope", y, timings)
    assert "heap" in line


def test_kernel_agrees_with_the_linear_program() -> None:
    rows, wrong = isotonic_l1.against_lp(200)
    assert wrong == []
    assert rows[0].ratio == pytest.approx(rows[1].seconds / rows[0].seconds)
    assert rows[0].target == 1_000


@pytest.fixture
def generated_sizes(tmp_path: Path) -> Path:
    return release.write_sizes(tmp_path / "sizes.csv", generated_counts(2, 2, 60, 30, np.random.default_rng(5)))


def test_made_counts_survive_the_file(generated_sizes: Path) -> None:
    made, read = generated_counts(2, 2, 60, 30, np.random.default_rng(5)), read_sizes(generated_sizes)
    assert read.hierarchy.paths == made.hierarchy.paths
    assert all(one.equals(other) for one, other in zip(read.histograms(), made.histograms(), strict=True))


def test_release_is_timed_and_verified(generated_sizes: Path) -> None:
    rows, wrong = release.release_rows(generated_sizes, "made", 100, 1, Recorder())
    assert wrong == []
    times = {row.what: row.seconds for row in rows}
    stages = [row.seconds for row in rows if row.what not in (release.WHOLE, release.REPORT)]
    assert min(times.values()) > 0
    assert sum(stages) <= times[release.WHOLE] * 1.001
    assert {row.what: row.limit for row in rows}[release.WHOLE] == 1.5
    assert {row.n for row in rows} == {7 * 100}


def test_a_release_that_fails_its_checks_is_reported(generated_sizes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [
        Check(name="sums", passed=False, detail="one region"),
        Check(name="integers", passed=True, detail="all"),
    ]
    monkeypatch.setattr(release, "verify_release", lambda folder: checks)
    monkeypatch.setattr(release, "render_report", lambda kind, shown: "")
    _, wrong = release.release_rows(generated_sizes, "made", 100, 1, Recorder())
    assert wrong == ["sums: one region"] * 2


def test_import_loads_nothing_heavy() -> None:
    (row,), loaded = release.import_rows(1)
    assert loaded == []
    assert row.seconds > 0
    assert row.limit == 0.15


def test_small_bench_writes_csv_and_json(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = release.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    assert recorder.tables == list(outcome.tables)
    assert [file.suffix for file in outcome.files] == [".csv", ".json"]
    (read,) = json.loads((tmp_path / "bench" / "release.json").read_text())
    assert [row["what"] for row in read["rows"]][-3:] == [release.WHOLE, release.REPORT, release.IMPORT]


def test_ingestion_reads_what_duckdb_counts(tmp_path: Path) -> None:
    small_run(ingestion, tmp_path)
    (read,) = json.loads((tmp_path / "bench" / "ingestion.json").read_text())
    assert [row["what"] for row in read["rows"]] == 2 * [ingestion.READ, ingestion.DUCKDB]
    assert all(row["peak MB"] > 10 and row["cores' seconds"] > 0 for row in read["rows"])


def test_a_wrong_count_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(target: str, folder: str) -> Apart:
        return Apart(1.0, 1.0, 1.0, [[1, 2, 3 + target.endswith("duckdb")]])

    monkeypatch.setattr(ingestion, "apart", wrong)
    _, (line,) = ingestion.rows_of(ingestion.Case(50, texts=True, repeats=1), 3)
    assert "not DuckDB's" in line


def test_a_call_apart_tells_its_own_time_and_memory() -> None:
    found = apart("math:factorial", 30)
    assert found.value == math.factorial(30)
    assert found.seconds >= 0
    assert found.peak > 5
    with pytest.raises(RuntimeError, match="math:sqrt failed: ValueError"):
        apart("math:sqrt", -1)
