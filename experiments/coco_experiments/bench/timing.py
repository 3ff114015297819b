"""A small timing harness: warm up outside the clock, then take turns, so that peers share the machine's moods."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any


@dataclass(frozen=True, eq=False, slots=True)
class Timing:
    """Wall seconds of every repetition, in order, and what the last call returned.

    ``own`` are the seconds that each answer states of itself, as solutions do for their solver alone.
    """

    seconds: tuple[float, ...]
    value: Any
    own: tuple[float, ...] = ()

    @classmethod
    def of(cls, runs: Iterable[Any]) -> Timing:
        """Return the timing of runs that say their seconds."""
        return cls(tuple(run.seconds for run in runs), None)

    @property
    def alone(self) -> Timing:
        """Return the same runs by the seconds that their answers state."""
        return Timing(self.own, self.value)

    @property
    def median(self) -> float:
        """Return the median of the repetitions."""
        return median(self.seconds)

    def ratio(self, other: Timing) -> float:
        """Return how many times longer ``other`` takes: the median of the ratios pair by pair."""
        return median(theirs / ours for ours, theirs in zip(self.seconds, other.seconds, strict=True))


def take_turns(candidates: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """Time every candidate ``repeats`` times, A B C A B C, after one call of each that is not counted.

    The first call compiles, loads caches and touches memory. The collector of reference cycles is off meanwhile.
    """
    for call in candidates.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    own: dict[str, list[float]] = {name: [] for name in candidates}
    values: dict[str, Any] = {}
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, call in candidates.items():
                values.pop(name, None)
                start = perf_counter()
                values[name] = call()
                seconds[name].append(perf_counter() - start)
                own[name].append(float(getattr(values[name], "seconds", seconds[name][-1])))
    finally:
        if enabled:
            gc.enable()
    return {name: Timing(tuple(seconds[name]), values[name], tuple(own[name])) for name in candidates}
