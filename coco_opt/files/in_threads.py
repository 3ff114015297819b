"""Work in threads: on several pieces of a table at a time, or on the next item while the last is used."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_MOST = 16  # threads: each holds a piece


def cores() -> int:
    """Return the number of cores that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


def in_threads(function: Callable[[T], R], pieces: Iterable[T], threads: int | None = None) -> Iterator[R]:
    """Yield ``function`` of each piece, in their order, worked out in threads: one for each core, unless stated.

    At most one result more than threads waits for the caller. What a piece raises is raised here, the earliest piece's
    first. Nothing more is begun once the caller stops.
    """
    threads = min(cores(), _MOST) if threads is None else threads
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for piece in pieces:
            waiting.append(pool.submit(function, piece))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def ahead(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, made one after the other in a thread of their own, one item ahead of the caller.

    What making them raises is raised here. Nothing more is made once the caller stops.
    """
    end, left = object(), iter(items)
    with ThreadPoolExecutor(1) as pool:
        ready: Future[Any] = pool.submit(next, left, end)
        while (item := ready.result()) is not end:
            ready = pool.submit(next, left, end)
            yield item
