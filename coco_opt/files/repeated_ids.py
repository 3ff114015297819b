"""How often the ids of a column of Parquet files or a frame occur, by their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.files.batches import Batches
from coco_opt.files.column_checks import surely_plain
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.source import isolated, streamed

UInt64Array = NDArray[np.uint64]
MEMORY = 13 * 10**8
"""The bytes that hashes may take: a process then stays below 2 GB."""

_AT_ONCE = 1 << 17  # rows


class _OddTextError(Exception):
    """A text that is missing or may not be plain: checks of loaded tables say what is wrong with it, if anything is."""


def occur_at_most(opened: Batches, times: int = 1) -> bool:
    """Return whether the ids of the only column are integers or plain texts, none of which occurs more often.

    False also where more often a hash occurs, for different ids, where an id is missing or may not be plain, and where
    there are too many rows: then nothing is known. O(rows log rows); memory is 8 bytes a row.
    """
    if 8 * opened.rows() > MEMORY:
        return False
    try:
        hashes = quietly(opened.source, partial(_hashes, opened))
    except _OddTextError:
        return False
    hashes.sort()  # in place, so that there is no second copy
    # Of more equal hashes than ``times``, the first and one so many places behind it are equal.
    return bool((hashes[times:] != hashes[:-times]).all())


def _hashes(opened: Batches) -> UInt64Array:
    """Return the hash of each id. Raises _OddTextError."""
    schema, arrays = opened.stream()
    hashes = np.empty(opened.rows(), np.uint64)
    with isolated(()) as con:
        sound = _sound(arrays, texts=not opened.is_integer(0))
        streamed(con, "ids", schema, sound, lambda: _fill(hashes, con.sql("SELECT hash(c0) FROM ids")))
    return hashes


def _fill(hashes: UInt64Array, query: Any) -> None:
    begin = 0
    for batch in query.to_arrow_reader(_AT_ONCE):
        some = batch.column(0).to_numpy()
        hashes[begin : begin + some.size] = some
        begin += some.size


def _sound(arrays: Iterable[tuple[Any, ...]], *, texts: bool) -> Iterator[tuple[Any, ...]]:
    for (array,) in arrays:
        if array.null_count or (texts and not surely_plain(array)):
            raise _OddTextError
        yield (array,)
