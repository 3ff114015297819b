"""Read a configuration from TOML and turn every mistake in it into one clear line."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from coco_opt.config.file import FileConfig
from coco_opt.config.model import Config, TablesConfig
from coco_opt.config.sections import (
    DataConfig,
    GroupsConfig,
    OutputConfig,
    PrivacyConfig,
    SolversConfig,
)
from coco_opt.config.topdown import GroupingConfig, InvariantConfig, PassConfig, TopdownConfig
from coco_opt.config.values import KeyedError
from coco_opt.errors import ConfigError

_LATER_SECTIONS = ("ranges", "engine")


def load_config(path: str | Path) -> Config:
    """Read a TOML config of a groups release; raise ConfigError with one line for every mistake."""
    found = load_any(path)
    if isinstance(found, TablesConfig):
        raise ConfigError("topdown", "this command reads a configuration of groups, not of tables", found.file)
    return found


def load_any(path: str | Path) -> Config | TablesConfig:
    """Read a TOML config of any release; raise ConfigError with one line for every mistake."""
    path = Path(path)
    failure = "cannot be read"
    try:
        return parse_any(path.read_text(encoding="utf-8"), path.parent, file=path.name)
    except FileNotFoundError:
        failure = "no such config file"
    except UnicodeDecodeError:
        failure = "is not UTF-8 text"
    except OSError as error:
        failure = f"cannot be read: {error.strerror}"
    raise ConfigError("", failure, str(path))


def parse_config(source: str | Mapping[str, Any], folder: str | Path, file: str | None = None) -> Config:
    """Check a config of a groups release given as TOML text or as a dictionary; paths are relative to ``folder``."""
    found = parse_any(source, folder, file)
    if isinstance(found, TablesConfig):
        raise ConfigError("topdown", "this is a configuration of tables, not of groups", file)
    return found


def parse_any(source: str | Mapping[str, Any], folder: str | Path, file: str | None = None) -> Config | TablesConfig:
    """Check a config of any release given as TOML text or as a dictionary; paths are relative to ``folder``."""
    raw = _parse_toml(source, file) if isinstance(source, str) else dict(source)
    mistakes: list[tuple[str, str]] = []
    try:
        parsed = FileConfig.model_validate(raw, context={"folder": Path(folder)})
    except ValidationError as error:
        mistakes = [_explain(dict(entry)) for entry in error.errors(include_url=False)]
    if mistakes:
        raise _together(mistakes, file)
    name = Path(file).stem if file else "release"
    if parsed.topdown is not None:
        shared = (parsed.solvers, parsed.output, file)
        return TablesConfig(name, parsed.data, parsed.privacy, parsed.topdown, *shared)
    assert parsed.groups is not None
    return Config(name, parsed.data, parsed.privacy, parsed.groups, parsed.solvers, parsed.output, file)


def _parse_toml(text: str, file: str | None) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
    raise ConfigError("", f"is not valid TOML: {reason}", file)


def _together(mistakes: list[tuple[str, str]], file: str | None) -> ConfigError:
    lines = [str(ConfigError(key, message, file)) for key, message in mistakes[1:]]
    first_key, first = mistakes[0]
    return ConfigError(first_key, "\n".join([first, *lines]), file)


def _explain(entry: dict[str, Any]) -> tuple[str, str]:
    """Turn one pydantic error into a dotted key and a sentence."""
    key = ".".join(str(part) for part in entry["loc"])
    if entry["type"] == "extra_forbidden":
        return key, _unknown_key(key)
    if entry["type"] == "missing":
        return key, "is required" if "." in key else "this section is required"
    if entry["type"] == "value_error":
        error = entry["ctx"]["error"]
        inner = error.key if isinstance(error, KeyedError) else ""
        return ".".join(part for part in (key, inner) if part), str(error)
    if entry["type"] in ("model_type", "model_attributes_type"):
        return key, "must be a table"
    message = str(entry["msg"]).removeprefix("Input ")
    return key, message.replace("should be", "must be")


def _unknown_key(key: str) -> str:
    if key in _LATER_SECTIONS:
        return "is not available in this version"
    section, _, name = key.rpartition(".")
    valid = _keys(section)
    elsewhere = [other for other in FileConfig.model_fields if section and name in _keys(other)]
    if elsewhere:
        return f"unknown key; {name!r} belongs in [{elsewhere[0]}]"
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    if near:
        return f"unknown key; did you mean {near[0]!r}?"
    return f"unknown key; valid keys are {', '.join(valid)}"


def _keys(section: str) -> list[str]:
    models: dict[str, type[BaseModel]] = {
        "": FileConfig,
        "data": DataConfig,
        "privacy": PrivacyConfig,
        "groups": GroupsConfig,
        "topdown": TopdownConfig,
        "solvers": SolversConfig,
        "output": OutputConfig,
    }
    if section.startswith("topdown.invariants"):
        return list(InvariantConfig.model_fields)
    if section.startswith("topdown.passes"):
        return list(PassConfig.model_fields)
    if section.startswith("topdown.groupings"):
        return list(GroupingConfig.model_fields)
    return list(models[section].model_fields)
