"""Groups and entities with integer ids, from Parquet or frames: read batch by batch, never as text.

A group's leaf and size lie in arrays by its id, and a bit per entity marks whether it came before. Tables that
this reader does not take (text, ids too far apart), and faulty public tables, go to the reader of texts, which explains
what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.files.batches import Batches, batches_of
from coco_opt.files.columns import ENTITIES, GROUPS
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.in_threads import in_threads
from coco_opt.files.inputs import Input

REPEATED = ("duplicate-entity", "this entity occurs in an earlier row: one entity belongs to one group, once")

Int32Array = NDArray[np.int32]
Runs = tuple[Ints, Ints, Ints]

_GROUP_SPREAD, _ENTITY_SPREAD = 4, 64  # ids may span so many times their number: 32 and 8 bytes each
_ROOM = 1 << 20  # or so many in any case
_SMALL = 1 << 10  # sizes below it are counted in one table
_CHUNK = 1 << 22
_NONE = -2  # no region is stated, or the group is unknown, which another check finds


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class GroupTable:
    """Each group's leaf by its id: ``leaf[id - first]``, int32, -1 where no group has the id."""

    first: int
    leaf: Int32Array

    def texts(self) -> Iterator[tuple[Any, Any]]:
        """Yield batches of Arrow strings: the groups' ids and their leaves."""
        import pyarrow as pa

        for start in range(0, self.leaf.size, _CHUNK):
            part = self.leaf[start : start + _CHUNK]
            present = np.flatnonzero(part >= 0)
            ids, leaves = pa.array(present + (self.first + start)), pa.array(part[present])
            yield ids.cast(pa.string()), leaves.cast(pa.string())


def read_group_table(source: Input, leaf_of: Mapping[str, int], leaves: int) -> tuple[GroupTable, Ints] | None:
    """Return each group's leaf, from its region's id, and every leaf's number of groups, int64[leaves].

    None where ids are not integers, or anything is wrong with the table.
    """
    opened = batches_of(source, GROUPS)
    if opened is None or not opened.is_integer(0):
        return None
    return quietly(source, lambda: _group_table(opened, leaf_of, leaves))


def _read_groups(piece: Batches, leaf_of: Mapping[str, int]) -> list[tuple[Ints, Int32Array]] | None:
    """Return the ids of groups and the places of their leaves, batch by batch; None where an entry is missing."""
    batches = []
    for group, region in piece:
        if group.null_count or region.null_count:
            return None
        batches.append((piece.numbers(group), leaf_places(region, leaf_of)))
    return batches


def leaf_places(region: Any, leaf_of: Mapping[str, int]) -> Int32Array:
    """Return the leaves of regions without empty entries, by their ids; -1 for an id that is none."""
    coded = region if hasattr(region, "dictionary") else region.dictionary_encode()
    codes = [-1 if name is None else leaf_of.get(str(name), -1) for name in coded.dictionary.to_pylist()]
    return np.asarray(np.array(codes, np.int32)[coded.indices.to_numpy(zero_copy_only=False)])


def _group_table(opened: Batches, leaf_of: Mapping[str, int], leaves: int) -> tuple[GroupTable, Ints] | None:
    ids: list[Ints] = []
    places: list[Int32Array] = []
    for piece in in_threads(partial(_read_groups, leaf_of=leaf_of), opened.pieces()):
        if piece is None:
            return None
        ids += [group for group, _ in piece]
        places += [place for _, place in piece]
    if not ids or not sum(part.size for part in ids):
        return None
    first, rows = min(int(part.min(initial=2**62)) for part in ids), sum(part.size for part in ids)
    span = max(int(part.max(initial=first)) for part in ids) - first + 1
    if span > max(_GROUP_SPREAD * rows, _ROOM):
        return None
    leaf = np.full(span, -1, np.int32)
    counts = np.zeros(leaves, np.int64)
    for part, leaves_of_part in zip(ids, places, strict=True):
        if (leaves_of_part < 0).any():
            return None
        leaf[part - first] = leaves_of_part
        counts += np.bincount(leaves_of_part, minlength=counts.size)
    if np.count_nonzero(leaf >= 0) != rows:
        return None
    return GroupTable(first, leaf), counts


