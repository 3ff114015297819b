"""How a run reports to its user: lasting lines, and stages that show progress, in a notebook below the cell."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape
from typing import Any, Protocol

from coco_opt.activity import Progress, described, doing, steps, take_interrupt_message


class Reporter(Protocol):
    """What a run reports to; neither method may receive a private value."""

    def line(self, text: str) -> None:
        """Report one line of lasting interest."""
        ...

    def stage(self, label: str) -> AbstractContextManager[Progress]:
        """Show a stage of the work while its body runs; the value takes (done, total)."""
        ...


def no_progress(done: int, total: int) -> None:
    """Take a progress report and drop it."""


class Silent:
    """A reporter without output, for use from Python."""

    def line(self, text: str) -> None:
        """Report nothing."""

    def stage(self, label: str) -> AbstractContextManager[Progress]:
        """Show nothing."""
        return nullcontext(no_progress)


def default_reporter(reporter: Reporter | None) -> Reporter:
    """Return the given reporter; without it, that of the notebook that runs this process, else a silent reporter."""
    if reporter is not None:
        return reporter
    return NotebookReporter() if in_notebook() else Silent()


_PAUSE = 1.0  # seconds between two pictures
_BAR = '<progress style="vertical-align:middle" {value}></progress> <small>{words}</small>'


def in_notebook() -> bool:
    """Return whether a notebook's kernel runs this process; imports nothing."""
    shell = sys.modules.get("IPython")
    return "ipykernel" in sys.modules and shell is not None and shell.get_ipython() is not None


class NotebookReporter:
    """Reports to the output of a cell; ``show`` opens a display there and returns what changes it."""

    def __init__(self, show: Callable[[str], Callable[[str], None]] | None = None, pause: float = _PAUSE) -> None:
        self._show, self._pause, self._busy = show or _displayed, pause, False

    def line(self, text: str) -> None:
        """Print one line."""
        sys.stdout.write(f"{text}\n")

    @contextmanager
    def stage(self, label: str) -> Iterator[Progress]:
        """Show a stage while its body runs; after an interrupt, say what is kept and how to go on."""
        if self._busy:
            with doing(label) as progress:
                yield progress
            return
        self._busy = True
        try:
            with doing(label) as progress, self._line_below():
                yield progress
        except KeyboardInterrupt:
            self.line(take_interrupt_message())
            raise
        finally:
            self._busy = False

    @contextmanager
    def _line_below(self) -> Iterator[None]:
        """Show a line from the first pause on: a short stage leaves no output behind."""
        changes: list[Callable[[str], None]] = []
        end = threading.Event()

        def follow() -> None:
            while not end.wait(self._pause):
                if changes:
                    changes[0](_picture())
                else:
                    changes.append(self._show(_picture()))

        thread = threading.Thread(target=follow, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
            for change in changes:
                change("")


def _picture() -> str:
    """Return a bar of the outermost step, and the words of all steps."""
    going = steps()
    share = going[0].share if going else None
    value = "" if share is None else f'value="{share:.3f}"'
    elapsed = f" ({going[0].elapsed:.0f} s)" if going else ""
    return _BAR.format(value=value, words=escape(described(going) + elapsed))


def _displayed(html: str) -> Callable[[str], None]:
    from IPython.display import HTML, display

    show: Any = display
    page: Any = HTML
    handle = show(page(html), display_id=True)
    return lambda changed: handle.update(page(changed))
