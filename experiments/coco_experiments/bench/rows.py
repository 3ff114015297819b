"""The rows of the performance table and the lines that sum them up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import TypeVar

from coco_experiments.experiment import Cell, Outcome, Reporter, Table, write_csv, write_json

T = TypeVar("T")

COLUMNS = ("instance", "what", "n", "seconds", "ns an element", "against", "times faster", "target", "met")


@dataclass(frozen=True, slots=True)
class Row:
    """One measured thing: ``ratio`` is the peer's time divided by its own, ``target`` the least ratio to reach.

    A row with ``limit`` instead has a largest number of seconds.
    """

    instance: str
    what: str
    n: int
    seconds: float
    peer: str | None = None
    ratio: float | None = None
    target: float | None = None
    limit: float | None = None

    @property
    def met(self) -> bool | None:
        """Return whether the target is reached, None where there is none."""
        if self.target is not None and self.ratio is not None:
            return self.ratio >= self.target
        return None if self.limit is None else self.seconds <= self.limit

    def cells(self) -> tuple[Cell, ...]:
        """Return the row of the table."""
        target: Cell = None
        if self.target is not None:
            target = f">= {self.target:g} times"
        elif self.limit is not None:
            target = f"<= {self.limit:g} s"
        each = 1e9 * self.seconds / self.n if self.n else None
        return (
            self.instance,
            self.what,
            self.n,
            self.seconds,
            each,
            self.peer,
            self.ratio,
            target,
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
    row = min(compared, key=lambda one: one.ratio or 0.0)
    target = "" if row.target is None else f" (target {row.target:g})"
    return f"worst instance of {what}: {row.instance}, {row.ratio:.2f} times as fast as {row.peer}{target}"


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
    table = Table(title, COLUMNS, tuple(row.cells() for row in rows), tuple(notes))
    reporter.table(table)
    files = (write_csv(out / f"{name}.csv", table), write_json(out / f"{name}.json", [table]))
    return Outcome((table,), files, tuple(failures))
