"""The wall seconds of a run's stages, the memory they leave behind, and the speed of this machine."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from functools import cache
from time import perf_counter, process_time

_STEPS = 300_000
_REFERENCE = 0.034  # seconds of that many steps on the machine on which stages were measured


class Clock:
    """The wall seconds of each stage. They depend on private data and go to the private record only."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        """Record the seconds since the last lap under a name, and return freed memory to the system.

        Allocators keep it, and the next stage needs blocks of other sizes.
        """
        arrow = sys.modules.get("pyarrow")
        if arrow is not None:
            arrow.default_memory_pool().release_unused()
        with suppress(OSError, AttributeError, TypeError):  # glibc's, where there is one
            ctypes.CDLL(None).malloc_trim(0)
        now = perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now


@cache
def slowness() -> float:
    """Return how many times slower a core of this machine is than a core of the reference machine; measured once."""
    start, total = process_time(), 0
    for step in range(_STEPS):
        total += step * step % 7
    return (process_time() - start) / _REFERENCE
