"""``coco-opt release``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import TerminalReporter, figure, write, write_json, write_table
from coco_opt.cli.options import ConfigFile, Json, Version

if TYPE_CHECKING:
    from coco_opt.config import Config, TablesConfig
    from coco_opt.runs import ReleaseOutcome
    from coco_opt.runs.tables.release import TablesOutcome

    Outcome = ReleaseOutcome | TablesOutcome


def release(
    config: ConfigFile,
    out: Annotated[Path | None, typer.Option("--out", help="The release folder; it must not exist.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Read the tables, spend the budget once, write the release folder."""
    from coco_opt.config import load_any

    outcome = _run(load_any(config), out, TerminalReporter(lines=not json))
    if json:
        write_json(
            {
                "status": outcome.manifest["status"],
                "spent": outcome.spent,
                "release": str(outcome.folder),
                "report": str(outcome.folder / "report.html"),
                "private_record": str(outcome.record),
                "solvers": outcome.manifest["solvers"],
            }
        )
    else:
        write_solvers(outcome)
        write_places(outcome)
    return 0


def _run(settings: Config | TablesConfig, out: Path | None, reporter: TerminalReporter) -> Outcome:
    """Release groups or tables, whichever a configuration asks for."""
    from coco_opt.config import TablesConfig

    if isinstance(settings, TablesConfig):
        from coco_opt.report.tables import render_tables_report
        from coco_opt.runs.tables.release import run_tables

        return run_tables(settings, out, reporter=reporter, page=render_tables_report)
    from coco_opt.report import render_report
    from coco_opt.runs import run_release

    return run_release(settings, out, reporter=reporter, page=render_report)


def write_solvers(outcome: Outcome) -> None:
    """Print the certificates of a release, one row a kind of problem."""
    rows = [
        (kind, row["solver"], f"{row['solves']:,}", figure(row["worst_gap"]), figure(row["worst_violation"]))
        for kind, row in outcome.manifest["solvers"].items()
    ]
    write_table("Solvers", ("problem", "solver", "solved", "worst gap", "worst violation"), rows, numeric=2)


def write_places(outcome: Outcome) -> None:
    """Print where everything lies."""
    write(f"Release         {outcome.folder}")
    write(f"Report          {outcome.folder / 'report.html'}")
    write(f"Private record  {outcome.record}")
    write(f"Check it with   coco-opt verify {outcome.folder}")
