"""A measurement as a folder, sealed in the private folder or published.

``measurement.json``: what was asked (queries in words, the law of each noise, costs, public facts) and the SHA-256 of
the other files. ``hierarchy.parquet``: the regions and their public numbers. ``facts.parquet``, where there are
any: public numbers that belong to no region. The answers, whole numbers, lie in one of two files:

* ``answers.parquet``, published: query, level, region (row of hierarchy.parquet), index, value; one row an answer;
* ``packed.parquet``, sealed: thousands of answers a row, about half a byte each (``coco_opt.privacy.packed``): question
  (its place in measurement.json), start (place of the row's first answer among all to the question), count, width,
  differences, wide. Written as noise is drawn, and read where an answer is needed: neither is held in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from coco_opt.errors import CocoOptError, InputError, Place
from coco_opt.files.ahead import ahead
from coco_opt.files.folder import (
    Coded,
    FileTable,
    as_json,
    file_digest,
    read_columns,
    read_parts,
    sealed,
    write_folder,
)
from coco_opt.files.regions import REGIONS, region_table, stored_regions
from coco_opt.files.source import quietly
from coco_opt.files.versions import versions
from coco_opt.histograms.arrays import Int64Array
from coco_opt.privacy.answers import (
    DENSE,
    Answers,
    NoisyPart,
    PackedPart,
    Question,
    gathered,
    offsets_of,
    packed_parts,
)
from coco_opt.privacy.cost import Sensitivity, cost_of
from coco_opt.privacy.laws import law_of
from coco_opt.privacy.measurement import FOREIGN, Asked, Drawing, Measurement, question_dict, status_of
from coco_opt.privacy.packed import Packed, PackedAnswers

FORMAT = "coco-opt measurement 1"
INDEX = "measurement.json"
ANSWERS = "answers.parquet"
PACKED = "packed.parquet"
FACTS = "facts.parquet"

_ANSWER_TYPES = {"level": "int32", "region": "int32", "index": "int64", "value": "int64"}
_FACT_TYPES = {"index": "int64", "value": "int64"}
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
# Of the rows read lately: whoever reads some regions reads their answers to one question after the other.
_KEPT_BYTES = 1 << 25


def write_measurement(folder: Path, measurement: Measurement | Drawing, *, private: bool) -> str:
    """Write a new folder that appears complete or not at all; return the SHA-256 of its index, hexadecimal.

    ``private`` keeps it to its owner and packs the answers; the same measurement gives the same bytes each time. What
    is still being drawn is written as it comes. Raises InputError: folder-exists, cannot-write, one-measurement (for
    several in one). O(answers).
    """
    asked = measurement.asked
    if isinstance(measurement, Measurement) and measurement.also:
        raise InputError("one-measurement", "several measurements are kept in a folder each", Place(folder.name))
    answers = _packed_table(measurement) if private else _answer_table(measurement)
    files = {PACKED if private else ANSWERS: answers, REGIONS: region_table(asked)}
    if asked.tables:
        files[FACTS] = _fact_table(asked.tables)
    return write_folder(
        folder, files, INDEX, lambda digests: as_json(sealed(_index(measurement, digests))), private=private
    )


def read_measurement(
    folder: str | Path, digest: str | None = None, asked: Asked | None = None
) -> tuple[Measurement, str]:
    """Read a measurement's folder and the SHA-256 of its index, which must be ``digest`` where one is given.

    Who has just written under this digest gives what was ``asked`` too, so that it is not held a second time. Raises
    InputError: file-not-found, unreadable-file, unknown-format, damaged-measurement (its bytes are not those that were
    written).
    """
    folder = Path(folder)
    place = Place(f"{folder.name}/{INDEX}")
    if not (folder / INDEX).is_file():
        raise InputError("file-not-found", "this is no measurement", place)
    content = quietly(folder / INDEX, (folder / INDEX).read_bytes)
    known = hashlib.sha256(content).hexdigest()
    if digest is not None and known != digest:
        raise InputError("damaged-measurement", "is not the measurement that was sealed: restore it", place)
    index = _parsed(content, place)
    for name, written in index["files"].items():
        if file_digest(folder / name) != written:
            message = "is not the file that was written: restore it"
            raise InputError("damaged-measurement", message, Place(f"{folder.name}/{name}"))
    return _measurement(folder, index, asked), known


def is_measurement(folder: Path) -> bool:
    """Tell whether a folder holds a measurement."""
    return os.path.isfile(folder / INDEX)  # noqa: PTH113 - False too for a name that no file system takes


def read_index(folder: Path) -> dict[str, Any]:
    """Return the index of a measurement; InputError (unknown-format, damaged-measurement) where it is none."""
    return _parsed(quietly(folder / INDEX, (folder / INDEX).read_bytes), Place(f"{folder.name}/{INDEX}"))


def _index(measurement: Measurement | Drawing, digests: Mapping[str, str]) -> dict[str, Any]:
    asked = measurement.asked
    return {
        "format": FORMAT,
        "status": measurement.status,
        "private": measurement.private,
        "kind": asked.kind,
        "cost": asked.cost.as_dict(),
        "neighbours": asked.neighbours,
        "noise": measurement.noise,
        "receipt": measurement.receipt,
        "levels": list(asked.levels),
        "questions": [question_dict(question) for question in asked.questions],
        "facts": dict(asked.facts),
        "digest": asked.digest,
        "versions": versions(),
        "files": dict(digests),
    }


def _answer_table(measurement: Measurement | Drawing) -> FileTable:
    return FileTable(_answer_parts(measurement), _ANSWER_TYPES, delta=("index", "value"))


def _answer_parts(measurement: Measurement | Drawing) -> Iterator[dict[str, Any]]:
    """Yield rows of about a million answers at a time."""
    asked = measurement.asked
    names = list(dict.fromkeys(question.query for question in asked.questions))
    for place, start, values in _joined(measurement.parts()):
        question = asked.questions[place]
        offsets = offsets_of(question, asked.hierarchy, asked.per_region)
        index = np.arange(start, start + values.size)
        region = np.searchsorted(offsets, index, side="right") - 1
        yield {
            "query": Coded(names, np.full(values.size, names.index(question.query))),
            "level": np.full(values.size, question.level, np.int32),
            "region": (asked.hierarchy.level_range(question.level).start + region).astype(np.int32),
            "index": index - offsets[region],
            "value": values,
        }


def _joined(parts: Iterable[NoisyPart]) -> Iterator[tuple[int, int, Int64Array]]:
    """Yield question, start and values of at least a million answers at a time, or all that are left of a question."""
    waiting: list[NoisyPart] = []
    for part in parts:
        if waiting and (part.place != waiting[0].place or part.start - waiting[0].start >= _ROWS):
            yield waiting[0].place, waiting[0].start, np.concatenate([one.values for one in waiting])
            waiting = []
        waiting.append(part)
    if waiting:
        yield waiting[0].place, waiting[0].start, np.concatenate([one.values for one in waiting])


def _packed_table(measurement: Measurement | Drawing) -> FileTable:
    # Noise is drawn while the answers before it are packed and written.
    return FileTable(_packed_rows(packed_parts(ahead(measurement.parts()))), _PACKED_TYPES)


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
        **{name: [getattr(one, name) for one in packed] for name in ("count", "width", "differences", "wide")},
    }


def _fact_table(tables: Mapping[str, Int64Array]) -> FileTable:
    names, arrays = list(tables), list(tables.values())
    columns = {
        "name": Coded(names, np.repeat(np.arange(len(names)), [array.size for array in arrays])),
        "index": np.concatenate([np.arange(array.size, dtype=np.int64) for array in arrays]),
        "value": np.concatenate(arrays),
    }
    return FileTable.of(columns, _FACT_TYPES)


def _parsed(content: bytes, place: Place) -> dict[str, Any]:
    index: Any = None
    with suppress(ValueError, RecursionError):
        index = json.loads(content)
    if not isinstance(index, dict) or not isinstance(index.get("files"), dict):
        raise InputError("unknown-format", "is no measurement of coco-opt", place)
    if missing := {PACKED if PACKED in index["files"] else ANSWERS, REGIONS} - set(index["files"]):
        raise InputError("damaged-measurement", f"states no digest of {', '.join(sorted(missing))}", place)
    if index.get("format") != FORMAT:
        message = f"is of the format {index.get('format')!r}, and this version reads {FORMAT!r}"
        raise InputError("unknown-format", message, place)
    return index


def _measurement(folder: Path, index: Mapping[str, Any], known: Asked | None) -> Measurement:
    failure = ""
    try:
        asked = _stored_asked(folder, index) if known is None else known
        _check_statements(index, asked)
        read = _packed_answers if PACKED in index["files"] else _answers
        answers = read(folder / (PACKED if PACKED in index["files"] else ANSWERS), asked)
        return Measurement(asked, answers, index["noise"], index["private"], str(index.get("receipt", "")))
    except CocoOptError as error:
        failure = str(error)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
        failure = "an entry is missing or of a wrong type"
    raise InputError("damaged-measurement", f"cannot be read: {failure}", Place(f"{folder.name}/{INDEX}"))


def _stored_asked(folder: Path, index: Mapping[str, Any]) -> Asked:
    """Return what was asked, as a folder says it."""
    hierarchy, levels, ids, numbers = stored_regions(folder)
    return Asked(
        kind=index["kind"],
        hierarchy=hierarchy,
        levels=levels,
        questions=tuple(question_of(plain) for plain in index["questions"]),
        neighbours=index["neighbours"],
        facts=index["facts"],
        per_region=numbers,
        tables=_facts(folder / FACTS) if FACTS in index["files"] else {},
        region_ids=ids,
    )


def _check_statements(index: Mapping[str, Any], asked: Asked) -> None:
    """Check what the index says beside the questions: what these answers are, and whether noise protects anybody."""
    # Who wrote a measurement elsewhere need not know how this program names its questions.
    stated = index.get("digest", asked.digest) if index["noise"] == FOREIGN else index["digest"]
    if stated != asked.digest:
        raise InputError("damaged-measurement", "its digest is not that of its questions")
    private = index["private"]
    if not isinstance(private, bool) or index["status"] != status_of(private, index["noise"]):
        raise InputError("damaged-measurement", "its status contradicts itself")
    if private is (index["noise"] in ("seeded", FOREIGN)):
        raise InputError("damaged-measurement", f"it says {index['status']}, and its noise was {index['noise']!r}")


def question_of(plain: Mapping[str, Any]) -> Question:
    """Return the question that ``question_dict`` wrote; InputError where its noise is not what its cost buys.

    Raises LookupError, TypeError or ValueError where an entry is missing or wrong.
    """
    facts = (plain["level"], plain["query"], plain["words"], plain["size"])
    if plain["law"] == "exact":
        return Question(*facts, None, None)
    sensitivity = Sensitivity(plain["sensitivity"]["l1"], plain["sensitivity"]["l2_squared"])
    question = Question(*facts, sensitivity, cost_of(plain["cost"]))
    if question.law != law_of(plain):
        raise InputError("damaged-measurement", f"the noise of {question.query!r} is not what its cost buys")
    return question


def _facts(path: Path) -> dict[str, Int64Array]:
    table = read_columns(path, ("name", "index", "value"))
    names, values = table.column("name").to_pylist(), np.asarray(table.column("value").to_numpy(), np.int64)
    where = np.array(names, dtype=object)
    return {name: values[where == name] for name in dict.fromkeys(names)}


def _answers(path: Path, asked: Asked) -> tuple[Answers, ...]:
    """Return the answers in the questions' order: rows lie in it, and their number a region is public."""
    return gathered(asked.questions, _read_parts(path, asked), asked.hierarchy, asked.per_region)


