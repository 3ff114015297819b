"""A bench: what it collects while it runs (rows of the performance table, wrong answers, notes), and how it is told.

Its timing harness warms up outside the clock, then takes turns, so that peers share the machine's moods.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

from coco_experiments.bench.apart import Apart, apart, clocked, typical
from coco_experiments.outcome import Outcome, Record, Reporter, Table, write_csv


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


T = TypeVar("T")
PAIRED = "times faster: median over pairs of runs taken in turns; only wrong answers fail this run"
_APART = ("cores' seconds", "peak MB")


@dataclass(frozen=True, slots=True)
class Row:
    """One measured thing: ``ratio`` is the peer's time divided by its own, ``target`` the least ratio to reach.

    ``limit`` is the largest number of seconds. What ran in a process of its own has its seconds of all cores, ``cpu``,
    and its largest memory in MB, ``peak``, which ``peak_limit`` bounds.
    """

    instance: str
    what: str
    n: int
    seconds: float
    peer: str | None = None
    ratio: float | None = None
    target: float | None = None
    limit: float | None = None
    cpu: float | None = None
    peak: float | None = None
    peak_limit: float | None = None

    @property
    def _aims(self) -> list[tuple[str, bool]]:
        """Return every target in words, and whether it is reached."""
        bounds = (
            (self.target, self.ratio, ">= {:.3g} times", -1.0),
            (self.limit, self.seconds, "<= {:g} s", 1.0),
            (self.peak_limit, self.peak, "<= {:,g} MB", 1.0),
        )
        return [
            (words.format(bound), sign * measured <= sign * bound)
            for bound, measured, words, sign in bounds
            if bound is not None and measured is not None
        ]

    @property
    def met(self) -> bool | None:
        """Return whether every target is reached, None where there is none."""
        return all(reached for _, reached in self._aims) if self._aims else None

    def cells(self) -> Record:
        """Return the row of the table."""
        return {
            "instance": self.instance,
            "what": self.what,
            "n": self.n,
            "seconds": self.seconds,
            "ns an element": 1e9 * self.seconds / self.n if self.n else None,
            "cores' seconds": self.cpu,
            "peak MB": self.peak,
            "against": self.peer,
            "times faster": self.ratio,
            "target": ", ".join(words for words, _ in self._aims) or None,
            "met": self.met,
        }


class Bench:
    """A run of a bench, and what its parts measured.

    ``small`` takes seconds on simulated data; otherwise real data are read from ``data`` where they are present.
    """

    def __init__(
        self, name: str, reporter: Reporter, *, repeats: int = 1, small: bool = True, data: Path | None = None
    ) -> None:
        self.name, self.reporter, self.repeats, self.small, self.data = name, reporter, repeats, small, data
        self.rows: list[Row] = []
        self.wrong: list[str] = []
        self.notes: list[str] = []

    def over(self, parts: Iterable[T]) -> Iterator[T]:
        """Yield the parts of the bench, and show how many are finished."""
        listed = list(parts)
        for done, part in enumerate(listed, 1):
            yield part
            self.reporter.progress(self.name, done, len(listed))

    def row(self, instance: str, what: str, n: int, seconds: float, **more: Any) -> None:
        """Add a row; ``more`` are the other fields of ``Row``."""
        self.rows.append(Row(instance, what, n, seconds, **more))

    def once(self, instance: str, what: str, n: int, call: Callable[[], T], **more: Any) -> tuple[T, float]:
        """Add a row of one call; return its value and its CPU seconds."""
        seconds, used, value = clocked(call)
        self.row(instance, what, n, seconds, **more)
        return value, used

    def apart(self, instance: str, what: str, n: int, runs: Apart | Sequence[Apart], **more: Any) -> Any:
        """Add a row of runs in processes of their own; return what the last returned."""
        run = runs if isinstance(runs, Apart) else typical(list(runs))
        self.row(instance, what, n, run.seconds, cpu=run.cpu, peak=run.peak, **more)
        return run.value

    def in_turns(self, instance: str, n: int, calls: Mapping[str, tuple[str, Sequence[Any]]], **more: Any) -> list[Any]:
        """Add a row for each of two calls by name, of a target and its arguments, each time in a process of its own.

        The first is compared with the second; ``more`` is of the first. Return what both returned.
        """
        turns = [[apart(target, *arguments) for target, arguments in calls.values()] for _ in range(self.repeats)]
        ours, theirs = zip(*turns, strict=True)
        ratio = Timing.of(ours).ratio(Timing.of(theirs))
        what, peer = calls
        return [
            self.apart(instance, what, n, ours, peer=peer, ratio=ratio, **more),
            self.apart(instance, peer, n, theirs),
        ]

    def against(self, instance: str, n: int, ours: Mapping[str, float | None], timings: Mapping[str, Timing]) -> None:
        """Add a row for each of ``ours``, with its target, against the fastest of the other timings; then the others.

        Peers alone are timed where there are none of ours.
        """
        peers = {name: timing for name, timing in timings.items() if name not in ours}
        best = min(peers, key=lambda name: peers[name].median, default=None)
        for what, target in ours.items():
            ratio = None if best is None else timings[what].ratio(peers[best])
            aim = None if best is None else target
            self.row(instance, what, n, timings[what].median, peer=best, ratio=ratio, target=aim)
        for name, timing in peers.items():
            self.row(instance, name, n, timing.median)

    def doubling(self, what: str, calls: Mapping[str, tuple[int, Callable[[], Any]]], sizes: str) -> dict[str, Timing]:
        """Add a row for each instance, of n and call, and a note of how much longer each takes than the one before."""
        timings = take_turns({name: call for name, (_, call) in calls.items()}, self.repeats)
        for name, (n, _) in calls.items():
            self.row(name, what, n, timings[name].median)
        growth = ", ".join(f"{timings[a].ratio(timings[b]):.2f}" for a, b in pairwise(calls))
        self.notes.append(f"{what}, {sizes}: each doubling takes {growth} times as long")
        return timings

    def worst(self, *names: str) -> list[str]:
        """Return a line for each of ``names`` that says on which instance it does worst against its peer."""
        lines = []
        for what in names:
            compared = [row for row in self.rows if row.what == what and row.ratio is not None]
            if not compared:
                lines.append(f"{what}: nothing to compare with")
                continue
            row = min(compared, key=lambda candidate: candidate.ratio or 0.0)
            target = "" if row.target is None else f" (target {row.target:g})"
            pace = f"{row.ratio:.2f} times as fast as {row.peer}{target}"
            lines.append(f"worst instance of {what}: {row.instance}, {pace}")
        return lines

    def finish(self, title: str, out: Path) -> Outcome:
        """Show the table and write it as CSV; only wrong answers fail, never a missed time."""
        rows = [row.cells() for row in self.rows]
        # Most rows are not measured apart: two empty columns would make their tables too wide for a screen.
        empty = [name for name in _APART if all(row[name] is None for row in rows)]
        shown = [{name: cell for name, cell in row.items() if name not in empty} for row in rows]
        table = Table.of(title, shown, self.notes)
        self.reporter.table(table)
        return Outcome((table,), (write_csv(out / f"{self.name}.csv", table),), tuple(self.wrong))


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A declared bench: ``measure`` fills a ``Bench`` and returns the title of its table; notes follow its own.

    ``repeats`` are those of a whole and of a small run.
    """

    name: str
    measure: Callable[[Bench], str]
    notes: tuple[str, ...] = ()
    repeats: tuple[int, int] = (1, 1)

    def run(self, *, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
        """Measure, and write the table as CSV below ``out``; the record of the run holds it as JSON."""
        bench = Bench(self.name, reporter, repeats=self.repeats[small], small=small, data=data)
        title = self.measure(bench)
        bench.notes += self.notes
        return bench.finish(title, out)
