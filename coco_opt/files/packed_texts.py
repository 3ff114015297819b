"""Texts of Parquet files and frames packed into words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

UInt64Array = NDArray[np.uint64]

MOST_WORDS = 5
"""The words of 8 characters that an id may take: UUIDs have 36 characters."""


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