def _read_parts(path: Path, asked: Asked) -> Iterator[NoisyPart]:
    ends = [int(offsets_of(question, asked.hierarchy, asked.per_region)[-1]) for question in asked.questions]
    place = start = 0
    for part in read_parts(path, ("value",), only=("value",)):
        if str(part.schema.field("value").type) != "int64":
            raise InputError("damaged-measurement", "must hold integers of 64 bits", Place(path.name, None, "value"))
        values = part.column("value").to_numpy()
        while values.size:
            while place < len(ends) and start == ends[place]:
                place, start = place + 1, 0
            if place == len(ends):
                raise InputError("damaged-measurement", "holds more answers than were asked for", Place(path.name))
            taken = values[: ends[place] - start]
            yield NoisyPart(place, start, taken)
            start, values = start + taken.size, values[taken.size :]
    if place < len(ends) and (start != ends[place] or any(ends[place + 1 :])):
        raise InputError("damaged-measurement", "holds fewer answers than were asked for", Place(path.name))


def _packed_answers(path: Path, asked: Asked) -> tuple[Answers, ...]:
    """Return answers that are read from the file where they are needed; few enough are brought into memory at once."""
    pieces = _Pieces.opened(path)
    found = []
    for place, question in enumerate(asked.questions):
        offsets = offsets_of(question, asked.hierarchy, asked.per_region)
        starts, rows = pieces.of(place, int(offsets[-1]))
        found.append(Answers(question, offsets, PackedAnswers(starts, _Loader(pieces, rows))))
    if sum(one.stored.size for one in found) > DENSE:
        return tuple(found)
    return tuple(Answers(one.question, one.offsets, one.values) for one in found)


