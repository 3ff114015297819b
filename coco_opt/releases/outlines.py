"""The outlines of a release's regions, for the map of its report: a public file that the configuration names."""

from __future__ import annotations

from pathlib import Path

from coco_opt.config.model import Config
from coco_opt.files.geometry import Outlines, read_outlines
from coco_opt.privacy.measurement import MeasurementPlan

_KEPT = 2  # a release's own, and those of its rehearsal
_read: dict[tuple[Path, int, int, str], Outlines] = {}


def outlines_of(config: Config, measurement_plan: MeasurementPlan) -> Outlines | None:
    """Read the outlines that ``output.geometry`` names, None without it. Raises ConfigError, InputError.

    A file that has not changed is read once, though planning, the rehearsal and the page need it one after the other.
    """
    path, tree = config.output.geometry, measurement_plan.hierarchy
    if path is None:
        return None
    if tree.regions == 1:
        raise config.error("output.geometry", "this release has a single region: there is no map to draw, leave it out")
    if not path.is_file():  # which is what the reader says
        return read_outlines(path, tree, measurement_plan.region_ids)
    seen = path.stat()
    key = path.resolve(), seen.st_mtime_ns, seen.st_size, measurement_plan.regions_digest
    outlines = _read.pop(key, None) or read_outlines(path, tree, measurement_plan.region_ids)
    _read[key] = outlines
    if len(_read) > _KEPT:
        del _read[next(iter(_read))]
    return outlines
