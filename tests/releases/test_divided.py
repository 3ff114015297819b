"""A large measurement drawn in parts: whoever draws them, in whatever order and how often, the bits are the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt.config import Config, EngineConfig, load_config
from coco_opt.errors import WorkerError
from coco_opt.execution import Threads
from coco_opt.files.scratch import Scratch
from coco_opt.privacy import Measurement, SecureNoise
from coco_opt.privacy.blocks import Block, parts_of
from coco_opt.privacy.queries import offsets_of
from coco_opt.privacy.run_folder import RunFolder, noise_key
from coco_opt.releases import Silent, drawing, measure
from coco_opt.releases.drawing import noisy, source_of
from coco_opt.releases.planning import planned
from coco_opt.topdown.kind import TABLES
from coco_opt.topdown.measuring.measure import ExactTables, blocks_of
from tests.cli.helpers import KINDS
from tests.execution.tasks import ByFiles
from tests.releases.towns import entries, ledger

GAUSSIAN = 'mechanism = "discrete_gaussian"\nrho = "1"\nsplit = "uniform"\n'
SEEDED = GAUSSIAN + 'noise = "seeded"\nseed = 3'
SECURE = GAUSSIAN + 'dataset = "towns"'


class Repeated(Threads):
    """Runs every task twice, the last one first."""

    def map(self, task: Any, items: Sequence[Any], done: Any = None) -> list[Any]:
        return super().map(lambda item: (task(item), task(item))[0], items[::-1], done)[::-1]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a block of a few answers, and a part of a few blocks."""
    monkeypatch.setattr("coco_opt.topdown.kind.blocks_of", partial(blocks_of, block=4))
    monkeypatch.setattr("coco_opt.privacy.blocks.PART", 4)


def config_in(folder: Path, privacy: str = SEEDED) -> Config:
    folder.mkdir(exist_ok=True)
    return load_config(KINDS["tables"].write(folder, privacy=privacy))


def drawn_by(monkeypatch: pytest.MonkeyPatch, opened: Callable[[Path], Any]) -> None:
    """Have measurements drawn by the executor that ``opened`` returns for a scratch folder."""
    monkeypatch.setattr(drawing, "_measuring", lambda engine, scratch, reporter: opened(scratch.folder))


def values(measurement: Measurement) -> list[np.ndarray]:
    return [answers.values for answers in measurement.answers]


def packed(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "hierarchy.parquet"}


def in_order(config: Config) -> Measurement:
    """Return the measurement as it is drawn from start to end, in memory."""
    plan = planned(config, Silent())
    return noisy(plan, TABLES.read(plan), source_of(config))


def test_every_executor_order_and_repetition_seals_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_in(tmp_path)
    executors: list[Callable[[Path], Any]] = [
        lambda folder: Threads(1),
        lambda folder: Repeated(2),
        lambda folder: ByFiles(2, folder),
    ]
    sealed = []
    for opened in executors:
        drawn_by(monkeypatch, opened)
        measured = measure(config)
        assert measured.folder is not None
        sealed.append(packed(measured.folder))
        assert len([name for name in sealed[-1] if name.startswith("packed-")]) > 2
        for drawn, expected in zip(values(measured.measurement), values(in_order(config)), strict=True):
            np.testing.assert_array_equal(drawn, expected)
    assert sealed[0] == sealed[1] == sealed[2]
    assert not list((tmp_path / "private").glob(".spill-*"))


