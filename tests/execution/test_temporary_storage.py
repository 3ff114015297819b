"""Arrays put aside lie in files without a name: as they were, read-only, handed on, and nothing to remove."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt.execution import temporary_storage as module
from coco_opt.execution.temporary_storage import LEAST, forget_pages, stored_array, stored_bytes, stored_empty

LARGE = 1 << 16


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def lies_in_a_file(array: np.ndarray[Any, Any]) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.int8])
@pytest.mark.parametrize("sizes", [(LARGE,), (0, 3, LARGE), (LARGE, LARGE, 0)])
def test_arrays_come_back_as_they_were(kind: type, sizes: tuple[int, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    parts: list[np.ndarray[Any, Any]] = [rng.integers(-100, 100, (size, 2)).astype(kind) for size in sizes]
    parts.append(rng.integers(-100, 100, (8, 2 * LARGE)).astype(kind)[:, ::LARGE])  # not contiguous
    whole = stored_array(parts)
    assert lies_in_a_file(whole) is (whole.nbytes >= module.LEAST)
    assert whole.dtype == kind
    assert not whole.flags.writeable
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert list(tmp_path.iterdir()) == []


def test_small_ones_and_those_without_room_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not lies_in_a_file(stored_array([np.arange(5)]))
    assert stored_array([np.empty(0)]).size == 0
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    large = np.arange(LARGE)
    found = stored_array([large])
    assert not lies_in_a_file(found)
    assert not found.flags.writeable
    assert large.flags.writeable
    np.testing.assert_array_equal(found, large)


@pytest.mark.parametrize("rows", [3, LEAST])
def test_an_array_is_filled_in_its_file(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    array = stored_empty((rows, 2), np.dtype(np.float64))
    for start in range(0, rows, 1 << 17):
        stop = min(rows, start + (1 << 17))
        array[start:stop] = np.arange(start, stop)[:, None]
    np.testing.assert_array_equal(array, np.arange(rows)[:, None] * np.ones(2))

    def full(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("os.posix_fallocate", full)
    assert stored_empty((rows, 2), np.dtype(np.int64)).shape == (rows, 2)


def test_pages_that_were_forgotten_are_read_again() -> None:
    size = 1 << 20
    stored, filled = stored_array([np.arange(size)]), stored_empty((size,), np.dtype(np.int64))
    filled[:] = stored + 1
    before = _mapped_kilobytes()
    forget_pages()
    assert before - _mapped_kilobytes() >= stored.nbytes / 1024  # half of what both take
    np.testing.assert_array_equal(stored, np.arange(size))
    np.testing.assert_array_equal(filled, np.arange(size) + 1)


def _mapped_kilobytes() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("only Linux says how many pages of files are in memory")
    lines = status.read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssFile", "RssShmem")))


@pytest.mark.parametrize("sizes", [(), (0, 3), (LEAST, 5), (7, LEAST, LEAST)])
def test_bytes_come_back_wherever_they_lie(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [np.random.default_rng(size).bytes(size) for size in sizes]
    stored = stored_bytes(iter(parts))
    assert isinstance(stored, mmap.mmap) is (sum(sizes) >= LEAST)
    assert stored[:] == b"".join(parts)
    assert stored_bytes([stored, b"more"])[:] == b"".join([*parts, b"more"])
    written: list[int] = []

    def full_later(file: Any, left: memoryview) -> None:
        written.append(len(left))
        if len(written) > 1:
            raise OSError
        file.write(left)

    monkeypatch.setattr(module, "_write", full_later)
    assert stored_bytes(iter(parts))[:] == b"".join(parts)
