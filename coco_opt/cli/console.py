"""Printing: tables and lines to standard output, progress to standard error; neither stream can stop the work.

Signs of life: when a command has printed nothing for two seconds, standard error says what it is doing.

A line says what is done and what is left; while a step goes on, dots follow, one every two seconds, and a new line ever
less often. In a terminal the bar of a stage moves, so nothing is added there.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from coco_opt.activity import described, doing, steps
from coco_opt.errors import InputError, Place, system_errors_as

if TYPE_CHECKING:
    from rich.console import Console

    from coco_opt.releases import Progress


_PIPE_WIDTH = 180
_LONGEST_FRACTION = 16
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
        self.last = 0.0  # when it was last written
        self.before: Callable[[], None] | None = None  # called before each writing

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
        """Return the stream's descriptor; OSError where it has none."""
        if self._stream is None:
            raise OSError(errno.EBADF, "the stream is closed")
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write text; what the encoding lacks is written as an escape."""
        self.used = True
        if self.before is not None:
            self.before()
        return self.write_on(text)

    def write_on(self, text: str) -> int:
        """Write text where the last text ended, and do not count it as output."""
        self.last = monotonic()
        encodable = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
        self._try(lambda stream: stream.write(encodable))
        self.flush()
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


def keep_stdout() -> None:
    """Send what compiled packages write to standard output to standard error: the output is the command's alone."""
    if sys.stdout is None:
        return
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        descriptor = sys.stdout.fileno()
        own = os.dup(descriptor)
        os.dup2(2, descriptor)
        sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


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


def csv_text(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return records as a CSV file has them."""
    rows = io.StringIO(newline="")
    writer = csv.DictWriter(rows, columns)
    writer.writeheader()
    writer.writerows(records)
    return rows.getvalue()


def write_values(values: Sequence[tuple[str, object]]) -> None:
    """Print lines of a name and a value, aligned."""
    width = max((len(name) for name, _ in values), default=0) + 2
    for name, value in values:
        write(f"{name:<{width}}{value}")


def quoted(path: Path) -> str:
    """Return a path as a shell takes it."""
    return shlex.quote(str(path))


def figure(value: float | None, digits: int = 2) -> str:
    """Return a number in a few significant digits, "-" for none; large ones without an exponent."""
    if value is None:
        return "-"
    text = f"{value + 0.0:.{digits}g}"  # + 0.0: no "-0"
    return f"{float(text):,.0f}" if "e+" in text else text


def fraction(value: Fraction | str) -> str:
    """Return an exact amount with its decimal; where it is too long to read, six digits alone, marked with ~."""
    from coco_opt.privacy.budget import with_decimal

    text = str(value)
    return with_decimal(text) if len(text) <= _LONGEST_FRACTION else f"~{figure(float(Fraction(text)), 6)}"


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

    A terminal shows a stage as a bar that disappears, a pipe as one line when it begins. Both show what is done and how
    long is left: the bar by itself, the pipe by ``coco_opt.cli.console``.
    """

    def __init__(self, *, lines: bool = True) -> None:
        self._lines, self._bar = lines, False

    def line(self, text: str) -> None:
        """Print one line."""
        if self._lines:
            write(text)
        else:
            _say(text)

    @contextmanager
    def stage(self, label: str) -> Iterator[Progress]:
        """Show a stage of the work while its body runs; a stage within another adds its words to the other's bar."""
        if self._bar or not sys.stderr.isatty():
            if not self._bar:
                _say(label)
            with doing(label) as progress:
                yield progress
            return
        with doing(label) as progress, _bar(label) as shown:
            self._bar = True
            try:
                yield lambda done, total: (progress(done, total), shown(done, total))[0]
            finally:
                self._bar = False


@contextmanager
def _bar(label: str) -> Iterator[Progress]:
    """Show a bar in the terminal, and next to it how long is left and what goes on at present."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Now(ProgressColumn):
        """What is left of the stage, and its present step."""

        def render(self, _: object) -> Text:
            going = steps()
            texts = (going[0].left, described(going[1:])) if going else ()
            return Text("; ".join(text for text in texts if text))

    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), Now())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def writing(path: Path) -> AbstractContextManager[None]:
    """Raise InputError (cannot-write) that names ``path`` in place of an error of the operating system."""
    return system_errors_as(lambda reason: InputError("cannot-write", f"cannot be written: {reason}", Place(path.name)))


SILENCE = 1.75  # seconds without output, after which there is a sign of life
_LONGEST = 30.0  # seconds between two lines
_PAUSE = 0.1


class Heartbeat:
    """Watches both streams of a command while the body runs; ``verb`` names what is done outside any stage."""

    def __init__(
        self,
        verb: str,
        out: SafeStream,
        err: SafeStream,
        clock: Callable[[], float] = monotonic,
        silence: float = SILENCE,
    ) -> None:
        self._verb, self._out, self._err, self._clock, self._silence = verb, out, err, clock, silence
        self._start = clock()
        self._label = ""
        self._next = 0.0
        self._open = False
        self._lock = threading.RLock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._out.before = self._err.before = self.end_line
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._end.set()
        self._thread.join()
        self.end_line()
        self._out.before = self._err.before = None

    def _watch(self) -> None:
        while not self._end.wait(_PAUSE):
            if self._clock() - max(self._start, self._out.last, self._err.last) >= self._silence:
                self.beat()

    def beat(self) -> None:
        """Write a line where the last line has ended, a new stage has begun or a line is due; else add a dot."""
        with self._lock:
            going, now = steps(), self._clock()
            stage = going[0] if going else None
            label = self._verb if stage is None else stage.label
            if self._open and label == self._label and now < self._next:
                self._err.write_on(".")
                return
            self.end_line()
            elapsed = now - (self._start if stage is None else stage.start)
            self._label, self._next, self._open = label, now + min(_LONGEST, max(self._silence, elapsed)), True
            self._err.write_on(f"  {elapsed:.0f} s: {described(going) or self._verb} ")

    def end_line(self) -> None:
        """End a line that dots may still be added to, before anything else is written."""
        with self._lock:
            if self._open:
                self._open = False
                self._err.write_on("\n")
