"""What kinds, solvers and executors share: tables that packages add by entry points, with rows found by name."""

from __future__ import annotations

import difflib
import importlib
import logging
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

_log = logging.getLogger("coco_opt")

Row = TypeVar("Row")


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


def loaded(target: str) -> Any:
    """Import and return what a row names as ``"module:attribute"``."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def all_rows(
    group: str,
    built_in: Sequence[Row],
    what: str,
    refusal: Callable[[str], Exception],
    key: Callable[[Row], Any] = lambda row: getattr(row, "name", None),
) -> tuple[Row, ...]:
    """Return built-in rows and those that packages add under an entry-point group; ``what`` names a row.

    Raises the ``refusal`` of a message where two rows have one ``key``.
    """
    rows = list(built_in)
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        for row in table_of(point, f"table of {what}s"):
            if any(key(row) == key(earlier) for earlier in rows):
                raise refusal(f"two tables define the {what} {getattr(row, 'name', row)!r}; one is {point.value}")
            rows.append(row)
    return tuple(rows)


def near(
    name: object, names: Iterable[str], otherwise: str | None = None, *, start: str = "; ", cutoff: float = 0.6
) -> str:
    """Return the end of a message about an unknown name: the nearest name, or what to say ``otherwise``: all names."""
    choices = list(names)
    matches = difflib.get_close_matches(name, choices, n=1, cutoff=cutoff) if isinstance(name, str) else []
    if matches:
        return f"{start}did you mean {matches[0]!r}?"
    return f"; known: {', '.join(choices)}" if otherwise is None else otherwise
