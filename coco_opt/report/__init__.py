"""The HTML report of a release: one file, no network, nothing that the release does not show."""

from __future__ import annotations

from coco_opt.report.html import render_report

__all__ = ["render_report"]
