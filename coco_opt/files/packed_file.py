"""The answers of a sealed measurement in ``packed.parquet``, or in several such files: written as they are drawn.

A row holds thousands of answers (``coco_opt.privacy.packed_answers``): question (its place in measurement.json), start
(place of the row's first answer among all to the question), count, width, differences, wide. Each file is the task of
a worker (``coco_opt.privacy.blocks``). Only where rows lie is in memory; the answers are read where they are needed.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import CocoOptError, InputError, Place, WorkerError, is_out_of_memory
from coco_opt.execution import Count
from coco_opt.files.folder import FileTable, read_columns, write_new
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.in_threads import ahead, in_threads
from coco_opt.files.release_checks import int64_column, refuse_types
from coco_opt.privacy.blocks import Block, BlockNoise, Division
from coco_opt.privacy.measurement import Drawing, Measurement, MeasurementPlan
from coco_opt.privacy.packed_answers import Packed, PackedAnswers
from coco_opt.privacy.private_files import building
from coco_opt.privacy.queries import DENSE, Answers, PackedPart, offsets_of, packed_parts

PACKED = "packed.parquet"

_TYPES = {
    "question": "int32",
    "start": "int64",
    "count": "int64",
    "width": "int32",
    "differences": "binary",
    "wide": "binary",
}
_PLACES = ("question", "start", "count", "width")  # the columns but the answers
_ROWS = 1 << 18  # answers of the rows written, and read back, together
# Of the rows read lately: whoever reads some regions reads their answers to one query after the other.
_CACHE_BYTES = 1 << 25
_OPEN_FILES = 16
_FILE = re.compile(r"packed(-[0-9]+)?\.parquet")


def is_packed(name: str) -> bool:
    """Return whether a file of a measurement holds packed answers."""
    return _FILE.fullmatch(name) is not None


def packed_table(measurement: Measurement | Drawing) -> FileTable:
    """Return the rows of one file that holds all answers."""
    # Noise is drawn while the answers before it are packed and written.
    return FileTable(_rows(packed_parts(ahead(measurement.parts()))), _TYPES)


def write_parts(division: Division, folder: Path) -> dict[str, str]:
    """Have an executor draw the answers and write them into a folder, part by part; return the SHA-256 of each file."""
    sizes = [sum(block.size for block in part) for part in division.parts]
    with division.stage() as progress:
        done, numbered = Count(sum(sizes), progress), list(enumerate(division.parts, 1))
        task = _PartFile(division.noise, folder)
        written = dict(division.executor.map(task, numbered, lambda place, _: done.add(sizes[place])))
    for path in folder.glob(".packed-*"):  # what workers that were killed left
        path.unlink(missing_ok=True)
    return written


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class _PartFile:
    """PRIVATE: a task that draws the answers of a part and writes their file."""

    noise: BlockNoise
    folder: Path

    def __call__(self, part: tuple[int, tuple[Block, ...]]) -> tuple[str, str]:
        number, blocks = part
        name = f"packed-{number}.parquet"
        table = FileTable(_rows(self.noise.packed(blocks)), _TYPES, ahead=False)
        try:
            with building(self.folder / name) as unfinished:
                digest = write_new(unfinished, table, 0o600)
                unfinished.replace(self.folder / name)  # of the same bytes, if another worker was given up too early
            return name, digest
        except CocoOptError:
            raise
        except OSError as error:
            reason = error.strerror or "unknown reason"
        except Exception as error:  # its words could be private, and workers may hand errors on
            reason = "out of memory" if is_out_of_memory(error) else type(error).__name__
        raise WorkerError(f"a part of the measurement could not be drawn and written: {reason}")


def _rows(parts: Iterable[PackedPart]) -> Iterator[dict[str, Any]]:
    rows: list[PackedPart] = []
    size, written = 0, False
    for part in parts:
        rows.append(part)
        size += part.packed.count
        if size >= _ROWS:
            yield _columns(rows)
            rows, size, written = [], 0, True
    if rows or not written:
        yield _columns(rows)


def _columns(rows: Sequence[PackedPart]) -> dict[str, Any]:
    packed = [row.packed for row in rows]
    return {
        "question": [row.place for row in rows],
        "start": [row.start for row in rows],
        **{name: [getattr(piece, name) for piece in packed] for name in ("count", "width", "differences", "wide")},
    }


def packed_answers(paths: tuple[Path, ...], measurement_plan: MeasurementPlan) -> tuple[Answers, ...]:
    """Return answers that are read from files where they are needed; few enough are read into memory immediately."""
    pieces = _Pieces.opened(paths)
    pieces.check_queries(len(measurement_plan.queries))
    answers = []
    for place, query in enumerate(measurement_plan.queries):
        offsets = offsets_of(query, measurement_plan.hierarchy, measurement_plan.per_region)
        starts, rows = pieces.of(place, int(offsets[-1]))
        answers.append(Answers(query, offsets, PackedAnswers(starts, _Loader(pieces, rows))))
    if sum(entry.stored.size for entry in answers) > DENSE:
        return tuple(answers)
    return tuple(Answers(entry.query, entry.offsets, entry.values) for entry in answers)


class _Pieces:
    """The rows of packed files; recent reads are cached, and threads may share it.

    ``rows`` int64[rows] are the columns but the answers themselves; ``file``, ``group`` and ``within`` are where each
    row lies.
    """

    def __init__(self, paths: tuple[Path, ...], stamps: tuple[tuple[int, int], ...], rows: Mapping[str, Ints]) -> None:
        self._paths, self._stamps, self._rows = paths, stamps, rows
        self._lock = Lock()
        self._idle: list[tuple[int, Any]] = []
        self._cache: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._bytes = 0

    @classmethod
    def opened(cls, paths: tuple[Path, ...]) -> _Pieces:
        """Open files, and read what lies where."""
        every = list(in_threads(lambda number: _rows_of(number, paths[number]), range(len(paths))))
        rows = {name: np.concatenate([own[name] for own in every]) for name in every[0]}
        return cls(paths, tuple(map(_stamp, paths)), rows)

    def __reduce__(self) -> tuple[Callable[..., _Pieces], tuple[Any, ...]]:
        # Answers go to other processes as the paths of their files, of which each reads what it needs.
        return _reopen, (tuple(path.resolve() for path in self._paths), self._stamps, self._rows)

    def check_queries(self, number: int) -> None:
        """Raise InputError where a row belongs to none of the queries, of which there are ``number``."""
        unknown = (self._rows["question"] < 0) | (self._rows["question"] >= number)
        if unknown.any():
            row = int(np.argmax(unknown))
            path = self._paths[int(self._rows["file"][row])]
            within = row - int(np.searchsorted(self._rows["file"], self._rows["file"][row]))
            message = "is no query of measurement.json: they count from 0"
            raise InputError("damaged-measurement", message, Place(path.name, within + 1, "question"))

    def of(self, place: int, total: int) -> tuple[Ints, Ints]:
        """Return where the pieces of a query start, one entry more than pieces, and the rows they lie in."""
        rows = np.flatnonzero(self._rows["question"] == place)
        rows = rows[np.argsort(self._rows["start"][rows], kind="stable")]
        counts = self._rows["count"][rows]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        if (counts <= 0).any() or starts[-1] != total or not np.array_equal(starts[:-1], self._rows["start"][rows]):
            message = "does not hold the planned answers, each once"
            raise InputError("damaged-measurement", message, Place(self._paths[0].name))
        return starts, rows

    def piece(self, row: int) -> Packed:
        """Return the piece that lies in a row."""
        group, within, count, width = (int(self._rows[name][row]) for name in ("group", "within", "count", "width"))
        file = int(self._rows["file"][row])
        table = self._answers(file, group)
        differences, wide = (table.column(name)[within].as_buffer() for name in ("differences", "wide"))
        return Packed(count, width, memoryview(differences), memoryview(wide))

    def _answers(self, file: int, group: int) -> Any:
        """Return the answers of a row group, which no thread waits for that needs another."""
        with self._lock:
            if (file, group) in self._cache:
                self._cache.move_to_end((file, group))
                return self._cache[file, group]
        table = self._read(file, group)
        with self._lock:
            if (file, group) not in self._cache:  # else another thread was faster
                self._cache[file, group] = table
                self._bytes += table.nbytes
            while self._bytes > _CACHE_BYTES and len(self._cache) > 1:
                self._bytes -= self._cache.popitem(last=False)[1].nbytes
        return table

    def _read(self, file: int, group: int) -> Any:
        """Read a row group. A few readers stay open, and a thread takes one for itself meanwhile."""
        import pyarrow.parquet as pq

        path, columns = self._paths[file], ["differences", "wide"]
        with self._lock:
            own = next((place for place, (number, _) in enumerate(self._idle) if number == file), None)
            reader = None if own is None else self._idle.pop(own)[1]
        if reader is None:
            reader = quietly(path, lambda: pq.ParquetFile(path, page_checksum_verification=True))
        # Reading two columns of some hundred kilobytes takes less time than starting other threads.
        table = quietly(path, lambda: reader.read_row_group(group, columns=columns, use_threads=False))
        with self._lock:
            self._idle.append((file, reader))
            closed = self._idle.pop(0)[1] if len(self._idle) > _OPEN_FILES else None
        if closed is not None:
            closed.close()
        return table


@dataclass(frozen=True, eq=False, slots=True)
class _Loader:
    """Brings the pieces that lie in some rows of a packed file."""

    pieces: _Pieces
    rows: Ints

    def __call__(self, piece: int) -> Packed:
        return self.pieces.piece(int(self.rows[piece]))


def _stamp(path: Path) -> tuple[int, int]:
    status = quietly(path, path.stat)
    return status.st_size, status.st_mtime_ns


def _reopen(paths: tuple[Path, ...], stamps: tuple[tuple[int, int], ...], rows: Mapping[str, Ints]) -> _Pieces:
    """Open in another process the files that the first checked; InputError where a file is not there unchanged."""
    for path, stamp in zip(paths, stamps, strict=True):
        if not path.is_file():
            message = "is not seen by a worker: workers of other machines need the measurement under the same path"
            raise InputError("file-not-found", message, Place(path.name))
        if _stamp(path) != stamp:
            raise InputError("damaged-measurement", "changed while it was read: restore it", Place(path.name))
    return _Pieces(paths, stamps, rows)


def _rows_of(number: int, path: Path) -> dict[str, Ints]:
    """Return the rows of a file but for the answers, and where each lies: all groups together, as they are small."""
    import pyarrow.parquet as pq

    table = read_columns(path, tuple(_TYPES), only=_PLACES)
    refuse_types(table, {name: _TYPES[name] for name in _PLACES}, path.name)
    metadata = quietly(path, lambda: pq.read_metadata(path))
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return {name: int64_column(table, name) for name in _PLACES} | {
        "file": np.full(sum(sizes), number),
        "group": np.repeat(np.arange(len(sizes)), sizes),
        "within": np.concatenate([np.arange(0), *map(np.arange, sizes)]),
    }
