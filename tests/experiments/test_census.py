"""The maker of census-like tables: its tree, its seeds, its sums, and what the command line reads of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from coco_experiments.bench import stages, tables
from coco_experiments.topdown import census
from coco_experiments.topdown.census import LEVELS, NATION, MadeCensus

from coco_opt.files.regions import read_regions
from coco_opt.topdown.asked.records import read_records
from coco_opt.topdown.schema import Schema
from tests.experiments.recorder import Recorder

SCHEMA = Schema({"sex": ("female", "male"), "age": ("child", "adult", "old")}, ("sex = male & age = old",))


def test_the_tree_has_as_many_blocks_as_asked_and_no_empty_region(tmp_path: Path) -> None:
    made = MadeCensus(SCHEMA, 2_000, seed=3, states=2)
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
    made = MadeCensus(SCHEMA, 1_000, seed=5)
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
    made = MadeCensus(SCHEMA, 4_000, seed=1)
    sizes = np.concatenate([np.bincount(one.block, one.persons, one.codes[0].size) for one in made.batches()])
    assert 0.35 < (sizes == 0).mean() < 0.45
    some = sizes[sizes > 0]
    assert some.mean() > 1.7 * np.median(some)
    assert some.max() > 20 * np.median(some)


def test_the_same_seed_makes_the_same_files_and_another_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        MadeCensus(SCHEMA, 300, seed).write(tmp_path / name)
    for file in ("regions.parquet", "persons.parquet"):
        one, again, other = ((tmp_path / name / file).read_bytes() for name in "abc")
        assert one == again
        assert one != other


def test_text_files_say_what_parquet_files_say(tmp_path: Path) -> None:
    made = MadeCensus(SCHEMA, 200, seed=2)
    found = []
    for form in ("parquet", "csv"):
        made.write(tmp_path, form)  # type: ignore[arg-type]
        public = read_regions(tmp_path / f"regions.{form}")
        found.append(read_records(public, tmp_path / f"persons.{form}", SCHEMA))
    for one, other in zip(found[0].arrays, found[1].arrays, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_state_needs_a_block() -> None:
    with pytest.raises(ValueError, match="every state"):
        MadeCensus(SCHEMA, 1, seed=0, states=2)


def test_a_call_is_watched_by_stage(tmp_path: Path) -> None:
    tables.write_state(tmp_path, 40)
    found = stages.watched(("check", census.CONFIG), tmp_path)
    names = [one.name for one in found.stages]
    assert names[0] == stages.START
    assert "Reading the private table" in names
    assert found.cpu > 0.0
    assert found.peak > 1.0
    assert sum(one.seconds for one in found.stages) == pytest.approx(found.seconds)
    with pytest.raises(RuntimeError, match="check"):
        stages.watched(("check", "other.toml"), tmp_path)


@pytest.mark.slow
def test_the_bench_releases_and_verifies_made_states(tmp_path: Path) -> None:
    outcome = tables.run(small=True, out=tmp_path, reporter=Recorder())
    assert not outcome.failures
    (read,) = json.loads((tmp_path / "bench" / "tables.json").read_text())
    whats = {row["what"] for row in read["rows"]}
    assert {"check", "release", "verify", "release: Writing the release"} <= whats
