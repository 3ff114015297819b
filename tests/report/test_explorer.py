"""The regions embedded in a page are those of the release, whatever their names, and a browser shows them."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coco_opt as co
from coco_opt.histograms import Hierarchy
from coco_opt.report import explorer
from coco_opt.report.explorer import Explored, explorer_section

NASTY = '</script><b onclick="x">&'
WORDS = {"weight": "groups", "key": "size", "value": "groups", "title": "groups by size"}


def embedded(page: str) -> dict[str, Any]:
    found = re.search(r'id="explorer-data">([A-Za-z0-9+/=]*)</script>', page)
    assert found is not None
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return data


def example(**changes: Any) -> Explored:
    tree = Hierarchy.from_paths([("all", NASTY, "x/y"), ("all", NASTY, "z"), ("all", "b", "c")])
    regions = np.repeat(np.arange(tree.regions), 2)
    count = regions.size
    values: dict[str, Any] = {
        "keys": np.tile([1, 3], tree.regions),
        "values": np.arange(count),
        "lower": np.zeros(count, np.int64),
        "upper": np.arange(count) + 2,
        **changes,
    }
    ids = (None,) * 3 + ("r1", "r2", "r3")
    weight = np.arange(tree.regions)
    return Explored(tree, ("nation", "state", NASTY), ids, weight, regions, words=WORDS, **values)


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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> co.Estimated:
    config = co.configure(
        folder=tmp_path_factory.mktemp("page"),
        data={
            "sizes": pd.DataFrame({"nation": "all", "part": ["n", "n", "s"], "size": [1, 4, 2], "groups": [30, 2, 25]})
        },
        privacy={"epsilon": "2", "noise": "seeded", "seed": 3},
        groups={"max_size": 12, "consistency": "posterior"},
    )
    return co.estimate(co.measure(config))


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
    config = co.configure(
        folder=tmp_path,
        data={"values": pd.DataFrame({"cell": range(50), "count": counts})},
        privacy={"epsilon": "2", "noise": "seeded", "seed": 3},
        ranges={"cells": 50},
    )
    made = co.estimate(co.measure(config))
    data = embedded(co.render_report(made.kind, made.shown))
    assert data["names"][:3] == ["0 to 49", "0 to 7", "8 to 15"]
    assert data["names"][-50:] == [str(cell) for cell in range(50)]
    assert data["rows"] == [7] + [8] * 6 + [2] + [1] * 50
    cells = made.result.histogram.cells
    np.testing.assert_allclose(data["values"][-50:], cells, atol=0.051)
    np.testing.assert_allclose(data["values"][:7], np.add.reduceat(cells, range(0, 50, 8)), atol=0.051)
    assert (np.array(data["lower"]) < np.array(data["upper"])).all()


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
    assert "Nation with 57 groups." in done.stdout
    assert re.search(r'aria-label="n 32 groups(, n)?"', done.stdout)
