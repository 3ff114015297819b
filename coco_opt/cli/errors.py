"""``coco-opt errors``: what every code of an error means."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from coco_opt.cli.console import write, write_json
from coco_opt.cli.options import Json, Version
from coco_opt.errors import InputError


def errors(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="A code; all of them by default.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Say what the code of an error means, or print the catalogue of all codes."""
    from coco_opt.cli.catalogue import as_markdown, error_codes

    catalogue = error_codes()
    if code is not None and code not in catalogue:
        raise InputError("unknown-code", f"there is no error {code!r}: coco-opt errors lists them all")
    if json:
        write_json([asdict(error) for error in catalogue.values() if code in (None, error.code)])
    elif code is None:
        write(as_markdown().rstrip())
    else:
        write(
            "\n".join(
                [f"{code}: exit code {catalogue[code].exit_code}", *(f"- {text}" for text in catalogue[code].messages)]
            )
        )
    return 0
