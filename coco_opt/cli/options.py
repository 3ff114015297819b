"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coco_opt._version import __version__


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"coco-opt {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, a TOML file.")]
