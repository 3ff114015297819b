"""A measurement as a folder, sealed in the private folder or published.

``measurement.json``: the plan (queries in words, the distribution of each noise, costs, public numbers) and the SHA-256
of the other files. ``hierarchy.parquet``: the regions and their public numbers. ``facts.parquet``, where there are
any: public numbers that belong to no region. The answers, integers, lie in one of two files:

* ``answers.parquet``, published: query, level, region (row of hierarchy.parquet), index, value; one row an answer;
* ``packed.parquet``, sealed: thousands of answers a row, about half a byte each (``coco_opt.privacy.packed_answers``):
  question (its place in measurement.json), start (place of the row's first answer among all to the question), count,
  width, differences, wide. Written as noise is drawn, and read where an answer is needed: neither is held in memory.
  Many answers lie in several such files, packed-1.parquet and so on, each of which is one task
  (``coco_opt.privacy.blocks``).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import CocoOptError, InputError, Place, WorkerError
from coco_opt.execution import Count
from coco_opt.execution.temporary_storage import stored_array
from coco_opt.files.answer_rows import read_answers
from coco_opt.files.folder import (
    ROWS_PER_GROUP,
    SEAL,
    Coded,
    FileTable,
    as_json,
    file_digest,
    is_as_sealed,
    read_parts,
    sealed,
    write_folder,
    write_new,
)
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.in_threads import in_threads
from coco_opt.files.read_ahead import ahead
from coco_opt.files.regions import REGIONS, region_table, stored_regions
from coco_opt.files.release_checks import coded
from coco_opt.files.versions import versions
from coco_opt.privacy.blocks import Block, BlockNoise, Division
from coco_opt.privacy.cost import Sensitivity, cost_of
from coco_opt.privacy.measurement import FOREIGN, Drawing, Measurement, MeasurementPlan, query_dict, status_of
from coco_opt.privacy.noise_distributions import distribution_of
from coco_opt.privacy.packed_answers import Packed, PackedAnswers
from coco_opt.privacy.private_files import temporary_name
from coco_opt.privacy.queries import (
    DENSE,
    Answers,
    LevelQuery,
    NoisyPart,
    PackedPart,
    offsets_of,
    packed_parts,
)

FORMAT = "coco-opt measurement 1"
INDEX = "measurement.json"
ANSWERS = "answers.parquet"
PACKED = "packed.parquet"
FACTS = "facts.parquet"

_ANSWER_TYPES = {"level": "int32", "region": "int32", "index": "int64", "value": "int64"}
_CONSTRAINT_TYPES = {"index": "int64", "value": "int64"}
_ROWS = 1 << 20  # of answers expanded at a time
_PACKED_TYPES = {
    "question": "int32",
    "start": "int64",
    "count": "int64",
    "width": "int32",
    "differences": "binary",
    "wide": "binary",
}
_PACKED_ROWS = 1 << 18  # answers of the rows written, and read back, together
# Of the rows read lately: whoever reads some regions reads their answers to one query after the other.
_CACHE_BYTES = 1 << 25
_OPEN_FILES = 16
_CHANGED = (
    "was changed since it was sealed, so it is not what was measured: restore it, or publish the measurement again, "
    "which is free: coco-opt measure CONFIG --publish DIR. If you changed a measurement from elsewhere on purpose, "
    "remove its 'seal'"
)
_UNSEALED = (
    "has lost its seal, so it may not be what was measured: restore it, or publish the measurement again, which is "
    "free: coco-opt measure CONFIG --publish DIR. A measurement from elsewhere needs none and says "
    f"'noise': {FOREIGN!r}"
)
_PACKED_FILE = re.compile(r"packed(-[0-9]+)?\.parquet")


def write_measurement(folder: Path, measurement: Measurement | Drawing, *, private: bool) -> str:
    """Write a measurement to a new folder that appears complete or not at all.

    Parameters
    ----------
    folder : Path
        The folder, which must not exist.
    measurement : Measurement or Drawing
        What was measured. What is still being drawn is written as it comes.
    private : bool
        Keep the folder to its owner, and pack the answers. The same measurement gives the same bytes each time.

    Returns
    -------
    str
        The SHA-256 of the folder's index, hexadecimal.

    Raises
    ------
    InputError
        folder-exists, cannot-write, one-measurement (for several in one).

    Notes
    -----
    O(answers).
    """
    measurement_plan = measurement.measurement_plan
    if isinstance(measurement, Measurement) and measurement.also:
        raise InputError("one-measurement", "write each of several measurements to its own folder", Place(folder.name))
    division = measurement.division if private and isinstance(measurement, Drawing) else None
    files = {REGIONS: region_table(measurement_plan)}
    if division is None:
        files[PACKED if private else ANSWERS] = _packed_table(measurement) if private else _answer_table(measurement)
    if measurement_plan.tables:
        files[FACTS] = _constraint_table(measurement_plan.tables)
    return write_folder(
        folder,
        files,
        INDEX,
        lambda digests: as_json(sealed(_index(measurement, digests))),
        private=private,
        further=None if division is None else partial(_write_parts, division),
    )


def read_measurement(
    folder: str | Path, digest: str | None = None, measurement_plan: MeasurementPlan | None = None
) -> tuple[Measurement, str]:
    """Read a measurement's folder.

    Parameters
    ----------
    folder : str or Path
        The folder.
    digest : str, optional
        The SHA-256 that the folder's index must have.
    measurement_plan : MeasurementPlan, optional
        The plan, if the caller has just written the folder under ``digest``: it is then not in memory twice.

    Returns
    -------
    Measurement
        What was measured.
    str
        The SHA-256 of the index, hexadecimal.

    Raises
    ------
    InputError
        file-not-found, unreadable-file, unknown-format, damaged-measurement (its bytes are not those that were
        written).
    """
    folder = Path(folder)
    place = Place(f"{folder.name}/{INDEX}")
    if not (folder / INDEX).is_file():
        raise InputError("file-not-found", "this is no measurement", place)
    content = quietly(folder / INDEX, (folder / INDEX).read_bytes)
    actual = hashlib.sha256(content).hexdigest()
    if digest is not None and actual != digest:
        raise InputError("damaged-measurement", "is not the measurement that was sealed: restore it", place)
    index = _parse_index(content, place)
    digests = in_threads(lambda name: file_digest(folder / name), index["files"])
    for (name, stated), actual_digest in zip(index["files"].items(), digests, strict=True):
        if actual_digest != stated:
            message = "is not the file that was written: restore it"
            raise InputError("damaged-measurement", message, Place(f"{folder.name}/{name}"))
    if not seal_holds(content, index):
        raise InputError("damaged-measurement", _CHANGED if SEAL in index else _UNSEALED, place)
    return _measurement(folder, index, measurement_plan), actual


def seal_holds(content: bytes, index: Mapping[str, Any]) -> bool:
    """Return whether an index is, to the byte, what its seal covers; one that was written elsewhere may have none."""
    return (index.get("noise") == FOREIGN and SEAL not in index) or is_as_sealed(content, index)


def is_measurement(folder: Path) -> bool:
    """Return whether a folder holds a measurement."""
    return os.path.isfile(folder / INDEX)  # noqa: PTH113 - False too for a name that no file system takes


def is_packed(name: str) -> bool:
    """Return whether a file of a measurement holds packed answers."""
    return _PACKED_FILE.fullmatch(name) is not None


def read_index(folder: Path) -> dict[str, Any]:
    """Return the index of a measurement; InputError (unknown-format, damaged-measurement) where it is none."""
    return _parse_index(quietly(folder / INDEX, (folder / INDEX).read_bytes), Place(f"{folder.name}/{INDEX}"))


def _index(measurement: Measurement | Drawing, digests: Mapping[str, str]) -> dict[str, Any]:
    measurement_plan = measurement.measurement_plan
    return {
        "format": FORMAT,
        "status": measurement.status,
        "private": measurement.private,
        "kind": measurement_plan.kind,
        "cost": measurement_plan.cost.as_dict(),
        "neighbours": measurement_plan.neighbours,
        "noise": measurement.noise,
        "receipt": measurement.receipt,
        "levels": list(measurement_plan.levels),
        "questions": [query_dict(query) for query in measurement_plan.queries],
        "facts": dict(measurement_plan.parameters),
        "digest": measurement_plan.digest,
        "versions": versions(),
        "files": dict(digests),
    }


def _answer_table(measurement: Measurement | Drawing) -> FileTable:
    return FileTable(_answer_parts(measurement), _ANSWER_TYPES, delta=("index", "value"))


def _answer_parts(measurement: Measurement | Drawing) -> Iterator[dict[str, Any]]:
    """Yield rows of about a million answers at a time."""
    measurement_plan = measurement.measurement_plan
    names = list(dict.fromkeys(query.name for query in measurement_plan.queries))
    for place, start, values in _joined_parts(measurement.parts()):
        query = measurement_plan.queries[place]
        offsets = offsets_of(query, measurement_plan.hierarchy, measurement_plan.per_region)
        index = np.arange(start, start + values.size)
        region = np.searchsorted(offsets, index, side="right") - 1
        yield {
            "query": Coded(names, np.full(values.size, names.index(query.name))),
            "level": np.full(values.size, query.level, np.int32),
            "region": (measurement_plan.hierarchy.level_range(query.level).start + region).astype(np.int32),
            "index": index - offsets[region],
            "value": values,
        }


def _joined_parts(parts: Iterable[NoisyPart]) -> Iterator[tuple[int, int, Ints]]:
    """Yield query, start and values of at least a million answers at a time, or all that are left of a query."""
    waiting: list[NoisyPart] = []
    for part in parts:
        if waiting and (part.place != waiting[0].place or part.start - waiting[0].start >= _ROWS):
            yield waiting[0].place, waiting[0].start, np.concatenate([piece.values for piece in waiting])
            waiting = []
        waiting.append(part)
    if waiting:
        yield waiting[0].place, waiting[0].start, np.concatenate([piece.values for piece in waiting])


def _packed_table(measurement: Measurement | Drawing) -> FileTable:
    # Noise is drawn while the answers before it are packed and written.
    return FileTable(_packed_rows(packed_parts(ahead(measurement.parts()))), _PACKED_TYPES)


def _write_parts(division: Division, folder: Path) -> dict[str, str]:
    """Have an executor draw the answers and write them into a folder, part by part; return the SHA-256 of each file."""
    sizes = [sum(block.size for block in part) for part in division.parts]
    with division.stage() as progress:
        done, numbered = Count(sum(sizes), progress), list(enumerate(division.parts, 1))
        task = _PartFile(division.noise, folder)
        written = dict(division.executor.map(task, numbered, lambda place, _: done.add(sizes[place])))
    for path in folder.iterdir():  # what workers that were killed left
        if path.name not in written:
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
        table = FileTable(_packed_rows(self.noise.packed(blocks)), _PACKED_TYPES, ahead=False)
        building, reason = temporary_name(self.folder / name), ""
        try:
            digest = write_new(building, table, 0o600)
            building.replace(self.folder / name)  # of the same bytes, where another worker was given up too early
            return name, digest
        except CocoOptError:
            raise
        except OSError as error:
            reason = error.strerror or "unknown reason"
        except Exception as error:  # its words could be private, and workers may hand errors on
            reason = type(error).__name__
        finally:
            with suppress(OSError):
                building.unlink(missing_ok=True)
        raise WorkerError(f"a part of the measurement could not be drawn and written: {reason}")


def _packed_rows(parts: Iterable[PackedPart]) -> Iterator[dict[str, Any]]:
    rows: list[PackedPart] = []
    size, written = 0, False
    for part in parts:
        rows.append(part)
        size += part.packed.count
        if size >= _PACKED_ROWS:
            yield _packed_columns(rows)
            rows, size, written = [], 0, True
    if rows or not written:
        yield _packed_columns(rows)


def _packed_columns(rows: Sequence[PackedPart]) -> dict[str, Any]:
    packed = [row.packed for row in rows]
    return {
        "question": [row.place for row in rows],
        "start": [row.start for row in rows],
        **{name: [getattr(piece, name) for piece in packed] for name in ("count", "width", "differences", "wide")},
    }


def _constraint_table(tables: Mapping[str, Ints]) -> FileTable:
    return FileTable(_ConstraintRows(tables), _CONSTRAINT_TYPES)


@dataclass(frozen=True, eq=False, slots=True)
class _ConstraintRows:
    """The numbers of all tables, one after the other, a group of the file at a time."""

    tables: Mapping[str, Ints]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names, arrays = list(self.tables), list(self.tables.values())
        ends = np.cumsum([array.size for array in arrays])
        starts = ends - [array.size for array in arrays]
        for start in range(0, max(1, int(ends[-1])), ROWS_PER_GROUP):
            rows = np.arange(start, min(start + ROWS_PER_GROUP, int(ends[-1])))
            number = np.searchsorted(ends, rows, side="right")
            values = [
                array[max(0, start - first) : max(0, start + ROWS_PER_GROUP - first)]
                for array, first in zip(arrays, starts.tolist(), strict=True)
            ]
            yield {"name": Coded(names, number), "index": rows - starts[number], "value": np.concatenate(values)}


def _parse_index(content: bytes, place: Place) -> dict[str, Any]:
    index: Any = None
    with suppress(ValueError, RecursionError):
        index = json.loads(content)
    if not isinstance(index, dict) or not isinstance(index.get("files"), dict):
        raise InputError("unknown-format", "is no measurement of coco-opt", place)
    if missing := {*(() if any(map(is_packed, index["files"])) else (ANSWERS,)), REGIONS} - set(index["files"]):
        raise InputError("damaged-measurement", f"states no digest of {', '.join(sorted(missing))}", place)
    if index.get("format") != FORMAT:
        message = f"is of the format {index.get('format')!r}, and this version reads {FORMAT!r}"
        raise InputError("unknown-format", message, place)
    return index


def _measurement(folder: Path, index: Mapping[str, Any], plan: MeasurementPlan | None) -> Measurement:
    failure = ""
    try:
        measurement_plan = _stored_measurement_plan(folder, index) if plan is None else plan
        _check_statements(index, measurement_plan)
        packed = tuple(folder / name for name in sorted(index["files"]) if is_packed(name))
        if packed:
            answers = _packed_answers(packed, measurement_plan)
        else:
            answers = read_answers(folder / ANSWERS, measurement_plan)
        return Measurement(measurement_plan, answers, index["noise"], index["private"], str(index.get("receipt", "")))
    except InputError as error:
        failure = error.message if error.place is None else f"{error.place}: {error.message}"
    except CocoOptError as error:
        failure = str(error)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
        failure = "an entry is missing or of a wrong type"
    raise InputError("damaged-measurement", f"cannot be read: {failure}", Place(f"{folder.name}/{INDEX}"))


def _stored_measurement_plan(folder: Path, index: Mapping[str, Any]) -> MeasurementPlan:
    """Return the measurement plan of a folder."""
    hierarchy, levels, ids, numbers = stored_regions(folder)
    return MeasurementPlan(
        kind=index["kind"],
        hierarchy=hierarchy,
        levels=levels,
        queries=tuple(query_from_dict(plain) for plain in index["questions"]),
        neighbours=index["neighbours"],
        parameters=index["facts"],
        per_region=numbers,
        tables=_read_constraints(folder / FACTS) if FACTS in index["files"] else {},
        region_ids=ids,
    )


def _check_statements(index: Mapping[str, Any], measurement_plan: MeasurementPlan) -> None:
    """Check the index's other statements: its digest, its status, and whether its noise protects anybody."""
    # Who wrote a measurement elsewhere need not know how this program names its queries.
    stated = index.get("digest", measurement_plan.digest) if index["noise"] == FOREIGN else index["digest"]
    if stated != measurement_plan.digest:
        raise InputError("damaged-measurement", "its digest is not that of its queries")
    private = index["private"]
    if not isinstance(private, bool) or index["status"] != status_of(private, index["noise"]):
        raise InputError("damaged-measurement", "its status contradicts itself")
    if private is (index["noise"] in ("seeded", FOREIGN)):
        raise InputError("damaged-measurement", f"it says {index['status']}, and its noise was {index['noise']!r}")


