"""Groups and entities whose ids are texts, from large Parquet files or frames: compared by their bytes, in memory.

The groups' ids lie packed in one array, with a table of their hashes. Of an entity's id only a hash is kept: if all
hashes differ, so do all ids. Small tables, ids that are not printable ASCII or have more than 40 characters, and tables
with any error go to the reader that holds all rows as texts (``entities``), which explains what is wrong. So do tables
that need more memory than is stated here, for which that reader has the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock

import numpy as np

from coco_opt.files.batches import Batches, batches_of, strings
from coco_opt.files.column_checks import MEMORY, occur_at_most
from coco_opt.files.columns import ENTITIES, GROUPS
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.in_threads import in_threads
from coco_opt.files.inputs import Input
from coco_opt.files.packed_texts import (
    MOST_WORDS,
    LongTextError,
    OddTextError,
    UInt64Array,
    packed_texts,
)
from coco_opt.groups.measuring.integer_ids import Int32Array, Runs, leaf_places, runs_of

_LEAST = 1 << 20  # rows: fewer are read as texts before these kernels are compiled


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TextGroups:
    """Packed ids of groups, uint64[groups, words], the table of their hashes, and each group's leaf."""

    keys: UInt64Array
    slots: Int32Array
    leaf: Int32Array


def read_text_groups(source: Input, leaf_of: Mapping[str, int]) -> TextGroups | None:
    """Return the groups of a table of (group_id, region_id); None for a table that this reader does not take.

    Raises InputError: the codes of ``source.load``. O(bytes); memory is 8 bytes for each 8 characters of an id and some
    16 bytes more a group.
    """
    opened = batches_of(source, GROUPS)
    rows = 0 if opened is None else opened.rows()
    if opened is None or rows < _LEAST:
        return None
    slots = 1 << (rows + rows // 4).bit_length()
    for words in range(1, MOST_WORDS + 1):
        if rows * (8 * words + 8) + 4 * slots > MEMORY:
            return None
        groups = TextGroups(np.zeros((rows, words), np.uint64), np.full(slots, -1, np.int32), np.empty(rows, np.int32))
        try:
            quietly(source, partial(_fill, opened, groups, leaf_of))
        except LongTextError:
            continue
        except OddTextError:
            return None
        return groups
    return None


def _fill(opened: Batches, groups: TextGroups, leaf_of: Mapping[str, int]) -> None:
    """Fill in the groups' ids and leaves."""
    from coco_opt.kernels.text_ids import insert

    def packed(piece: Batches) -> list[tuple[UInt64Array, Int32Array]]:
        batches = []
        for group, region in piece.with_coded(1):
            if region.null_count:
                raise OddTextError
            batches.append((packed_texts(strings(group), groups.keys.shape[1]), leaf_places(region, leaf_of)))
        return batches

    begin = 0
    for piece in in_threads(packed, opened.pieces()):
        for keys, places in piece:
            end = begin + len(keys)
            groups.keys[begin:end], groups.leaf[begin:end] = keys, places
            if places.min(initial=0) < 0 or insert(groups.keys, begin, end, groups.slots) >= 0:
                raise OddTextError
            begin = end
    if begin < groups.leaf.size:
        raise OddTextError


def distinct_entities(source: Input) -> Batches | None:
    """Return the batches of a large private table whose entities are known to differ, None for any other.

    Raises InputError: the codes of ``source.load``. O(bytes); memory is 8 bytes an entity.
    """
    opened = batches_of(source, ENTITIES)
    return opened if opened is not None and opened.rows() >= _LEAST and occur_at_most(opened.only(0)) else None


def count_texts(groups: TextGroups, opened: Batches) -> Runs | None:
    """Return the runs (leaf, size, groups) of a private table, sorted by leaf and size.

    None for a table that this reader does not take. Raises InputError: the codes of ``source.load``. O(bytes); memory
    is 4 bytes a group and a batch a thread. The counts are the same in any order of rows.
    """
    try:
        sizes = quietly(opened.source, partial(_sizes, opened.only(1), groups))
    except (OddTextError, LongTextError):
        return None
    return runs_of(groups.leaf, sizes)


def _sizes(opened: Batches, groups: TextGroups) -> Int32Array:
    """Return the number of entities of every group."""
    from coco_opt.kernels.text_ids import add_one, find

    sizes, one_at_a_time = np.zeros(groups.leaf.size, np.int32), Lock()

    def count(piece: Batches) -> None:
        for (texts,) in piece.texts():
            places = np.empty(len(texts), np.int64)
            if find(packed_texts(texts, groups.keys.shape[1]), groups.keys, groups.slots, places) >= 0:
                raise OddTextError
            with one_at_a_time:
                add_one(places, sizes)

    for _ in in_threads(count, opened.pieces()):
        pass
    return sizes
