"""Temporary folders for a command's data that do not fit in memory: readable by their owner only, removed at the end.

DuckDB writes rows there in clear text; a large measurement with seeded noise lies there until it is released. What a
killed process left is removed by the next process that opens the private folder: a folder whose lock is free belongs to
nobody.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from coco_opt.errors import InputError, Place, system_errors_as
from coco_opt.files.inputs import Frame, Input, parts_of
from coco_opt.privacy.private_files import FileLock, make_private_folder

LARGE = 1 << 26
"""The bytes of tables, as they are given or in DuckDB, from which it may write to disk."""

_ENTRY = 16  # bytes of a text in DuckDB, at least
_NAME, _LOCK = ".spill-", "lock"
_FOLDERS = f"{_NAME}*"
_GATE = ".spill.lock"  # held while folders are made or removed


@contextmanager
def spilling(private: Path | None, inputs: Sequence[Input]) -> Iterator[Path | None]:
    """Make a new folder within the private folder, itself made if need be, and remove it with all it holds at the end.

    None where the tables are small, or without a private folder. Raises InputError (foreign-file, cannot-write) where
    the private folder cannot be made or written, or is not its user's alone.
    """
    if private is not None:
        remove_spilled(private)
    if private is None or sum(map(_bytes_of, inputs)) < LARGE:
        yield None
        return
    with Scratch(private) as scratch:
        yield scratch.folder


class Scratch:
    """A folder within the private folder, made at its first use and removed with all its content at the end.

    A context manager. Raises InputError (foreign-file, cannot-write) where the private folder cannot be made or
    written, or is not its user's alone.
    """

    def __init__(self, private: Path) -> None:
        self._private = private
        self._opened: tuple[Path, FileLock] | None = None

    @property
    def folder(self) -> Path:
        """Return the folder."""
        if self._opened is None:
            self._opened = _new_folder(self._private)
        return self._opened[0]

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *failure: object) -> None:
        if self._opened is not None:
            folder, lock = self._opened
            lock.release()
            shutil.rmtree(folder, ignore_errors=True)
            self._opened = None


def remove_spilled(private: Path) -> None:
    """Remove what killed processes left in a private folder; who is at work keeps their own."""
    if not any(private.glob(_FOLDERS)):
        return
    with _gate(private):
        for folder in private.glob(_FOLDERS):
            lock = FileLock(folder / _LOCK)
            with suppress(InputError):  # removed by its owner meanwhile
                if lock.acquire():
                    lock.release()
                    shutil.rmtree(folder, ignore_errors=True)


def _new_folder(private: Path) -> tuple[Path, FileLock]:
    """Return a new folder and the lock that says it is used."""
    with system_errors_as(
        lambda reason: InputError("cannot-write", f"no folder can be made in it: {reason}", Place(private.name))
    ):
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private_folder(private)
        with _gate(private):
            folder = private / f"{_NAME}{secrets.token_hex(8)}"
            folder.mkdir(mode=0o700)
            lock = FileLock(folder / _LOCK)
            lock.acquire()
            return folder, lock


@contextmanager
def _gate(private: Path) -> Iterator[None]:
    gate = FileLock(private / _GATE)
    gate.acquire(wait=True)
    try:
        yield
    finally:
        gate.release()


def _bytes_of(source: Input) -> int:
    """Return the bytes of a table, as it is given or as texts, whichever are more: codes and compression hide most."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = source.where
    if isinstance(where, Frame):
        return max(int(where.table.nbytes), _ENTRY * int(where.table.num_rows * where.table.num_columns))
    size = 0
    # Not there, no name a file can have, or damaged: who reads it says so.
    with suppress(OSError, pa.ArrowException, InputError):
        for part in parts_of(source):
            metadata = None if part.is_csv else pq.read_metadata(part.file)
            texts = 0 if metadata is None else _ENTRY * int(metadata.num_rows * metadata.num_columns)
            size += max(part.file.stat().st_size, texts)
    return size