def query_from_dict(plain: Mapping[str, Any]) -> LevelQuery:
    """Return the query that ``query_dict`` wrote; InputError where its noise is not what its cost buys.

    Raises LookupError, TypeError or ValueError where an entry is missing or wrong.
    """
    fields = (plain["level"], plain["query"], plain["words"], plain["size"])
    if plain["law"] == "exact":
        return LevelQuery(*fields, None, None)
    sensitivity = Sensitivity(plain["sensitivity"]["l1"], plain["sensitivity"]["l2_squared"])
    query = LevelQuery(*fields, sensitivity, cost_of(plain["cost"]))
    if query.distribution != distribution_of(plain):
        raise InputError("damaged-measurement", f"the noise of {query.name!r} is not what its cost buys")
    return query


def _read_constraints(path: Path) -> dict[str, Ints]:
    columns = ("index", "value")
    pieces: dict[str, dict[str, list[Ints]]] = {}
    for part in read_parts(path, ("name", *columns), coded=True):
        codes, names = coded(part.column("name"))
        numbers = {column: _whole_numbers(part, path, column) for column in columns}
        for code, name in enumerate(names.to_pylist()):
            own = pieces.setdefault(name, {column: [] for column in columns})
            for column in columns:
                own[column].append(numbers[column][codes == code])
    return {name: _by_index(path, name, *map(stored_array, own.values())) for name, own in pieces.items()}


