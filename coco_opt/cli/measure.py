"""``coco-opt measure``: the only step that costs privacy; estimate its sealed measurement as often as wanted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import TerminalReporter, quoted, write, write_json, write_values
from coco_opt.cli.options import Address, Again, ConfigFile, Executor, Json, Renamed, Version, Workers, engine_of

if TYPE_CHECKING:
    from coco_opt.releases import Measured


def measure(
    config: ConfigFile,
    publish: Annotated[
        Path | None, typer.Option("--publish", metavar="DIR", help="Write the measurement to a new folder too.")
    ] = None,
    again: Again = False,
    renamed: Renamed = False,
    executor: Executor = None,
    workers: Workers = None,
    address: Address = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Check everything, pay, draw the noise, seal the measurement."""
    from coco_opt.config import load_config
    from coco_opt.releases import measure as measure_data
    from coco_opt.releases.manifest import spent_line

    settings = load_config(config)
    engine = engine_of(settings, executor, workers, address)
    if engine is not None:
        settings = replace(settings, engine=engine)
    reporter = TerminalReporter(lines=not json)
    measured = measure_data(settings, publish=publish, again=again, renamed=renamed, reporter=reporter)
    spent = spent_line(settings, measured.measurement)
    if json:
        write_json(
            {
                "status": measured.measurement.status,
                "spent": spent,
                **measured.measurement.cost.as_dict(),
                "paid": measured.paid,
                "run": measured.run,
                "measurement": str(measured.folder),
                "published": None if publish is None else str(publish),
            }
        )
        return 0
    write(f"{spent}.")
    values = [("Run", f"{measured.run}, {payment(measured)}"), ("Measurement", str(measured.folder))]
    published = [] if publish is None else [("Published", str(publish))]
    estimate = f"coco-opt estimate {measured.run} {quoted(config)}   (as often as wanted, under any method: free)"
    write_values([*values, *published, ("Estimate it", estimate)])
    return 0


def payment(measured: Measured) -> str:
    """Return in a few words whether a call paid for its measurement."""
    if not measured.measurement.private:
        return "NOT PRIVATE: nothing was paid"
    return "paid now" if measured.paid else "paid for before: nothing more was spent"
