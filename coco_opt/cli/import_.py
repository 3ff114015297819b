"""``coco-opt import``: noisy measurements that somebody else published, to be estimated here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coco_opt.cli.console import TerminalReporter, quoted, write, write_json, write_values
from coco_opt.cli.options import ConfigFile, Json, Version

if TYPE_CHECKING:
    from coco_opt.privacy import Measurement


def import_(
    config: ConfigFile,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", help="Parquet files of noisy measurements, or folders of them."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The measurement's folder; it must not exist.")],
    sum_over: Annotated[
        list[str] | None,
        typer.Option(
            "--sum-over", metavar="NAME", help="An attribute of the files that CONFIG does not have; repeat it."
        ),
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Import noisy measurements that somebody else published in the layout of the 2020 Census.

    CONFIG gives attributes, groupings and structural zeros, and perhaps the hierarchy, whose names are the geocodes;
    without one the geocodes give it. Answers that count an attribute of --sum-over are left out. CONFIG needs neither
    records nor [privacy]. The noise protects what its publisher states: nothing is measured here, and no ledger is
    touched.
    """
    # Imported here, as in every verb, so that help is printed without loading all that runs need.
    from coco_opt.config import load_config
    from coco_opt.files.measurement import write_measurement
    from coco_opt.releases.manifest import spent_line
    from coco_opt.releases.storage import check_target
    from coco_opt.topdown.kind.noisy_measurement_files import gathered, measurement_of

    settings = load_config(config, measures=False)
    check_target(out)
    with TerminalReporter(lines=not json).stage("Reading what was published"):
        rows = gathered(files, settings, sum_over or ())
        measurement = measurement_of(rows)
    write_measurement(out, measurement, private=False)
    spent = spent_line(settings, measurement)
    summary = _summary(measurement)
    if json:
        places = {"measurement": str(out), **summary, "left_out": rows.left_out}
        write_json({"status": measurement.status, "spent": spent, **measurement.cost.as_dict(), **places})
        return 0
    unit, largest = measurement.cost.unit, summary["largest_path_cost"]
    write(f"{spent}.")
    write_values(
        [
            ("Regions", ", ".join(map(_in_words, summary["levels"]))),
            ("Constraints", ", ".join(summary["constraints"]) or "none"),
            *([("Left out", f"{rows.left_out:,} values that count {', '.join(sum_over)}")] if sum_over else []),
            ("Largest cost", f"{unit} {largest:.6g}, of all answers of a leaf and of the regions above it"),
            ("Measurement", f"{out}, {summary['answers']:,} answers to {len(measurement.answers):,} queries"),
            ("Estimate it", f"coco-opt estimate {quoted(out)} {quoted(config)}"),
        ]
    )
    return 0


def _summary(measurement: Measurement) -> dict[str, Any]:
    """Return what was imported: the numbers of answers and of regions by level, the constraints, the largest cost."""
    from coco_opt.topdown.table_queries import TableQueries

    queries, names = TableQueries.of(measurement.measurement_plan), measurement.measurement_plan.levels
    unmeasured = {each.level: each.unmeasured for each in queries.variances}
    regions = [len(measurement.hierarchy.level_range(level)) for level in range(len(names))]
    return {
        "answers": sum(part.stored.size for part in measurement.answers),
        "levels": [
            {"level": name, "regions": count, "unmeasured": unmeasured.get(level, 0)}
            for level, (name, count) in enumerate(zip(names, regions, strict=True))
        ],
        "constraints": [f"{bounds.query.text} by {names[bounds.level]}" for bounds in queries.bounds],
        "largest_path_cost": queries.largest_path_cost,
    }


def _in_words(level: Mapping[str, Any]) -> str:
    """Return the number of a level's regions, and of those that have no answers."""
    without = f" ({level['unmeasured']:,} without answers)" if level["unmeasured"] else ""
    return f"{level['regions']:,} of level {level['level']!r}{without}"
