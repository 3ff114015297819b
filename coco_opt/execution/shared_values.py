"""Values in files that pass between processes by path: pickled, with their arrays stored separately and memory-mapped.

A file is written under another name and renamed when it is complete, so a file that exists is complete. Readers map it:
processes of one machine share its pages, and what is not read takes no memory. Reading runs what the file says, as
unpickling does: such files lie in a folder of their owner alone, and live as long as the work.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar, cast

from coco_opt.errors import WorkerError
from coco_opt.execution.temporary_storage import remembered

ValueT = TypeVar("ValueT")

_ALIGNED = 64  # bytes; where arrays begin
_HEAD = 8  # bytes of a number
_OPEN_VALUES = 8  # values that a worker holds open
_EMPTY = bytes(_ALIGNED)


def write_value(path: Path, value: object) -> None:
    """Write a value to a new file, which appears complete or not at all; O(its bytes)."""
    buffers: list[pickle.PickleBuffer] = []
    plain = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    sizes = [len(plain), *(view.nbytes for view in views)]
    head = b"".join(size.to_bytes(_HEAD, "little") for size in (len(sizes), *sizes))
    temporary = path.with_name(f".{path.name}-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        with temporary.open("xb") as file:
            for part in (memoryview(head), memoryview(plain), *views):
                file.write(part)
                file.write(_EMPTY[: -file.tell() % _ALIGNED])
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_value(path: Path) -> Any:
    """Return the value of a file; its arrays are read-only and lie in the file. O(the value without its arrays)."""
    with path.open("rb") as file:
        content = memoryview(remembered(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    count = int.from_bytes(content[:_HEAD], "little")
    sizes = [
        int.from_bytes(content[start : start + _HEAD], "little") for start in range(_HEAD, _HEAD * (count + 1), _HEAD)
    ]
    start, parts = _next_aligned(_HEAD * (count + 1)), []
    for size in sizes:
        parts.append(content[start : start + size])
        start = _next_aligned(start + size)
    return pickle.loads(parts[0], buffers=parts[1:])


def _next_aligned(place: int) -> int:
    return place + -place % _ALIGNED


@dataclass(frozen=True, slots=True)
class ByPath(Generic[ValueT]):
    """A value in a file; every process opens it once and holds the last few."""

    path: Path

    @property
    def value(self) -> ValueT:
        """Return the value; raise WorkerError where a worker does not see the file."""
        return cast(ValueT, _OPEN.value(self.path))


@dataclass(frozen=True, eq=False, slots=True)
class Handed(Generic[ValueT]):
    """A value of this process that other processes find in a file, which ``write`` makes when it is first pickled."""

    value: ValueT
    path: Path
    write: Callable[[Path, object], None]

    def __reduce__(self) -> tuple[type[ByPath[ValueT]], tuple[Path]]:
        if not self.path.exists():
            self.write(self.path, self.value)
        return ByPath, (self.path,)


class _Open:
    def __init__(self) -> None:
        self._values: OrderedDict[Path, Any] = OrderedDict()
        self._lock = Lock()

    def value(self, path: Path) -> Any:
        with self._lock:
            if path not in self._values:
                if not path.is_file():
                    raise WorkerError(
                        f"a worker does not see {path.parent}: where workers run on other machines, engine.scratch "
                        "names a folder that all of them see"
                    )
                self._values[path] = read_value(path)
                while len(self._values) > _OPEN_VALUES:
                    self._values.popitem(last=False)
            self._values.move_to_end(path)
            return self._values[path]


_OPEN = _Open()
