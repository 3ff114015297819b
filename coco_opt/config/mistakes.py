"""What is wrong with a configuration, in words: pydantic's errors as keys and sentences."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from coco_opt.config.values import KeyedError
from coco_opt.plugins import near
from coco_opt.problems import SUCCESSORS

_PLAIN = {
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "int_parsing": "must be an integer",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "dict_type": "must be a table, such as { name = ... }",
}
"""What a value must be, by the type of pydantic's error."""


def explained(entry: dict[str, Any], section: str, models: Mapping[str, type[BaseModel]]) -> tuple[str, str]:
    """Turn one pydantic error into a dotted key and a sentence."""
    key = ".".join(str(part) for part in (section, *entry["loc"]))
    if entry["type"] == "extra_forbidden":
        return key, _unknown_key(section, entry["loc"], models)
    if entry["type"] == "missing":
        return key, "is required"
    if entry["type"] == "value_error":
        error = entry["ctx"]["error"]
        inner = error.key if isinstance(error, KeyedError) else ""
        return ".".join(part for part in (key, inner) if part), str(error)
    if entry["type"] in ("model_type", "model_attributes_type"):
        return key, f"must be a table{_example(section, entry['loc'], models)}"
    if entry["type"] in ("tuple_type", "list_type"):
        example = _example(section, entry["loc"], models, "[{}]")
        return key, f"must be a list{' of tables' if example else ''}{example}"
    if entry["type"] in _PLAIN:
        return key, _PLAIN[entry["type"]] + (", without quotes" if isinstance(entry["input"], str) else "")
    message = str(entry["msg"]).removeprefix("Input ")
    return key, message.replace("should be", "must be")


def _example(section: str, where: tuple[Any, ...], models: Mapping[str, type[BaseModel]], form: str = "{}") -> str:
    """Return how a table that is expected at a place looks, by its required keys; "" where it has none."""
    fields = _model_at(models[section], where).model_fields if len(where) > 0 else {}
    if fields.keys() == models[section].model_fields.keys():
        return ""
    required = ", ".join(f"{name} = ..." for name, field in fields.items() if field.is_required())
    return f", such as {form.format(f'{{ {required} }}')}" if required else ""


def _unknown_key(section: str, where: tuple[Any, ...], models: Mapping[str, type[BaseModel]]) -> str:
    name, valid = str(where[-1]), list(_model_at(models[section], where[:-1]).model_fields)
    elsewhere = [
        section_name for section_name, model in models.items() if section_name != section and name in model.model_fields
    ]
    if elsewhere:
        return f"unknown key; {name!r} belongs in [{elsewhere[0]}]"
    if section == "solvers" and name in SUCCESSORS:
        return f"unknown key; it is {SUCCESSORS[name]!r} now"
    return "unknown key" + near(name, valid, f"; valid keys are {', '.join(valid)}", cutoff=0.5)


def _model_at(model: type[BaseModel], where: tuple[Any, ...]) -> type[BaseModel]:
    """Return the model of a table nested in another, by the keys and numbers that lead to it."""
    for step in where:
        if isinstance(step, str) and step in model.model_fields:
            inner = _inner_model(model.model_fields[step].annotation)
            model = model if inner is None else inner
    return model


def _inner_model(hint: Any) -> type[BaseModel] | None:
    """Return the model that a type holds somewhere: in a list, a table or a union."""
    if inspect.isclass(hint) and typing.get_origin(hint) is None and issubclass(hint, BaseModel):
        return hint
    models = (_inner_model(argument) for argument in typing.get_args(hint))
    return next((model for model in models if model is not None), None)
