"""What a first configuration proposes from the user's files: levels of the hierarchy, and on request values of columns.

The hierarchy is public and read in full. Of private tables only what the user asks for is read: the values of columns
whose lists are public anyway; and where headers alone do not tell which of two tables lists regions, whether a column
repeats a value.

A column of a table of persons whose name is not that of an id is proposed as an attribute, whose values the user lists,
or whose line the user deletes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError
from coco_opt.files.arrow_texts import coded
from coco_opt.files.inputs import Columns, Input, hierarchy_columns
from coco_opt.files.source import isolated, load

ROOT = "all"
_DECIMAL = re.compile(r"[+-]?[0-9]*[.,][0-9]+([eE][+-]?[0-9]+)?|[+-]?[0-9]+[eE][+-]?[0-9]+")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")  # a text with a leading zero is a code
_MEASURES = re.compile(
    r"(^|[_ .-])(area|km2|sqkm|sqmi|ha|hectares?|pop|population|people|persons|households|homes|density|count|total|"
    r"lat|latitude|lon|lng|longitude|flaeche|fläche|einwohner|haushalte|superficie|habitants)($|[_ .-])",
    re.IGNORECASE,
)
_SENTENCE_MARKS = ('"', "\n", "\r")
_MOST_LENGTH = 40  # on average; names of categories are shorter
_MANY_WORDS = 50  # different words, at three or more a value

Codes = Ints


@dataclass(frozen=True, slots=True)
class LevelProposal:
    """The columns of a hierarchy that look like levels, root first, and why each other column does not.

    ``root`` names the region above all others where the first column has several names, and is "" else.
    """

    levels: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    root: str = ""


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    codes: Codes
    texts: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Return why a column can be no level by itself, "" where it can."""
        if "" in self.texts:
            return "it has empty entries"
        numbers = [text for text in self.texts if not _INTEGER.fullmatch(text)]
        if all(map(_DECIMAL.fullmatch, numbers)) and numbers:
            return "it holds decimal numbers"
        return "its name says that it counts or measures" if not numbers and _MEASURES.search(self.name) else ""

    @property
    def is_numeric(self) -> bool:
        return all(map(_INTEGER.fullmatch, self.texts))


def propose_levels(source: Input, names: Sequence[str], region_id: str) -> LevelProposal:
    """Return the levels among a hierarchy's columns ``names``; where none tells all regions apart, the id is the last.

    Numbers are levels only where they group regions. A table with faults gives all its columns: who reads it says what
    is wrong. O(rows log rows) a column.
    """
    others = tuple(name for name in names if name != region_id)
    try:
        columns = _columns(source, others)
    except InputError:
        return LevelProposal(others)
    rows = columns[0].codes.size if columns else 0
    if rows <= 1:
        return LevelProposal(others or (region_id,))
    left_out = {column.name: column.reason for column in columns if column.reason}
    levels = [column for column in columns if not column.reason]
    for column in [column for column in levels if column.is_numeric and not _groups_regions(column, levels)]:
        left_out[column.name] = "it holds numbers that do not group regions"
        levels.remove(column)
    return _chain(_root_first(levels), rows, region_id, left_out)


def repeated_values(source: Input, column: str, most: int = 1) -> list[str]:
    """Return the first values that a column has more than once. Raises InputError where the table cannot be read."""
    with isolated([source]) as con:
        table = load(con, "rows", source, _only(column))
        query = f"SELECT c0 FROM {{t}} GROUP BY c0 HAVING count(*) > 1 ORDER BY c0 LIMIT {most}"
        return [str(value) for (value,) in table.fetch(query)]


def values_of(source: Input, column: str, most: int) -> tuple[str, ...] | None:
    """Return the values of a column in order, integers by size; None where there are more than ``most``.

    Raises InputError where the table cannot be read.
    """
    with isolated([source]) as con:
        table = load(con, "rows", source, _only(column))
        query = f"SELECT DISTINCT c0 FROM {{t}} WHERE c0 IS NOT NULL AND c0 <> '' LIMIT {most + 1}"
        values = [str(value) for (value,) in table.fetch(query)]
    if len(values) > most:
        return None
    numeric = all(map(_INTEGER.fullmatch, values))
    return tuple(sorted(values, key=int) if numeric else sorted(values))


def looks_like_free_text(values: Sequence[str]) -> bool:
    """Return whether values are sentences: quotes or line breaks, great lengths, or many different words.

    The names of categories may have several words, too, but they share them.
    """
    if any(mark in value for value in values for mark in _SENTENCE_MARKS):
        return True
    words = [value.split() for value in values]
    number = sum(map(len, words))
    distinct = len({word.lower() for each in words for word in each})
    long = sum(map(len, values)) > _MOST_LENGTH * len(values)
    return long or (number >= 3 * len(values) and distinct >= _MANY_WORDS)


def _only(column: str) -> Columns:
    return Columns(first=(column,), others=True)


def _columns(source: Input, names: tuple[str, ...]) -> list[_Column]:
    import pyarrow as pa

    with isolated([source]) as con:
        table = load(con, "hierarchy", source, hierarchy_columns(names))
        arrays: list[Any] = [pa.chunked_array(table.texts(k + 1), pa.string()) for k in range(len(names))]
    columns = []
    for name, array in zip(names, arrays, strict=True):
        codes, texts = coded(array.fill_null(""))
        columns.append(_Column(name, codes.astype(np.int64), tuple(texts.to_pylist())))
    return columns


def _groups_regions(column: _Column, columns: Sequence[_Column]) -> bool:
    """Return whether numbers are few, and each name in a later column lies below one of them."""
    if 2 * len(column.texts) > column.codes.size:
        return False
    later = [other for other in columns[columns.index(column) + 1 :] if not other.is_numeric]
    return all(np.unique(_below(other.codes, column)).size == len(other.texts) for other in later)


def _root_first(columns: list[_Column]) -> list[_Column]:
    """Return columns in the order of the file, or by their numbers of names where the file begins below the root."""
    names = [len(column.texts) for column in columns]
    in_order = not names or names[0] == 1 or (min(names) > 1 and names[0] <= names[-1])
    return columns if in_order else sorted(columns, key=lambda column: len(column.texts))


def _chain(columns: Sequence[_Column], rows: int, region_id: str, left_out: dict[str, str]) -> LevelProposal:
    """Return the columns that divide what those before them leave together."""
    levels: list[str] = []
    regions, path = 0, np.zeros(rows, np.int64)
    for column in columns:
        path = np.unique(_below(path, column), return_inverse=True)[1].astype(np.int64)
        size = int(path.max()) + 1
        if size == regions:
            left_out[column.name] = f"it divides no region of {levels[-1]!r}"
            continue
        levels.append(column.name)
        regions = size
    if regions < rows:
        levels.append(region_id)
    return LevelProposal(tuple(levels), left_out, "" if columns and len(columns[0].texts) == 1 else ROOT)


def _below(path: Codes, column: _Column) -> Codes:
    return path * len(column.texts) + column.codes


_ID = re.compile(
    r"^(id|ident)[_ .-]|(^|[_ .-])(id|nr|no|num|number|key|uuid|guid)$|^(pid|hid|hhid|ssn|nin|bsn|serial)$|"
    r"[^\W\d_]{3}(nr|nummer)$|(person|household|house|home|record|case|respondent|member|individual)(id|no|num)$|"
    r"(?-i:[a-z](Id|ID|Nr|No)$)",
    re.IGNORECASE,
)


def names_an_id(name: str) -> bool:
    """Return whether a column is an id by its name; the values of a private table are not read for this."""
    return _ID.search(name) is not None
