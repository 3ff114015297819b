"""Read a configuration from TOML and turn every mistake in it, pydantic's errors too, into one clear line."""

from __future__ import annotations

import difflib
import inspect
import re
import tomllib
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from coco_opt.config.model import Config
from coco_opt.config.sections import AUTO, SOLVERS_MODEL, AutoSection, EngineConfig, OutputConfig, PrivacyConfig
from coco_opt.config.values import KeyedError
from coco_opt.errors import ConfigError
from coco_opt.kinds import KindRow, kind_rows
from coco_opt.plugins import near
from coco_opt.privacy.private_files import lies_in
from coco_opt.problems import SUCCESSORS

YEAR = re.compile(r"(?<!\d)(19|20)\d\d(?!\d)")
"""A year in a name."""

SHARED: dict[str, type[BaseModel]] = {
    "privacy": PrivacyConfig,
    "auto": AutoSection,
    "solvers": SOLVERS_MODEL,
    "engine": EngineConfig,
    "output": OutputConfig,
}
"""The sections that all kinds share, in the order of a file."""
_REQUIRED = ("data", "privacy")
_SHOWN_FILES = 3
_QUOTED = re.compile(r"""\"[^"]*\"|'[^']*'""")
_SPAN = re.compile(r"\d+\.\.\d*|\.\.\d+")
_DEEP_KEY = re.compile(r"""^[ \t\[]*(?:[\w"'-]+[ \t]*\.[ \t]*){40}""", re.MULTILINE)
"""A key of so many parts that the parser would take minutes: its time grows with the square of their number."""

Mistakes = list[tuple[str, str]]


def load_config(path: str | Path, like: Config | None = None, *, measures: bool = True) -> Config:
    r"""Read a config, a TOML file, of a release of any kind.

    Parameters
    ----------
    path : str or Path
        The file. Paths in it are relative to its folder.
    like : Config, optional
        Supplies ``[data]`` or ``[privacy]`` if the file leaves one out, and then keys of the kind's own section too.
    measures : bool, default True
        False if nothing will be measured: private tables and their queries may then be left out, and ``[privacy]`` too.

    Returns
    -------
    Config
        The checked configuration.

    Raises
    ------
    ConfigError
        With one line for every mistake.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from coco_opt import load_config
    >>> text = '[data]\nvalues = "visits.csv"\n[privacy]\ndataset = "visits"\nepsilon = "1"\n[ranges]\ncells = 365\n'
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "visits.toml")
    ...     _ = file.write_text(text)
    ...     load_config(file).name
    'visits'
    """
    path = Path(path)
    failure = "cannot be read"
    try:
        return parse_config(
            path.read_text(encoding="utf-8-sig"), path.parent, file=path.name, like=like, measures=measures
        )
    except FileNotFoundError:
        failure = f"no such config file{_config_files(path.parent)}"
    except UnicodeDecodeError:
        failure = "is not UTF-8 text: save it as UTF-8"
    except OSError as error:
        failure = f"cannot be read: {error.strerror}"
    raise ConfigError("", failure, str(path))


def nearby_configs(folder: Path) -> dict[Path, Config]:
    """Return the configurations that can be read in a folder, the one above, and those of other years, by path.

    The folders of other years lie next to it and are called like it but for the year.
    """
    folder, found = folder.resolve(), dict[Path, Config]()
    with suppress(OSError):
        years = [other for other in sorted(folder.parent.iterdir()) if without_year(other) == without_year(folder)]
        for path in (path for other in (folder.parent, *years) for path in sorted(other.glob("*.toml"))):
            with suppress(ConfigError, OSError):
                found[path] = load_config(path)
    return found


def without_year(path: Path) -> str:
    """Return the name of a file or folder without its ending and its year."""
    return YEAR.sub("", path.stem)


def _config_files(folder: Path) -> str:
    """Return which configurations a folder has, or how to write one."""
    there = sorted(path.name for path in folder.glob("*.toml"))[:_SHOWN_FILES]
    return f"; there is {', '.join(there)}" if there else ": write one with  coco-opt init FILES"


