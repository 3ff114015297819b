"""Options that several verbs share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt._version import __version__
from coco_opt.cli.console import write

if TYPE_CHECKING:
    from coco_opt.config import Config, EngineConfig

_DIGITS = re.compile(r"[+-]?[0-9]+")


def _print_version(requested: bool) -> None:
    if requested:
        write(f"coco-opt {__version__}")
        raise typer.Exit


def integer(least: int | None = None, most: int | None = None) -> Callable[[str], int]:
    """Return a parser of integers in a range; 1.000 and 1,000 are none, for many write a thousand so."""

    def parse(text: str | int) -> int:
        if not _DIGITS.fullmatch(str(text)):
            raise typer.BadParameter(
                f"{text!r} is no integer: write digits alone, without separators of thousands, such as 1000"
            )
        number = int(text)
        if least is not None and number < least:
            raise typer.BadParameter(f"{number} must be at least {least}")
        if most is not None and number > most:
            raise typer.BadParameter(f"{number} must be at most {most}")
        return number

    return parse


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table; errors too.")]
Executor = Annotated[
    str | None,
    typer.Option("--executor", metavar="NAME", help="threads, processes or dask, in place of engine.executor."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", parser=integer(), help="Number of parallel workers, in place of engine.workers."
    ),
]
Address = Annotated[
    str | None,
    typer.Option("--address", metavar="ADDRESS", help='Scheduler of a running Dask cluster: "tcp://...".'),
]
Again = Annotated[bool, typer.Option("--again", help="Pay and draw anew, though these queries were measured already.")]
Renamed = Annotated[bool, typer.Option("--renamed", help="Pay for data that the ledger knows as another dataset.")]
Delimiter = Annotated[
    str,
    typer.Option(
        "--delimiter",
        metavar="CHARACTER",
        help="What separates fields: a comma, or a semicolon as many spreadsheets want.",
    ),
]
Decimal = Annotated[
    str,
    typer.Option(
        "--decimal",
        metavar="CHARACTER",
        help="What begins the decimals of a number: a point, or a comma, as in most of Europe, with --delimiter ;",
    ),
]
Raw = Annotated[
    bool, typer.Option("--raw", help="Write texts as they are, also those that a spreadsheet would run as formulas.")
]
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, a TOML file.")]


def engine_of(
    config: Config | None, executor: str | None, workers: int | None, address: str | None
) -> EngineConfig | None:
    """Return [engine] with the options of the command line; None where there are none.

    Another executor drops the keys of the configured executor. Raises ConfigError.
    """
    from coco_opt.config import EngineConfig, engine_with

    options = {"executor": executor, "workers": workers, "address": address}
    stated = {name: value for name, value in options.items() if value is not None}
    base = EngineConfig() if config is None else config.engine
    if executor is not None and executor != base.executor:
        base = EngineConfig(workers=base.workers)
    return engine_with(base, stated) if stated else None
