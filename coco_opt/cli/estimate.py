"""``coco-opt estimate``: a release from a measurement, free."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coco_opt.cli.console import TerminalReporter
from coco_opt.cli.options import Json, Version
from coco_opt.cli.release import write_release

MeasurementName = Annotated[
    str, typer.Argument(metavar="MEASUREMENT", help="The folder of a measurement, or with CONFIG the id of a run.")
]


def estimate(
    measurement: MeasurementName,
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG]", help="How to estimate, and where to write; the kind's defaults without."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The release folder; it must not exist.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Make a release of a measurement, under any method and solvers; opens no private table and costs nothing."""
    from coco_opt.config import load_config
    from coco_opt.releases import estimate as estimate_measurement
    from coco_opt.releases import render_report
    from coco_opt.releases.measure import check_target

    settings = None if config is None else load_config(config)
    reporter = TerminalReporter(lines=not json)
    if out is not None:
        check_target(out)
    made = estimate_measurement(measurement, settings, reporter=reporter)
    write_release(made.save(out, page=render_report, reporter=reporter), made.manifest, json=json, spent=made.spent)
    return 0
