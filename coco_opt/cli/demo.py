"""``coco-opt demo``: the main job on a made-up nation, with the truth beside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import TerminalReporter, write, write_json, write_table
from coco_opt.cli.options import Json, Version
from coco_opt.errors import InputError, Place, VerificationError

if TYPE_CHECKING:
    from coco_opt.runs import ReleaseOutcome
    from coco_opt.tables import Check


def demo(
    out: Annotated[Path | None, typer.Option("--out", help="Folder for everything; must not exist.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Make three tables, release them, verify, and print the errors; seeded, so NOT PRIVATE."""
    from coco_opt.config import load_config
    from coco_opt.report import render_report
    from coco_opt.runs import run_release
    from coco_opt.runs.demo import demo_truth, write_demo
    from coco_opt.runs.records import new_run_id
    from coco_opt.tables import verify_release

    folder = Path("releases") / f"demo-{new_run_id()}" if out is None else out
    if os.path.lexists(folder):
        message = "exists already: give another --out"
        raise InputError("folder-exists", message, Place(folder.name))
    told = TerminalReporter(lines=not json)
    with told.stage("Making a nation of households"):
        files = write_demo(folder)
    with told.stage("Other methods (a first run compiles)"):
        truth = demo_truth(files)
    outcome = run_release(load_config(files.config), folder / "release", reporter=told, page=render_report, truth=truth)
    checks = verify_release(outcome.folder)
    passed = all(check.passed for check in checks)
    if json:
        write_json(
            {
                "status": outcome.manifest["status"],
                "spent": outcome.spent,
                "release": str(outcome.folder),
                "report": str(outcome.folder / "report.html"),
                "verified": passed,
                "errors": outcome.page.errors(),
            }
        )
    else:
        _write_outcome(outcome, checks, files.config)
    if not passed:
        raise VerificationError(f"{outcome.folder} does not hold what it promises: see coco-opt verify")
    return 0


def _write_outcome(outcome: ReleaseOutcome, checks: list[Check], config: Path) -> None:
    errors = outcome.page.errors()
    levels = [f"level {level}" for level in range(outcome.result.hierarchy.levels)]
    rows = [(name, *(f"{value:,.1f}" for value in values)) for name, values in errors.items()]
    title = "Error: people to add or remove, mean over the regions of a level (made data, so the truth is known)"
    write_table(title, ("method", *levels), rows)
    held = sum(check.passed for check in checks)
    write(f"Verified  {held} of {len(checks)} checks hold")
    write(f"Release   {outcome.folder}")
    write(f"Report    {outcome.folder / 'report.html'}")
    write(f"Config    {config}  (change it and run: coco-opt release {config})")
