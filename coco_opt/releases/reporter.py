"""How a run reports to its user: lasting lines, and stages that show progress."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Progress = Callable[[int, int], None]
"""Called with the number of units done and their total number."""


class Reporter(Protocol):
    """What a run reports to; neither method may receive a private value."""

    def line(self, text: str) -> None:
        """Report one line of lasting interest."""
        ...

    def stage(self, label: str) -> AbstractContextManager[Progress]:
        """Show a stage of the work while its body runs; the value takes (done, total)."""
        ...


def _ignore(done: int, total: int) -> None:
    """Take a progress report and drop it."""


class Silent:
    """A reporter without output, for use from Python."""

    def line(self, text: str) -> None:
        """Report nothing."""

    def stage(self, label: str) -> AbstractContextManager[Progress]:
        """Show nothing."""
        return nullcontext(_ignore)
