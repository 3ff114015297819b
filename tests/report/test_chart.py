"""Axes and lines of the report's charts."""

from __future__ import annotations

import re
from itertools import pairwise

from coco_opt.report.chart import Axis, line_chart, tick


def test_an_axis_holds_its_values_in_decades() -> None:
    axis = Axis.over("n", [20.0, 3000.0])
    assert (axis.low, axis.high, axis.ticks()) == (10.0, 10_000.0, [10.0, 100.0, 1_000.0, 10_000.0])
    assert [axis.share(value) for value in (1.0, 10.0, 10_000.0)] == [0.0, 0.0, 1.0]
    assert len(Axis.over("n", [1e-9, 1e9]).ticks()) <= 8
    assert [tick(value) for value in (0.001, 12.0, 2_000.0, 100_000.0, 2e7)] == ["0.001", "12", "2,000", "100k", "20M"]


def test_names_of_lines_do_not_overlap() -> None:
    axis = Axis("share", 0.0, 1.0, scale="linear")
    chart = line_chart({f"line {k}": [(0.0, 0.5), (1.0, 0.5)] for k in range(12)}, axis, axis, "equal")
    heights = sorted(float(y) for y in re.findall(r'<text x="351" y="([\d.]+)">', chart))
    assert len(heights) == 12
    assert min(b - a for a, b in pairwise(heights)) >= 12.9
