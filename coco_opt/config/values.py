"""Single values of a configuration: each function checks one, and its error says what the value must be."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard, get_args

from pydantic import PlainValidator, ValidationInfo

from coco_opt.errors import UnknownSolverError
from coco_opt.estimators import estimator_rows
from coco_opt.execution import executor_rows
from coco_opt.files.inputs import ArrowStream, Frame
from coco_opt.histograms.texts import is_plain_name
from coco_opt.plugins import near
from coco_opt.problems import PROBLEMS
from coco_opt.registry import backend

Option = str | int | float | bool

_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) (second|minute|hour)s?")
_DECIMAL_OR_FRACTION = re.compile(r"[0-9]{1,60}(\.[0-9]{1,60}|/[0-9]{1,60})?")


@dataclass(frozen=True, slots=True)
class SolverChoice:
    """A solver's name and the options given for it, which the solver itself checks; in Python the ``solver``, too."""

    name: str
    options: Mapping[str, Option] = field(default_factory=dict)
    solver: Any = None

    def serves(self, kind: str) -> bool:
        """Return whether the solver can express a type of problem; True where its name is unknown."""
        try:
            return self.name == "auto" or self.solver is not None or backend(self.name).claims(PROBLEMS[kind])
        except UnknownSolverError:
            return True


def exact(value: object) -> Fraction:
    """Read a nonnegative fraction from "1", "0.25", "1/3" or an integer; a float is not exact."""
    if isinstance(value, Fraction) and value >= 0:
        return value
    if isinstance(value, float):
        raise ValueError(f'a float is not exact: write a string, such as "{value}" or "1/3"')
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError('must be a decimal or a fraction in a string, such as "0.5" or "1/3"')
    text = str(value)
    if _DECIMAL_OR_FRACTION.fullmatch(text) is None:
        raise ValueError('must be a nonnegative decimal or fraction, such as "0.5" or "1/3"')
    numerator, _, denominator = text.partition("/")
    if denominator and int(denominator) == 0:
        raise ValueError("the denominator is zero")
    return Fraction(numerator) / (int(denominator) if denominator else 1)


def budget(value: object) -> Fraction:
    """Read a fraction greater than zero."""
    amount = exact(value)
    if amount <= 0:
        raise ValueError("must be greater than zero")
    return amount


def probability(value: object) -> Fraction:
    """Read a fraction between 0 and 1, neither included."""
    amount = exact(value)
    if not 0 < amount < 1:
        raise ValueError('must lie between 0 and 1, such as "1/1000000"')
    return amount


class KeyedError(ValueError):
    """A mistake in several values of a section together, reported for one ``key`` of it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def dataset_name(value: object) -> str:
    """Read a name of one line without spaces around it."""
    if is_plain_name(value):
        return value
    raise ValueError("must be a name: text on one line, without spaces around it or characters that nobody sees")


def split_shares(named: Any, each: str = "a level") -> Callable[[object], str | tuple[Fraction, ...]]:
    """Return a reader of a name of the literal type ``named``, or of shares that sum to 1, one for ``each``."""
    names = get_args(named)

    def check(value: object) -> str | tuple[Fraction, ...]:
        if isinstance(value, str) and value in names:
            return value
        if not isinstance(value, (list, tuple)) or not value:
            spelled = " or ".join(f'"{name}"' for name in names)
            raise ValueError(f"must be {spelled}, or a list with one share {each}{near(value, names, '')}")
        shares = tuple(exact(share) for share in value)
        if sum(shares) != 1:
            raise ValueError(f"the shares sum to {sum(shares)}, not to 1")
        return shares

    return check


def aim_weights(named: Any) -> Callable[[object], str | tuple[float, ...]]:
    """Return what reads a name of the literal type ``named``, or a list of weights, one a level."""
    names = get_args(named)

    def check(value: object) -> str | tuple[float, ...]:
        if isinstance(value, str) and value in names:
            return value
        if not isinstance(value, (list, tuple)) or not value:
            spelled = ", ".join(f'"{name}"' for name in names)
            raise ValueError(f"must be one of {spelled}, or a list with one weight a level{near(value, names, '')}")
        if any(isinstance(weight, bool) or not isinstance(weight, (int, float)) or weight < 0 for weight in value):
            raise ValueError("each weight must be a number of at least 0")
        if not 0 < sum(value) < math.inf:
            raise ValueError("the weights must have a positive, finite sum")
        return tuple(float(weight) for weight in value)

    return check


def look_share(value: object) -> Fraction:
    """Read the part of a budget that a first look takes: from 0, for none, to below 1."""
    share = exact(value)
    if share >= 1:
        raise ValueError('must be a part of the budget below 1, such as "1/50", or 0 for no look')
    return share


def duration(value: object) -> float:
    """Read a time such as "10 minutes" as seconds."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = value if isinstance(value, float) else float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds < math.inf:
        raise ValueError('must be a time such as "10 minutes", "90 seconds" or "1 hour"')
    return seconds


def duration_text(seconds: float) -> str:
    """Return seconds as ``duration`` reads them, in the largest unit of which they are a whole number."""
    unit = next((name for name in ("hour", "minute") if seconds % _SECONDS[name] == 0), "second")
    number = seconds / _SECONDS[unit]
    return f"{number:g} {unit}{'' if number == 1 else 's'}"


