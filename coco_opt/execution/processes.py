"""Processes of this machine, started afresh: they inherit no memory, so no private table and no key."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

from coco_opt.errors import WorkerError
from coco_opt.execution.remote import STORED_MEMORY, Elsewhere, Ended, Part, run_part

MOST_DEATHS = 3
"""Times that the workers of one map may die before it is given up."""

_ENVIRONMENT = {
    # Linear algebra and readers of files would start a thread a core in every worker, and take each other's turn. Both
    # look at these when they are loaded; Dask's workers are started with the like.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "1",
    **STORED_MEMORY,
}


class Processes(Elsewhere):
    """A pool of ``workers`` processes, which stays until it is closed.

    A killed worker breaks the pool: another is started, and what was not done is run again. A script must start its
    work below ``if __name__ == "__main__":``, for every worker imports it.
    """

    name = "processes"

    def __init__(self, workers: int = 2, scratch: Path | None = None) -> None:
        super().__init__(workers, scratch)
        self._pool: ProcessPoolExecutor | None = None

    def start(self, ready: Callable[[], object]) -> None:
        """Start all workers and have them call ``ready``, without waiting."""
        pool = self._open_pool()
        for _ in range(self.workers):
            pool.submit(ready)

    def run(self, parts: Sequence[Part], ended: Ended) -> None:
        """Run parts, and those that follow from a part that has ended."""
        left, deaths = {part.place: part for part in parts}, 0
        while left:
            try:
                self._finish(left, ended)
            except BrokenProcessPool:
                self._abandon()
                deaths += 1
                if deaths > MOST_DEATHS:
                    raise WorkerError(
                        f"worker processes died {deaths} times: killed, out of memory (use fewer engine.workers), or a "
                        'script without if __name__ == "__main__":'
                    ) from None

    def _finish(self, left: dict[int, Part], ended: Ended) -> None:
        """Run the parts that are left, by place, and take out each that is done."""
        pool = self._open_pool()
        running: set[Future[int]] = {pool.submit(run_part, part) for part in left.values()}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for place in [future.result() for future in done]:
                    more = {part.place: part for part in ended(place)}
                    left.update(more)
                    del left[place]
                    running |= {pool.submit(run_part, part) for part in more.values()}
        finally:
            for future in running:
                future.cancel()

    def stop(self) -> None:
        """End all workers immediately, also those that are busy."""
        self._abandon()

    def _open_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context, folder = get_context("spawn"), self.folder
            self._pool = ProcessPoolExecutor(self.workers, context, initializer=_begin, initargs=(folder,))
            with _in_environment(_ENVIRONMENT):
                for _ in range(self.workers):  # each starts a worker, as none is idle yet
                    self._pool.submit(os.getpid)
        return self._pool

    def _abandon(self) -> None:
        if self._pool is None:
            return
        # The pool's own shutdown would finish running tasks first; here they are abandoned.
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


@contextmanager
def _in_environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Give processes that the body starts variables that are not set here."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _begin(folder: Path) -> None:
    """Make a worker leave interrupts to its parent, and end with it however that ends, and the folder with them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel, folder), daemon=True).start()


def _end_with(parent: int, folder: Path) -> None:
    connection.wait([parent])
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
