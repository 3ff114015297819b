"""Every key of a configuration with its type, default and meaning, read from the models of the sections."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from coco_opt.config.load import SHARED
from coco_opt.config.sections import SOLVERS_MODEL
from coco_opt.config.values import RowName, SolverChoice, duration, duration_text
from coco_opt.files.inputs import Frame
from coco_opt.kinds import kind_rows
from coco_opt.problem import step_of
from coco_opt.problems import PROBLEMS

_WORDS = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    Fraction: "exact number in a text",
    SolverChoice: 'a solver\'s name, or { name = "...", option = value }',
}
_PLAIN = ("integer", "number", "text", "table")
_LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every section of a configuration and every table within one, by its dotted name, with its model."""
    sections: list[tuple[str, type[BaseModel]]] = []
    for row in kind_rows():
        kind = row.load()
        sections += [(f"data, with [{row.section}]", kind.data_model), (row.section, kind.section_model)]
    for name, model in (*sections, *SHARED.items()):
        yield name, model
        yield from _nested(name, model)


def _nested(name: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for key, field in model.model_fields.items():
        for inner in _models_in(field.annotation):
            yield f"{name}.{key}", inner
            yield from _nested(f"{name}.{key}", inner)


def _models_in(hint: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(hint) and issubclass(hint, BaseModel):
        yield hint
    for argument in typing.get_args(hint):
        yield from _models_in(argument)


def spelled(hint: Any) -> str:
    """Return a type in the words of a TOML file."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        for part in arguments[1:]:
            if isinstance(reader := getattr(part, "func", None), RowName):
                return " or ".join(f'`"{name}"`' for name in reader.names)
        rules = [rule for part in arguments[1:] if isinstance(part, FieldInfo) for rule in part.metadata]
        return ", ".join([spelled(arguments[0]), *_limits(rules)])
    if origin is typing.Literal:
        return " or ".join(f'`"{name}"`' for name in arguments)
    if origin in (typing.Union, types.UnionType):
        shown = [spelled(part) for part in arguments if part not in (type(None), Frame)]
        return ", or ".join(
            "a list of them" if part in (f"list of {shown[0]}", f"list of {shown[0]}s") else part
            for part in dict.fromkeys(shown)
        )
    if origin is tuple:
        each = spelled(arguments[0])
        return f"list of {each}s" if each in _PLAIN else f"list of {each}"
    if origin is dict:
        return f"table of {spelled(arguments[1])} by name"
    if inspect.isclass(hint) and issubclass(hint, BaseModel):
        return "table"
    return _WORDS[hint]


def _limits(rules: Iterable[Any]) -> list[str]:
    return [
        f"{words} {getattr(rule, name):,}"
        for rule in rules
        for name, words in _LIMITS.items()
        if getattr(rule, name, None) is not None
    ]


def default_of(field: FieldInfo) -> str | None:
    """Return a key's default as TOML has it, "none" where there is none, None where the key is required."""
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True)
    if value is None or value == () or value == {}:
        return "none"
    if _is_time(field):
        return f'"{duration_text(value)}"'
    if isinstance(value, Fraction):
        return f'"{value}"'
    plain = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    return plain or (repr(value) if not isinstance(value, str) else chr(34) + value + chr(34))


def _is_time(field: FieldInfo) -> bool:
    return any(getattr(rule, "func", None) is duration for rule in field.metadata)


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key of a section, such as ``topdown.invariants``; its type in words; ``default`` is None if it is required."""

    section: str
    key: str
    value: str
    default: str | None
    meaning: str


def config_keys() -> Iterator[ConfigKey]:
    """Yield every key of every section, in the order of a file."""
    for section, model in models():
        for key, field in model.model_fields.items():
            value = "time in a text" if _is_time(field) else spelled(Annotated[field.annotation, field])
            yield ConfigKey(section, key, value, default_of(field), _meaning(model, key, field))


def _meaning(model: type[BaseModel], key: str, field: FieldInfo) -> str:
    """Return what a key means: the docstring under it in its class, or the first sentence of its problem."""
    if model is SOLVERS_MODEL and key in PROBLEMS:
        return (inspect.getdoc(PROBLEMS[key]) or "").partition("\n\n")[0].replace("\n", " ")
    if model is SOLVERS_MODEL and (kinds := [kind for kind in PROBLEMS if step_of(kind) == key]):
        return f"The solver of {' and '.join(f'`{kind}`' for kind in kinds)}, those that it can express."
    return " ".join((field.description or "").split())