def _choose(value: object, names: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in names:
        return value
    raise ValueError(f"must be one of {', '.join(names)}{near(value, names, '')}")


def choice(named: Any) -> PlainValidator:
    """Accept one of the names of a literal type, so choices are spelled only once, in that type."""
    names = get_args(named)
    return PlainValidator(lambda value: _choose(value, names))


@dataclass(frozen=True, slots=True)
class RowName:
    """Reads the name of a row of a table that packages add to, or a name of ``also``."""

    rows: Callable[[], Iterable[Any]]
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names."""
        return (*self.also, *(row.name for row in self.rows()))

    def __call__(self, value: object) -> str:
        """Return the name; a ValueError states the nearest."""
        return _choose(value, self.names)


def estimator_name(kind: str, *also: str) -> PlainValidator:
    """Accept the name of an estimator of a kind, or one of ``also``."""
    return PlainValidator(RowName(partial(estimator_rows, kind), also))


def executor_name() -> PlainValidator:
    """Accept the name of an executor of the table."""
    return PlainValidator(RowName(executor_rows))


def one_or_list(named: Any) -> PlainValidator:
    """Accept one of the names of a literal type, or a list of them."""
    names = get_args(named)

    def check(value: object) -> str | tuple[str, ...]:
        if isinstance(value, (list, tuple)):
            if not value:
                raise ValueError("the list is empty: give one name a level")
            return tuple(_choose(entry, names) for entry in value)
        return _choose(value, names)

    return PlainValidator(check)


def file_path(value: object, info: ValidationInfo) -> Path:
    """Read a path, relative to the folder in the validation context."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("must be a path in a string")
    folder: Path = info.context["folder"] if info.context else Path()
    return folder / value


def table_input(value: object, info: ValidationInfo) -> Path | Frame:
    """Read a path, or in Python a frame, which is read into Arrow immediately."""
    if isinstance(value, ArrowStream):
        return Frame.of(info.field_name or "given", value)
    if not isinstance(value, (str, Path, Frame)):
        lazy = ": call collect() first" if callable(getattr(value, "collect", None)) else ""
        raise ValueError(f"must be a path in a string, or in Python a frame of pandas, Polars, Arrow or DuckDB{lazy}")
    return value if isinstance(value, Frame) else file_path(value, info)


def level_names(value: object) -> tuple[str, ...]:
    """Read the names of the hierarchy's columns that are levels, root first."""
    listed = isinstance(value, (list, tuple)) and all(isinstance(name, str) and name.strip() for name in value)
    if not value or not isinstance(value, (list, tuple)) or not listed or len(set(value)) < len(value):
        raise ValueError('must list columns of the hierarchy, each once, root first, such as ["country", "county"]')
    return tuple(unicodedata.normalize("NFC", name) for name in value)  # as headers are read


def column_names(value: object) -> dict[str, str | tuple[str, ...]]:
    """Read what columns are called in the user's files: a name, or a list where files call a column differently."""
    if not isinstance(value, dict):
        raise ValueError('must be a table such as { entity_id = "pid", group_id = ["household", "household_id"] }')
    names: dict[str, str | tuple[str, ...]] = {}
    for own, there in value.items():
        listed = [there] if isinstance(there, str) else there
        texts = isinstance(listed, (list, tuple)) and all(isinstance(name, str) and name for name in listed)
        if not listed or not texts:
            raise ValueError(f"{own!r} must be the name of a column, or a list of names where files differ")
        normal = tuple(unicodedata.normalize("NFC", name) for name in listed)  # as headers are read
        names[own] = normal if len(normal) > 1 else normal[0]
    return names


def witness_place(value: object, info: ValidationInfo) -> Path | tuple[str, ...]:
    """Read the path of a file, or a command as a list of its program and arguments."""
    if isinstance(value, (list, tuple)):
        if not value or not all(isinstance(part, str) and part and "\0" not in part for part in value):
            raise ValueError("must be a path, or a command: a list of its program and arguments")
        return tuple(value)
    return file_path(value, info)


def solver_choice(value: object) -> SolverChoice:
    """Read a solver's name, a table of its name and options, or a solver itself."""
    if isinstance(value, SolverChoice):
        return value
    name = getattr(value, "name", None)
    if not isinstance(value, type) and callable(getattr(value, "solve", None)) and isinstance(name, str):
        own = fields(value) if is_dataclass(value) else ()
        stated = {each.name: getattr(value, each.name, None) for each in own if each.name != "name"}
        options: dict[str, Option] = {key: option for key, option in stated.items() if _is_plain(option)}
        return SolverChoice(name, options, value)
    if isinstance(value, str) and value:
        return SolverChoice(value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise ValueError('must be a solver\'s name or a table { name = "...", option = value }')
    options = {key: option for key, option in value.items() if key != "name"}
    for key, option in options.items():
        if not isinstance(option, Option):
            raise ValueError(f"option {key!r} must be a string, a number or true or false")
        if isinstance(option, float) and not math.isfinite(option):
            raise ValueError(f"option {key!r} must be a finite number")
    return SolverChoice(value["name"], options)


def _is_plain(option: object) -> TypeGuard[Option]:
    """Return whether a manifest can state an option of a solver."""
    return isinstance(option, Option) and not (isinstance(option, float) and not math.isfinite(option))
