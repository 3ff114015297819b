"""Wall seconds of a run's stages."""

from __future__ import annotations

from time import perf_counter


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
