"""Make the next item while the last item is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
_END = object()


def ahead(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, made one after the other in a thread of their own, one item ahead of the caller.

    What making them raises is raised here. Nothing more is made once the caller stops.
    """
    ready: Queue[tuple[object, BaseException | None]] = Queue(maxsize=1)
    stopped = Event()

    def make() -> None:
        failure: BaseException | None = None
        try:
            for item in items:
                ready.put((item, None))
                if stopped.is_set():
                    return
        except BaseException as error:
            failure = error
        ready.put((_END, failure))

    maker = Thread(target=make, daemon=True)
    maker.start()
    try:
        while True:
            item, failure = ready.get()
            if failure is not None:
                raise failure
            if item is _END:
                return
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        while maker.is_alive():
            while not ready.empty():
                ready.get_nowait()
            maker.join(timeout=0.01)
