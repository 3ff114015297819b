"""Records in Parquet or in a frame, counted batch by batch: never as text, and none of them is held.

What anything is wrong with is left to the reader of texts (``records``), which says what and where.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from coco_opt.files import checks
from coco_opt.files.arrow_texts import as_arrow
from coco_opt.files.columns import Columns
from coco_opt.files.inputs import Input
from coco_opt.files.regions import PublicRegions
from coco_opt.files.source import Batches, batches_of, quietly
from coco_opt.histograms.arrays import Int64Array
from coco_opt.topdown.asked.counts import MAX_PEOPLE, TableCounts, summed
from coco_opt.topdown.schema import Schema

Keys = tuple[Int64Array, Int64Array]
"""Places of cells, leaf by leaf, strictly rising, and the people in each."""


def count_batches(public: PublicRegions, source: Input, schema: Schema, columns: Columns) -> TableCounts | None:
    """Return the counts; None for a CSV file, and where anything is wrong with the table.

    ``columns`` are region_id, one for each attribute, and perhaps one of counts. O(rows); memory is that of the
    occupied cells and a batch.
    """
    opened = batches_of(source, columns)
    return None if opened is None else quietly(source, lambda: _counted(public, opened, schema))


def _counted(public: PublicRegions, opened: Batches, schema: Schema) -> TableCounts | None:
    import pyarrow as pa

    known = [as_arrow(public.ids), *(pa.array(texts, pa.string()) for texts in schema.attributes.values())]
    if any(opened.whole(k) is False for k in range(len(known), len(opened.kept))):
        return None
    rows, keys, people = 0, [], []
    for batch in opened:
        found = _keys_of(batch, known, public.leaf, schema)
        if found is None:
            return None
        rows += len(batch[0])
        keys.append(found[0])
        people.append(found[1])
    if not rows:
        return None
    counts = TableCounts.from_keys(public.hierarchy, schema, _joined(keys), _joined(people))
    return replace(counts, rows_read=rows)


def _joined(parts: list[Int64Array]) -> Int64Array:
    """Return arrays one after the other, each of which is dropped once it is copied."""
    whole, at = np.empty(sum(part.size for part in parts), np.int64), 0
    parts.reverse()
    while parts:
        part = parts.pop()
        whole[at : at + part.size] = part
        at += part.size
    return whole


def _keys_of(batch: tuple[Any, ...], known: list[Any], leaf: Int64Array, schema: Schema) -> Keys | None:
    """Return the occupied cells of a batch's rows and their people, None where a row is not as it should be."""
    people = _people(batch[len(known)]) if len(batch) > len(known) else np.ones(len(batch[0]), np.int64)
    found = [_places(array, texts) for array, texts in zip(batch[: len(known)], known, strict=True)]
    places = [place for place in found if place is not None]
    if people is None or len(places) < len(found):
        return None
    cell = np.zeros(people.size, np.int64)
    for k, place in enumerate(places[1:]):
        cell += place * prod(schema.shape[k + 1 :])
    some = people > 0
    cell = schema.position[cell[some]]
    if (cell < 0).any():
        return None
    return summed(leaf[places[0][some]] * schema.size + cell, people[some])


def _places(array: Any, texts: Any) -> Int64Array | None:
    """Return the place of every entry among texts, None where one is missing or not among them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.null_count:
        return None
    coded = array if pa.types.is_dictionary(array.type) else array.cast(pa.string()).dictionary_encode()
    plain = pc.utf8_normalize(coded.dictionary.cast(pa.string()), form="NFC")
    of_text = np.asarray(pc.index_in(plain, value_set=texts).fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    if not of_text.size:
        return np.zeros(0, np.int64)
    found = of_text[np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)]
    return None if (found < 0).any() else found


def _people(array: Any) -> Int64Array | None:
    """Return the counts of rows, None where one is missing, negative or large, or they may not add up exactly."""
    import pyarrow as pa

    if array.null_count:
        return None
    people = np.asarray(array.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
    if people.size and (people.min() < 0 or people.max() >= 10**checks.MAX_DIGITS):
        return None
    return people if people.astype(np.float64).sum() < MAX_PEOPLE else None
