"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coco_opt._version import __version__
from coco_opt.cli.console import write


def _print_version(asked: bool) -> None:
    if asked:
        write(f"coco-opt {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table; errors too.")]
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, a TOML file.")]
