"""Whole runs: a release from tables to a folder, solvers compared on one measurement, the demo's data."""

from __future__ import annotations

from coco_opt.runs.release import Page, ReleaseOutcome, run_release
from coco_opt.runs.reporter import Progress, Reporter, Silent

__all__ = ["Page", "Progress", "ReleaseOutcome", "Reporter", "Silent", "run_release"]
