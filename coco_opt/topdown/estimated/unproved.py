"""Whole tables that keep every sum and constraint but were not proved the nearest: counted, so that it can be said."""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True)
class Unproved:
    """How many fits and roundings were not proved nearest, and the largest relative gap known of one.

    ``unknown`` of them have no known gap: every solver failed, and an answer it left, or any whole tables that hold,
    were taken.
    """

    steps: int = 0
    gap: float = 0.0
    unknown: int = 0

    def __bool__(self) -> bool:
        return self.steps > 0

    def and_one(self, gap: float) -> Unproved:
        """Return the count with one more, of a relative gap that may be infinite."""
        if math.isfinite(gap):
            return Unproved(self.steps + 1, max(self.gap, gap), self.unknown)
        return Unproved(self.steps + 1, self.gap, self.unknown + 1)


NOTHING_UNPROVED = Unproved()


class Tally:
    """Counts from any thread."""

    def __init__(self) -> None:
        self.value, self._lock = NOTHING_UNPROVED, Lock()

    def note(self, gap: float) -> None:
        """Count one more."""
        with self._lock:
            self.value = self.value.and_one(gap)

    def merge(self, more: Unproved) -> None:
        """Count in what a task has counted."""
        with self._lock:
            known = self.value
            gap = max(known.gap, more.gap)
            self.value = Unproved(known.steps + more.steps, gap, known.unknown + more.unknown)

    def __reduce__(self) -> tuple[type[Tally], tuple[()]]:
        return Tally, ()  # locks do not travel; whoever counts elsewhere begins anew

    def resume(self, before: Unproved) -> None:
        """Go on from the count of an interrupted run."""
        with self._lock:
            self.value = before
