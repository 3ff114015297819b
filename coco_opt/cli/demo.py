"""``coco-opt demo``: the main job on a simulated nation, compared with the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import TerminalReporter, quoted, write_json, write_table, write_values
from coco_opt.cli.options import Json, Version
from coco_opt.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coco_opt.files.release_checks import Check
    from coco_opt.releases import Estimated


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PATH", help="Folder for everything; must not exist.")
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Simulate three tables, release them, verify, and print the errors; seeded, so NOT PRIVATE."""
    from coco_opt.compiling import compile_kernels, compiling, missing

    # A first run compiles what takes longest on a second core, and as much on this core.
    with compiling("group_posterior"):
        from coco_opt.config import load_config
        from coco_opt.groups.kind.demo import demo_truth, write_demo
        from coco_opt.releases import release, render_report, verify_release
        from coco_opt.releases.storage import check_target, new_run_id

        folder = Path("releases") / f"demo-{new_run_id()}" if out is None else out
        check_target(folder)
        reporter = TerminalReporter(lines=not json)
        with reporter.stage("Simulating a nation of households"):
            files = write_demo(folder)
        with reporter.stage("Other methods"):
            truth = demo_truth(files)
            compile_kernels(missing(["expected_distance", "group_records"]))
        config = load_config(files.config)
        released = release(config, folder / "release", reporter=reporter, page=render_report, truth=truth)
    estimate = released.estimate
    assert estimate is not None  # a new folder holds no earlier release
    checks = verify_release(released.folder)
    passed = all(check.passed for check in checks)
    if json:
        write_json(
            {
                "status": estimate.manifest["status"],
                "spent": estimate.spent,
                "release": str(released.folder),
                "report": str(released.folder / "report.html"),
                "verified": passed,
                "errors": estimate.errors(),
            }
        )
    else:
        _write_outcome(estimate, released.folder, checks, files.config)
    if not passed:
        raise VerificationError(f"{released.folder} does not hold what it promises: see coco-opt verify")
    return 0


def _write_outcome(estimate: Estimated, folder: Path, checks: Sequence[Check], config: Path) -> None:
    rows = [(name, *(f"{value:,.1f}" for value in values)) for name, values in estimate.errors().items()]
    title = "People away from the truth, mean over the regions of a level (simulated data, so the truth is known)"
    write_table(title, ("method", *estimate.shown.measurement.measurement_plan.levels), rows)
    passed = sum(check.passed for check in checks)
    write_values(
        [
            ("Verified", f"{passed} of {len(checks)} checks hold"),
            ("Release", folder),
            ("Report", folder / "report.html"),
            ("Config", f"{config}  (change it and run: coco-opt release {quoted(config)})"),
        ]
    )
