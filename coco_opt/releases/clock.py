"""Wall seconds of a run's stages, and how fast this machine is."""

from __future__ import annotations

from functools import cache
from time import perf_counter

_WATCHED = 0.4  # seconds
_STEPS = 20_000
_REFERENCE = 1.9e-7  # seconds of a step on the idle machine on which stages were measured


class Clock:
    """Wall seconds a stage; they depend on private data and go to the private record only."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        """Note the seconds since the last lap under a name."""
        now = perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now


@cache
def slowness() -> float:
    """Return how many times longer than on an idle reference machine work takes here and now; measured once.

    It takes 0.4 seconds: a busy machine favours a process for a moment, and shares fairly only then.
    """
    start, total, steps = perf_counter(), 0, 0
    while perf_counter() - start < _WATCHED:
        for step in range(_STEPS):
            total += step * step % 7
        steps += _STEPS
    return (perf_counter() - start) / (_REFERENCE * steps)
