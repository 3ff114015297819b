"""``coco-opt release``: the main job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from coco_opt.cli.console import TerminalReporter, figure, quoted, write_json, write_table, write_values
from coco_opt.cli.options import Address, ConfigFile, Executor, Json, Version, Workers, engine_of


def release(
    config: ConfigFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="The release folder: a new folder, or this release, which is kept."),
    ] = None,
    executor: Executor = None,
    workers: Workers = None,
    address: Address = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Measure once and estimate: reads and checks everything, pays, draws noise, writes the release folder."""
    from coco_opt.config import load_config
    from coco_opt.releases import release as make_release
    from coco_opt.releases import render_report

    reporter = TerminalReporter(lines=not json)
    settings = load_config(config)
    engine = engine_of(settings, executor, workers, address)
    if engine is not None:
        settings = replace(settings, engine=engine)
    outcome = make_release(settings, out, reporter=reporter, page=render_report)
    entries: dict[str, Any] = {"run": outcome.run, "paid": outcome.paid}
    if outcome.record is not None:
        entries["private_record"] = str(outcome.record)
    if outcome.estimate is not None:
        entries["spent"] = outcome.estimate.spent
    write_release(outcome.folder, outcome.manifest, json=json, **entries)
    return 0


def write_release(folder: Path, manifest: Mapping[str, Any], *, json: bool, **entries: Any) -> None:
    """Print where a release lies and how well its problems were solved; ``entries`` are further entries of the JSON."""
    report = folder / "report.html"
    if json:
        places = {"release": str(folder), "report": str(report)}
        write_json({"status": manifest["status"], **places, **entries, "solvers": manifest["solvers"]})
        return
    rows = [
        (problem, row["solver"], f"{row['solves']:,}", *(figure(gap) if row["solves"] else "" for gap in worst), note)
        for problem, row in manifest["solvers"].items()
        for worst in [(row["worst_gap"], row["worst_relative_gap"], row["worst_violation"])]
        for note in [_notes(row)]
    ]
    header = ("problem", "solver", "solved", "worst gap", "relative", "worst violation", "note")
    if rows:
        write_table("Solvers", header, rows, numeric=2)
    record = entries.get("private_record")
    write_values(
        [
            ("Release", folder),
            ("Report", report),
            *_unused_solvers(manifest),
            *([("Private record", record)] if record else []),
            ("Check it with", f"coco-opt verify {quoted(folder)}"),
        ]
    )


def _unused_solvers(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a line on the solvers chosen for problems that this release did not have; none where all were used."""
    from coco_opt.problem import step_of

    chosen = [key for key, choice in manifest["config"].get("solvers", {}).items() if isinstance(choice, Mapping)]
    used = {"default", *manifest["solvers"], *map(step_of, manifest["solvers"])}
    unused = [key for key in chosen if key not in used]
    if not unused:
        return []
    return [("Not used", f"of [solvers] {', '.join(unused)}: this method has no such problem; it solves those above")]


def _notes(row: Mapping[str, Any]) -> str:
    """Return where another solver answered instead, and how many answers no solver certified."""
    notes = [
        f"{entry['answered_by']} answered {entry['times']:,} ({entry['reason']})" for entry in row.get("fallbacks", ())
    ]
    if (missed := row.get("missed")) is not None:
        known = f", relative gap up to {figure(missed['gap'])}" if missed["unknown"] < missed["steps"] else ""
        notes.append(f"{missed['steps']:,} not certified{known}")
    return "; ".join(notes)
