"""``coco-opt errors``: what every code of an error means, and what to do."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated

import typer

import coco_opt.errors
from coco_opt.cli.console import write, write_json
from coco_opt.cli.options import Json, Version
from coco_opt.errors import CocoOptError, InputError

_OPENING = """\
Every error has a stable code: in brackets at the end of its line, and as `error.code` with `--json`. No message holds
a private value. Exit codes: 1 a check failed; 2 bad usage, configuration, input or output; 3 budget refused; 4 a
solver missed its tolerance; 130 interrupted. Nothing that was paid for is lost by any of them."""


@cache
def explanations() -> Mapping[str, tuple[str, str]]:
    """Return by code what it means, and what to do."""
    table = tomllib.loads((files("coco_opt.cli") / "errors.toml").read_text(encoding="utf-8"))
    return {code: (entry["meaning"], entry["advice"]) for code, entry in table.items()}


def exit_codes() -> Mapping[str, int]:
    """Return by code what the command line returns."""
    kinds = (kind for kind in vars(coco_opt.errors).values() if isinstance(kind, type))
    own = {kind.code: kind.exit_code for kind in kinds if issubclass(kind, CocoOptError)}
    return {**dict.fromkeys(explanations(), CocoOptError.exit_code), **own, "interrupted": 130, "unexpected": 1}


def errors(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="A code; all of them by default.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Say what the code of an error means and what to do, or print the catalogue of all codes."""
    table = explanations()
    if code is not None and code not in table:
        raise InputError("unknown-code", f"there is no error {code!r}: coco-opt errors lists them all")
    shown = table if code is None else {code: table[code]}
    if json:
        codes = exit_codes()
        write_json(
            [
                {"code": name, "exit_code": codes[name], "meaning": meaning, "advice": advice}
                for name, (meaning, advice) in shown.items()
            ]
        )
    elif code is None:
        write("\n\n".join(["# Errors", _OPENING, *map(_text_of, shown)]))
    else:
        write(_text_of(code))
    return 0


def _text_of(code: str) -> str:
    """Return what a code means and what to do."""
    meaning, advice = explanations()[code]
    return f"{code} (exit code {exit_codes()[code]}): {meaning}\nWhat to do: {advice}"
