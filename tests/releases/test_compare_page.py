"""The page of a comparison: its profiles by hand, nothing fetched, names escaped."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from coco_opt.releases.compare import Comparison, Row
from coco_opt.releases.compare_page import AUTO, profiles, render_comparison
from coco_opt.report.chart import Axis, line_chart, tick

ROWS = (
    Row("isotonic_l1", "divide-and-conquer", 100, "OPTIMAL", 5.0, 0.0, 0.0, 0.0, 0.0, 0.001),
    Row("isotonic_l1", "highs", 100, "OPTIMAL", 5.0, 0.0, 0.0, 1e-7, 0.0, 0.05),
    Row("isotonic_l1", "brute-force", 10, "OPTIMAL", 1.0, 0.0, 0.0, 0.0, 0.0, 1e-5, note="cut from 100 to its cap"),
    Row("isotonic_l1", "corrupted", 100, "GAP_TOO_LARGE", 9.0, 0.8, 0.4, 0.0, 0.0, 1e-4, planted=True),
    Row("joint_l1", "alternating", 100, "OPTIMAL", 5.0, 0.0, 0.0, 1e-4, 0.0, 0.4),
    Row("joint_l1", "highs", 100, "OPTIMAL", 5.0, 0.0, 0.0, 1e-7, 0.0, 0.1),
    Row("joint_l1", "<b>", 100, "GAP_TOO_LARGE", 5.0, 0.0, 0.2, 1e-7, 0.0, 0.01),
)
MADE = Comparison("made <data>", ROWS)


def test_profiles_count_problems_certified_at_full_size() -> None:
    found = profiles(MADE)
    assert set(found) == {AUTO, "highs"}
    assert found["highs"] == [(1.0, 0.5), (pytest.approx(50.0), 1.0), (pytest.approx(50.0), 1.0)]
    assert found[AUTO][0] == (1.0, 0.5)
    assert found[AUTO][1] == (pytest.approx(4.0), 1.0)


def test_the_page_fetches_nothing_and_escapes_names() -> None:
    page = render_comparison(MADE)
    assert "://" not in page
    assert "<b>" not in page
    assert "Made &lt;data&gt;" in page
    assert "corrupted (planted)" in page
    assert page.count('class="chart"') == 1


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
