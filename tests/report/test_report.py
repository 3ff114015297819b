"""The report: self-contained, escaped, silent about what is private; its embedded regions are those of the release."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import coco_opt as co
from coco_opt import Hierarchy, Measurement, render_report
from coco_opt.errors import ProblemError
from coco_opt.releases.kind import AnyKind, Shown, Truth
from coco_opt.report import chart, explorer, html
from coco_opt.report.chart import Axis, tick
from coco_opt.report.explorer import Explored, explorer_section
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
    error_words = "entities"

    def errors(self, *_: object) -> Mapping[str, list[float]]:
        return {}

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
    root = ElementTree.fromstring(chart.error_figure({"a": [9.0] * 8}, levels, "people"))
    middles = [float(text.attrib["x"]) for text in root.iter("text") if (text.text or "").startswith("a long")]
    assert middles
    assert all(after - before >= 7.0 * len(levels[0]) for before, after in pairwise(middles))


def test_figures_and_their_intervals_are_in_words() -> None:
    assert between(1200, 1300) == "between 1,200 and 1,300"
    assert between(5, 5) == "most likely exact"
    assert between(2.396, 2.398, 2) == "between 2.396 and 2.398"
    assert between(2.46957, 2.474, 2) == "between 2.469 and 2.474"
    tree = Hierarchy.from_paths([("land", "a", "x"), ("land", "b", "y"), ("land", "b", "z")])
    assert where(tree, ("nation", "state", "town"), "2021") == "in land, 2021, by state (2) and town (3)"
    shown = front_section("homes", [Figure("7", "<b>", "exact")], "", ["So."])
    assert "&lt;b&gt;" in shown
    assert shown.index("7") < shown.index("How sure")


def test_a_picture_has_no_colour_of_its_own() -> None:
    """The page's style colours it, light or dark; names of levels label the axis, and names are escaped."""
    drawn = chart.error_figure({"a <b>": [30.0, 9.0], "c": [0.0, 1e9]}, ["na<tion", "state"], "people")
    band = chart.Band([0, 1, 2], [-1.0, -2.0], [1.0, 2.0], "one standard error")
    flat = chart.panel("", chart.linear("value", [2]), chart.linear("entities", band.heights), [band], "a band")
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


NASTY = '</script><b onclick="x">&'
WORDS = {"weight": "groups", "key": "size", "value": "groups", "title": "groups by size"}


def embedded(page: str) -> dict[str, Any]:
    found = re.search(r'id="explorer-data">([A-Za-z0-9+/=]*)</script>', page)
    assert found is not None
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return data


def example() -> Explored:
    tree = Hierarchy.from_paths([("all", NASTY, "x/y"), ("all", NASTY, "z"), ("all", "b", "c")])
    regions = np.repeat(np.arange(tree.regions), 2)
    count = regions.size
    keys, values = np.tile([1, 3], tree.regions), np.arange(count)
    ends = {"lower": np.zeros(count, np.int64), "upper": values + 2}
    ids = (None,) * 3 + ("r1", "r2", "r3")
    weight = np.arange(tree.regions)
    return Explored(tree, ("nation", "state", NASTY), ids, weight, regions, keys, values, WORDS, **ends)


def test_the_data_of_a_page_are_those_of_the_release_and_no_name_escapes() -> None:
    shown = example()
    page = explorer_section(shown)
    assert NASTY not in page
    data = embedded(page)
    assert data["names"] == list(shown.hierarchy.names)
    assert data["rows"] == [2] * 6
    assert (data["keys"], data["values"]) == ([1, 3] * 6, list(range(12)))
    assert data["upper"] == list(range(2, 14))
    assert page == explorer_section(example())


def test_levels_that_make_a_page_too_large_are_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer, "MOST_ROWS", 12)
    page = explorer_section(example())
    assert "Too large for a page: &lt;/script&gt;" in page
    data = embedded(page)
    assert (len(data["names"]), data["rows"], data["levels"]) == (3, [2] * 3, ["nation", "state"])


