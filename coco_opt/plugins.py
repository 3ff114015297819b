"""What kinds, solvers and executors share: tables that packages add by entry points, with rows found by name."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import Any

_log = logging.getLogger("coco_opt")


def table_of(point: EntryPoint, what: str, *, required: bool = False) -> Iterable[Any]:
    """Return the rows of an entry point's table; none, with a warning, where it cannot be loaded.

    A third party's fault must not stop the rest; a ``required`` table raises it. ``what`` names the table.
    """
    try:
        table: Iterable[Any] = point.load()
    except Exception as error:
        if required:
            raise
        _log.warning("the %s %s is left out: %s: %s", what, point.value, type(error).__name__, error)
        return ()
    return table


def near(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest name, or all names."""
    choices = list(names)
    matches = difflib.get_close_matches(name, choices, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else f"; known: {', '.join(choices)}"
