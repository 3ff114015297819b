"""PRIVATE: the people of occupied cells in files without a name, added up a part of the leaves after the other.

Cells come in any order, some at a time. Those of each part of the leaves are appended to its file; at the end each part
is sorted and added up alone, and goes to the arrays of all parts, which lie in files too. Memory is that of a part.
Such files lie in the private folder, are their owner's alone, and vanish with the process however it ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.execution.temporary_storage import remembered, stored_empty
from coco_opt.topdown.measuring.counts import MAX_PEOPLE, summed

_PARTS = 64
_BYTES = 8


class CellFiles:
    """The people of cells, numbered leaf by leaf (leaf * cells + cell), in files of a private folder.

    A context manager: leaving it closes the files of cells that were not added up.
    """

    def __init__(self, leaves: int, cells: int, folder: Path) -> None:
        self._leaves, self._cells, self._folder = leaves, cells, folder
        step = -(-leaves // _PARTS)
        self._parts = [range(first, min(first + step, leaves)) for first in range(0, leaves, step)]
        self._files = [_file(folder) for _ in self._parts]
        self._people = 0

    def add(self, cells: tuple[Ints, Ints]) -> bool:
        """Add the people of rising cells; return whether all together are at most 2^53, so that no sum wraps."""
        keys, people = cells
        self._people += int(people.sum())
        if self._people > MAX_PEOPLE:
            return False
        ends = np.searchsorted(keys, [part.stop * self._cells for part in self._parts])
        for file, (begin, end) in zip(self._files, pairwise([0, *ends.tolist()]), strict=True):
            if begin < end:
                file.write(np.stack([keys[begin:end], people[begin:end]], axis=1).data)
        return True

    def runs(self) -> tuple[Ints, Ints, Ints]:
        """Return where each leaf's cells begin, the cells and their people; each part's file is closed after it."""
        offsets, total = stored_empty((self._leaves + 1,), np.dtype(np.int64)), 0
        offsets[0] = 0
        with _file(self._folder) as cell_file, _file(self._folder) as people_file:
            for part, file in zip(self._parts, self._files, strict=True):
                keys, people = self._part(file)
                ends = np.arange(part.start + 1, part.stop + 1) * self._cells
                offsets[part.start + 1 : part.stop + 1] = total + np.searchsorted(keys, ends)
                total += keys.size
                cell_file.write((keys % self._cells).data)
                people_file.write(people.data)
            offsets.setflags(write=False)
            return offsets, _mapped(cell_file), _mapped(people_file)

    def __enter__(self) -> CellFiles:
        return self

    def __exit__(self, *failure: object) -> None:
        for file in self._files:
            file.close()

    def _part(self, file: Any) -> tuple[Ints, Ints]:
        """Return the cells of a part, rising, and the people of each."""
        with file:
            size = file.tell()
            file.seek(0)
            both = np.fromfile(file, np.int64, size // _BYTES).reshape(-1, 2)
        return summed(np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1]))


def _file(folder: Path) -> Any:
    """Return a new file without a name; it is its owner's alone."""
    return tempfile.TemporaryFile(dir=folder)


def _mapped(file: Any) -> Ints:
    """Return the integers of a file, read-only."""
    file.flush()
    if not os.fstat(file.fileno()).st_size:
        return np.zeros(0, np.int64)
    return np.frombuffer(remembered(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), np.int64)
