"""Integer tables that keep every sum and constraint but were not proved nearest, counted for the report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True)
class UncertifiedGap:
    """How many fits and roundings were not proved nearest, and the largest relative gap known of one.

    ``unknown`` of them have no known gap: every solver failed, and its last point, or any feasible integer tables, were
    used.
    """

    steps: int = 0
    gap: float = 0.0
    unknown: int = 0

    def __bool__(self) -> bool:
        return self.steps > 0

    def and_one(self, gap: float) -> UncertifiedGap:
        """Return the count with one more, of a relative gap that may be infinite."""
        if math.isfinite(gap):
            return UncertifiedGap(self.steps + 1, max(self.gap, gap), self.unknown)
        return UncertifiedGap(self.steps + 1, self.gap, self.unknown + 1)


ALL_CERTIFIED = UncertifiedGap()


class Tally:
    """Counts from any thread."""

    def __init__(self) -> None:
        self.value, self._lock = ALL_CERTIFIED, Lock()

    def note(self, gap: float) -> None:
        """Count one more."""
        with self._lock:
            self.value = self.value.and_one(gap)

    def merge(self, more: UncertifiedGap) -> None:
        """Count in what a task has counted."""
        with self._lock:
            before = self.value
            gap = max(before.gap, more.gap)
            self.value = UncertifiedGap(before.steps + more.steps, gap, before.unknown + more.unknown)

    def __reduce__(self) -> tuple[type[Tally], tuple[()]]:
        return Tally, ()  # locks cannot be pickled; a copy starts at zero

    def resume(self, before: UncertifiedGap) -> None:
        """Go on from the count of an interrupted run."""
        with self._lock:
            self.value = before
