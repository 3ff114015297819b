"""Markdown made of the code: configuration keys, the command line, solvers and experiments. No Sphinx is needed."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from coco_opt.cli import app
from coco_opt.cli.catalogue import error_codes
from coco_opt.config.sections import SOLVERS_MODEL, EngineConfig, OutputConfig, PrivacyConfig
from coco_opt.config.values import SolverChoice
from coco_opt.files.inputs import Frame
from coco_opt.kinds import kind_rows
from coco_opt.problems import PROBLEMS
from coco_opt.registry import backends

PICTURES = Path(__file__).parents[1] / "pictures" / "gallery"
_MARK = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)
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
_MESSAGES = 3  # of a code, those that need the fewest values
_LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def expand(page: str) -> str:
    """Return a page with its generated parts; KeyError for one that nothing makes."""
    return _MARK.sub(lambda mark: NAMES[mark[1]](), page)


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every section of a configuration and every table within one, by its dotted name, with its model."""
    sections: list[tuple[str, type[BaseModel]]] = []
    for row in kind_rows():
        kind = row.load()
        sections += [(f"data, with [{row.section}]", kind.data_model), (row.section, kind.section_model)]
    shared = {"privacy": PrivacyConfig, "solvers": SOLVERS_MODEL, "engine": EngineConfig, "output": OutputConfig}
    for name, model in (*sections, *shared.items()):
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


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what each key of a section means: the docstring under it in its class, or of its problem."""
    found = {name: _summary(problem) for name, problem in PROBLEMS.items()} if model is SOLVERS_MODEL else {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel and owner is not SOLVERS_MODEL:
            found |= _attribute_docstrings(owner)
    return found


def _attribute_docstrings(owner: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0].body
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _keys() -> str:
    parts = []
    for name, model in models():
        section, _, rest = name.partition(",")
        words = meanings(model)
        rows = [
            (f"`{key}`", spelled(Annotated[field.annotation, field]), _default(field), words.get(key, ""))
            for key, field in model.model_fields.items()
        ]
        parts += [f"## `[{section}]`{rest and ',' + rest.replace('[', '`[').replace(']', ']`')}", _prose(model)]
        parts.append(_table(("key", "value", "default", "meaning"), rows))
    return "\n\n".join(parts)


def spelled(hint: Any) -> str:
    """Return a type in the words of a TOML file."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        rules = [rule for one in arguments[1:] if isinstance(one, FieldInfo) for rule in one.metadata]
        return ", ".join([spelled(arguments[0]), *_limits(rules)])
    if origin is typing.Literal:
        return " or ".join(f'`"{name}"`' for name in arguments)
    if origin in (typing.Union, types.UnionType):
        shown = [spelled(one) for one in arguments if one not in (type(None), Frame)]
        return ", or ".join(
            "a list of them" if one in (f"list of {shown[0]}", f"list of {shown[0]}s") else one
            for one in dict.fromkeys(shown)
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


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if value is None or value == () or value == {}:
        return "none"
    plain = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    return f"`{plain or (repr(value) if not isinstance(value, str) else chr(34) + value + chr(34))}`"


def _command_line() -> str:
    verbs = typer.main.get_command(app).commands
    return "\n\n".join(f"## `{verb}`\n\n```text\n{_help(verb)}\n```" for verb in verbs)


def _help(verb: str) -> str:
    """Return what ``coco-opt VERB --help`` prints."""
    shown = CliRunner().invoke(app, [verb, "--help"], prog_name="coco-opt", env={"COLUMNS": "96", "NO_COLOR": "1"})
    return "\n".join(line.rstrip() for line in shown.output.strip("\n").splitlines())


def _solvers() -> str:
    rows = [
        (f"`{row.name}`", _escape(row.summary), ", ".join(f"`{kind}`" for kind in (*row.kinds, *row.forms)))
        for row in backends()
    ]
    return _table(("solver", "what it does", "problems or programs it answers"), rows)


def _problems() -> str:
    return _table(("problem", "what it is"), [(f"`{name}`", _summary(kind)) for name, kind in PROBLEMS.items()])


def _experiments() -> str:
    (point,) = (one for one in entry_points(group="coco_opt.experiments") if one.name == "coco_experiments")
    rows = [
        (
            f"`coco-opt {'reproduce ' + one.name if one.paper else 'bench ' + one.name.partition('/')[2]}`",
            _escape(one.summary),
            _escape(one.paper or ""),
        )
        for one in point.load()
    ]
    return _table(("command", "what it computes", "source"), rows)


def _gallery() -> str:
    """Return every figure with what it shows and its command; ``docs/gallery_pictures.py`` made the pictures."""
    (point,) = (one for one in entry_points(group="coco_opt.experiments") if one.name == "coco_experiments")
    made = json.loads((PICTURES / "made.json").read_text(encoding="utf-8"))
    parts: dict[str, list[str]] = {}
    for one in point.load():
        if one.shows:
            folder, _, name = one.name.partition("/")
            small = " --small" if made[one.name] else ""
            figure = f"```{{figure}} pictures/gallery/{folder}-{name}.png\n:alt: {one.shows}\n:width: 100%\n\n"
            caption = f"{_escape(one.shows)} {'Simulated data' if small else 'Real data, or none needed'}.\n```"
            command = f"```console\n$ coco-opt reproduce {one.name}{small}\n```"
            heading = _escape(one.paper.rpartition("; ")[2])
            parts.setdefault(one.paper.partition(";")[0], []).append(
                f"### {one.name}: {heading}\n\n{figure}{caption}\n\n{command}"
            )
    return "\n\n".join(f"## {paper}\n\n" + "\n\n".join(figures) for paper, figures in parts.items())


def _errors() -> str:
    rows = [
        (
            f"`{one.code}`",
            str(one.exit_code),
            "; ".join(map(_escape, one.messages[:_MESSAGES])) or "depends on what was given",
        )
        for one in error_codes().values()
    ]
    return _table(("code", "exit code", "what it says"), rows)


def _evidence() -> str:
    from tests.evidence import markdown

    return markdown()


def _summary(documented: type) -> str:
    return _escape((inspect.getdoc(documented) or "").partition("\n\n")[0].replace("\n", " "))


def _prose(documented: type) -> str:
    return _escape(inspect.getdoc(documented) or "")


def _escape(text: str) -> str:
    """Return a docstring as Markdown: its code in single backticks, everything else as it stands."""
    parts = re.split(r"``([^`]+)``", text)
    return "".join(f"`{one}`" if k % 2 else re.sub(r"[\\*_<|`\[]", r"\\\g<0>", one) for k, one in enumerate(parts))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("\n", " ") for cell in line) + " |" for line in lines)


NAMES: dict[str, Callable[[], str]] = {
    "keys": _keys,
    "command-line": _command_line,
    "problems": _problems,
    "solvers": _solvers,
    "experiments": _experiments,
    "gallery": _gallery,
    "errors": _errors,
    "evidence": _evidence,
}