def count_entities(groups: GroupTable, source: Input) -> tuple[Runs, int] | None:
    """Return the runs (leaf, size, groups) of a private table sorted by leaf and size, and its number of rows.

    None where the ids are not integers, or too far apart, or where any row has an error or there is none: the reader of
    texts explains it. Raises InputError: the codes of ``source.load``. O(rows); memory is a bit an entity, 8 bytes a
    group and a batch a thread. The counts are the same in any order of rows.
    """
    opened = batches_of(source, ENTITIES)
    if opened is None or not (opened.is_integer(0) and opened.is_integer(1)):
        return None
    rows, first, last = opened.extremes(0) or quietly(source, lambda: _range_of(opened))
    if not rows or last - first >= max(_ENTITY_SPREAD * rows, _ROOM):
        return None
    sizes = quietly(source, lambda: _sizes(opened, groups, first, last))
    return None if sizes is None else (runs_of(groups.leaf, sizes), rows)


def regions_agree(groups: GroupTable, source: Input, leaf_of: Mapping[str, int]) -> bool:
    """Return whether the regions that entities state are those of their groups, integer ids; an empty one states none.

    False where that is not known, too: the reader of texts finds out. O(rows).
    """
    opened = batches_of(source, replace(GROUPS, private=True))
    if opened is None or not opened.is_integer(0):
        return False
    return quietly(
        source, lambda: all(_batch_agrees(groups, opened, group, region, leaf_of) for group, region in opened)
    )


def _batch_agrees(groups: GroupTable, opened: Batches, group: Any, region: Any, leaf_of: Mapping[str, int]) -> bool:
    if group.null_count:
        return False
    coded = region if hasattr(region, "dictionary") else region.dictionary_encode()
    names = [None if name is None else str(name) for name in coded.dictionary.to_pylist()]
    leaves = np.array([_NONE if not name else leaf_of.get(name, -1) for name in names] + [_NONE], np.int64)
    stated = leaves[coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
    places = opened.numbers(group) - groups.first
    inside = (places >= 0) & (places < groups.leaf.size)
    known = np.where(inside, groups.leaf[places.clip(0, groups.leaf.size - 1)], _NONE)
    return bool(((stated == _NONE) | (known == _NONE) | (stated == known)).all())


def _range_of(opened: Batches) -> tuple[int, int, int]:
    """Return the number of rows and the least and the largest entity id; no rows where a row has no id."""
    import pyarrow.compute as compute

    rows, ends = 0, [2**62, -(2**62)]
    for batch in opened:
        if any(values.null_count for values in batch):
            return 0, 0, 0
        extremes = compute.min_max(opened.integers(batch[0]))
        if extremes["min"].is_valid:
            ends = [min(ends[0], extremes["min"].as_py()), max(ends[1], extremes["max"].as_py())]
        rows += len(batch[0])
    return rows, ends[0], ends[1]


def _sizes(opened: Batches, groups: GroupTable, first: int, last: int) -> Int32Array | None:
    """Return the number of entities of every group id; None where any row has an error."""
    # Imported here: it brings the compiled kernels with it.
    from coco_opt.kernels.integer_ids import count

    seen = np.zeros((last - first) // 8 + 1, np.uint8)
    sizes = np.zeros(groups.leaf.size, np.int32)
    one_at_a_time = Lock()

    def counted(piece: Batches) -> bool:
        for entity, group in piece:
            if entity.null_count or group.null_count:
                return False
            ids = piece.numbers(entity), piece.numbers(group)
            with one_at_a_time:
                # An entity outside the stated range: what the file says of itself is wrong, or it was changed.
                if max(count(*ids, first, groups.first, seen, groups.leaf, sizes)) >= 0:
                    return False
        return True

    return sizes if all(in_threads(counted, opened.pieces())) else None


def runs_of(leaf: Int32Array, sizes: Int32Array) -> Runs:
    """Count the groups of each leaf by size: small sizes in one table, the few large sizes by sorting."""
    leaves = int(leaf.max(initial=-1)) + 1
    table = np.zeros(leaves * _SMALL, np.int64)
    large: list[Ints] = []
    for start in range(0, leaf.size, _CHUNK):
        part, size = leaf[start : start + _CHUNK].astype(np.int64), sizes[start : start + _CHUNK].astype(np.int64)
        small = (part >= 0) & (size < _SMALL)
        table += np.bincount(part[small] * _SMALL + size[small], minlength=table.size)
        rest = (part >= 0) & ~small
        large.append(part[rest] << 32 | size[rest])
    filled = np.flatnonzero(table)
    keys, counts = np.unique(np.concatenate([np.empty(0, np.int64), *large]), return_counts=True)
    owner = np.concatenate([filled // _SMALL, keys >> 32])
    size = np.concatenate([filled % _SMALL, keys & 0xFFFFFFFF])
    groups = np.concatenate([table[filled], counts.astype(np.int64)])
    order = np.lexsort((size, owner))
    return owner[order], size[order], groups[order]
