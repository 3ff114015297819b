"""Records in Parquet or in a frame, counted batch by batch: they are not read as text, and not kept in memory.

Tables with errors are left to the reader of texts (``records``), which reports what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.files import column_checks
from coco_opt.files.arrow_texts import as_arrow, distinct
from coco_opt.files.batches import Batches, batches_of, is_int64
from coco_opt.files.columns import Columns
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.in_threads import in_threads
from coco_opt.files.inputs import Input
from coco_opt.files.regions import PublicRegions
from coco_opt.files.scratch import Scratch
from coco_opt.files.text_index import TextIndex
from coco_opt.topdown.bins import Bins
from coco_opt.topdown.measuring.cell_files import CellFiles
from coco_opt.topdown.measuring.counts import MAX_PEOPLE, TableCounts, summed
from coco_opt.topdown.schema import Schema

Keys = tuple[Ints, Ints]
"""Keys of cells, leaf by leaf, strictly rising, and the people in each."""

_ROWS = 1 << 17  # of a batch: what is computed of each takes some hundred bytes
_MOST_CELLS = 1 << 20  # that wait to be added up
SPILLED = 1 << 22
"""The rows from which occupied cells lie in files, where there is a private folder."""
_INTEGER = "^-?[0-9]{1,18}$"


def count_batches(
    public: PublicRegions,
    source: Input,
    schema: Schema,
    columns: Columns,
    bins: Mapping[str, Bins],
    private: Path | None = None,
) -> TableCounts | None:
    """Return the counts; None for a CSV file, and for a table with any error.

    ``columns`` are region_id, one for each attribute (with ``bins`` of integers), and perhaps counts. O(rows);
    memory is that of the occupied cells and a batch a thread. With a ``private`` folder, the cells of a large table lie
    there in files without a name, and a part of them is in memory. Counts are the same in any order.
    """
    opened = batches_of(source, columns)
    if opened is None:
        return None
    opened = replace(opened, at_once=_ROWS)
    if private is None or opened.rows() < SPILLED:
        return quietly(source, lambda: _table_counts(public, opened, schema, bins, None))
    with Scratch(private) as scratch:
        return quietly(source, lambda: _table_counts(public, opened, schema, bins, scratch.folder))


def _table_counts(
    public: PublicRegions, opened: Batches, schema: Schema, bins: Mapping[str, Bins], folder: Path | None
) -> TableCounts | None:
    import pyarrow as pa

    values = [bins.get(name) or TextIndex(pa.array(texts, pa.string())) for name, texts in schema.attributes.items()]
    dictionaries = [TextIndex(as_arrow(public.ids)), *values]
    if any(opened.is_integer(k) is False for k in range(len(dictionaries), len(opened.columns))):
        return None

    def counted(piece: Batches) -> tuple[int, Keys] | None:
        rows, sums = 0, _Sums()
        for batch in _joined(piece, min(len(public.ids), _ROWS)):
            keys = _cell_keys(batch, dictionaries, public.leaf, schema)
            if keys is None or not sums.add(keys):
                return None
            rows += len(batch[0])
        return rows, sums.all()

    pieces, hierarchy = in_threads(counted, opened.pieces()), public.hierarchy
    if folder is None:
        sums = _Sums()
        rows = _added(pieces, sums.add)
        counts = replace(TableCounts.from_keys(hierarchy, schema, *sums.all()), rows_read=rows) if rows else None
    else:
        with CellFiles(len(hierarchy.leaves), schema.size, folder) as files:
            rows = _added(pieces, files.add)
            counts = TableCounts(hierarchy, schema, *files.runs(), rows_read=rows) if rows else None
    return counts


def _added(pieces: Iterable[tuple[int, Keys] | None], add: Callable[[Keys], bool]) -> int:
    """Add up pieces of a table and return their rows, 0 where a row is not sound or they are too many people."""
    rows = 0
    for piece in pieces:
        if piece is None or not add(piece[1]):
            return 0
        rows += piece[0]
    return rows


class _Sums:
    """The people of cells, added up: memory is some times that of the occupied cells, however many rows there are."""

    def __init__(self) -> None:
        self._summed = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._waiting: list[Keys] = []
        self._people = 0

    def add(self, keys: Keys) -> bool:
        """Add the people of some cells, at most 2^53; return whether all together are no more, so that no sum wraps."""
        self._people += int(keys[1].sum())
        if self._people > MAX_PEOPLE:
            return False
        self._waiting.append(keys)
        if sum(key.size for key, _ in self._waiting) > max(self._summed[0].size, _MOST_CELLS):
            self._merge()
        return True

    def all(self) -> Keys:
        """Return all cells with people, and how many."""
        self._merge()
        return self._summed

    def _merge(self) -> None:
        keys, people = ([*arrays] for arrays in zip(self._summed, *self._waiting, strict=True))
        self._waiting = []
        if len(keys) > 1:
            self._summed = summed(_concatenate(keys), _concatenate(people))


def _joined(batches: Iterable[tuple[Any, ...]], least: int) -> Iterator[tuple[Any, ...]]:
    """Yield batches of at least so many rows, but for the last.

    Each is compared with all regions: many small row groups would cost rows times regions.
    """
    waiting, rows = list[tuple[Any, ...]](), 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch[0])
        if rows >= least:
            yield tuple(map(_unified, zip(*waiting, strict=True)))
            waiting, rows = [], 0
    if waiting:
        yield tuple(map(_unified, zip(*waiting, strict=True)))


def _unified(arrays: Sequence[Any]) -> Any:
    """Return Arrow arrays as one: integers, or texts, which files may hold in several types."""
    import pyarrow as pa

    if len(arrays) == 1:
        return arrays[0]
    if len({array.type for array in arrays}) > 1:
        kind = pa.int64() if all(is_int64(array.type) for array in arrays) else pa.string()
        arrays = [array.cast(kind) for array in arrays]
    return pa.chunked_array(arrays).unify_dictionaries().combine_chunks()


def _concatenate(parts: list[Ints]) -> Ints:
    """Return the concatenated arrays; each part is dropped once it is copied."""
    joined, start = np.empty(sum(part.size for part in parts), np.int64), 0
    parts.reverse()
    while parts:
        part = parts.pop()
        joined[start : start + part.size] = part
        start += part.size
    return joined


def _cell_keys(batch: tuple[Any, ...], dictionaries: list[TextIndex | Bins], leaf: Ints, schema: Schema) -> Keys | None:
    """Return the occupied cells of a batch's rows and their people, None if any row is invalid."""
    people = _people(batch[len(dictionaries)]) if len(batch) > len(dictionaries) else np.ones(len(batch[0]), np.int64)
    columns = [_places(array, texts) for array, texts in zip(batch[: len(dictionaries)], dictionaries, strict=True)]
    places = [place for place in columns if place is not None]
    if people is None or len(places) < len(columns):
        return None
    cell = np.zeros(people.size, np.int64)
    for k, place in enumerate(places[1:]):
        cell += place * prod(schema.shape[k + 1 :])
    some = people > 0
    cell = schema.position[cell[some]]
    if (cell < 0).any():
        return None
    return summed(leaf[places[0][some]] * schema.size + cell, people[some])


