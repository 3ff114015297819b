"""The whole tables of finished levels in a paid run's private folder, so that a long run goes on where it stopped.

They are post-processing of the sealed measurements: losing them costs time, never privacy.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from coco_opt.choices import Certificate, SolverChoices
from coco_opt.errors import InputError
from coco_opt.privacy.sealed_file import Reader, read_sealed, write_sealed
from coco_opt.topdown.failsafe import Relaxation
from coco_opt.topdown.recursion import Checkpoint
from coco_opt.topdown.sparse_tables import SparseTables

_FORMAT = "coco-opt levels 1"
_STEM = "levels-"


class LevelFiles:
    """One file for each finished level, holding all levels so far; the folder is the run's own.

    The certificates of ``solvers`` go with them, so that a resumed run states what an uninterrupted one would.
    """

    def __init__(self, folder: Path, solvers: SolverChoices) -> None:
        self._folder, self._solvers = folder, solvers

    def keep(self, done: Checkpoint) -> None:
        """Write what is done, durably, and remove the file before it."""
        path = self._path(done.level)
        path.unlink(missing_ok=True)
        header = {
            "size": done.tables[0].size,
            "runs": [[table.regions, int(table.cells.size)] for table in done.tables],
            "unproved": done.unproved,
            "relaxed": [[one.region, one.path, one.moved] for one in done.relaxed],
            "certificates": [asdict(row) for row in self._solvers.certificates],
        }
        arrays = (array for table in done.tables for array in (table.offsets, table.cells, table.counts))
        write_sealed(path, _FORMAT, header, arrays)
        self._path(done.level - 1).unlink(missing_ok=True)

    def last(self) -> Checkpoint | None:
        """Return the last checkpoint that can be read, its certificates counted in; None without one."""
        for path in sorted(self._folder.glob(f"{_STEM}*"), reverse=True):
            try:
                header, reader, _ = read_sealed(path, _FORMAT)
            except InputError:
                continue
            self._solvers.resume(Certificate(**row) for row in header["certificates"])
            return _parse(header, reader)
        return None

    def _path(self, level: int) -> Path:
        return self._folder / f"{_STEM}{level:03d}"


def remove_levels(folder: Path) -> None:
    """Remove all checkpoints of a run that is finished."""
    for path in folder.glob(f"{_STEM}*"):
        path.unlink(missing_ok=True)


def _parse(header: dict[str, Any], reader: Reader) -> Checkpoint:
    tables = tuple(
        SparseTables(reader.take(regions + 1), reader.take(runs), reader.take(runs), header["size"])
        for regions, runs in header["runs"]
    )
    return Checkpoint(tables, tuple(Relaxation(*one) for one in header["relaxed"]), header["unproved"])
