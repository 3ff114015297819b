"""Tables that packages add by entry points, rows found by name: what kinds, solvers and executors share."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import Any

_log = logging.getLogger("coco_opt")


def table_of(point: EntryPoint, what: str, *, required: bool = False) -> Iterable[Any]:
    """Return the rows of an entry point's table; none, with a warning, where it cannot be loaded.

    A third party's fault must not stop the rest; one that is ``required`` raises it. ``what`` names the table.
    """
    try:
        table: Iterable[Any] = point.load()
    except Exception as error:
        if required:
            raise
        _log.warning("the %s %s is left out: %s: %s", what, point.value, type(error).__name__, error)
        return ()
    return table


def near(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about a name that is not known: the nearest one, or all."""
    names = list(known)
    found = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {found[0]!r}?" if found else f"; known: {', '.join(names)}"
