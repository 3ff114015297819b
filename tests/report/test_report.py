"""The report's shell: self-contained, escaped, and silent about what is private."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, cast
from xml.etree import ElementTree

import pandas as pd
import pytest

import coco_opt as co
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Measurement
from coco_opt.releases import render_report
from coco_opt.releases.kind import AnyKind, Shown, Truth
from coco_opt.report import html, plots
from coco_opt.report.chart import Axis, tick
from coco_opt.report.front import Figure, between, front_section, where

EVIL = '<script src="x">&"\''
SOLVED = {"solver": "osqp", "solves": 1200, "worst_gap": 1e-9, "worst_relative_gap": 1e-12, "worst_violation": 0.0}
FALLBACKS = [
    {"solver": "osqp", "reason": "GAP_TOO_LARGE", "answered_by": "divide-and-conquer", "times": 3},
    {"solver": "osqp", "reason": EVIL, "answered_by": "highs", "times": 1},
]
MANIFEST: dict[str, Any] = {
    "name": EVIL,
    "private": False,
    "solvers": {"isotonic_l1": SOLVED, "tree_l2": {**SOLVED, "solver": "tree-passes"}},
    "versions": {"coco-opt": "1"},
    "promises": ["integers", "children_sum_to_parents"],
    "status": "NOT PRIVATE",
}


@cache
def measurement() -> Measurement:
    """Return a measurement of five values."""
    data = {"values": pd.DataFrame({"value": [3, 1, 4, 1, 5]})}
    privacy = {"epsilon": "1", "noise": "seeded", "seed": 7}
    return co.measure(co.configure(data=data, privacy=privacy, ranges={"cells": 8})).measurement


class Paged:
    """A kind of release that has a page."""

    unit = "entity"

    def page(self, shown: Shown) -> Sequence[str]:
        """Return what is read first, a section that is folded, and one that has nothing to say."""
        return (f"<p>{shown.result}</p>", "<p>the method</p>", "")


def page(*, truth: Truth | None = None, **manifest: Any) -> str:
    nothing: Any = None
    shown = Shown({**MANIFEST, **manifest}, f"NOT PRIVATE: {EVIL}", measurement(), nothing, "the result", truth)
    return render_report(cast(AnyKind, Paged()), shown)


def test_a_page_stands_alone_and_is_escaped() -> None:
    text = page()
    assert text == page()
    assert "://" not in text
    assert "<script" not in text
    assert text.count("&lt;script src=&quot;x&quot;&gt;&amp;") == 3  # title, heading, what was spent
    for words in ("exposed", "<p>the result</p>", "tree l2", "1,200", "1e-12", "children sum to parents", "coco-opt 1"):
        assert words in text
    assert 'class="banner exposed"' not in page(private=True, status="private")


def test_readers_come_first_and_method_privacy_and_proofs_are_folded() -> None:
    text = page(about={"title": "Homes & people"})
    order = [
        "<h1>Homes &amp; people</h1>",
        "<p>the result</p>",
        "<details",
        "<p>the method</p>",
        "epsilon = 1",
        "tree l2",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert text.count("<details") == text.count("</details>") == 3


def test_a_truth_beside_a_private_release_is_refused() -> None:
    assert page(truth=Truth(None))
    with pytest.raises(ProblemError, match="private"):
        page(truth=Truth(None), private=True)


def test_fallbacks_say_who_answered_why_and_how_often() -> None:
    assert html.fallbacks_section(MANIFEST) == ""
    assert "Answers of other solvers" not in page()
    text = page(solvers={"isotonic_l1": {**SOLVED, "fallbacks": FALLBACKS}})
    section = text[text.index("Answers of other solvers") :]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", section)
    assert cells[:5] == ["isotonic l1", "osqp", "gap too large", "divide-and-conquer", "3"]
    assert "<script" not in text


def test_labels_of_an_axis_do_not_touch() -> None:
    levels = [f"a long name of level {number}" for number in range(8)]
    root = ElementTree.fromstring(plots.error_figure({"a": [9.0] * 8}, levels, "people"))
    middles = [float(text.attrib["x"]) for text in root.iter("text") if (text.text or "").startswith("a long")]
    assert middles
    assert all(after - before >= 7.0 * len(levels[0]) for before, after in pairwise(middles))


def test_figures_and_their_intervals_are_in_words() -> None:
    assert (between(1200, 1300), between(5, 5), between(2.396, 2.398, 2)) == (
        "between 1,200 and 1,300",
        "exact",
        "right to the last digit shown",
    )
    tree = Hierarchy.from_paths([("land", "a", "x"), ("land", "b", "y"), ("land", "b", "z")])
    assert where(tree, ("nation", "state", "town"), "2021") == "in land, 2021, by state (2) and town (3)"
    shown = front_section("homes", [Figure("7", "<b>", "exact")], "", ["So."])
    assert "&lt;b&gt;" in shown
    assert shown.index("7") < shown.index("How sure")


def test_a_picture_has_no_colour_of_its_own() -> None:
    """The page's style colours it, light or dark; names of levels label the axis, and names are escaped."""
    drawn = plots.error_figure({"a <b>": [30.0, 9.0], "c": [0.0, 1e9]}, ["na<tion", "state"], "people")
    band = plots.Band([0, 1, 2], [-1.0, -2.0], [1.0, 2.0], "one standard error")
    flat = plots.panel("", plots.linear("value", [2]), plots.linear("entities", band.heights), [band], "a band")
    for picture in (drawn, flat):
        root = ElementTree.fromstring(picture)
        assert not re.search(r"#[0-9a-f]{3}|rgb|style=|fill=|stroke=", picture)
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-label"]
    assert "na&lt;tion" in drawn
    assert "a &lt;b&gt;" in drawn


def test_an_axis_holds_its_values_in_decades() -> None:
    axis = Axis.over("n", [20.0, 3000.0])
    assert (axis.low, axis.high, axis.ticks()) == (10.0, 10_000.0, [10.0, 100.0, 1_000.0, 10_000.0])
    assert [axis.share(value) for value in (1.0, 10.0, 10_000.0)] == [0.0, 0.0, 1.0]
    assert len(Axis.over("n", [1e-9, 1e9]).ticks()) <= 8
    assert [tick(value) for value in (0.001, 12.0, 2_000.0, 100_000.0, 2e7)] == ["0.001", "12", "2,000", "100k", "20M"]
