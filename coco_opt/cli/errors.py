"""``coco-opt errors``: what every code of an error means."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

import coco_opt.errors
from coco_opt.cli.console import write, write_json
from coco_opt.cli.explanations import EXPLANATIONS
from coco_opt.cli.options import Json, Version
from coco_opt.errors import CocoOptError, InputError

_OPENING = """\
Every error has a stable code: in brackets at the end of its line, and as `error.code` with `--json`. No message holds
a private value. Exit codes: 1 a check failed; 2 bad usage, configuration, input or output; 3 budget refused; 4 a
solver missed its tolerance; 130 interrupted. Nothing that was paid for is lost by any of them."""
_KINDS: Final = [kind for kind in vars(coco_opt.errors).values() if isinstance(kind, type)]
EXIT_CODES: Final[dict[str, int]] = dict.fromkeys(EXPLANATIONS, CocoOptError.exit_code) | {
    **{kind.code: kind.exit_code for kind in _KINDS if issubclass(kind, CocoOptError)},
    "interrupted": 130,
    "unexpected": 1,
}
"""By code: what the command line returns."""


def errors(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="A code; all of them by default.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Say what the code of an error means and what to do, or print the catalogue of all codes."""
    if code is not None and code not in EXPLANATIONS:
        raise InputError("unknown-code", f"there is no error {code!r}: coco-opt errors lists them all")
    shown = EXPLANATIONS if code is None else {code: EXPLANATIONS[code]}
    if json:
        write_json([_entry(code) for code in shown])
    elif code is None:
        write("\n\n".join(["# Errors", _OPENING, *map(_text_of, shown)]))
    else:
        write(_text_of(code))
    return 0


def _entry(code: str) -> dict[str, Any]:
    meaning, advice = EXPLANATIONS[code]
    return {"code": code, "exit_code": EXIT_CODES[code], "meaning": meaning, "advice": advice}


def _text_of(code: str) -> str:
    """Return what a code means and what to do."""
    meaning, advice = EXPLANATIONS[code]
    return f"{code} (exit code {EXIT_CODES[code]}): {meaning}\nWhat to do: {advice}"
