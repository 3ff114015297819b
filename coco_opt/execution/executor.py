"""The contract of an executor, and the executor that needs nothing: threads of this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import WorkerError

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
ValueT = TypeVar("ValueT")
ValueT_co = TypeVar("ValueT_co", covariant=True)

_TASKS = 64  # at most,
_A_WORKER = 8  # but so many each, where there are many workers
_NUMBERS = 1 << 21  # answers or cells of a batch, at most, but for a single region of more
_LEAST_NUMBERS = 1 << 14  # below which a batch is mostly glue
_BATCHES = 4  # batches, so that none waits long for the last

Done = Callable[[int, ResultT], Sequence[ItemT] | None]
"""Called with the place and result of each item, once, in the order they finish, by the thread that maps.

Items that it returns are mapped too. Their places follow those of all earlier items.
"""


class Shared(Protocol[ValueT_co]):
    """A value that many tasks read and none changes; where tasks run elsewhere it travels as a path."""

    @property
    def value(self) -> ValueT_co:
        """Return the value; elsewhere it is opened at the first call, its arrays read-only and not copied."""


class Executor(Protocol):
    """Runs tasks side by side. A context manager: leaving it ends all workers, whatever happened.

    ``workers`` run at a time; the answer depends neither on them nor on the executor. A task is a callable that a
    worker can import (no lambda, no inner function), and it changes nothing but its own result: it may
    run again, in another process, where a worker died.
    """

    name: str
    workers: int

    def start(self, ready: Callable[[], object]) -> None:
        """Begin to start workers and have each call ``ready``, so that they are warm when there is work; optional."""

    def share(self, value: ValueT) -> AbstractContextManager[Shared[ValueT]]:
        """Hold a value where all tasks find it, until the block ends."""

    def map(
        self, task: Callable[[ItemT], ResultT], items: Sequence[ItemT], done: Done[ResultT, ItemT] | None = None
    ) -> list[ResultT]:
        """Return the results of a task for all items, in the order of their places.

        What the first item to fail raises ends the others. Raises WorkerError where workers die again and again.
        """

    def close(self) -> None:
        """End all workers and remove what was handed on."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *failure: object) -> None: ...


@dataclass(frozen=True, slots=True)
class LocalValue(Generic[ValueT]):
    """A value of this process."""

    value: ValueT


def even_tasks(items: int, workers: int) -> list[range]:
    """Return the places of consecutive items cut into tasks of about equally many, some for each worker."""
    tasks = min(items, max(_TASKS, _A_WORKER * workers))
    return [range(items * k // tasks, items * (k + 1) // tasks) for k in range(tasks)]


def batch_size(numbers: int, workers: int) -> int:
    """Return how many of some numbers a batch holds; several workers get some batches each."""
    return _NUMBERS if workers == 1 else max(_LEAST_NUMBERS, min(_NUMBERS, numbers // (_BATCHES * workers)))


def batches(numbers: Ints, size: int) -> Iterator[range]:
    """Yield consecutive places whose ``numbers`` int64[places] are at most ``size`` together, or one place of more."""
    work, start = np.cumsum(numbers), 0
    while start < work.size:
        most = size + (work[start - 1] if start else 0)
        stop = max(start + 1, int(np.searchsorted(work, most, side="right")))
        yield range(start, stop)
        start = stop


class Threads:
    """Threads of this process: nothing is copied, and compiled kernels run side by side.

    One worker is no thread at all. Raises WorkerError for fewer than one.
    """

    name = "threads"

    def __init__(self, workers: int = 1) -> None:
        check_workers(workers)
        self.workers = int(workers)

    def start(self, ready: Callable[[], object]) -> None:
        """Do nothing: threads need no start."""

    @contextmanager
    def share(self, value: ValueT) -> Iterator[Shared[ValueT]]:
        """Hold a value, which every thread sees as it is."""
        yield LocalValue(value)

    def map(
        self, task: Callable[[ItemT], ResultT], items: Sequence[ItemT], done: Done[ResultT, ItemT] | None = None
    ) -> list[ResultT]:
        """Return the results of a task for all items, in the order of their places; see ``Executor``."""
        progress = MapProgress(done)
        items = progress.run_locally(task, items, alone=self.workers > 1)
        if not items:
            return progress.results
        pool = ThreadPoolExecutor(self.workers)
        try:
            running: dict[Future[ResultT], int] = {}
            while items or running:
                for item in items:
                    running[pool.submit(task, item)] = progress.next_place()
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                items = [more for future in ended for more in progress.record(running.pop(future), future.result())]
            return progress.results
        finally:
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Do nothing: threads end with their map."""

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class Count:
    """Reports to a stage how many of its regions are done, from the thread that maps."""

    def __init__(self, regions: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._regions, self._progress = 0, regions, progress

    def add(self, regions: int) -> None:
        """Count more regions as done."""
        self._done += regions
        if self._progress is not None and regions:
            self._progress(self._done, self._regions)


class MapProgress(Generic[ResultT, ItemT]):
    """The results of a map so far, by the items' places, and the callback that receives each."""

    def __init__(self, done: Done[ResultT, ItemT] | None) -> None:
        self._done, self._places = done, 0
        self._results: dict[int, ResultT] = {}

    def next_place(self) -> int:
        """Return the place of the next item."""
        self._places += 1
        return self._places - 1

    def record(self, place: int, result: ResultT) -> Sequence[ItemT]:
        """Take the result of an item, once, and return the items that follow from it."""
        if place in self._results:
            return ()
        self._results[place] = result
        return (None if self._done is None else self._done(place, result)) or ()

    def run_locally(self, task: Callable[[ItemT], ResultT], items: Sequence[ItemT], *, alone: bool) -> Sequence[ItemT]:
        """Map items in the calling thread, all or, where they are to be ``alone``, while there is one; return the rest.

        A single item is faster here than in a worker.
        """
        waiting = deque(items)
        while len(waiting) == 1 or (waiting and not alone):
            waiting.extend(self.record(self.next_place(), task(waiting.popleft())))
        return waiting

    @property
    def results(self) -> list[ResultT]:
        """Return the results of all items, in the order of their places."""
        return [self._results[place] for place in range(self._places)]


def check_workers(workers: int) -> None:
    """Raise WorkerError unless the number of workers is an integer of at least 1."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise WorkerError(f"workers must be an integer of at least 1, not {workers!r}")
