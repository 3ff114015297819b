"""Share compiling between processes: the first one that misses a kernel on disk compiles it, the others wait for it.

A claim is a lock on a file next to the kernel's cache; the system releases it when the process ends. Where files cannot
be locked, and after ``PATIENCE`` seconds, every process compiles for itself: a claim only saves work.
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

from coco_opt.activity import doing

PATIENCE = 120.0  # seconds; the largest kernels take a tenth of that
_PAUSE = 0.01
_compiled = 0


def share_compiling(dispatcher: Any, cache: Any) -> None:
    """Let a kernel be compiled by one process at a time, and without the collector of cycles.

    The compiler makes millions of long-lived objects: the collector would take a twelfth of the time to scan them.
    """
    compile_alone, load = dispatcher.compile, cache.load_overload
    claim = Path(f"{cache._cache_file._index_path}.claim")
    stacks: list[ExitStack] = []
    name = claim.name.partition("-")[0]  # the module and the function

    def compile_once(signature: Any) -> Any:
        # A claim waits inside numba's own lock: two threads that took the two in turn would wait for each other.
        with global_compiler_lock, ExitStack() as stack:
            stacks.append(stack)
            stack.callback(stacks.pop)
            return compile_alone(signature)

    def load_or_claim(*arguments: Any) -> Any:
        overload = load(*arguments)
        if overload is None and stacks:
            stacks[-1].enter_context(_compiling(f"compiling {name}"))
            waited = stacks[-1].enter_context(claimed(claim))
            stacks[-1].enter_context(_no_collector())
            return load(*arguments) if waited else None
        return overload

    dispatcher.compile, cache.load_overload = compile_once, load_or_claim


@contextmanager
def _compiling(label: str) -> Iterator[None]:
    """Say that a kernel is compiled while the body runs, and count it."""
    global _compiled
    with doing(label, lambda: f"{_compiled} compiled"):
        yield
    _compiled += 1


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
