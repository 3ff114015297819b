"""Printing: tables and lines to standard output, progress bars to a terminal, silence in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from coco_opt.runs import Progress

_PIPE_WIDTH = 180
_LONGEST_FRACTION = 16
_UNITS = ("B", "kB", "MB", "GB", "TB")


def write(text: str) -> None:
    """Print one line to standard output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """Print a value as indented JSON."""
    write(json.dumps(value, indent=2, allow_nan=False))


def write_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], numeric: int = 1) -> None:
    """Print a table of plain text, never markup; columns from ``numeric`` on are right-aligned, but not notes."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for k, name in enumerate(header):
        figures = k >= numeric and name != "note"
        table.add_column(name, justify="right" if figures else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = _console()
    # As a title of the table it would be wrapped to the table's width.
    console.print(title, style="bold")
    console.print(table)


def figure(value: float | None, digits: int = 2) -> str:
    """Return a number in a few significant digits, "-" for none."""
    return "-" if value is None else f"{value + 0.0:.{digits}g}"  # + 0.0: no "-0"


def cell(value: str | int | None) -> str:
    """Return a table's cell: integers with thousands apart, "-" for none."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else value


def fraction(value: Fraction | str) -> str:
    """Return an exact amount as it is written, or to six digits, marked, where that is too long to read."""
    text = str(value)
    return text if len(text) <= _LONGEST_FRACTION else f"~{figure(float(Fraction(text)), 6)}"


def size(count: float) -> str:
    """Return a number of bytes in words."""
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{figure(count, 3)} {unit}"
        count /= 1000
    return f"{figure(count, 3)} {_UNITS[-1]}"


def _console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


class TerminalReporter:
    """Lines to standard output (or nowhere, for JSON), progress bars to standard error where it is a terminal."""

    def __init__(self, *, lines: bool = True) -> None:
        self._lines = lines

    def line(self, text: str) -> None:
        """Print one line."""
        if self._lines:
            write(text)

    @contextmanager
    def stage(self, label: str) -> Iterator[Progress]:
        """Show a bar that disappears when its body ends; nothing where nobody watches."""
        if not sys.stderr.isatty():
            yield lambda done, total: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