class _Pieces:
    """The rows of a packed file; what was read of it lately is kept, and threads may share it.

    ``rows`` int64[rows] are the columns but the answers themselves, ``group`` and ``within`` where each row lies.
    """

    def __init__(
        self, path: Path, stamp: tuple[int, int], rows: Mapping[str, Int64Array], group: Int64Array, within: Int64Array
    ) -> None:
        import pyarrow.parquet as pq

        self._path, self._stamp = path, stamp
        self._rows, self._group, self._within = rows, group, within
        self._lock = Lock()
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._bytes = 0
        self._file = quietly(path, lambda: pq.ParquetFile(path, page_checksum_verification=True))

    @classmethod
    def opened(cls, path: Path) -> _Pieces:
        """Open a file, and read what lies where."""
        names, stamp = ("question", "start", "count", "width"), _stamp(path)
        parts = list(read_parts(path, tuple(_PACKED_TYPES), only=names))
        rows = {name: _whole_numbers(path, parts, name) for name in names}
        group = np.repeat(np.arange(len(parts)), [part.num_rows for part in parts])
        within = np.concatenate([np.arange(0), *(np.arange(part.num_rows) for part in parts)])
        return cls(path, stamp, rows, group, within)

    def __reduce__(self) -> tuple[Callable[..., _Pieces], tuple[Any, ...]]:
        # Answers go to other processes as the path of their file, of which each reads what it needs.
        return _reopened, (self._path.resolve(), self._stamp, self._rows, self._group, self._within)

    def of(self, place: int, total: int) -> tuple[Int64Array, Int64Array]:
        """Return where the pieces of a question start, one entry more than pieces, and the rows they lie in."""
        rows = np.flatnonzero(self._rows["question"] == place)
        rows = rows[np.argsort(self._rows["start"][rows], kind="stable")]
        counts = self._rows["count"][rows]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        if (counts <= 0).any() or starts[-1] != total or not np.array_equal(starts[:-1], self._rows["start"][rows]):
            message = "does not hold the answers that were asked for, each once"
            raise InputError("damaged-measurement", message, Place(self._path.name))
        return starts, rows

    def piece(self, row: int) -> Packed:
        """Return the piece that lies in a row."""
        group = int(self._group[row])
        with self._lock:
            if group not in self._kept:
                columns = ["differences", "wide"]
                # Two columns of some hundred kilobytes are read sooner than other threads are told to.
                read = quietly(self._path, lambda: self._file.read_row_group(group, columns=columns, use_threads=False))
                self._kept[group] = read
                self._bytes += read.nbytes
                while self._bytes > _KEPT_BYTES and len(self._kept) > 1:
                    self._bytes -= self._kept.popitem(last=False)[1].nbytes
            self._kept.move_to_end(group)
            table = self._kept[group]
        differences, wide = (table.column(name)[int(self._within[row])].as_buffer() for name in ("differences", "wide"))
        count, width = (int(self._rows[name][row]) for name in ("count", "width"))
        return Packed(count, width, memoryview(differences), memoryview(wide))


