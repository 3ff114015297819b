"""``coco-opt estimate``: a release from one measurement or several, free."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import TerminalReporter
from coco_opt.cli.options import Address, Executor, Json, Version, Workers, engine_of
from coco_opt.cli.release import write_release
from coco_opt.errors import InputError, Place

if TYPE_CHECKING:
    from coco_opt.config import Config

Measurements = Annotated[
    list[str],
    typer.Argument(
        metavar="MEASUREMENT... [CONFIG]",
        help="The folder of a measurement, or with CONFIG the id of a run; several of the same data are estimated "
        "together. CONFIG says how to estimate, and where to write; default: the kind's defaults.",
    ),
]


def estimate(
    measurements: Measurements,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PATH", help="The release folder; it must not exist.")
    ] = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Take the plainest method of the kind and automatic solvers, if another fails."),
    ] = False,
    executor: Executor = None,
    workers: Workers = None,
    address: Address = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Make a release of a measurement, under any method and solvers; opens no private table and costs nothing.

    Several measurements of the same data make one release: it uses all of them, and their costs add up.
    """
    from coco_opt.releases import estimate as estimate_measurements
    from coco_opt.releases import render_report
    from coco_opt.releases.storage import check_target

    names, config = named(measurements)
    settings = None if config is None else settings_for(names[0], config)
    reporter = TerminalReporter(lines=not json)
    if out is not None:
        check_target(out)
    engine = engine_of(settings, executor, workers, address)
    release = estimate_measurements(names, settings, engine=engine, plain=plain, reporter=reporter)
    write_release(
        release.save(out, page=render_report, reporter=reporter), release.manifest, json=json, spent=release.spent
    )
    return 0


def named(arguments: list[str]) -> tuple[list[str], Path | None]:
    """Return the measurements and the configuration among the arguments: the last, if it is a TOML file."""
    *names, last = arguments
    path = Path(last)
    if path.suffix != ".toml" and not path.is_file():
        return arguments, None
    if not names:
        raise InputError("file-not-found", "is a configuration: name a measurement before it", Place(path.name))
    return names, path


def settings_for(measurement: str, config: Path) -> Config:
    """Read a configuration that estimates a measurement; for a folder it need not repeat the queries."""
    from coco_opt.config import load_config
    from coco_opt.files.measurement import read_measurement
    from coco_opt.releases.estimate import find_measurement, read_config

    try:
        folder = find_measurement(measurement, None)
    except InputError:
        return load_config(config)  # a run's id: the configuration says where its folder is
    return read_config(read_measurement(folder)[0], config)
