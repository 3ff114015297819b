"""Texts of Parquet files and frames packed into words, and whether a column's texts are all distinct."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.files.batches import Batches
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.in_threads import in_threads

UInt64Array = NDArray[np.uint64]

MEMORY = 13 * 10**8
"""The bytes that texts packed in memory may take: a process then stays below 2 GB."""
MOST_WORDS = 5
"""The words of 8 characters that an id may take: UUIDs have 36 characters."""
_HASH_BITS = 8  # of hashes, which are compared in parts


class OddTextError(Exception):
    """A text that is missing or not plain: readers of all rows as texts say what is wrong with it, if anything is."""


class LongTextError(Exception):
    """A text that needs more words."""


def packed_texts(texts: Any, words: int) -> UInt64Array:
    """Return Arrow's strings packed, uint64[texts, words]. Raises OddTextError or LongTextError."""
    # Imported here: it brings the compiled kernels with it.
    from coco_opt.kernels.text_ids import pack

    if texts.null_count:
        raise OddTextError
    packed = np.zeros((len(texts), words), np.uint64)
    if not len(texts):
        return packed
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    odd = pack(ends, np.frombuffer(b"" if data is None else data, np.uint8), packed)
    if odd >= 0:
        raise LongTextError if ends[odd + 1] - ends[odd] > 8 * words else OddTextError
    return packed


def all_distinct(opened: Batches) -> bool:
    """Return whether the entries of the only column are plain texts, or integers, that all differ.

    False also where two different texts have one hash, an entry is missing or not plain, or there are too many: then
    nothing is known. O(bytes); memory is 8 bytes a row.
    """
    if 8 * opened.rows() > MEMORY:
        return False
    try:
        return quietly(opened.source, partial(_hashes_differ, opened))
    except (OddTextError, LongTextError):
        return False


def _hashes_differ(opened: Batches) -> bool:
    # One array for all: many small arrays would stay with the process when they are done with.
    hashes, bounds, begin = np.empty(opened.rows(), np.uint64), list[Ints](), 0
    for piece in in_threads(lambda piece: [_hashes(texts) for (texts,) in piece.texts()], opened.pieces()):
        for some, ends in piece:
            hashes[begin : begin + some.size] = some
            bounds.append(begin + np.concatenate([[0], ends]))
            begin += some.size
    return all(in_threads(partial(_differ, hashes, bounds), range(1 << _HASH_BITS)))


def _hashes(texts: Any) -> tuple[UInt64Array, Ints]:
    """Return the hashes of texts, sorted by their first bits alone, and where each part of them ends."""
    from coco_opt.kernels.text_ids import hash_all

    hashes = np.empty(len(texts), np.uint64)
    return hashes, hash_all(packed_texts(texts, MOST_WORDS), _HASH_BITS, hashes)


def _differ(hashes: UInt64Array, bounds: Sequence[Ints], part: int) -> bool:
    """Return whether all hashes of a part differ; ``bounds`` say for each batch where its parts begin and end."""
    pieces = [hashes[each[part] : each[part + 1]] for each in bounds]
    together = np.sort(np.concatenate([np.empty(0, np.uint64), *pieces]))
    return bool((together[1:] != together[:-1]).all())
