"""The engine: check, measure, estimate and release data of every kind. It knows kinds only by their protocol."""

from __future__ import annotations

from coco_opt.activity import Progress
from coco_opt.releases.compare import Comparison, compare
from coco_opt.releases.differences import differences
from coco_opt.releases.drawing import Measured
from coco_opt.releases.estimate import estimate
from coco_opt.releases.forecast import PlanForecast, forecast
from coco_opt.releases.measure import Checked, check, measure
from coco_opt.releases.release import Outcome, release
from coco_opt.releases.release_in_memory import Estimated, read_release
from coco_opt.releases.report import render_report
from coco_opt.releases.reporter import Reporter, Silent
from coco_opt.releases.verify import verify_release

__all__ = [
    "Checked",
    "Comparison",
    "Estimated",
    "Measured",
    "Outcome",
    "PlanForecast",
    "Progress",
    "Reporter",
    "Silent",
    "check",
    "compare",
    "differences",
    "estimate",
    "forecast",
    "measure",
    "read_release",
    "release",
    "render_report",
    "verify_release",
]
