"""Errors in rows of a table, collected over several checks, so that they can all be corrected at once."""

from __future__ import annotations

from types import TracebackType

from coco_opt.errors import InputError


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
