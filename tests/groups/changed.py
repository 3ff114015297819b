"""Releases with planted faults: a copy of which one file holds something else, and says so in the manifest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.releases.drawn import restate

Change = Callable[[dict[str, list[Any]]], None]


def changed_copy(folder: Path, copy: Path, name: str, change: Change) -> Path:
    """Return a copy of a release with other columns in one file, and that file's digest in the manifest."""
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    columns = pq.read_table(copy / name).to_pydict()
    change(columns)
    pq.write_table(pa.table(columns), copy / name, write_page_checksum=True)
    restate(copy)
    return copy


def shift(column: str, by: float) -> Change:
    """Return the change that moves a column's first value."""

    def change(columns: dict[str, list[Any]]) -> None:
        columns[column][0] += by

    return change
