"""What follows a payment, carried out before it on simulated data: estimation, rounding, files, page and ``verify``.

The kind makes a small instance of its plan: the same queries, noise, constraints, method and solvers on a few regions
that have what is awkward about a hierarchy. It is measured with seeded noise, so that the rehearsal sees public numbers
alone. What fails here would fail after the payment, and is an error before it. Where a solver answers tiny problems
only, and no other is tried, simulated data of the plan's own size stand in for the small instance.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coco_opt.errors import ConfigError, MissingPackageError, VerificationError, is_out_of_memory
from coco_opt.execution import Threads
from coco_opt.files.folder import as_json
from coco_opt.histograms import Hierarchy
from coco_opt.privacy.combined_measurements import together
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.seeded import SeededNoise
from coco_opt.releases.drawing import noisy
from coco_opt.releases.estimate import estimated, with_measured_privacy
from coco_opt.releases.kind import AnyKind, PageWriter, Plan, SimulatedData, kind_of
from coco_opt.releases.planning import outlines_of
from coco_opt.releases.reporter import Reporter, Silent
from coco_opt.releases.solvers import exhaustive
from coco_opt.releases.verify import verify_release
from coco_opt.report.choropleth import map_data

_SEED = 42


def rehearse(plan: Plan, page: PageWriter | None, reporter: Reporter) -> None:
    """Release a small simulated instance of a plan into a temporary folder, and verify it.

    Tasks run in threads here, whatever the executor: others run the same tasks. Raises ConfigError where anything
    fails, MissingPackageError where a package is missing.
    """
    kind, config = kind_of(plan.config), plan.config
    method = kind.method(config, plan.measurement_plan, *(look.measurement_plan for look in plan.also))
    try:
        with reporter.stage("Rehearsing what follows"):
            simulated, brief = kind.rehearsal(plan, method)
            if exhaustive(config) and not config.solvers.fallback:
                simulated = kind.simulated_data(plan)
            _release(plan, simulated, brief, page)
        return
    except (ConfigError, MissingPackageError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        failure = error
    raise _refusal(kind, plan, failure)


def _release(plan: Plan, simulated: SimulatedData, method: Any, page: PageWriter | None) -> None:
    """Measure simulated data, estimate them, write the release and verify it."""
    measurement = _measured(simulated)
    with TemporaryDirectory() as folder:
        outlines = _outlines(plan, measurement.hierarchy, Path(folder) / "regions.geojson")
        output = simulated.plan.config.output.model_copy(update={"directory": Path(folder), "geometry": outlines})
        config = with_measured_privacy(replace(simulated.plan.config, output=output), measurement)
        reporter, threads = Silent(), Threads(config.engine.workers)
        release = estimated(config, measurement, "rehearsal", reporter=reporter, executor=threads, method=method)
        written, _ = release.publish(None, page=page, reporter=reporter)
        failed = [f"{check.name}: {check.detail}" for check in verify_release(written) if not check.passed]
    if failed:
        raise VerificationError("; ".join(failed))


def _outlines(plan: Plan, tree: Hierarchy, path: Path) -> Path | None:
    """Draw the map of a plan's public outlines, and write some of them as those of a small hierarchy; None without any.

    Raises ConfigError where the map cannot be drawn.
    """
    outlines, full = outlines_of(plan.config, plan.measurement_plan), plan.measurement_plan.hierarchy
    if outlines is None:
        return None
    try:
        map_data(outlines, full, full.levels)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        failure = type(error).__name__
        raise plan.config.error("output.geometry", f"no map can be drawn of it ({failure}): leave it out") from None
    features = []
    for level in range(tree.levels):
        drawn = (outlines.rings[region] for region in full.level_range(level) if region in outlines.rings)
        for region, rings in zip(tree.level_range(level), drawn, strict=False):
            polygons = {"type": "MultiPolygon", "coordinates": [[ring.tolist()] for ring in rings]}
            features.append({"properties": {"region_id": tree.paths[region]}, "geometry": polygons})
    path.write_bytes(as_json({"type": "FeatureCollection", "features": features}))
    return path


def _measured(simulated: SimulatedData) -> Measurement:
    """Return the measurement of simulated data; with a look, both together."""
    plan = simulated.plan
    plans = [plan] if plan.look is None else [plan, plan.on(plan.look, plan.detail)]
    noise = [SeededNoise(_SEED + number) for number in range(len(plans))]
    return together(
        [noisy(each, simulated.private, source, Silent()) for each, source in zip(plans, noise, strict=True)]
    )


def _refusal(kind: AnyKind, plan: Plan, error: Exception) -> ConfigError:
    """Return the error that names the solver which failed, else the key of the method."""
    config = plan.config
    paid = "nothing more was paid than the look, which is kept" if plan.also else "nothing was paid"
    solvers = [problem for problem in config.solvers.chosen() if problem in str(error)]
    key = f"solvers.{config.solvers.key_of(solvers[0])}" if solvers else f"{config.section}.{next(iter(kind.plainest))}"
    words = " ".join(f"{type(error).__name__}: {error}".split())
    plainest = ", ".join(f"{name} = {json.dumps(value)}" for name, value in kind.plainest.items())
    return config.error(
        key,
        f"what follows the payment fails on simulated data, so {paid} ({words}). Choose another solver or "
        f"method: the plainest is {plainest}",
    )
