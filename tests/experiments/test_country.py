"""The simulated country: its proportions, what its files say, and the bench that takes up where it stopped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.bench import country
from coco_experiments.bench.apart import Apart
from coco_experiments.bench.stages import Stage, Watched
from coco_experiments.topdown.census import CONFIG, LEVELS, NATION
from coco_experiments.topdown.country import BLOCKS, FACILITIES, STATES, TRACTS, GeneratedCountry
from coco_experiments.topdown.data import RESIDENCES

from coco_opt.config import load_config
from coco_opt.files.regions import read_regions
from coco_opt.releases import check
from coco_opt.topdown.kind.plan import plan_tables, read_tables
from tests.experiments.recorder import Recorder


def test_a_country_has_the_proportions_of_the_census() -> None:
    made = GeneratedCountry.of(3, seed=1)
    states, _, tracts, _ = (counts.size for counts in made.children)
    assert (states, made.blocks) == (3, 3 * BLOCKS // STATES)
    assert tracts == pytest.approx(3 * TRACTS / STATES, abs=24)
    persons = residents = blocks = 0
    for _, batch in zip(range(8), made.batches(), strict=False):
        persons += int(batch.persons.sum())
        blocks += batch.codes[0].size
        residents += int(batch.persons[made.schema.decode(batch.cell)["residence"] > 0].sum())
    assert persons / blocks == pytest.approx(309e6 / BLOCKS, rel=0.1)
    assert residents / persons == pytest.approx(0.026, abs=0.008)


def test_files_and_configuration_are_read_by_the_engine(tmp_path: Path) -> None:
    value = country.make(str(tmp_path), 2, country.SMALL_PART)
    public = read_regions(tmp_path / "regions.parquet")
    assert public.levels == (NATION, *LEVELS)
    assert len(public.hierarchy.leaves) == value["blocks"]
    config = load_config(tmp_path / CONFIG)
    counts = read_tables(plan_tables(config))
    assert int(counts.counts.sum()) == value["persons"]
    check(config)


def test_every_facility_has_a_person_and_every_person_in_quarters_a_facility(tmp_path: Path) -> None:
    country.make(str(tmp_path), 1, country.SMALL_PART)
    plan = plan_tables(load_config(tmp_path / CONFIG))
    counts = read_tables(plan)
    tree, fine = counts.hierarchy, counts.schema
    (bounds,) = plan.detail.table_queries.bounds
    persons = counts.answers_to(bounds.query.operator, tree.leaves)
    assert bounds.query.answers == len(RESIDENCES) - 1
    assert bounds.lower.any()
    assert (persons >= bounds.lower).all()
    assert ((persons > 0) == (bounds.upper > 0)).all()
    assert (tmp_path / f"{FACILITIES}.parquet").exists()
    assert fine.size == 1_890


def test_a_stopped_run_goes_on_and_sizes_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def made(target: str, folder: str, states: int, part: float) -> Apart:
        called.append("make")
        return Apart(2.0, 1.0 * states, 100.0, {"blocks": 1_000 * states, "persons": 50_000 * states})

    def watched(arguments: tuple[str, ...], folder: Path) -> Watched:
        called.append(arguments[0])
        if arguments[0] == "measure" and called.count("measure") == 1:
            raise RuntimeError("stopped")
        if arguments[0] == "measure":
            (folder / "private" / "seeded" / "run" / "measurement").mkdir(parents=True)
        if arguments[0] == "estimate":
            assert arguments[1] == "run"
            (folder / "release").mkdir()
            (folder / "release" / "manifest.json").write_text(json.dumps({"relaxed": []}))
        size = int(folder.name)
        return Watched((Stage("Reading", 1.0, 1.0, 9.0),), 2.0, 3.0 * size, 10.0 + size, "", 5.0)

    monkeypatch.setattr(country, "apart", made)
    monkeypatch.setattr(country, "watched", watched)
    stopped = country.run(small=False, out=tmp_path, reporter=Recorder(), states=1)
    assert stopped.failures == ("stopped",)
    assert country.run(small=False, out=tmp_path, reporter=Recorder(), states=1).ok
    assert called == ["make", "check", "measure", "measure", "estimate", "verify"]
    larger = country.run(small=False, out=tmp_path, reporter=Recorder(), states=3)
    assert larger.ok
    notes = larger.tables[0].notes
    assert any("1 to 3 states, measure: one more block costs 3,000 microseconds" in note for note in notes)
    assert any("1,000 bytes of memory" in note for note in notes)


def test_a_relaxed_region_fails(tmp_path: Path) -> None:
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "manifest.json").write_text(json.dumps({"relaxed": [{"region": "nation/01"}]}))
    (fault,) = country.faults(country.Country(tmp_path, 1, 1.0))
    assert "1 regions relaxed" in fault
    assert np.isfinite(country.disk(tmp_path))
