"""A measurement as a folder, sealed in the private folder or published.

``measurement.json``: the plan (queries in words, the distribution of each noise, costs, public numbers) and the SHA-256
of the other files. ``hierarchy.parquet``: the regions and their public numbers. ``facts.parquet``, where there are
any: public numbers that belong to no region. The answers, integers, lie in one of two files:

* ``answers.parquet``, published: query, level, region (row of hierarchy.parquet), index, value; one row an answer;
* ``packed.parquet``, sealed, or several such files: thousands of answers a row, about half a byte each
  (``coco_opt.files.packed_file``). Written as noise is drawn, and read where an answer is needed: neither is held in
  memory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt._version import versions
from coco_opt.array_types import Ints
from coco_opt.errors import CocoOptError, InputError, Place
from coco_opt.execution.temporary_storage import stored_array
from coco_opt.files.answer_rows import read_answers
from coco_opt.files.arrow_texts import coded
from coco_opt.files.folder import (
    ROWS_PER_GROUP,
    SEAL,
    Again,
    Coded,
    FileTable,
    as_json,
    file_digest,
    is_as_sealed,
    read_parts,
    sealed,
    write_folder,
)
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.in_threads import in_threads
from coco_opt.files.packed_file import PACKED, is_packed, packed_answers, packed_table, write_parts
from coco_opt.files.regions import REGIONS, region_table, stored_regions
from coco_opt.files.release_checks import int64_column, refuse_types
from coco_opt.privacy.cost import Sensitivity, cost_of, cost_together
from coco_opt.privacy.measurement import (
    FOREIGN,
    Drawing,
    Measurement,
    MeasurementPlan,
    MeasurementRecord,
    query_dict,
    record_dict,
    status_of,
)
from coco_opt.privacy.noise_distributions import distribution_of
from coco_opt.privacy.queries import (
    LevelQuery,
    NoisyPart,
    offsets_of,
)

FORMAT = "coco-opt measurement 2"
INDEX = "measurement.json"
ANSWERS = "answers.parquet"
FACTS = "facts.parquet"

_ANSWER_TYPES = {"level": "int32", "region": "int32", "index": "int64", "value": "int64"}
_CONSTRAINT_TYPES = {"index": "int64", "value": "int64"}
_ROWS = 1 << 20  # of answers expanded, and numbers compared, at a time
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
        if private:
            files[PACKED] = packed_table(measurement)
        else:
            files[ANSWERS] = FileTable(_answer_parts(measurement), _ANSWER_TYPES, delta=("index", "value"))
    if measurement_plan.tables:
        files[FACTS] = _constraint_table(measurement_plan.tables)
    return write_folder(
        folder,
        files,
        INDEX,
        lambda digests: as_json(sealed(_index(measurement, digests))),
        private=private,
        further=None if division is None else partial(write_parts, division),
    )[1]


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


def read_index(folder: Path) -> dict[str, Any]:
    """Return the index of a measurement; InputError (unknown-format, damaged-measurement) where it is none."""
    return _parse_index(quietly(folder / INDEX, (folder / INDEX).read_bytes), Place(f"{folder.name}/{INDEX}"))


def _index(measurement: Measurement | Drawing, digests: Mapping[str, str]) -> dict[str, Any]:
    measurement_plan, look = measurement.measurement_plan, measurement.measurement_plan.look
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
        **({} if look is None else {"look": {**record_dict(look), "questions": [*map(query_dict, look.queries)]}}),
        "digest": measurement_plan.digest,
        "versions": versions(),
        "files": dict(digests),
    }


def _look_of(index: Mapping[str, Any]) -> MeasurementRecord | None:
    """Return what an index states of the look that chose its queries, None where it states none."""
    if "look" not in index:
        return None
    plain = index["look"]
    queries = tuple(query_from_dict(query) for query in plain["questions"])
    digest, content, noise = plain["measurement"], plain["answers"], plain["noise"]
    look = MeasurementRecord(digest, content, noise, plain["private"], plain["receipt"], queries)
    if {**plain, **record_dict(look)} != plain or look.private is not index["private"]:
        raise InputError("damaged-measurement", "what it states of its look contradicts itself")
    return look


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


def _constraint_table(tables: Mapping[str, Ints]) -> FileTable:
    """Return the numbers of all tables, one after the other, a group of the file at a time."""
    names, arrays = list(tables), list(tables.values())
    ends = np.cumsum([array.size for array in arrays])
    starts = ends - [array.size for array in arrays]

    def rows() -> Iterator[dict[str, Any]]:
        for start in range(0, max(1, int(ends[-1])), ROWS_PER_GROUP):
            places = np.arange(start, min(start + ROWS_PER_GROUP, int(ends[-1])))
            number = np.searchsorted(ends, places, side="right")
            values = [
                array[max(0, start - first) : max(0, start + ROWS_PER_GROUP - first)]
                for array, first in zip(arrays, starts.tolist(), strict=True)
            ]
            yield {"name": Coded(names, number), "index": places - starts[number], "value": np.concatenate(values)}

    return FileTable(Again(rows), _CONSTRAINT_TYPES)


def _parse_index(content: bytes, place: Place) -> dict[str, Any]:
    index: Any = None
    with suppress(ValueError, RecursionError):
        index = json.loads(content)
    if not isinstance(index, dict) or not isinstance(index.get("files"), dict):
        raise InputError("unknown-format", "is no measurement of coco-opt; if it was, restore it", place)
    if missing := {*(() if any(map(is_packed, index["files"])) else (ANSWERS,)), REGIONS} - set(index["files"]):
        raise InputError("damaged-measurement", f"states no digest of {', '.join(sorted(missing))}", place)
    if index.get("format") != FORMAT:
        message = f"is of the format {index.get('format')!r}, and this version reads {FORMAT!r}: restore it if changed"
        raise InputError("unknown-format", message, place)
    return index


def _measurement(folder: Path, index: Mapping[str, Any], plan: MeasurementPlan | None) -> Measurement:
    failure = ""
    try:
        measurement_plan = _stored_measurement_plan(folder, index) if plan is None else plan
        _check_statements(index, measurement_plan)
        packed = tuple(folder / name for name in sorted(index["files"]) if is_packed(name))
        if packed:
            answers = packed_answers(packed, measurement_plan)
        else:
            answers = read_answers(folder / ANSWERS, measurement_plan)
        return Measurement(measurement_plan, answers, index["noise"], index["private"], str(index.get("receipt", "")))
    except InputError as error:
        failure = error.words
    except CocoOptError as error:
        failure = str(error)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
        failure = "an entry is missing or of a wrong type"
    raise InputError("damaged-measurement", f"cannot be read: {failure}", Place(f"{folder.name}/{INDEX}"))


def _stored_measurement_plan(folder: Path, index: Mapping[str, Any]) -> MeasurementPlan:
    """Return the measurement plan of a folder."""
    regions = stored_regions(folder)
    return MeasurementPlan(
        kind=index["kind"],
        hierarchy=regions.hierarchy,
        levels=regions.levels,
        queries=tuple(query_from_dict(plain) for plain in index["questions"]),
        neighbours=index["neighbours"],
        parameters=index["facts"],
        per_region=regions.numbers,
        tables=_read_constraints(folder / FACTS) if FACTS in index["files"] else {},
        region_ids=regions.ids,
        look=_look_of(index),
    )


def _check_statements(index: Mapping[str, Any], measurement_plan: MeasurementPlan) -> None:
    """Check the index's other statements: digest, cost, levels, status, and whether its noise protects anybody."""
    # Who wrote a measurement elsewhere need not know how this program names its queries.
    stated = index.get("digest", measurement_plan.digest) if index["noise"] == FOREIGN else index["digest"]
    if stated != measurement_plan.digest:
        raise InputError("damaged-measurement", "its digest is not that of its queries")
    cost = cost_together(query.cost for query in measurement_plan.queries if query.cost is not None)
    if [*index["cost"]] != [cost.unit] or cost_of(index["cost"]) != cost:
        raise InputError("damaged-measurement", f"its 'cost' is not that of its queries, {cost}")
    if index.get("levels", [*measurement_plan.levels]) != [*measurement_plan.levels]:
        message = f"its 'levels' are not those of {REGIONS}, {', '.join(measurement_plan.levels)}"
        raise InputError("damaged-measurement", message)
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
    rows = 0
    for part in read_parts(path, ("name", *columns), coded=True):
        codes, names = coded(part.column("name"))
        refuse_types(part, dict.fromkeys(columns, "int64"), path.name, rows)
        rows += part.num_rows
        numbers = {column: int64_column(part, column) for column in columns}
        for code, name in enumerate(names.to_pylist()):
            own = pieces.setdefault(name, {column: [] for column in columns})
            for column in columns:  # the numbers of a country are too many to wait in memory
                own[column].append(stored_array([numbers[column][codes == code]]))
    return {name: _by_index(path, name, *map(stored_array, own.values())) for name, own in pieces.items()}


def _counts_up(index: Ints) -> bool:
    """Return whether numbers are 0, 1, 2, ..., some of them at a time."""
    parts = (index[start : start + _ROWS] for start in range(0, index.size, _ROWS))
    return all(np.array_equal(part, np.arange(_ROWS * k, _ROWS * k + part.size)) for k, part in enumerate(parts))


def _by_index(path: Path, name: str, index: Ints, values: Ints) -> Ints:
    """Return the values of a table in the order of their index, which must be 0, 1, 2, ..., each once."""
    if _counts_up(index):
        return values
    order = np.argsort(index, kind="stable")
    if not _counts_up(index[order]):
        message = f"must count the numbers of {name!r} from 0, each once"
        raise InputError("damaged-measurement", message, Place(path.name, None, "index"))
    return stored_array([values[order]])