def parse_config(
    source: str | Mapping[str, Any],
    folder: str | Path,
    file: str | None = None,
    like: Config | None = None,
    *,
    measures: bool = True,
) -> Config:
    r"""Return a config from TOML text or from a dictionary.

    Parameters
    ----------
    source : str or mapping
        The text of a file, or its sections by name.
    folder : str or Path
        The folder that paths are relative to.
    file : str, optional
        The name of the file, for messages.
    like : Config, optional
        As for ``load_config``.
    measures : bool, default True
        As for ``load_config``.

    Returns
    -------
    Config
        The checked configuration.

    Raises
    ------
    ConfigError
        With one line for every mistake.

    Examples
    --------
    >>> from coco_opt import parse_config
    >>> text = '[data]\nvalues = "visits.csv"\n[privacy]\ndataset = "visits"\nepsilon = "1"\n[ranges]\ncells = 365\n'
    >>> parse_config(text, ".").method.cells
    365
    """
    raw = _parse_toml(source, file) if isinstance(source, str) else dict(source)
    measures = measures and like is None
    if like is not None and set(_REQUIRED) <= set(raw):
        like = None
    if like is not None:
        _check_section(raw, like, file)
        section_keys = raw.get(like.section, {})
        raw = {
            **raw,
            like.section: {**like.explicit_keys(like.section), **section_keys}
            if isinstance(section_keys, Mapping)
            else section_keys,
        }
    row = _kind_of(raw, file)
    kind = row.load()
    models = {"data": kind.data_model, **SHARED, row.section: kind.section_model}
    known = f"; there are {', '.join(models)}"
    unknown = (name for name in raw if name not in models)
    mistakes: Mistakes = [(name, f"unknown section{near(name, models, known, cutoff=0.5)}") for name in unknown]
    values: dict[str, Any] = {}
    for name, model in models.items():
        if like is not None and name not in raw and name in _REQUIRED:
            values[name] = getattr(like, name)
            continue
        if name == "privacy" and name not in raw and not measures:
            values[name] = PrivacyConfig.model_construct()
            continue
        if name in _REQUIRED and name not in raw and (measures or name != "data"):
            mistakes.append((name, "this section is required"))
            continue
        try:
            stated = raw.get(name, {})
            if not measures and isinstance(stated, Mapping):
                stated = {**getattr(model, "unmeasured", {}), **stated}
            values[name] = model.model_validate(stated, context={"folder": Path(folder)})
        except ValidationError as error:
            entries = error.errors(include_url=False)
            mistakes += [explained(dict(entry), name, models) for entry in entries]
    if not mistakes:
        mistakes = _within_public(values["privacy"], values["output"])
    if mistakes:
        raise _joined_error(mistakes, file)
    privacy: PrivacyConfig = values["privacy"]
    if privacy.split == AUTO and not kind.section_model.chooses_split:
        privacy = privacy.model_copy(update={"split": "uniform"})
        privacy.__pydantic_fields_set__.discard("split")
    return Config(
        name=Path(file).stem if file else "release",
        kind=row.name,
        section=row.section,
        data=values["data"],
        privacy=privacy,
        auto=values["auto"],
        method=values[row.section],
        solvers=values["solvers"],
        engine=values["engine"],
        output=values["output"],
        file=file,
    )


def configure(
    base: Config | None = None, /, *, folder: str | Path = ".", name: str | None = None, **sections: Mapping[str, Any]
) -> Config:
    """Return a config from sections as dictionaries, or an existing config with some keys changed.

    Parameters
    ----------
    base : Config, optional
        A config to change; without it the sections are those of a file.
    folder : str or Path, default "."
        The folder that paths are relative to.
    name : str, optional
        The name of the release.
    **sections : mapping
        The sections of a file: ``data``, ``privacy``, ``groups`` or another kind's, ``solvers``, ``engine``,
        ``output``, ``auto``. In ``data`` a frame of pandas, Polars, Arrow or DuckDB may stand for a path, in
        ``solvers`` a solver for its name.

    Returns
    -------
    Config
        The checked configuration.

    Raises
    ------
    ConfigError
        With one line for every mistake.

    Examples
    --------
    >>> from coco_opt import configure
    >>> config = configure(
    ...     data={"values": "visits.csv"}, privacy={"epsilon": "1", "dataset": "visits"}, ranges={"cells": 365}
    ... )
    >>> configure(config, ranges={"estimator": "consistent"}).method.estimator
    'consistent'
    """
    if base is None:
        config = parse_config(sections, folder)
    else:
        foreign_sections = [row.section for row in kind_rows() if row.name != base.kind]
        for foreign in set(foreign_sections) & set(sections):
            raise ConfigError(foreign, f"this is a configuration of [{base.section}]: make a new configuration")
        current = {section: base.explicit_keys(section) for section in ("data", "privacy", base.section, *SHARED)}
        current["output"] = dict(base.output)  # its defaults too: these folders lie next to the file of the base
        merged = {
            section: {**current.get(section, {}), **sections.get(section, {})} for section in {**current, **sections}
        }
        config = replace(parse_config(merged, folder), name=base.name, file=base.file)
        # Taken over, a default is still none that somebody stated.
        config.output.model_fields_set.intersection_update(base.output.model_fields_set | {*sections.get("output", {})})
    return config if name is None else replace(config, name=name)