def estimated(folder: Path, data: dict[str, pd.DataFrame], seed: int = 3, **section: Any) -> co.Estimated:
    privacy = {"epsilon": "2", "noise": "seeded", "seed": seed}
    return co.estimate(co.measure(co.configure(folder=folder, data=data, privacy=privacy, **section)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> co.Estimated:
    sizes = pd.DataFrame({"nation": "all", "part": ["n", "n", "s"], "size": [1, 4, 2], "groups": [30, 2, 25]})
    section = {"max_size": 12, "consistency": "posterior"}
    return estimated(tmp_path_factory.mktemp("page"), {"sizes": sizes}, groups=section)


def test_a_report_holds_every_region_with_its_intervals(made: co.Estimated) -> None:
    data = embedded(co.render_report(made.kind, made.shown))
    starts = np.cumsum([0, *data["rows"]])
    for region, histogram in enumerate(made.result.histograms):
        rows = slice(starts[region], starts[region + 1])
        keys, values = (np.array(data[name][rows]) for name in ("keys", "values"))
        assert keys[values > 0].tolist() == histogram.sizes.tolist()
        assert values[values > 0].tolist() == histogram.counts.tolist()
        assert (np.array(data["lower"][rows]) <= values).all()
        assert (values <= np.array(data["upper"][rows])).all()


def test_ranges_within_ranges_are_embedded_down_to_the_cells(tmp_path: Path) -> None:
    counts = np.random.default_rng(3).poisson(9, 50)
    frames = {"values": pd.DataFrame({"cell": range(50), "count": counts})}
    made = estimated(tmp_path, frames, ranges={"cells": 50, "outside": "clamp"})
    data = embedded(page := co.render_report(made.kind, made.shown))
    assert page.count("The first cell means 0 or less, and the last cell 49 or more.") == 2
    assert data["names"][:3] == ["0 to 49", "7 or less", "8 to 15"]
    assert data["names"][-50:] == ["0 or less", *map(str, range(1, 49)), "49 or more"]
    assert data["rows"] == [7] + [8] * 6 + [2] + [1] * 50
    cells = made.result.histogram.cells
    np.testing.assert_allclose(data["values"][-50:], cells, atol=0.051)
    np.testing.assert_allclose(data["values"][:7], np.add.reduceat(cells, range(0, 50, 8)), atol=0.051)
    assert (np.array(data["lower"]) < np.array(data["upper"])).all()


def test_the_interval_of_all_holds_the_truth_where_most_counts_are_made_nonnegative(tmp_path: Path) -> None:
    held, section = 0, {"cells": 365, "estimator": "nonnegative"}
    for seed in range(12):
        values = pd.DataFrame({"cell": range(9), "count": 50})
        made = estimated(tmp_path, {"values": values}, seed, ranges=section)
        page = co.render_report(made.kind, made.shown)
        ends = re.search(r"(?s)between (\d+) and (\d+).*in ranges of 2 cells", page)
        held += ends is not None and int(ends[1]) <= 450 <= int(ends[2])
    assert held > 8


def test_names_are_found_without_accents_and_in_any_case() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js is installed")
    script = resources.files("coco_opt.report").joinpath("explorer.js").read_text(encoding="utf-8")
    lines = [line for line in script.splitlines() if line.strip().startswith(("const PLAIN =", "const plain ="))]
    words = ["İzmir", "IĞDIR", "i\u011fd\u0131r", "Łódź", "Straße", "Tromsø", "Đà Nẵng", "0103"]
    call = f"console.log(JSON.stringify({json.dumps(words)}.map(plain)))"
    done = subprocess.run([node, "-e", "\n".join((*lines, call))], capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout) == ["izmir", "igdir", "igdir", "lodz", "strasse", "tromso", "da nang", "0103"]


def test_a_browser_shows_the_root_and_its_parts(made: co.Estimated, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    folder = made.save(tmp_path / "release", page=co.render_report)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run(
        [browser, *options, (folder / "report.html").as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert re.search(r"<h3[^>]*>all</h3>", done.stdout)
    assert "57 groups in this nation." in done.stdout
    assert re.search(r'aria-label="n 32 groups(, n)?"', done.stdout)
