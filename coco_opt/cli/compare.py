"""``coco-opt compare``: every available solver on the same problems."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import TerminalReporter, figure, write, write_json, write_table, writing
from coco_opt.cli.estimate import settings_for
from coco_opt.cli.options import Json, Version
from coco_opt.errors import VerificationError

if TYPE_CHECKING:
    from coco_opt.config import Config
    from coco_opt.privacy import Measurement
    from coco_opt.releases import Comparison
    from coco_opt.releases.compare import Row
    from coco_opt.releases.reporter import Reporter

_HEADER = ("solver", "unknowns", "status", "objective", "- first", "gap", "violation", "seconds", "ties", "note")


def compare(
    target: Annotated[
        str,
        typer.Argument(metavar="CONFIG|MEASUREMENT", help="A configuration, a measurement's folder, or a run's id."),
    ],
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="CONFIG", help="Method and solvers for a measurement; default: its kind's."),
    ] = None,
    size: Annotated[int, typer.Option("--size", min=2, help="Most unknowns of a problem.")] = 2_000,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Also write the rows to this file.")] = None,
    profile: Annotated[
        Path | None, typer.Option("--profile", help="Also draw a performance profile: this path with .png and .pdf.")
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Solve one problem of each kind with every solver; spends nothing.

    Exit 4 if a solver that the configuration uses misses its tolerance; other solvers may miss theirs.
    """
    from coco_opt.releases import compare as compare_solvers

    reporter = TerminalReporter(lines=not json)
    settings, measurement = _read_target(target, config, reporter)
    comparison = compare_solvers(settings, measurement, size=size, reporter=reporter)
    if csv_file is not None:
        _write_csv(csv_file, comparison)
    pictures = [] if profile is None else _draw_profile(profile, comparison)
    if json:
        write_json({"data": comparison.data, "rows": [row.as_dict() for row in comparison.rows]})
    else:
        write(comparison.data[0].upper() + comparison.data[1:])
        _write_tables(comparison)
        if pictures:
            write(f"Performance profile  {', '.join(map(str, pictures))}")
    return _verdict(comparison, lines=not json)


def _read_target(target: str, config: Path | None, reporter: Reporter) -> tuple[Config, Measurement | None]:
    """Return the configuration and the measurement that pose the problems; None where simulated data do."""
    from coco_opt.config import load_config
    from coco_opt.files.measurement import read_measurement
    from coco_opt.releases.estimate import config_of, find_measurement
    from coco_opt.releases.runs import sweep

    path, settings = Path(target), None if config is None else settings_for(target, config)
    if settings is None and (path.is_file() or path.suffix == ".toml"):
        return load_config(path), None
    if settings is not None:
        sweep(settings, reporter.line)
    measurement, _ = read_measurement(find_measurement(target, settings))
    return settings or config_of(measurement), measurement


def _verdict(comparison: Comparison, *, lines: bool) -> int:
    if not comparison.caught:
        raise VerificationError("the planted wrong answer was certified: do not trust these certificates")
    sentences = ["The planted wrong answer was caught."]
    failed = [row for row in comparison.missed if row.used]
    if failed:
        sentences.append(f"Not certified within tolerance, though your configuration uses it: {_solver_names(failed)}.")
    if others := [row for row in comparison.missed if not row.used]:
        sentences.append(
            f"Not certified within tolerance, and not used by your configuration: {_solver_names(others)}."
        )
    if lines:
        write(" ".join(sentences))
    return 4 if failed else 0


def _solver_names(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row.solver} on {row.problem} ({row.status})" for row in rows)


def _write_tables(comparison: Comparison) -> None:
    kinds = dict.fromkeys(row.problem for row in comparison.rows)
    for kind in kinds:
        rows = [_cells(row) for row in comparison.rows if row.problem == kind]
        write_table(kind, _HEADER, rows)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.solver,
        f"{row.unknowns:,}",
        row.status,
        figure(row.objective, 10),
        figure(row.difference),
        figure(row.relative_gap),
        figure(row.violation),
        figure(row.seconds, 3),
        "yes" if row.honours_ties else "any",
        row.note,
    )


def _write_csv(path: Path, comparison: Comparison) -> None:
    from coco_opt.releases.compare import columns

    rows = StringIO(newline="")
    writer = csv.DictWriter(rows, columns())
    writer.writeheader()
    writer.writerows(row.as_dict() for row in comparison.rows)
    with writing(path):
        path.write_text(rows.getvalue(), encoding="utf-8", newline="")


def _draw_profile(path: Path, comparison: Comparison) -> list[Path]:
    from coco_opt.releases.compare_profile import draw_profiles

    with writing(path):
        return draw_profiles(path, comparison)