def engine_with(engine: EngineConfig, keys: Mapping[str, Any], folder: str | Path = ".") -> EngineConfig:
    """Return how work is run with some keys changed; paths are relative to ``folder``. Raises ConfigError."""
    stated = {name: getattr(engine, name) for name in engine.model_fields_set}
    mistakes: Mistakes = []
    try:
        return EngineConfig.model_validate({**stated, **keys}, context={"folder": Path(folder)})
    except ValidationError as error:
        mistakes = [explained(dict(entry), "engine", SHARED) for entry in error.errors(include_url=False)]
    raise _joined_error(mistakes, None)


def _check_section(raw: Mapping[str, Any], like: Config, file: str | None) -> None:
    """Raise ConfigError where a file without [data] or [privacy] is of another kind than ``like``."""
    for row in kind_rows():
        if row.section in raw and row.name != like.kind:
            message = f"the measurement is of the kind {like.kind!r}: use a [{like.section}] section"
            raise ConfigError(row.section, message, file)


def _kind_of(raw: Mapping[str, Any], file: str | None) -> KindRow:
    """Return the kind whose section the file has."""
    rows = kind_rows()
    stated = [row for row in rows if row.section in raw]
    if len(stated) > 1:
        names = ", ".join(f"[{row.section}]" for row in stated)
        raise ConfigError(stated[1].section, f"a file releases one kind of data, and it has {names}", file)
    if not stated:
        sections = "; ".join(f"[{row.section}]: {row.summary}" for row in rows)
        close = [match for name in raw for match in difflib.get_close_matches(name, [row.section for row in rows], n=1)]
        hint = f"did you mean [{close[0]}]? " if close else ""
        raise ConfigError("", f"no section says what is released. {hint}There are {sections}", file)
    return stated[0]


def _parse_toml(text: str, file: str | None) -> dict[str, Any]:
    reason = ""
    if _DEEP_KEY.search(text):
        raise ConfigError("", "is not valid TOML: a key is nested too deeply", file)
    try:
        return tomllib.loads(text)
    except ValueError as error:  # tomllib's own errors, and numbers with thousands of digits
        reason = f"{error}{_unquoted(text, str(error))}"
    except RecursionError:
        reason = "it is nested too deeply"
    raise ConfigError("", f"is not valid TOML: {reason}", file)


def _unquoted(text: str, reason: str) -> str:
    """Return what to quote on the line that a parser stopped at, "" where nothing there looks unquoted."""
    stopped = re.search(r"at line (\d+)", reason)
    line = text.splitlines()[int(stopped[1]) - 1] if stopped else ""
    plain = _QUOTED.sub("", line).partition("#")[0]
    if span := _SPAN.search(plain):
        return f': write ranges in quotes, such as "{span[0]}"'
    if "Unescaped" in reason or "hex value" in reason:
        return ": write paths with /, or between single quotes"
    if r"'\n'" in reason or "Unterminated" in reason:
        return ": a quotation mark is missing"
    key = plain.partition("=")[0].strip()
    quoted = ".".join(part if part.isascii() else f'"{part.strip()}"' for part in key.strip("[] ").split("."))
    quoted = f"[{quoted}]" if key.startswith("[") else quoted
    return "" if key.isascii() else f": write a name of other letters than a to z in quotes, such as {quoted}"


def _within_public(privacy: PrivacyConfig, output: OutputConfig) -> Mistakes:
    """Return what is private and would lie among the releases, or the releases in it: folders are published whole."""
    public, mistakes = output.directory, Mistakes()
    if lies_in(output.private, public) or lies_in(public, output.private):
        message = "must lie outside output.directory, which is published, and not around it: move it, and state where"
        mistakes.append(("output.private", message))
    if privacy.ledger is not None and lies_in(privacy.ledger, public):
        mistakes.append(
            ("privacy.ledger", "must lie outside output.directory, which is published: move it, and state where")
        )
    return mistakes


def _joined_error(mistakes: Mistakes, file: str | None) -> ConfigError:
    lines = [str(ConfigError(key, message, file)) for key, message in mistakes[1:]]
    first_key, first = mistakes[0]
    return ConfigError(first_key, "\n".join([first, *lines]), file)


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
