"""The contract of an executor, and the one that needs nothing: threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from coco_opt.errors import WorkerError

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
ValueT = TypeVar("ValueT")
ValueT_co = TypeVar("ValueT_co", covariant=True)

_TASKS = 64  # at most,
_A_WORKER = 8  # but so many each, where there are many workers

Done = Callable[[int, ResultT], None]
"""Told the place of an item and its result, once each, in the order they finish, by the thread that maps."""


class Shared(Protocol[ValueT_co]):
    """A value that many tasks read and none changes; where tasks run elsewhere it travels as a path."""

    @property
    def value(self) -> ValueT_co:
        """Return the value; elsewhere it is opened at the first call, its arrays read-only and not copied."""


class Executor(Protocol):
    """Runs tasks side by side. A context manager: leaving it ends all workers, whatever happened.

    ``workers`` run at a time; the answer depends neither on them nor on the executor. A task is a callable that a
    worker can import (no lambda, no inner function), and it keeps what it changes to itself and in its result: it may
    run again, in another process, where a worker died.
    """

    name: str
    workers: int

    def start(self, ready: Callable[[], object]) -> None:
        """Begin to start workers and have each call ``ready``, so that they are warm when there is work; optional."""

    def share(self, value: ValueT) -> AbstractContextManager[Shared[ValueT]]:
        """Hold a value where all tasks find it, until the block ends."""

    def map(
        self, task: Callable[[ItemT], ResultT], items: Sequence[ItemT], done: Done[ResultT] | None = None
    ) -> list[ResultT]:
        """Return the results of a task for all items, in their order.

        What the first item to fail raises ends the others. Raises WorkerError where workers die again and again.
        """

    def close(self) -> None:
        """End all workers and remove what was handed on."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *failure: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Here(Generic[ValueT]):
    """A value of this process."""

    value: ValueT


def even_tasks(items: int, workers: int) -> list[range]:
    """Return the places of consecutive items cut into tasks of about equally many, some for each worker."""
    tasks = min(items, max(_TASKS, _A_WORKER * workers))
    return [range(items * k // tasks, items * (k + 1) // tasks) for k in range(tasks)]


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
        yield Here(value)

    def map(
        self, task: Callable[[ItemT], ResultT], items: Sequence[ItemT], done: Done[ResultT] | None = None
    ) -> list[ResultT]:
        """Return the results of a task for all items, in their order; see ``Executor``."""
        if self.workers == 1 or len(items) < 2:
            return mapped_here(task, items, done)
        pool = ThreadPoolExecutor(min(self.workers, len(items)))
        try:
            futures = {pool.submit(task, item): place for place, item in enumerate(items)}
            for future in as_completed(futures):
                future.result()
                if done is not None:
                    done(futures[future], future.result())
            return [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Do nothing: threads end with their map."""

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class Count:
    """Tells a stage how many of its regions are done, from the thread that maps."""

    def __init__(self, regions: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._regions, self._progress = 0, regions, progress

    def add(self, regions: int) -> None:
        """Count more regions as done."""
        self._done += regions
        if self._progress is not None and regions:
            self._progress(self._done, self._regions)


def mapped_here(
    task: Callable[[ItemT], ResultT], items: Sequence[ItemT], done: Done[ResultT] | None = None
) -> list[ResultT]:
    """Return the results of all items, one after the other in the calling thread."""
    results = []
    for place, item in enumerate(items):
        results.append(task(item))
        if done is not None:
            done(place, results[-1])
    return results


def check_workers(workers: int) -> None:
    """Raise WorkerError unless there is a whole number of workers, 1 or more."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise WorkerError(f"workers must be a whole number of at least 1, not {workers!r}")