def _places(array: Any, texts: TextIndex | Bins) -> Ints | None:
    """Return the position of every entry among texts or bins, None if an entry is missing or unknown."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.null_count:
        return None
    coded = array if pa.types.is_dictionary(array.type) else array.cast(pa.string()).dictionary_encode()
    # A batch need not hold all texts of the row group that it is a part of.
    present, codes = distinct(np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64))
    plain = pc.utf8_normalize(coded.dictionary.take(pa.array(present)).cast(pa.string()), form="NFC")
    text_places = bin_codes(texts, plain) if isinstance(texts, Bins) else texts.places(plain)
    if text_places is None:
        return None
    if not text_places.size:
        return np.zeros(0, np.int64)
    places = text_places[codes]
    return None if (places < 0).any() else places


def bin_codes(bins: Bins, texts: Any) -> Ints:
    """Return the range of each of Arrow's strings, -1 for what is no integer or lies in none; O(n log ranges)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.match_substring_regex(texts, _INTEGER)  # missing for a missing text, and so is its number
    numbers = pc.if_else(plain, texts, pa.scalar(None, pa.string())).cast(pa.int64()).fill_null(np.iinfo(np.int64).min)
    values = np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64)
    codes = np.searchsorted(np.array(bins.low, np.int64), values, side="right") - 1
    inside = (codes >= 0) & (values <= np.array(bins.high, np.int64)[codes])
    return np.where(inside, codes, -1).astype(np.int64)


def _people(array: Any) -> Ints | None:
    """Return the counts of rows, None if a count is missing, negative or too large, or their sum may not be exact."""
    import pyarrow as pa

    if array.null_count:
        return None
    people = np.asarray(array.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
    if people.size and (people.min() < 0 or people.max() >= 10**column_checks.MAX_DIGITS):
        return None
    return people if people.astype(np.float64).sum() < MAX_PEOPLE else None
