"""How a run tells its user what it does: lines for the record, stages for the eye."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Progress = Callable[[int, int], None]
"""Told the units done and their number."""


class Reporter(Protocol):
    """What a run needs of its surroundings; neither method may be given a private value."""

    def line(self, text: str) -> None:
        """Say one line of lasting interest."""
        ...

    def stage(self, label: str) -> AbstractContextManager[Progress]:
        """Show a stage of the work while its body runs; the value takes (done, total)."""
        ...


def _ignore(done: int, total: int) -> None:
    """Take a progress report and drop it."""


class Silent:
    """A reporter that says nothing, for use from Python."""

    def line(self, text: str) -> None:
        """Say nothing."""

    def stage(self, label: str) -> AbstractContextManager[Progress]:
        """Show nothing."""
        return nullcontext(_ignore)
