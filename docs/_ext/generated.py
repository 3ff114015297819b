"""Markdown made of the code: configuration keys, the command line, solvers and experiments. No Sphinx is needed."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points
from itertools import groupby
from pathlib import Path

import typer
from typer.testing import CliRunner

from coco_opt.cli import app
from coco_opt.cli.config_keys import ConfigKey, config_keys, models
from coco_opt.cli.reference import exit_codes, explanations
from coco_opt.problems import PROBLEMS
from coco_opt.registry import backends

PICTURES = Path(__file__).parents[1] / "pictures" / "gallery"
_MARK = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)


def expand(page: str) -> str:
    """Return a page with its generated parts; KeyError for one that nothing makes."""
    return _MARK.sub(lambda mark: NAMES[mark[1]](), page)


def _keys() -> str:
    parts = []
    by_section = groupby(config_keys(), key=lambda each: each.section)
    for (name, model), (_, keys) in zip(models(), by_section, strict=True):
        section, _, rest = name.partition(",")
        rows = [
            (f"`{each.key}`", each.value, _default(each), _escape(each.meaning) if name == "solvers" else each.meaning)
            for each in keys
        ]
        parts += [f"## `[{section}]`{rest and ',' + rest.replace('[', '`[').replace(']', ']`')}", _prose(model)]
        parts.append(_table(("key", "value", "default", "meaning"), rows))
    return "\n\n".join(parts)


def _default(key: ConfigKey) -> str:
    return "**required**" if key.default is None else key.default if key.default == "none" else f"`{key.default}`"


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


def _verdicts() -> str:
    """Return every statement of a paper with its verdict and its figure, of the stored records."""
    stored = json.loads((PICTURES.parents[1] / "verdicts.json").read_text(encoding="utf-8"))
    parts: dict[str, list[tuple[str, ...]]] = {}
    for name, record in stored.items():
        folder, _, short = name.partition("/")
        data, picture = "simulated" if record["small"] else "real", f"{folder}-{short}.png"
        for item in record["statements"]:
            figure = f"`{item['figure']}`"
            if (PICTURES / picture).is_file():
                figure = f"[{figure}](pictures/gallery/{picture})"
            told = f"{item['verdict']}: {item['why']}" if item["why"] else item["verdict"]
            where, published, measured, told = map(_escape, (item["where"], item["published"], item["measured"], told))
            parts.setdefault(folder, []).append((f"{where} (`{name}`, {figure}, {data})", published, measured, told))
    header = ("where (experiment, figure, data)", "the paper says", "measured", "verdict")
    return "\n\n".join(f"### `{folder}`\n\n{_table(header, rows)}" for folder, rows in parts.items())


def _errors() -> str:
    codes, table = exit_codes(), explanations().items()
    rows = [
        (f"`{code}`", str(codes[code]), *(_escape(text).replace("\\`", "`") for text in texts)) for code, texts in table
    ]
    return _table(("code", "exit code", "what it means", "what to do"), rows)


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
    "verdicts": _verdicts,
    "errors": _errors,
    "evidence": _evidence,
}