def _whole_numbers(part: Any, path: Path, column: str) -> Ints:
    import pyarrow.types as kinds

    values = part.column(column)
    if not kinds.is_signed_integer(values.type) or values.null_count:
        raise InputError("damaged-measurement", "must hold integers only", Place(path.name, None, column))
    return np.asarray(values.to_numpy(), np.int64)


def _by_index(path: Path, name: str, index: Ints, values: Ints) -> Ints:
    """Return the values of a table in the order of their index, which must be 0, 1, 2, ..., each once."""
    expected = np.arange(index.size)
    if np.array_equal(index, expected):
        return values
    order = np.argsort(index, kind="stable")
    if not np.array_equal(index[order], expected):
        message = f"must count the numbers of {name!r} from 0, each once"
        raise InputError("damaged-measurement", message, Place(path.name, None, "index"))
    return stored_array([values[order]])


def _packed_answers(paths: tuple[Path, ...], measurement_plan: MeasurementPlan) -> tuple[Answers, ...]:
    """Return answers that are read from files where they are needed; few enough are read into memory immediately."""
    pieces = _Pieces.opened(paths)
    pieces.check_queries(len(measurement_plan.queries))
    answers = []
    for place, query in enumerate(measurement_plan.queries):
        offsets = stored_array([offsets_of(query, measurement_plan.hierarchy, measurement_plan.per_region)])
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
        self._files: OrderedDict[int, Any] = OrderedDict()
        self._cache: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._bytes = 0

    @classmethod
    def opened(cls, paths: tuple[Path, ...]) -> _Pieces:
        """Open files, and read what lies where."""
        names, columns = ("question", "start", "count", "width"), dict[str, list[Ints]]()
        stamps = tuple(map(_stamp, paths))
        for number, path in enumerate(paths):
            parts = list(read_parts(path, tuple(_PACKED_TYPES), only=names))
            sizes = [part.num_rows for part in parts]
            own = {name: _int64_column(path, parts, name) for name in names} | {
                "file": np.full(sum(sizes), number),
                "group": np.repeat(np.arange(len(parts)), sizes),
                "within": np.concatenate([np.arange(0), *map(np.arange, sizes)]),
            }
            for name, column in own.items():
                columns.setdefault(name, []).append(column)
        return cls(paths, stamps, {name: np.concatenate(listed) for name, listed in columns.items()})

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
            message = f"is no query of {INDEX}: they count from 0"
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
        with self._lock:
            if (file, group) not in self._cache:
                read = self._read(file, group)
                self._cache[file, group] = read
                self._bytes += read.nbytes
                while self._bytes > _CACHE_BYTES and len(self._cache) > 1:
                    self._bytes -= self._cache.popitem(last=False)[1].nbytes
            self._cache.move_to_end((file, group))
            table = self._cache[file, group]
        differences, wide = (table.column(name)[within].as_buffer() for name in ("differences", "wide"))
        return Packed(count, width, memoryview(differences), memoryview(wide))

    def _read(self, file: int, group: int) -> Any:
        """Return the answers of a row group; a few files stay open."""
        import pyarrow.parquet as pq

        path, columns = self._paths[file], ["differences", "wide"]
        if file not in self._files:
            self._files[file] = quietly(path, lambda: pq.ParquetFile(path, page_checksum_verification=True))
            if len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)[1].close()
        self._files.move_to_end(file)
        # Reading two columns of some hundred kilobytes takes less time than starting other threads.
        return quietly(path, lambda: self._files[file].read_row_group(group, columns=columns, use_threads=False))


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


def _int64_column(path: Path, parts: Sequence[Any], name: str) -> Ints:
    if any(str(part.schema.field(name).type) != _PACKED_TYPES[name] for part in parts):
        raise InputError("damaged-measurement", "is of another type", Place(path.name, None, name))
    return np.concatenate([np.empty(0, np.int64), *(part.column(name).to_numpy() for part in parts)])
