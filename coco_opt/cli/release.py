"""``coco-opt release``, ``measure`` and ``estimate``: the two steps of a release, together and one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coco_opt.cli.console import TerminalReporter, figure, quoted, write, write_json, write_table, write_values
from coco_opt.cli.options import Address, Again, ConfigFile, Executor, Json, Renamed, Version, Workers, engine_of
from coco_opt.errors import InputError, Place

if TYPE_CHECKING:
    from coco_opt.config import Config
    from coco_opt.releases import Measured


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
        write_table("Solvers: a gap bounds how far an answer is from the best there is", header, rows, numeric=2)
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
