"""``coco-opt errors``: what every code of an error means."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import write, write_json
from coco_opt.cli.explanations import EXPLANATIONS
from coco_opt.cli.options import Json, Version
from coco_opt.errors import InputError

if TYPE_CHECKING:
    from coco_opt.cli.catalogue import CodedError


def errors(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="A code; all of them by default.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Say what the code of an error means and what to do, or print the catalogue of all codes."""
    from coco_opt.cli.catalogue import as_markdown, error_codes, error_of

    if code is None:
        if json:
            write_json([asdict(error) for error in error_codes().values()])
        else:
            write(as_markdown().rstrip())
        return 0
    error = error_of(code)
    if error is None:
        raise InputError("unknown-code", f"there is no error {code!r}: coco-opt errors lists them all")
    if json:
        write_json([asdict(error)])
    else:
        write(_text_of(error))
    return 0


def _text_of(error: CodedError) -> str:
    """Return what a code means, what to do, and what its messages say."""
    meaning, advice = EXPLANATIONS.get(error.code, ("", ""))
    lines = [f"{error.code} (exit code {error.exit_code}){': ' if meaning else ''}{meaning}"]
    lines += [f"What to do: {advice}"] if advice else []
    lines += ["Its messages, with dots for names, rows and numbers:"] if error.messages else []
    return "\n".join([*lines, *(f"- {text}" for text in error.messages)])
