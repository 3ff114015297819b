"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt._version import __version__
from coco_opt.cli.console import write

if TYPE_CHECKING:
    from coco_opt.config import Config, EngineConfig


def _print_version(requested: bool) -> None:
    if requested:
        write(f"coco-opt {__version__}")
        raise typer.Exit


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
    int | None, typer.Option("--workers", metavar="N", help="Number of parallel workers, in place of engine.workers.")
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
Raw = Annotated[
    bool, typer.Option("--raw", help="Write texts as they are, also those that a spreadsheet would run as formulas.")
]
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, a TOML file.")]


def engine_of(
    config: Config | None, executor: str | None, workers: int | None, address: str | None
) -> EngineConfig | None:
    """Return [engine] with the options of the command line; None where there are none.

    Another executor drops the keys of the configured one. Raises ConfigError.
    """
    from coco_opt.config import EngineConfig, engine_with

    options = {"executor": executor, "workers": workers, "address": address}
    stated = {name: value for name, value in options.items() if value is not None}
    base = EngineConfig() if config is None else config.engine
    if executor is not None and executor != base.executor:
        base = EngineConfig(workers=base.workers)
    return engine_with(base, stated) if stated else None
