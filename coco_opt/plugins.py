"""What kinds, solvers and executors share: tables that packages add by entry points, with rows found by name."""

from __future__ import annotations

import difflib
import importlib
import logging
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any, TypeVar

from coco_opt.errors import MissingPackageError

_log = logging.getLogger("coco_opt")

Row = TypeVar("Row")


def loaded(target: str) -> Any:
    """Import and return what a row names as ``"module:attribute"``."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def all_rows(
    group: str,
    built_in: Sequence[Row] | str,
    what: str,
    refusal: Callable[[str], Exception],
    keys: Sequence[Callable[[Any], Any]] = (attrgetter("name"),),
) -> tuple[Row, ...]:
    """Return built-in rows and those that packages add under an entry-point group; ``what`` names a row.

    ``built_in`` are rows, or the name of the entry point of their table. A table of another package that cannot be
    loaded is left out with a warning: a third party's fault must not stop the rest. Raises the ``refusal`` of a message
    where two rows share one of the ``keys``, and MissingPackageError where the built-in table has no metadata.
    """
    points = sorted(entry_points(group=group), key=lambda point: (point.name != built_in, point.name))
    rows = [] if isinstance(built_in, str) else list(built_in)
    if not rows and not any(point.name == built_in for point in points):
        raise MissingPackageError("coco-opt", f"the table of {what}s (installation metadata not found)")
    for point in points:
        for row in table_of(point, what, required=point.name == built_in):
            if any(key(row) == key(earlier) for earlier in rows for key in keys):
                raise refusal(f"two tables define the {what} {row.name!r}; one is {point.value}")
            rows.append(row)
    return tuple(rows)


def table_of(point: EntryPoint, what: str, *, required: bool) -> Iterable[Any]:
    """Return the rows of an entry point's table; none where it cannot be loaded, unless it is ``required``."""
    try:
        table: Iterable[Any] = point.load()
    except Exception as error:
        if required:
            raise
        _log.warning("the table of %ss %s is left out: %s: %s", what, point.value, type(error).__name__, error)
        return ()
    return table


def near(
    name: object, names: Iterable[str], otherwise: str | None = None, *, start: str = "; ", cutoff: float = 0.6
) -> str:
    """Return the end of a message about an unknown name: the nearest name, or what to say ``otherwise``: all names."""
    choices = list(names)
    matches = difflib.get_close_matches(name, choices, n=1, cutoff=cutoff) if isinstance(name, str) else []
    if matches:
        return f"{start}did you mean {matches[0]!r}?"
    return f"; known: {', '.join(choices)}" if otherwise is None else otherwise