@pytest.mark.parametrize("least", [1, 5, 40])
def test_other_parts_hold_the_same_answers(least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_in(tmp_path)
    monkeypatch.setattr("coco_opt.privacy.blocks.PART", least)
    monkeypatch.setattr("coco_opt.topdown.kind.blocks_of", partial(blocks_of, block=least))
    for drawn, expected in zip(values(measure(config).measurement), values(in_order(config)), strict=True):
        np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize("block", [1, 3, 7, 1000])
def test_blocks_hold_every_answer_once(block: int, tmp_path: Path) -> None:
    plan = planned(config_in(tmp_path), Silent())
    queries, hierarchy = plan.measurement_plan.queries, plan.measurement_plan.hierarchy
    blocks = list(blocks_of(plan.detail.table_queries, block))
    for place, query in enumerate(queries):
        ours, offsets = [each for each in blocks if each.place == place], offsets_of(query, hierarchy, {})
        regions = [region for each in ours for region in each.regions]
        assert regions == list(hierarchy.level_range(query.level))
        ends = [each.start + each.size for each in ours]
        assert [each.start for each in ours] == [0, *ends[:-1]]
        assert ends[-1] == offsets[-1]
    assert [block for part in parts_of(blocks, 5) for block in part] == blocks


class Fails:
    """Exact answers of which a chosen block fails."""

    def __init__(self, exact: ExactTables) -> None:
        self.exact = exact

    def __call__(self, block: Block) -> Any:
        if block.place == 1:
            raise ValueError("four thousand and twelve persons")
        return self.exact(block)


def test_a_run_whose_workers_failed_goes_on_with_the_same_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One payment; the error says nothing of the data; neither counts nor key are left; the noise is the key's."""
    config, private = config_in(tmp_path, SECURE), tmp_path / "private"
    drawn_by(monkeypatch, lambda folder: ByFiles(2, folder))
    honest = type(TABLES).exact_blocks
    with monkeypatch.context() as patch:
        patch.setattr(type(TABLES), "exact_blocks", lambda *given: Fails(honest(*given)))
        with pytest.raises(WorkerError, match="ValueError") as raised:
            measure(config)
    assert "twelve" not in str(raised.value)
    assert not list(private.glob(".spill-*"))
    (run,) = [path for path in (private / "runs").iterdir() if path.is_dir()]
    assert sorted(path.name for path in run.iterdir() if path.is_dir()) == []
    plan = planned(config, Silent())
    folder = RunFolder(run.parent, run.name)
    key, fingerprint = folder.stored_key(), ledger(tmp_path).entries()[1].fingerprint
    source = SecureNoise(noise_key(key, plan.measurement_plan.digest, fingerprint))
    expected = noisy(plan, TABLES.read(plan), source)
    secret, seen = key.to_bytes(), list[Path]()

    def watched(scratch: Path) -> ByFiles:
        return Watched(2, scratch, secret, seen)

    drawn_by(monkeypatch, watched)
    measured = measure(config)
    assert not measured.paid
    assert entries(tmp_path) == ["GRANTED", "RESERVED", "MEASURED"]
    for drawn, wanted in zip(values(measured.measurement), values(expected), strict=True):
        np.testing.assert_array_equal(drawn, wanted)
    assert any(path.name == "counts" for path in seen)
    assert not folder.has_key
    assert not list(private.glob(".spill-*"))


class Watched(ByFiles):
    """Looks at every file that tasks are handed: none holds the key, and only their owner can reach them."""

    def __init__(self, workers: int, scratch: Path, secret: bytes, seen: list[Path]) -> None:
        super().__init__(workers, scratch)
        self.root, self.secret, self.seen = scratch, secret, seen

    def run(self, parts: Any, ended: Any) -> None:
        for path in self.files():
            assert self.secret not in path.read_bytes()
            self.seen.append(path)
        assert os.name != "posix" or self.root.stat().st_mode & 0o077 == 0
        super().run(parts, ended)

    def files(self) -> Iterator[Path]:
        return (path for path in self.root.rglob("*") if path.is_file())


def test_a_cluster_open_to_others_draws_no_private_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[EngineConfig] = []

    def opens(engine: EngineConfig) -> Threads:
        opened.append(engine)
        return Threads(1)

    monkeypatch.setattr(EngineConfig, "open", opens)
    with Scratch(tmp_path) as scratch:
        for scheme in ("tcp", "tls"):
            engine = EngineConfig(executor="dask", address=f"{scheme}://10.0.0.1:8786", scratch="/elsewhere")
            drawing._measuring(engine, scratch, Silent())
        assert [engine.executor for engine in opened] == ["processes", "dask"]
        assert {engine.scratch for engine in opened} == {scratch.folder}


def test_noise_that_is_read_from_its_start_is_not_divided(tmp_path: Path) -> None:
    config = config_in(tmp_path, 'split = "uniform"\nnoise = "seeded"\nseed = 3')
    measured = measure(replace(config, engine=EngineConfig(workers=2)))
    assert measured.folder is not None
    assert (measured.folder / "packed.parquet").is_file()
