"""The outlines of a release's regions, for the map of its report: a public file that the configuration names."""

from __future__ import annotations

from coco_opt.config.model import Config
from coco_opt.files.geometry import Outlines, read_outlines
from coco_opt.privacy.measurement import MeasurementPlan


def outlines_of(config: Config, measurement_plan: MeasurementPlan) -> Outlines | None:
    """Read the outlines that ``output.geometry`` names, None without it. Raises ConfigError, InputError."""
    path, tree = config.output.geometry, measurement_plan.hierarchy
    if path is None:
        return None
    if tree.regions == 1:
        raise config.error("output.geometry", "this release has a single region: there is no map to draw, leave it out")
    return read_outlines(path, tree, measurement_plan.region_ids)
