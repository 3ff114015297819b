"""The maker of census-like tables: its tree, its seeds, its sums, and what the command line reads of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from coco_experiments.bench import pieces, stages, tables
from coco_experiments.bench.stages import Stage, Watched
from coco_experiments.topdown import census
from coco_experiments.topdown.census import LEVELS, NATION, GeneratedCensus

from coco_opt.files.regions import read_regions
from coco_opt.topdown.measuring.records import read_records
from coco_opt.topdown.schema import Schema
from tests.experiments.recorder import Recorder

SCHEMA = Schema({"sex": ("female", "male"), "age": ("child", "adult", "old")}, ("sex = male & age = old",))


def test_the_tree_has_as_many_blocks_as_asked_and_no_empty_region(tmp_path: Path) -> None:
    made = GeneratedCensus(SCHEMA, 2_000, seed=3, states=2)
    states, counties, tracts, groups = made.children
    assert [one.sum() for one in (states, counties, tracts, groups)] == [
        counties.size,
        tracts.size,
        groups.size,
        2_000,
    ]
    assert min(one.min() for one in (states, counties, tracts, groups)) >= 1
    made.write(tmp_path)
    public = read_regions(tmp_path / "regions.parquet")
    assert public.levels == (NATION, *LEVELS)
    tree = public.hierarchy
    assert [len(tree.level_range(level)) for level in range(6)] == [
        1,
        2,
        counties.size,
        tracts.size,
        groups.size,
        2_000,
    ]


def test_the_files_hold_the_persons_of_all_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "_TRACTS", 2)  # several batches
    made = GeneratedCensus(SCHEMA, 1_000, seed=5)
    persons = made.write(tmp_path)
    counts = read_records(read_regions(tmp_path / "regions.parquet"), tmp_path / "persons.parquet", SCHEMA)
    batches = list(made.batches())
    assert len(batches) > 1
    assert persons == counts.counts.sum() == sum(int(batch.persons.sum()) for batch in batches)
    expected = np.zeros((1_000, SCHEMA.size), np.int64)
    first = 0
    for batch in batches:
        np.add.at(expected, (first + batch.block, batch.cell), batch.persons)
        first += batch.codes[0].size
    np.testing.assert_array_equal(counts.level_tables(counts.hierarchy.levels - 1), expected)
    assert pq.ParquetFile(tmp_path / "persons.parquet").num_row_groups == len(batches)


def test_sizes_are_heavy_tailed_and_many_blocks_empty() -> None:
    made = GeneratedCensus(SCHEMA, 4_000, seed=1)
    sizes = np.concatenate([np.bincount(one.block, one.persons, one.codes[0].size) for one in made.batches()])
    assert 0.35 < (sizes == 0).mean() < 0.45
    some = sizes[sizes > 0]
    assert some.mean() > 1.7 * np.median(some)
    assert some.max() > 20 * np.median(some)


def test_the_same_seed_makes_the_same_files_and_another_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        GeneratedCensus(SCHEMA, 300, seed).write(tmp_path / name)
    for file in ("regions.parquet", "persons.parquet"):
        one, again, other = ((tmp_path / name / file).read_bytes() for name in "abc")
        assert one == again
        assert one != other


def test_text_files_say_what_parquet_files_say(tmp_path: Path) -> None:
    made = GeneratedCensus(SCHEMA, 200, seed=2)
    found = []
    for form in ("parquet", "csv"):
        made.write(tmp_path, form)
        public = read_regions(tmp_path / f"regions.{form}")
        found.append(read_records(public, tmp_path / f"persons.{form}", SCHEMA))
    for one, other in zip(found[0].arrays, found[1].arrays, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_state_needs_a_block() -> None:
    with pytest.raises(ValueError, match="every state"):
        GeneratedCensus(SCHEMA, 1, seed=0, states=2)


def test_a_call_is_watched_by_stage(tmp_path: Path) -> None:
    tables.write_state(tmp_path, 40)
    found = stages.watched(("check", census.CONFIG), tmp_path)
    names = [one.name for one in found.stages]
    assert names[0] == stages.START
    assert "Reading the private table" in names
    assert found.cpu > 0.0
    assert found.peak > found.anonymous > 1.0
    assert sum(one.seconds for one in found.stages) == pytest.approx(found.seconds)
    with pytest.raises(RuntimeError, match="check"):
        stages.watched(("check", "other.toml"), tmp_path)


def _watched(blocks: int, peak: float) -> Watched:
    parts = (Stage("start", 1.0, 1.0, 50.0), Stage("Measuring", blocks / 100, blocks / 50, peak))
    return Watched(parts, 1.0 + blocks / 100, 1.0 + blocks / 50, peak, "", peak / 2)


def test_more_blocks_are_held_against_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def state(blocks: int) -> tables.State:
        made.append(blocks)
        calls = {call[0]: _watched(blocks, 100.0 + blocks / 1000) for call in tables.CALLS}
        return tables.State(blocks, 40 * blocks, calls)

    monkeypatch.setattr(tables, "state", state)
    assert not tables.measured("bench/tables", (100, 300), tmp_path, Recorder()).failures
    assert made == [60, 100, 300]
    (read,) = json.loads((tmp_path / "bench" / "tables.json").read_text())
    rows = {(row["instance"], row["what"]): row for row in read["rows"]}
    assert len(rows) == len(read["rows"])
    assert rows["MADE state, 100 blocks", "release: Measuring"]["cores' seconds"] == pytest.approx(2.0)
    # 3 s for 100 blocks, 7 s for 300: each block takes 7 / 9 of the time.
    assert rows["MADE state, 300 blocks", "verify"]["times faster"] == pytest.approx(9 / 7)
    assert rows["MADE state, 300 blocks", "verify"]["met"]
    more = "release: 1,000 bytes of memory for each block more, 500 of them in no file; 50 MB in no file at 300 blocks"
    assert more in read["notes"]


def test_a_call_that_fails_is_a_fault_of_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Watched:
        raise RuntimeError("coco-opt verify release failed")

    monkeypatch.setattr(tables, "watched", failing)
    assert tables.run(small=True, out=tmp_path, reporter=Recorder()).failures == ("coco-opt verify release failed",)


@pytest.mark.slow
def test_the_bench_releases_and_verifies_made_states(tmp_path: Path) -> None:
    outcome = tables.run(small=True, out=tmp_path, reporter=Recorder())
    assert not outcome.failures
    (read,) = json.loads((tmp_path / "bench" / "tables.json").read_text())
    whats = {row["what"] for row in read["rows"]}
    assert {"check", "release", "verify", "release: Writing the release"} <= whats


@pytest.mark.slow
def test_pieces_are_weighed_in_answers_and_bytes(tmp_path: Path) -> None:
    assert not pieces.run(small=True, out=tmp_path, reporter=Recorder()).failures
    (read,) = json.loads((tmp_path / "bench" / "pieces.json").read_text())
    assert [row["n"] for row in read["rows"]] == [120, 120, 60, 60]
