"""The report: self-contained, escaped, and silent about what is private."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest

from coco_opt.errors import ProblemError
from coco_opt.groups import GroupsMethod, estimate_groups
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Query, SeededNoise, measure_hierarchy
from coco_opt.report import plots, render_report
from coco_opt.report.html import table
from coco_opt.runs.release import Page, Truth

EVIL = '<script src="x">&"\''
LEAVES = (CountOfCounts(np.array([0, 1, 3]), np.array([2, 9, 4])), CountOfCounts(np.array([2]), np.array([6])))
TRUTH = (CountOfCounts.total(LEAVES), *LEAVES)


def page(query: Query = "cumulative", *, raw_limit: int = 1000, consistency: str = "matching") -> Page:
    """Return a page of two leaves below a root, measured with seeded noise."""
    hierarchy = Hierarchy.from_paths([("land", EVIL), ("land", "south")])
    leaves_only = consistency == "bottom_up"
    measurements = measure_hierarchy(
        TRUTH,
        hierarchy,
        np.array([21, 15, 6]),
        queries=(query, query),
        losses=("l2", "l2"),
        epsilons=(Fraction(0), Fraction(1)) if leaves_only else (Fraction(1, 2), Fraction(1, 2)),
        max_size=8,
        neighbours="add_remove",
        source=SeededNoise(4),
        raw_limit=raw_limit,
    )
    method = GroupsMethod(("l2", "l2"), consistency="bottom_up" if leaves_only else "matching")
    manifest = {
        "name": EVIL,
        "private": False,
        "budget": {"levels": [{"level": 0, "epsilon": "1/2", "noise_scale": None}] * 2},
        "method": {
            "estimators": [query, query],
            "losses": ["l2", "l2"],
            "consistency": consistency,
            "merge": "weighted",
            "variances": "formula",
            "rounding": "half_up",
            "ties": "upper",
        },
        "max_size": 8,
        "solvers": {
            "isotonic_l2": {
                "solver": "pav",
                "solves": 3,
                "worst_gap": 0.0,
                "worst_relative_gap": 0.0,
                "worst_violation": 0.0,
            }
        },
        "versions": {"coco-opt": "1"},
        "promises": ["integers"],
    }
    return Page(manifest, "NOT PRIVATE: a test", measurements, estimate_groups(measurements, method))


def pictures(html: str) -> list[bytes]:
    """Return the decoded pictures of a page."""
    return [base64.b64decode(code) for code in re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', html)]


@pytest.mark.parametrize(
    ("query", "raw_limit", "consistency"),
    [
        ("cumulative", 1000, "matching"),
        ("naive", 1000, "matching"),
        ("rank", 1000, "matching"),
        ("rank", 1, "matching"),
        ("cumulative", 1000, "bottom_up"),
    ],
)
def test_a_page_for_every_query(query: Query, raw_limit: int, consistency: str) -> None:
    html = render_report(page(query, raw_limit=raw_limit, consistency=consistency))
    drawn = pictures(html)
    assert len(drawn) == 2
    for picture in drawn:
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert b"<script" not in picture
    assert "://" not in html
    assert "<script" not in html
    assert "&lt;script src=&quot;x&quot;&gt;&amp;" in html
    assert "NOT PRIVATE: a test" in html


def test_pages_are_deterministic() -> None:
    assert render_report(page()) == render_report(page())


def test_truth_is_shown_only_where_it_is_given_and_never_for_a_private_release() -> None:
    known = replace(page(), truth=Truth(TRUTH, {"perfect": TRUTH}))
    html = render_report(known)
    assert "Error by level" in html
    assert len(pictures(html)) == 3
    assert known.errors()["perfect"] == [0.0, 0.0]
    assert "Error by level" not in render_report(page())
    private = replace(known, manifest={**known.manifest, "private": True})
    with pytest.raises(ProblemError, match="private"):
        render_report(private)


def test_a_table_escapes_its_cells() -> None:
    assert table(("<a>",), [("&",)]) == (
        "<table>\n<thead><tr><th>&lt;a&gt;</th></tr></thead>\n<tbody>\n<tr><td>&amp;</td></tr>\n</tbody>\n</table>"
    )


@pytest.mark.parametrize("query", ["naive", "cumulative", "rank"])
def test_noisy_histograms_hold_all_groups_that_were_measured(query: Query) -> None:
    measurement = page(query).measurements[0]
    sizes, groups = plots.noisy_histogram(measurement)
    assert np.all(np.diff(sizes) > 0)
    if query == "naive":
        assert groups.tolist() == measurement.values.tolist()
    else:
        assert groups.sum() == 21


def test_residuals_vanish_where_the_release_is_what_was_measured() -> None:
    shown = page("rank")
    measurement = shown.measurements[0]
    sorted_up = np.sort(np.maximum(measurement.values, 0))
    exact = CountOfCounts.from_ranks(sorted_up)
    exactly = replace(measurement, values=sorted_up)
    assert not plots.residuals(exactly, exact, 8)[1].any()
    doubled = replace(measurement, values=2 * sorted_up + 2 * 1)
    assert plots.residuals(doubled, exact, 8)[1].tolist() == (sorted_up + 2).astype(float).tolist()


def test_long_axes_are_thinned() -> None:
    assert plots.thin(10).tolist() == list(range(10))
    kept = plots.thin(10**6, 100)
    assert kept[0] == 0
    assert kept[-1] == 10**6 - 1
    assert kept.size <= 100


def test_labels_stay_inside_the_fixed_margins() -> None:
    """Every text of a picture of a very large region lies on the canvas."""
    sizes = CountOfCounts(np.array([0, 1, 90]), np.array([2 * 10**9, 7 * 10**9, 10**4]))
    widest = replace(page("naive").measurements[0], groups=sizes.groups, max_size=100, values=sizes.to_dense(100))
    for picture in (plots.region_figure(widest, sizes, sizes, 100), plots.error_figure({"all": [3.0e7, 9e9]})):
        root = ElementTree.fromstring(base64.b64decode(picture.partition(",")[2]))
        width = float(root.attrib["viewBox"].split()[2])
        moves = [group.attrib.get("transform", "") for group in root.iter()]
        texts = [re.match(r"translate\((-?[0-9.]+) [^)]*\)( rotate\(-90\))? scale\(0\.0", move) for move in moves]
        # A rotated text stands left of its baseline, by 9 points at most.
        lefts = [float(text[1]) - (9.0 if text[2] else 0.0) for text in texts if text]
        assert len(lefts) > 6
        assert min(lefts) > 0
        assert max(lefts) < width
