"""What executors share whose tasks run in other processes: values and results in a folder, tasks that name paths.

A result is a file that is renamed into place when it is complete, so a task is done when its file exists. A worker that
dies leaves no such file; its task is run again and writes the same bytes.

Values are pickled, with their arrays stored separately. Readers map a file into memory: processes of one machine share
its pages, and what is not read takes no memory. Reading runs what the file says, as unpickling does: such files lie in
a folder of their owner alone, and live as long as the work.
"""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar, cast

from coco_opt.errors import CocoOptError, WorkerError, system_errors_as
from coco_opt.execution.executor import Done, MapProgress, Shared, check_workers
from coco_opt.execution.temporary_storage import remembered

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
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


PREFIX = "coco-opt-work-"
"""How the folders begin that are made below a scratch folder."""

STORED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 27)}
"""Variables by which a worker keeps memory that a task has freed for the next task.

Otherwise the allocator returns large arrays to the system immediately, and the system clears every page before it is
used again, which takes a tenth of the processor's time.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """One task: the file ``work`` of a function and its items, the item's number, its place, and the result's file."""

    work: Path
    item: int
    place: int
    result: Path


Ended = Callable[[int], Sequence[Part]]
"""Called with the place of a part that is done; returns the parts that follow from it."""


def run_part(part: Part) -> int:
    """Run a task and write its result, or the error that it ends in; return its place. A worker's only function."""
    if not part.result.exists():
        work: ByPath[tuple[Callable[[Any], Any], Sequence[Any]]] = ByPath(part.work)
        task, items = work.value
        try:
            outcome: tuple[Any, CocoOptError | None] = (task(items[part.item]), None)
        except CocoOptError as error:
            outcome = (None, error)
        write_value(part.result, outcome)
    return part.place


class Elsewhere(ABC):
    """Hands work on by path; ``scratch`` is a folder that all workers see (None: a temporary folder).

    Raises WorkerError for fewer than one worker, and for a scratch folder that cannot be used.
    """

    name: str

    def __init__(self, workers: int, scratch: Path | None = None) -> None:
        check_workers(workers)
        self.workers = workers
        self._numbers = count()
        self._scratch = scratch
        self._folder: Path | None = None

    @abstractmethod
    def start(self, ready: Callable[[], object]) -> None:
        """Begin to start workers and have each call ``ready``, without waiting."""

    @abstractmethod
    def run(self, parts: Sequence[Part], ended: Ended) -> None:
        """Run parts in workers, and those that follow from a part that has ended; each may be run more than once."""

    @abstractmethod
    def stop(self) -> None:
        """End all workers."""

    @property
    def folder(self) -> Path:
        """Return the folder of this executor's files, for its owner alone, made at the first call."""
        if self._folder is None:
            with system_errors_as(
                lambda reason: WorkerError(
                    f"the scratch folder cannot be used ({reason}): set engine.scratch to another"
                )
            ):
                if self._scratch is not None:
                    self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._scratch)).resolve()
        return self._folder

    @contextmanager
    def share(self, value: ValueT) -> Iterator[Shared[ValueT]]:
        """Hold a value here; a file that workers map is written where a task that names it is handed on."""
        path = self.folder / f"shared-{next(self._numbers)}"
        try:
            yield Handed(value, path, _write_work)
        finally:
            path.unlink(missing_ok=True)

    def map(
        self, task: Callable[[ItemT], ResultT], items: Sequence[ItemT], done: Done[ResultT, ItemT] | None = None
    ) -> list[ResultT]:
        """Return the results of a task for all items, in the order of their places; see ``Executor``."""
        progress = MapProgress(done)
        items = progress.run_locally(task, items, alone=True)
        if not items:
            return progress.results
        folder = self.folder / f"map-{next(self._numbers)}"
        folder.mkdir(mode=0o700)

        def parts(batch: Sequence[ItemT]) -> list[Part]:
            places = [progress.next_place() for _ in batch]
            work = folder / f"work-{places[0]}"
            _write_work(work, (task, list(batch)))
            return [Part(work, item, place, folder / f"part-{place}") for item, place in enumerate(places)]

        def ended(place: int) -> list[Part]:
            value, failure = read_value(folder / f"part-{place}")
            if failure is not None:
                raise failure
            more = progress.record(place, value)
            return parts(more) if more else []

        try:
            self.run(parts(items), ended)
            return progress.results
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End all workers and remove what was handed on."""
        self.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _write_work(path: Path, value: object) -> None:
    with system_errors_as(
        lambda reason: WorkerError(
            f"work cannot be handed on ({reason}): set engine.scratch to a folder with free space"
        )
    ):
        write_value(path, value)
