"""Texts as Arrow arrays of strings, and back: by their bytes, without an object a text."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from coco_opt.execution.temporary_storage import stored_bytes
from coco_opt.histograms.texts import NONE, Texts

_AT_ONCE = 1 << 24  # bytes


def as_arrow(texts: Iterable[str | None]) -> Any:
    """Return an Arrow array of strings; of ``Texts`` it is their own memory."""
    import pyarrow as pa

    column = Texts.of(texts)
    content, ends = np.frombuffer(column.data, np.uint8), np.frombuffer(column.ends, np.int32)
    steps = range(0, content.size, _AT_ONCE)
    missing = [step + np.flatnonzero(content[step : step + _AT_ONCE] == NONE[0]) for step in steps]
    valid = None
    if any(some.size for some in missing):
        present = np.ones(len(column), np.bool_)
        present[np.searchsorted(ends, np.concatenate(missing), side="right") - 1] = False
        valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.StringArray.from_buffers(len(column), pa.py_buffer(column.ends), pa.py_buffer(content), valid)


def from_arrow(strings: Any) -> Texts[Any]:
    """Return the entries of an Arrow array, which are strings or are written as such; None where they are missing."""
    import pyarrow as pa

    strings = strings.cast(pa.string())
    if strings.null_count or not len(strings):
        return Texts.of(text.as_py() for text in strings)
    _, ends, data = strings.buffers()
    offsets = np.frombuffer(ends, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    first, stop = int(offsets[0]), int(offsets[-1])
    steps = range(first, stop, _AT_ONCE)
    content = stored_bytes(data[step : min(step + _AT_ONCE, stop)].to_pybytes() for step in steps)
    return Texts(content, array("i", (offsets - offsets[0]).tobytes()))
