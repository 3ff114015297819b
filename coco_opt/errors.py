"""Errors for people: what is wrong, where (file, row, column or key), and what to do next.

No message ever holds a private value; raise them with ``from None`` wherever the original exception could.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coco_opt.solution import Solution


class Advice(str):
    """A note on an error, of any type, that says what to do next and holds no private value."""


def with_advice(message: str, error: BaseException) -> str:
    """Return the message of an error, followed by the advice that is noted on it."""
    advice = [note for note in getattr(error, "__notes__", ()) if isinstance(note, Advice)]
    return ". ".join([message.removesuffix("."), *advice]) if advice else message


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory, or address space for a thread or a library, is short."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    short = ("can't start new thread", "cannot allocate memory", "failed to map segment")
    return isinstance(error, (RuntimeError, ImportError)) and any(words in str(error).lower() for words in short)


class CocoOptError(Exception):
    """Base of every error coco-opt raises on purpose; ``exit_code`` is what the command line returns.

    ``code`` is a stable name of the kind of error: a short word in kebab case.
    """

    exit_code = 2
    code = "refused"

    def __reduce__(self) -> tuple[Any, ...]:
        # An error's arguments are not those of its constructor, so an error from another process is rebuilt here.
        return _put_together, (type(self), self.args, self.__dict__)


def _put_together(kind: type[CocoOptError], arguments: tuple[Any, ...], state: dict[str, Any]) -> CocoOptError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


@contextmanager
def system_errors_as(refusal: Callable[[str], CocoOptError]) -> Iterator[None]:
    """Raise the refusal of the system's reason in place of an OSError of the body, which names files and no value."""
    try:
        yield
    except OSError as error:
        raise refusal(error.strerror or "unknown reason") from None


_SHOWN_FILES = 9
"""The further files with one error that a message lists."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the user's input an error lies; rows count from 1 and include the header line of a CSV.

    ``rows`` are the first of several rows with the same error, ``row`` among them, and ``count`` is the number of all.
    Where a table is a folder, ``further`` are the places in its next files.
    """

    file: str
    row: int | None = None
    column: str | None = None
    rows: tuple[int, ...] = ()
    count: int = 1
    further: tuple[Place, ...] = ()

    def __str__(self) -> str:
        shown = "; ".join(place._alone() for place in (self, *self.further[:_SHOWN_FILES]))
        unseen = len(self.further) - _SHOWN_FILES
        return f"{shown}; and {unseen} more files" if unseen > 0 else shown

    def _alone(self) -> str:
        parts = [self.file]
        if self.count > 1:
            listed = ", ".join(map(str, self.rows)) + (", ..." if self.count > len(self.rows) else "")
            parts.append(f"rows {listed} ({self.count} rows)")
        elif self.row is not None:
            parts.append(f"row {self.row}")
        if self.column is not None:
            parts.append(f"column {self.column!r}")
        return ", ".join(parts)


class InputError(CocoOptError):
    """A table that cannot be used as it is; carries the place and a stable code, never the value.

    Codes are short kebab-case words ("negative-size", "duplicate-group"), the same in every release. ``more`` are the
    other errors of the same table that were found together with this one; each has a line of its own.
    """

    def __init__(self, code: str, message: str, place: Place | None = None, more: tuple[InputError, ...] = ()) -> None:
        self.code = code
        self.message = message
        self.place = place
        self.more = more
        super().__init__("\n".join((f"{self.words} [{code}]", *map(str, more))))

    @property
    def words(self) -> str:
        """Return the place and the message."""
        return self.message if self.place is None else f"{self.place}: {self.message}"

    @property
    def bad_rows(self) -> list[dict[str, Any]]:
        """Return of each error that lies in rows its code, message, file, column, first rows and number of rows."""
        places = [(error, error.place) for error in (self, *self.more) if error.place is not None]
        errors = [(error, place) for error, first in places for place in (first, *first.further)]
        return [
            {
                "code": error.code,
                "message": error.message,
                "file": place.file,
                "column": place.column,
                "rows": list(place.rows or (place.row,)),
                "count": place.count,
            }
            for error, place in errors
            if place.row is not None
        ]


class HierarchyError(InputError):
    """Regions that do not form a tree: a cycle, two parents, an orphan, no or several roots, unequal depth."""


class ConfigError(CocoOptError):
    """A configuration that is not valid; names the key and, for a misspelt key, the nearest valid key."""

    code = "bad-config"

    def __init__(self, key: str, message: str, file: str | None = None) -> None:
        self.key = key
        self.message = message
        self.file = file
        where = f"{file}: " if file is not None else ""
        super().__init__(f"{where}[{key}] {message}" if key else f"{where}{message}")


class MissingPackageError(CocoOptError):
    """An optional package is not installed; the message says how to install it."""

    code = "missing-package"

    def __init__(self, package: str, purpose: str, extra: str | None = None) -> None:
        self.package = package
        what = f"coco-opt[{extra}]" if extra else package
        super().__init__(f"{purpose} needs the package {package!r}: pip install '{what}'")


class BudgetError(CocoOptError):
    """The privacy budget does not allow what was requested."""

    exit_code = 3
    code = "budget"


class VerificationError(CocoOptError):
    """A release folder does not hold what its manifest promises."""

    exit_code = 1
    code = "check-failed"


class ProblemError(CocoOptError, ValueError):
    """The data of an optimisation problem are not valid (shapes, signs, an empty feasible set)."""

    code = "bad-problem"


class UnknownSolverError(CocoOptError, LookupError):
    """No registered solver has this name, or it cannot express the problem."""

    code = "unknown-solver"


class SolverError(CocoOptError):
    """A solver did not reach its tolerance; ``solution`` holds what it returned, judged by the problem."""

    exit_code = 4
    code = "solver"

    def __init__(self, message: str, solution: Solution[Any] | None = None) -> None:
        self.solution = solution
        super().__init__(message)


class WorkerError(CocoOptError):
    """Work cannot be run as requested: an unknown executor, workers that die, a folder they do not see."""

    code = "workers"
