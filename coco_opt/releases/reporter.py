"""How a run reports to its user: lasting lines, and stages that show progress."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from coco_opt.activity import Progress as Progress


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
    from coco_opt.releases.notebook import NotebookReporter, in_notebook

    return NotebookReporter() if in_notebook() else Silent()