@dataclass(frozen=True, eq=False, slots=True)
class _Loader:
    """Brings the pieces that lie in some rows of a packed file."""

    pieces: _Pieces
    rows: Int64Array

    def __call__(self, piece: int) -> Packed:
        return self.pieces.piece(int(self.rows[piece]))


def _stamp(path: Path) -> tuple[int, int]:
    status = quietly(path, path.stat)
    return status.st_size, status.st_mtime_ns


def _reopened(path: Path, stamp: tuple[int, int], *known: Any) -> _Pieces:
    """Open in another process the file that was checked in the first; InputError where it is not there unchanged."""
    if not path.is_file():
        message = "is not seen by a worker: workers of other machines need the measurement under the same path"
        raise InputError("file-not-found", message, Place(path.name))
    if _stamp(path) != stamp:
        raise InputError("damaged-measurement", "changed while it was read: restore it", Place(path.name))
    return _Pieces(path, stamp, *known)


def _whole_numbers(path: Path, parts: Sequence[Any], name: str) -> Int64Array:
    if any(str(part.schema.field(name).type) != _PACKED_TYPES[name] for part in parts):
        raise InputError("damaged-measurement", "is of another type", Place(path.name, None, name))
    return np.concatenate([np.empty(0, np.int64), *(part.column(name).to_numpy() for part in parts)])
