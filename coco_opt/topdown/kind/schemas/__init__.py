"""Attributes, groupings and structural zeros under one name: the schemas of published files, and those of users' own.

A schema is a TOML file with the keys ``attributes``, ``groupings`` and ``structural_zeros`` of ``[topdown]``.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from coco_opt.config.values import KeyedError

_KEYS = ("attributes", "groupings", "structural_zeros")


def published_schemas() -> tuple[str, ...]:
    """Return the names of the schemas that coco-opt has, in their order."""
    return tuple(
        sorted(path.name.removesuffix(".toml") for path in files(__name__).iterdir() if path.name.endswith(".toml"))
    )


def named_schema(name: str, folder: Path) -> dict[str, Any]:
    """Return the keys of a schema by its name or path, relative to ``folder``. Raises KeyedError (attributes)."""
    file = folder / name
    if name in published_schemas():
        text = files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    elif file.is_file():
        text = file.read_text(encoding="utf-8")
    else:
        known = ", ".join(published_schemas())
        raise KeyedError("attributes", f"{name!r} is neither a file nor one of the published schemas, {known}")
    failure, keys = "", {}
    try:
        keys = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        failure = str(error)
    if failure:
        raise KeyedError("attributes", f"{name!r} is no TOML file: {failure}")
    unknown = set(keys) - set(_KEYS)
    if unknown or "attributes" not in keys:
        what = f"has the key {min(unknown)!r}" if unknown else "lacks the key 'attributes'"
        raise KeyedError("attributes", f"the schema {name!r} {what}; its keys are {', '.join(_KEYS)}")
    return keys
