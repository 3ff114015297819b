"""A measurement as a folder: one format for the seal, in a private folder, and for publication.

``measurement.json``: what was asked (queries in words, the law of each noise, costs, public facts) and the SHA-256 of
the other files. ``answers.parquet``: query, level, region (row of hierarchy.parquet), index, value, all whole numbers
but the query's name. ``hierarchy.parquet``: the regions and their public numbers. ``facts.parquet``, where there are
any: public numbers that belong to no region.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.errors import CocoOptError, InputError, Place
from coco_opt.files.folder import Coded, FileTable, as_json, file_digest, read_columns, read_parts, write_folder
from coco_opt.files.regions import REGIONS, region_table, stored_regions
from coco_opt.files.source import quietly
from coco_opt.files.versions import versions
from coco_opt.histograms.arrays import Int64Array
from coco_opt.privacy.answers import Answers, Question, offsets_of
from coco_opt.privacy.cost import Sensitivity, cost_of
from coco_opt.privacy.laws import law_of
from coco_opt.privacy.measurement import Asked, Measurement, question_dict

FORMAT = "coco-opt measurement 1"
INDEX = "measurement.json"
ANSWERS = "answers.parquet"
FACTS = "facts.parquet"

_ANSWER_TYPES = {"level": "int32", "region": "int32", "index": "int64", "value": "int64"}
_FACT_TYPES = {"index": "int64", "value": "int64"}
_ROWS = 1 << 20  # of answers expanded at a time


def write_measurement(folder: Path, measurement: Measurement, *, private: bool) -> str:
    """Write a new folder that appears complete or not at all; return the SHA-256 of its index, hexadecimal.

    ``private`` keeps it to its owner; the same measurement gives the same bytes either way. Raises InputError:
    folder-exists, cannot-write. O(answers).
    """
    asked = measurement.asked
    files = {ANSWERS: _answer_table(measurement), REGIONS: region_table(asked)}
    if asked.tables:
        files[FACTS] = _fact_table(asked.tables)
    return write_folder(folder, files, INDEX, lambda digests: as_json(_index(measurement, digests)), private=private)


def read_measurement(folder: str | Path, digest: str | None = None) -> tuple[Measurement, str]:
    """Read a measurement's folder and the SHA-256 of its index, which must be ``digest`` where one is given.

    Raises InputError: file-not-found, unreadable-file, unknown-format, damaged-measurement (its bytes are not those
    that were written).
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
    return _measurement(folder, index), known


def is_measurement(folder: Path) -> bool:
    """Tell whether a folder holds a measurement."""
    return os.path.isfile(folder / INDEX)  # noqa: PTH113 - False too for a name that no file system takes


def _index(measurement: Measurement, digests: Mapping[str, str]) -> dict[str, Any]:
    asked = measurement.asked
    return {
        "format": FORMAT,
        "status": measurement.status,
        "private": measurement.private,
        "kind": asked.kind,
        "cost": asked.cost.as_dict(),
        "neighbours": asked.neighbours,
        "noise": measurement.noise,
        "levels": list(asked.levels),
        "questions": [question_dict(question) for question in asked.questions],
        "facts": dict(asked.facts),
        "digest": asked.digest,
        "versions": versions(),
        "files": dict(digests),
    }


def _answer_table(measurement: Measurement) -> FileTable:
    return FileTable(_answer_parts(measurement), _ANSWER_TYPES, delta=("index", "value"))


def _answer_parts(measurement: Measurement) -> Iterator[dict[str, Any]]:
    """Yield rows of whole regions, about a million answers at a time."""
    tree = measurement.hierarchy
    names = list(dict.fromkeys(one.question.query for one in measurement.answers))
    for answers in measurement.answers:
        first, offsets = tree.level_range(answers.question.level).start, answers.offsets
        at = 0
        while at < answers.regions:
            stop = max(at + 1, int(np.searchsorted(offsets, offsets[at] + _ROWS, side="right")) - 1)
            sizes = np.diff(offsets[at : stop + 1])
            rows = int(offsets[stop] - offsets[at])
            region = np.repeat(np.arange(at, stop, dtype=np.int64), sizes)
            yield {
                "query": Coded(names, np.full(rows, names.index(answers.question.query))),
                "level": np.full(rows, answers.question.level, np.int32),
                "region": (first + region).astype(np.int32),
                "index": np.arange(rows, dtype=np.int64) - (offsets[region] - offsets[at]),
                "value": answers.values[offsets[at] : offsets[stop]],
            }
            at = stop


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
    if missing := {ANSWERS, REGIONS} - set(index["files"]):
        raise InputError("damaged-measurement", f"states no digest of {', '.join(sorted(missing))}", place)
    if index.get("format") != FORMAT:
        message = f"is of the format {index.get('format')!r}, and this version reads {FORMAT!r}"
        raise InputError("unknown-format", message, place)
    return index


def _measurement(folder: Path, index: Mapping[str, Any]) -> Measurement:
    failure = ""
    try:
        hierarchy, levels, ids, numbers = stored_regions(folder)
        questions = tuple(_question(plain) for plain in index["questions"])
        tables = _facts(folder / FACTS) if FACTS in index["files"] else {}
        asked = Asked(
            kind=index["kind"],
            hierarchy=hierarchy,
            levels=levels,
            questions=questions,
            neighbours=index["neighbours"],
            facts=index["facts"],
            per_region=numbers,
            tables=tables,
            region_ids=ids,
        )
        _check_statements(index, asked)
        answers = _answers(folder / ANSWERS, asked)
        return Measurement(asked, answers, index["noise"], index["private"])
    except CocoOptError as error:
        failure = str(error)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
        failure = "an entry is missing or of a wrong type"
    raise InputError("damaged-measurement", f"cannot be read: {failure}", Place(f"{folder.name}/{INDEX}"))


def _check_statements(index: Mapping[str, Any], asked: Asked) -> None:
    """Check what the index says beside the questions: what these answers are, and whether noise protects anybody."""
    if index["digest"] != asked.digest:
        raise InputError("damaged-measurement", "its digest is not that of its questions")
    private = index["private"]
    if not isinstance(private, bool) or index["status"] != ("private" if private else "NOT PRIVATE"):
        raise InputError("damaged-measurement", "its status contradicts itself")
    if private is (index["noise"] == "seeded"):
        raise InputError("damaged-measurement", f"it says {index['status']}, and its noise was {index['noise']!r}")


def _question(plain: Mapping[str, Any]) -> Question:
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
    offsets = [offsets_of(question, asked.hierarchy, asked.per_region) for question in asked.questions]
    total = sum(int(ends[-1]) for ends in offsets)
    values = np.empty(total, np.int64)
    filled = 0
    for part in read_parts(path, ("value",), only=True):
        rows = part.num_rows
        if str(part.schema.field("value").type) != "int64":
            raise InputError("damaged-measurement", "must hold integers of 64 bits", Place(path.name, None, "value"))
        if filled + rows > total:
            raise InputError("damaged-measurement", "holds more answers than were asked for", Place(path.name))
        values[filled : filled + rows] = part.column("value").to_numpy()
        filled += rows
    if filled != total:
        raise InputError("damaged-measurement", "holds fewer answers than were asked for", Place(path.name))
    starts = np.cumsum([0, *(int(ends[-1]) for ends in offsets)]).tolist()
    return tuple(
        Answers(question, ends, values[start : start + int(ends[-1])])
        for question, ends, start in zip(asked.questions, offsets, starts, strict=False)
    )
