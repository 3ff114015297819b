"""Errors in rows of a table, collected over several checks, so that they can all be corrected at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from coco_opt.errors import InputError
from coco_opt.files.source import Loaded


class Faults:
    """Collects the errors of checks, each of which runs in a ``with`` block of its own; ``check`` raises them as one.

    An error that lies in no row stops the checks: what comes after it could not be trusted.
    """

    def __init__(self) -> None:
        self._errors: list[InputError] = []

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, InputError) or error.place is None or error.place.row is None:
            return False
        alone = (type(each)(each.code, each.message, each.place) for each in (error, *error.more))
        self._errors += alone
        return True

    def __bool__(self) -> bool:
        return bool(self._errors)

    def check(self) -> None:
        """Raise the first error, with the others in ``more``, where there is any."""
        if self._errors:
            first, *more = self._errors
            raise type(first)(first.code, first.message, first.place, tuple(more))


class RowError(Exception):
    """What is wrong with the row that is being read: a code, a message and the column, None for the whole row."""

    def __init__(self, code: str, message: str, column: int | None = None) -> None:
        self.code, self.message, self.column = code, message, column


class RowFaults:
    """Collects the errors of rows that are read one after the other: an error for each code, message and column."""

    def __init__(self, table: Loaded) -> None:
        self._table = table
        self._rows: dict[tuple[str, str, int | None], list[int]] = {}

    @contextmanager
    def row(self, row: int) -> Iterator[None]:
        """Note the error of a row, by its rowid."""
        try:
            yield
        except RowError as error:
            self._rows.setdefault((error.code, error.message, error.column), []).append(row)

    def check(self, faults: Faults | None = None) -> None:
        """Raise what was noted, together with ``faults`` of checks of whole columns, where there is anything."""
        faults = Faults() if faults is None else faults
        for (code, message, column), rows in self._rows.items():
            with faults:
                place = self._table.place(self._table.rows_at(rows), column)
                raise InputError(code, message, place)
        faults.check()
