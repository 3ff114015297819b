"""Several processes, one compiler: whoever first misses a kernel on disk compiles it, others wait for that and load it.

A claim is a lock on a file beside the kernel's cache, which the system gives back with the process that held it. Where
files cannot be locked, and after ``PATIENCE``, everyone compiles alone: a claim saves work and decides nothing.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

PATIENCE = 120.0  # seconds; the largest kernels take a tenth of that
_PAUSE = 0.01


def share_compiling(dispatcher: Any, cache: Any) -> None:
    """Let a kernel be compiled by one process at a time, and without the collector of cycles.

    The compiler makes millions of objects that stay: looking through them takes a twelfth of its time.
    """
    compile_alone, load = dispatcher.compile, cache.load_overload
    claim = Path(f"{cache._cache_file._index_path}.claim")
    held: list[ExitStack] = []

    def compile_once(signature: Any) -> Any:
        # A claim waits inside numba's own lock: two threads that took the two in turn would wait for each other.
        with global_compiler_lock, ExitStack() as stack:
            held.append(stack)
            stack.callback(held.pop)
            return compile_alone(signature)

    def load_or_claim(*wanted: Any) -> Any:
        found = load(*wanted)
        if found is None and held:
            waited = held[-1].enter_context(claimed(claim))
            held[-1].enter_context(_no_collector())
            return load(*wanted) if waited else None
        return found

    dispatcher.compile, cache.load_overload = compile_once, load_or_claim


@contextmanager
def claimed(path: Path, patience: float = PATIENCE) -> Iterator[bool]:
    """Hold the claim of a path in the body; yield whether it had to be waited for, at most so many seconds."""
    waited, descriptor = False, None
    with suppress(OSError):  # a folder that cannot be written holds no claims
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        end = monotonic() + patience
        while descriptor is not None and not _locked(descriptor) and monotonic() < end:
            waited = True
            sleep(_PAUSE)
        yield waited
    finally:
        if descriptor is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)  # who waits on the removed file finds the kernel on disk
            os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Take the lock of an open file, True also where files have none; False while another process holds it."""
    try:
        _lock()(descriptor)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _lock() -> Callable[[int], None]:
    if sys.platform == "win32":
        return lambda _: None
    import fcntl

    return lambda descriptor: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _no_collector() -> Iterator[None]:
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
