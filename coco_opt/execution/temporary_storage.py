"""Arrays in files without a name, mapped into memory: the system has their pages back whenever it wants them.

Such a file is gone with its last reader, however a process ends: there is nothing to remove. Only data
computed from noisy answers or public numbers is stored there. What was read or written stays in a process's memory
until the system needs it: ``forget_pages`` returns it, so that a large estimation does not seem to need what it does
not.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

ScalarT = TypeVar("ScalarT", bound=np.generic)

LEAST = 1 << 18
"""The bytes from which an array is worth a file."""

_AT_ONCE = 1 << 19  # entries that are computed together
_MAPPED: WeakSet[mmap.mmap] = WeakSet()
_LOCK = Lock()


def stored_array(parts: Sequence[NDArray[ScalarT]]) -> NDArray[ScalarT]:
    """Return arrays of one type (n, ...), one after the other, as a read-only array that lies in a file.

    Small arrays stay in memory, and so do those that do not fit in the folder for temporary files. O(bytes), without a
    second copy in memory.
    """
    size = sum(part.nbytes for part in parts)
    if size >= LEAST:
        with suppress(OSError):
            return _mapped_array(parts)
    joined = np.concatenate(parts)
    joined.setflags(write=False)
    return joined


def stored_empty(shape: tuple[int, ...], dtype: np.dtype[ScalarT]) -> NDArray[ScalarT]:
    """Return a writable array, its entries still to be set, that lies in a file unless it is small.

    The whole file is reserved now: a full disk is no surprise later, when a page is written.
    """
    size = math.prod(shape) * dtype.itemsize
    if size >= LEAST and hasattr(os, "posix_fallocate"):
        with suppress(OSError), tempfile.TemporaryFile(buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            return np.frombuffer(remembered(mmap.mmap(file.fileno(), size)), dtype).reshape(shape)
    return np.empty(shape, dtype)


def stored_by_parts(
    shape: int | tuple[int, ...], dtype: np.dtype[ScalarT], part: Callable[[slice], NDArray[Any]]
) -> NDArray[ScalarT]:
    """Return a read-only array of which ``part`` computes some rows at a time; it lies in a file unless it is small."""
    rows, *entries = (shape,) if isinstance(shape, int) else shape
    array, step = stored_empty((rows, *entries), dtype), max(1, _AT_ONCE // max(1, math.prod(entries)))
    for start in range(0, rows, step):
        some = slice(start, min(start + step, rows))
        array[some] = part(some)
    array.setflags(write=False)
    return array


def stored_bytes(parts: Iterable[bytes | mmap.mmap]) -> bytes | mmap.mmap:
    """Return bytes, one part after the other, that lie in a file without a name unless they are few; both are sliced.

    They stay in memory where they do not fit in the folder for temporary files.
    """
    waiting, size, rest = list[bytes | mmap.mmap](), 0, iter(parts)
    for part in rest:
        waiting.append(part)
        size += len(part)
        if size >= LEAST:
            return _written(chain(waiting, rest))
    return b"".join(part[:] for part in waiting)


def _written(parts: Iterable[bytes | mmap.mmap]) -> bytes | mmap.mmap:
    rest, size = iter(parts), 0
    with tempfile.TemporaryFile(buffering=0) as file:
        for part in rest:
            try:
                _write(file, memoryview(part))
            except OSError:
                file.seek(0)
                return b"".join([file.read(size), *(left[:] for left in chain([part], rest))])
            size += len(part)
        return remembered(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def remembered(content: mmap.mmap) -> mmap.mmap:
    """Return a mapped file whose pages ``forget_pages`` will return."""
    with _LOCK:
        _MAPPED.add(content)
    return content


def forget_pages() -> None:
    """Return the pages of all mapped files to the system; who reads them again finds them as they were."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    with _LOCK:
        contents = list(_MAPPED)
    for content in contents:
        content.madvise(mmap.MADV_DONTNEED)


def _mapped_array(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    with tempfile.TemporaryFile(buffering=0) as file:
        for part in parts:
            _write(file, np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        content = remembered(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    shape = (-1, *parts[0].shape[1:])
    return np.frombuffer(content, parts[0].dtype).reshape(shape)


def _write(file: Any, left: memoryview) -> None:
    """Write bytes to a file that has no buffer, which may take only some of them at a time."""
    while left:
        left = left[file.write(left) :]
