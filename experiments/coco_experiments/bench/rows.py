"""The rows of the performance table and the lines that sum them up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, TypeVar

from coco_experiments.bench.timing import Timing, take_turns
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, write_csv, write_json

T = TypeVar("T")

COLUMNS = (
    "instance",
    "what",
    "n",
    "seconds",
    "ns an element",
    "cores' seconds",
    "peak MB",
    "against",
    "times faster",
    "target",
    "met",
)
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
    def met(self) -> bool | None:
        """Return whether every target is reached, None where there is none."""
        reached = [
            measured >= 0.0
            for measured in (
                None if self.target is None or self.ratio is None else self.ratio - self.target,
                None if self.limit is None else self.limit - self.seconds,
                None if self.peak_limit is None or self.peak is None else self.peak_limit - self.peak,
            )
            if measured is not None
        ]
        return all(reached) if reached else None

    def cells(self) -> tuple[Cell, ...]:
        """Return the row of the table."""
        targets = [
            text
            for bound, text in (
                (self.target, f">= {self.target or 0:.3g} times"),
                (self.limit, f"<= {self.limit or 0:g} s"),
                (self.peak_limit, f"<= {self.peak_limit or 0:,g} MB"),
            )
            if bound is not None
        ]
        each = 1e9 * self.seconds / self.n if self.n else None
        return (
            self.instance,
            self.what,
            self.n,
            self.seconds,
            each,
            self.cpu,
            self.peak,
            self.peer,
            self.ratio,
            ", ".join(targets) or None,
            self.met,
        )


def clocked(call: Callable[[], T]) -> tuple[float, float, T]:
    """Return wall seconds, CPU seconds of this process and the value of one call."""
    start, used = perf_counter(), process_time()
    value = call()
    return perf_counter() - start, process_time() - used, value


def worst(rows: Sequence[Row], what: str) -> str:
    """Return one line that names the instance on which ``what`` does worst against its peer."""
    compared = [row for row in rows if row.what == what and row.ratio is not None]
    if not compared:
        return f"{what}: nothing to compare with"
    row = min(compared, key=lambda candidate: candidate.ratio or 0.0)
    target = "" if row.target is None else f" (target {row.target:g})"
    return f"worst instance of {what}: {row.instance}, {row.ratio:.2f} times as fast as {row.peer}{target}"


class Bench:
    """Collect what the parts of a bench measure: rows, wrong answers, and notes below the table."""

    def __init__(self, name: str, reporter: Reporter, parts: int, repeats: int) -> None:
        self.name, self.reporter, self.repeats = name, reporter, repeats
        self.rows: list[Row] = []
        self.wrong: list[str] = []
        self.notes: list[str] = []
        self._done, self._parts = 0, parts

    def done(self) -> None:
        """Show that one more part is finished."""
        self._done += 1
        self.reporter.progress(self.name, self._done, self._parts)

    def row(self, instance: str, what: str, n: int, seconds: float, **more: Any) -> None:
        """Add a row; ``more`` are the other fields of ``Row``."""
        self.rows.append(Row(instance, what, n, seconds, **more))

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

    def finish(self, title: str, out: Path, *notes: str) -> Outcome:
        """Show the table with all notes and write it; only wrong answers fail, never a missed time."""
        return finish(self.name, title, self.rows, [*self.notes, *notes], self.wrong, out, self.reporter)


PAIRED = "times faster: median over pairs of runs taken in turns; only wrong answers fail this run"


def finish(
    name: str,
    title: str,
    rows: Sequence[Row],
    notes: Sequence[str],
    failures: Sequence[str],
    out: Path,
    reporter: Reporter,
) -> Outcome:
    """Print the table and write it as CSV and JSON; only wrong answers fail, never a missed time."""
    cells = [row.cells() for row in rows]
    # Most rows are not measured apart: two empty columns would make their tables too wide for a screen.
    shown = [i for i, name in enumerate(COLUMNS) if name not in _APART or any(line[i] is not None for line in cells)]
    columns = tuple(COLUMNS[i] for i in shown)
    table = Table(title, columns, tuple(tuple(line[i] for i in shown) for line in cells), tuple(notes))
    reporter.table(table)
    files = (write_csv(out / f"{name}.csv", table), write_json(out / f"{name}.json", [table]))
    return Outcome((table,), files, tuple(failures))
