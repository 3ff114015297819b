"""A large measurement with seeded noise lies in the private folder while it is released, and nowhere afterwards."""

from __future__ import annotations

import stat
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from coco_opt.files.folder import file_digest
from coco_opt.releases import Measured, release
from coco_opt.topdown.noisy_measurements import TableMeasurements
from tests.topdown.persons import SEEDED, write


def let_all_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("coco_opt.privacy.queries", "coco_opt.files.packed_file", "coco_opt.releases.measure"):
        monkeypatch.setattr(import_module(module), "DENSE", 0)


def aside(private: Path) -> list[Path]:
    return sorted(path for folder in private.glob(".spill-*") for path in folder.rglob("*.parquet"))


def test_it_is_read_from_its_file_and_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(tmp_path, SEEDED)
    plain = release(config, tmp_path / "plain").folder
    let_all_be_large(monkeypatch)
    seen: list[Path] = []
    of = TableMeasurements.of

    def watching(measurement: object) -> object:
        seen.extend(aside(config.output.private))
        assert all(not isinstance(one.stored, np.ndarray) for one in measurement.answers)  # type: ignore[attr-defined]
        return of(measurement)  # type: ignore[arg-type]

    monkeypatch.setattr(TableMeasurements, "of", watching)
    apart = release(config, tmp_path / "apart").folder
    assert {path.name for path in seen} == {"packed.parquet", "hierarchy.parquet"}
    assert not aside(config.output.private)
    for name in ("tables.parquet", "estimates.parquet", "hierarchy.parquet"):
        assert file_digest(plain / name) == file_digest(apart / name)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError])
def test_it_is_gone_and_was_its_owners_alone_when_a_release_is_stopped(
    failure: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_all_be_large(monkeypatch)
    config, modes = write(tmp_path, SEEDED), set[int]()

    def stop(measured: Measured) -> object:
        for path in aside(config.output.private):
            modes.update(stat.S_IMODE(one.stat().st_mode) for one in (path, *path.parents[:3]))
        raise failure

    monkeypatch.setattr(TableMeasurements, "of", stop)
    with pytest.raises(failure):
        release(config, tmp_path / "out")
    assert modes == {0o600, 0o700}
    assert not list(config.output.private.glob(".spill-*"))
