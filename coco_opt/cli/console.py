"""Printing: tables and lines to standard output, progress to standard error; neither stream can stop the work."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

    from coco_opt.releases import Progress

_PIPE_WIDTH = 180
_LONGEST_FRACTION = 16
_MINUTE, _HOUR = 60, 3600
_FIRST_WORD = 60.0  # seconds of a stage after which a pipe is first told how long is left
_UNITS = ("B", "kB", "MB", "GB", "TB")
_GONE = (errno.EPIPE, errno.EBADF)  # nobody reads any more, which is not a failure here


class SafeStream(io.TextIOBase):
    """A standard stream that records its failures instead of raising them: work that was paid for goes on without it.

    ``used`` says that something was written, ``failure`` why writing failed ("" where it did not, or nobody reads).
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.used = False
        self.failure = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return the encoding of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def writable(self) -> bool:
        """Return that it can be written."""
        return True

    def isatty(self) -> bool:
        """Return whether a terminal shows it."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's descriptor; OSError without one."""
        if self._stream is None:
            raise OSError(errno.EBADF, "the stream is closed")
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write text; what the encoding lacks is written as an escape."""
        self.used = True
        encodable = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
        self._try(lambda stream: stream.write(encodable))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        self._try(lambda stream: stream.flush())

    def _try(self, action: Any) -> None:
        if self._stream is None:
            return
        try:
            action(self._stream)
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            reason = error.errno if isinstance(error, OSError) else errno.EBADF
            if reason not in _GONE:
                self.failure = os.strerror(reason) if reason else "unknown reason"
            self._drop()

    def _drop(self) -> None:
        """Stop writing, and discard what is buffered: the interpreter would fail on it when it exits."""
        stream, self._stream = self._stream, None
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
            os.close(nowhere)
        except (OSError, ValueError):
            return


@contextmanager
def safe_streams() -> Iterator[tuple[SafeStream, SafeStream]]:
    """Replace standard output and standard error by streams that cannot fail while the body runs."""
    before = sys.stdout, sys.stderr
    safe = SafeStream(before[0]), SafeStream(before[1])
    sys.stdout, sys.stderr = safe
    try:
        yield safe
    finally:
        for stream in safe:
            stream.flush()
        sys.stdout, sys.stderr = before


def open_descriptors() -> None:
    """Open closed standard descriptors on the null device, so that no file of a run takes their numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


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


def write_values(values: Sequence[tuple[str, object]]) -> None:
    """Print lines of a name and a value, aligned."""
    width = max((len(name) for name, _ in values), default=0) + 2
    for name, value in values:
        write(f"{name:<{width}}{value}")


def quoted(path: Path) -> str:
    """Return a path as a shell takes it."""
    return shlex.quote(str(path))


def figure(value: float | None, digits: int = 2) -> str:
    """Return a number in a few significant digits, "-" for none."""
    return "-" if value is None else f"{value + 0.0:.{digits}g}"  # + 0.0: no "-0"


def fraction(value: Fraction | str) -> str:
    """Return an exact amount as written; where that is too long to read, six digits, marked with ~."""
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
    """Reports lines to standard output, or without ``lines`` (with JSON) to standard error; stages to standard error.

    A terminal shows a stage as a bar that disappears, a pipe as one line when it begins. Both say how long is left of a
    long stage, the pipe less and less often.
    """

    def __init__(self, *, lines: bool = True) -> None:
        self._lines = lines

    def line(self, text: str) -> None:
        """Print one line."""
        if self._lines:
            write(text)
        else:
            _say(text)

    @contextmanager
    def stage(self, label: str) -> Iterator[Progress]:
        """Show a stage of the work while its body runs."""
        if not sys.stderr.isatty():
            _say(label)
            yield _Left(label, _say).progress
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        left_column = TextColumn("{task.fields[left]}")
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            left_column,
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task, start = bar.add_task(label, total=None, left=""), monotonic()
            yield lambda done, total: bar.update(
                task, completed=done, total=total, left=time_left(monotonic() - start, done, total)
            )


class _Left:
    """Reports how long is left of a stage: first after a minute, then each time after twice as long."""

    def __init__(self, label: str, say: Callable[[str], None], clock: Callable[[], float] = monotonic) -> None:
        self._label, self._say, self._clock = label, say, clock
        self._start, self._next = clock(), _FIRST_WORD

    def progress(self, done: int, total: int) -> None:
        """Record how far the stage got; threads may call it."""
        elapsed = self._clock() - self._start
        if elapsed >= self._next and 0 < done < total:
            self._next = 2 * elapsed
            self._say(f"{self._label}: {100 * done // total} % done, {time_left(elapsed, done, total)}")


def time_left(seconds: float, done: int, total: int) -> str:
    """Return in words how long is left of work that took ``seconds`` so far; "" where that is unknown."""
    if not 0 < done < total:
        return ""
    remaining = seconds * (total - done) / done
    if remaining < _MINUTE:
        return "less than a minute left"
    if remaining < 2 * _HOUR:
        minutes = round(remaining / _MINUTE)
        return f"about {minutes} minute{'s' if minutes > 1 else ''} left"
    return f"about {round(remaining / _HOUR)} hours left"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
