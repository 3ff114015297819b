"""Outlines on a page: neighbours share their arcs, unions and simplified outlines leave no gap, errors say where."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import coco_opt as co
from coco_opt.errors import ConfigError, InputError
from coco_opt.files.geometry import Outlines, read_outlines, without_outline
from coco_opt.histograms import Hierarchy
from coco_opt.report import choropleth
from coco_opt.report.choropleth import map_data, projected
from coco_opt.report.topology import topology

STATES = {f"s{k}": [f"c{k}{j}" for j in range(12)] for k in range(5)}
IDS = [one for each in STATES.values() for one in each]
TREE = Hierarchy.from_paths([("land", state, county) for state, counties in STATES.items() for county in counties])


def area(ring: np.ndarray) -> float:
    """Return the signed area of a ring."""
    x, y = ring.astype(float).T
    return float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() / 2)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_outlines(tmp_path_factory.mktemp("map") / "counties.geojson", STATES)


@pytest.fixture(scope="module")
def outlines(file: Path) -> Outlines:
    return read_outlines(file, TREE, [None] * TREE.regions)


def drawn_rings(data: Mapping[str, Any], region: int) -> list[np.ndarray]:
    """Return the rings of a region from the values in a page, as the page's program joins them."""
    starts = np.cumsum([0, *data["lengths"]])
    steps = np.array(data["steps"]).reshape(-1, 2)
    arcs = [np.cumsum(steps[start:stop], axis=0) for start, stop in pairwise(starts)]
    rings = []
    for ring in data["rings"][region]:
        runs = [arcs[arc] if arc >= 0 else arcs[~arc][::-1] for arc in ring]
        for run, following in zip(runs, [*runs[1:], runs[0]], strict=True):
            assert (run[-1] == following[0]).all()
        rings.append(np.concatenate([run[:-1] for run in runs]))
    return rings


def test_areas_keep_their_proportion_on_the_plane() -> None:
    """A square degree has an area proportional to the cosine of its latitude, north, south, worldwide and at 180."""
    for west, south, north, east in ((-125, 25, 50, -70), (10, -45, -20, 50), (-179, -80, 80, 179), (170, 50, 70, 190)):
        edge = np.linspace(0, 1, 50)
        square = np.column_stack(
            [
                np.concatenate([edge, 1 + 0 * edge, 1 - edge, 0 * edge]),
                np.concatenate([0 * edge, edge, 1 + 0 * edge, 1 - edge]),
            ]
        )
        corners = np.array([(west, south), (east, south), (west, north), (east, north)], float)
        places = [np.array([west + (east - west) * k / 3, south + (north - south - 1) * k / 3]) for k in range(4)]
        plane = projected(np.concatenate([corners, *(place + square for place in places)]))[4:].reshape(4, -1, 2)
        areas = np.array([area(ring) for ring in plane])
        exact = [np.sin(np.radians(place[1] + 1)) - np.sin(np.radians(place[1])) for place in places]
        np.testing.assert_allclose(areas / areas[0], np.array(exact) / exact[0], rtol=2e-3)
        assert (areas > 0).all()  # north is up, east is right


def test_every_inner_arc_bounds_two_regions_and_unions_are_what_is_left(outlines: Outlines) -> None:
    on_grid, apart = choropleth._on_grid(outlines, TREE)
    assert apart == []
    cut = topology(on_grid)
    times = Counter(arc for bound in cut.bounds.values() for arc in bound)
    assert set(times.values()) == {1, 2}
    whole = {region: sum(map(abs, map(area, rings))) for region, rings in on_grid.items()}
    for region, rings in on_grid.items():
        joined = [cut.corners(ring) for ring in cut.rings(region)]
        assert sum(abs(area(ring)) for ring in joined) == whole[region]
        assert sorted(map(len, joined)) == sorted(len(np.unique(ring, axis=0)) for ring in rings)
    data = map_data(outlines, TREE, 3)
    assert data is not None
    for state in TREE.level_range(1):
        outer = [abs(area(ring)) for ring in drawn_rings(data, state)]
        assert sum(outer) == pytest.approx(sum(whole[county] for county in TREE.children(state)), rel=0.01)
    assert sum(data["lengths"]) <= sum(len(arc) for arc in cut.arcs)


def test_simplified_neighbours_still_share_their_arcs(outlines: Outlines, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tenth of the places the areas of the counties still add up exactly to that of the land: no gap."""
    monkeypatch.setattr(choropleth, "MOST_PLACES", 450)
    data = map_data(outlines, TREE, 3)
    assert data is not None
    assert 200 < sum(data["lengths"]) <= 450
    leaves = sum(area(ring) for county in TREE.leaves for ring in map(oriented, drawn_rings(data, county)))
    land = sum(area(ring) for ring in map(oriented, drawn_rings(data, 0)))
    assert leaves == land
    assert all(data["rings"])


def oriented(ring: np.ndarray) -> np.ndarray:
    return ring if area(ring) > 0 else ring[::-1]


def block(west: float, south: float, width: float, height: float) -> np.ndarray:
    """Return a rectangle in degrees with corners along its sides."""
    side = np.linspace(0, 1, 9)[:-1, None] * (1, 0)
    unit = np.concatenate([side, side[:, ::-1] + (1, 0), (1, 1) - side, (0, 1) - side[:, ::-1]])
    return np.mod(unit * (width, height) + (west, south) + (180, 0), 360) - (180, 0)


def test_far_regions_lie_in_insets_and_near_islands_do_not() -> None:
    """Six states and an island near them stay; one across the 180th meridian and one far south lie below, undivided."""
    tree = Hierarchy.from_paths([("n", str(k), f"{k}{part}") for k in range(9) for part in "ab"])
    corners = [(-120 + 10 * (k % 3), 30 + 8 * (k // 3), 10, 8) for k in range(6)]
    corners += [(-89, 37, 1.5, 1.5), (170, 55, 30, 14), (-158, 19, 4, 3)]
    halves = [
        (west + part * width / 2, south, width / 2, height) for west, south, width, height in corners for part in (0, 1)
    ]
    rings = {leaf: [block(*half)] for leaf, half in zip(tree.leaves, halves, strict=True)}
    data = map_data(Outlines("f", "", rings), tree, 3)
    assert data is not None
    assert [tree.names[region] for region in data["apart"]] == ["7", "8"]
    boxes = []
    for state in tree.level_range(1):
        [ring] = drawn_rings(data, state)
        boxes.append((ring.min(axis=0), ring.max(axis=0)))
    bottom = max(high[1] for _, high in boxes[:7])
    assert all(low[1] > bottom for low, _ in boxes[7:])
    assert boxes[7][1][0] < boxes[8][0][0]
    assert max(high[0] for _, high in boxes) == max(high[0] for _, high in boxes[:7])
    plain = map_data(Outlines("f", "", {leaf: rings[leaf] for leaf in list(tree.leaves)[:14]}), tree, 3)
    assert plain is not None
    assert plain["apart"] == []


@pytest.mark.parametrize("grid", [5, 40, 1000])
def test_lines_that_cross_and_overlap_are_closed_lines_on_a_page(grid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random polygons cross themselves and each other, with spikes and repeated corners; every ring is still closed."""
    monkeypatch.setattr(choropleth, "_GRID", grid)
    monkeypatch.setattr(choropleth, "MOST_PLACES", 150)
    rng = np.random.default_rng(grid)
    tree = Hierarchy.from_paths([("n", f"s{k // 4}", f"c{k}") for k in range(8)])
    for _ in range(12):
        rings = {leaf: [rng.integers(0, 9, (rng.integers(3, 9), 2)).astype(float)] for leaf in tree.leaves}
        data = map_data(Outlines("f", "", rings), tree, 3)
        assert data is None or all(drawn_rings(data, region) for region, each in enumerate(data["rings"]) if each)


def test_levels_whose_corners_alone_are_too_many_are_left_out(
    outlines: Outlines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choropleth, "MOST_PLACES", 150)
    data = map_data(outlines, TREE, 3)
    assert data is not None
    rings = data["rings"]
    assert all(rings[region] for region in (0, *TREE.level_range(1)))
    assert not any(rings[county] for county in TREE.leaves)
    upper = map_data(outlines, TREE, 2)
    assert upper is not None
    assert len(upper["rings"]) == 6


def test_one_outline_of_a_region_in_another_is_a_hole(tmp_path: Path) -> None:
    outer, inner = (
        np.array([(0, 0), (1, 0), (1, 1), (0, 1)], float) * size + shift for size, shift in ((9, 0), (3, 3))
    )
    path = tmp_path / "f.geojson"
    collection = {"type": "FeatureCollection", "features": [feature("a", [[outer, inner]]), feature("b", [[inner]])]}
    path.write_text(json.dumps(collection))
    tree = Hierarchy.from_paths([("n", "a"), ("n", "b")])
    data = map_data(read_outlines(path, tree, ["n", "a", "b"]), tree, 2)
    assert data is not None
    assert [len(rings) for rings in data["rings"]] == [1, 2, 1]
    assert len(data["lengths"]) == 2  # the inner line is stored once


SQUARE = [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]


def collection(*features: tuple[Any, Any], kind: str = "Polygon") -> dict[str, Any]:
    entries = [
        {"type": "Feature", "properties": properties, "geometry": {"type": kind, "coordinates": coordinates}}
        for properties, coordinates in features
    ]
    return {"type": "FeatureCollection", "features": entries}


ONE = ({"region_id": "r1"}, SQUARE)
BAD: Sequence[tuple[str, Any, str]] = (
    ("not-geojson", "region_id,name\n", "is not GeoJSON: Expecting value in line 1"),
    ("not-geojson", {"type": "Topology"}, "is TopoJSON"),
    ("not-geojson", {"type": "FeatureCollection", "features": []}, "list of features"),
    ("not-geojson", collection(({"region_id": "r1"}, [0, 0]), kind="Point"), r"feature 1 \(r1\) is a Point"),
    ("not-geojson", collection(({"region_id": "r1"}, [[[0, "x"]]])), "not a pair of numbers"),
    ("not-degrees", collection(({"region_id": "r1"}, [[[5e5, 4e6], [5e5, 5e6], [6e5, 5e6]]])), "the file is projected"),
    ("null-id", collection(ONE, ({"GEOID": "r2"}, SQUARE)), "feature 2 has no region_id .* it has GEOID: copy"),
    ("not-geojson", collection(({"region_id": "r1"}, [[[10**400, 1], [1, 1], [2, 2]]])), "not a pair of numbers"),
    ("not-geojson", f'{{"features": {"1" * 5000}}}', "too many digits"),
    ("null-id", collection(([1, "a"], SQUARE)), "feature 1 has no region_id in the properties .* integer: copy"),
    ("unknown-region", collection(ONE, ({"region_id": "r02"}, SQUARE)), "such as 'r02'.*did you mean"),
    ("unknown-region", collection(({"region_id": 7}, SQUARE)), "such as '7' .one that differs only in leading zeros"),
    ("duplicate-region", collection(ONE, ONE), r"features 1, 2 \(2\) have a region in common"),
)


@pytest.mark.parametrize(("code", "content", "words"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_errors_name_the_feature_and_what_to_do(code: str, content: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "areas.geojson"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=words) as raised:
        read_outlines(path, Hierarchy.from_paths([("n", "a"), ("n", "b"), ("n", "c")]), [None, "r1", "r2", "007"])
    assert (raised.value.code, raised.value.__cause__) == (code, None)
    assert str(raised.value).startswith("areas.geojson: ")


def test_regions_are_found_by_id_path_or_name_and_missing_ones_are_listed(tmp_path: Path) -> None:
    tree = Hierarchy.from_paths([("n", "x", "a"), ("n", "x", "b"), ("n", "y", "b"), ("n", "y", "c")])
    path = tmp_path / "f.geojson"
    found = [({"region_id": name}, SQUARE) for name in ("7", "n/y/b", "c")]
    path.write_text(json.dumps(collection(*found)), encoding="utf-8")
    outlines = read_outlines(path, tree, [None, None, None, "7", "8", "9", "10"])
    assert sorted(outlines.rings) == [3, 5, 6]
    assert without_outline(outlines, tree) == (
        "f.geojson: 1 region has no outline and will be missing on the map: n/x/b"
    )


@pytest.fixture(scope="module")
def sizes() -> pd.DataFrame:
    counties = pd.DataFrame([("land", state, county) for state, each in STATES.items() for county in each])
    frame = pd.concat([counties] * 3, ignore_index=True).set_axis(["nation", "state", "county"], axis=1)
    return frame.assign(size=np.repeat([1, 2, 4], len(IDS)), groups=np.arange(len(frame)) % 50 + 3)


def config_of(folder: Path, sizes: pd.DataFrame, geometry: Path | None) -> co.Config:
    return co.configure(
        folder=folder,
        data={"sizes": sizes},
        privacy={"epsilon": "2", "noise": "seeded", "seed": 3},
        groups={"max_size": 8, "consistency": "matching"},
        output={} if geometry is None else {"geometry": str(geometry)},
    )


def test_a_page_has_the_map_and_a_release_without_outlines_is_as_before(
    file: Path, sizes: pd.DataFrame, tmp_path: Path
) -> None:
    measured = co.measure(config_of(tmp_path, sizes, file))
    made = co.estimate(measured)
    page = co.render_report(made.kind, made.shown)
    plain = co.estimate(measured.measurement, config_of(tmp_path, sizes, None))
    assert "function choropleth" not in (without := co.render_report(plain.kind, plain.shown))
    assert len(page) - len(without) < 60_000
    found = re.search(r'id="explorer-data">([A-Za-z0-9+/=]*)</script>', page)
    assert found is not None
    data = json.loads(gzip.decompress(base64.b64decode(found[1])))
    assert [bool(rings) for rings in data["map"]["rings"]] == [True] * TREE.regions
    assert made.manifest["geometry"]["file"] == "counties.geojson"
    assert "geometry" not in plain.manifest


def test_a_browser_draws_every_county(file: Path, sizes: pd.DataFrame, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    folder = co.estimate(co.measure(config_of(tmp_path, sizes, file))).save(tmp_path / "out", page=co.render_report)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    page = (folder / "report.html").as_uri()
    shown = subprocess.run([browser, *options, page], capture_output=True, text=True, timeout=120, check=True).stdout
    assert len(re.findall(r'<path d="M[^"]+" class="m[0-5]">', shown)) == len(IDS)
    assert re.search(
        r'aria-label="Map of 60 regions of land \(county\): mean entities per group, from [0-9.]+ in c', shown
    )
    assert "Map of land by county</h3>" in shown
    assert shown.count('<li><svg class="swatch"') in (5, 6)


def test_outlines_are_checked_before_anything_is_read(file: Path, sizes: pd.DataFrame, tmp_path: Path) -> None:
    other = tmp_path / "other.geojson"
    other.write_text(json.dumps(collection(({"region_id": "nowhere"}, SQUARE))), encoding="utf-8")
    with pytest.raises(InputError, match="no region of this release"):
        co.check(config_of(tmp_path, sizes, other))
    values = pd.DataFrame({"value": [1, 2]})
    ranges = co.configure(
        folder=tmp_path,
        data={"values": values},
        privacy={"epsilon": "1", "noise": "seeded", "seed": 1},
        ranges={"cells": 4},
        output={"geometry": str(file)},
    )
    with pytest.raises(ConfigError, match="single region"):
        co.check(ranges)


Points = NDArray[np.float64]
BENDS = 16  # of a line between two corners of the grid


def wound(start: Points, end: Points, generator: np.random.Generator) -> Points:
    """Return a line from start to end that bows to one side and trembles."""
    share = np.linspace(0, 1, BENDS + 1)[:, None]
    across = (end - start)[::-1] * (-0.1, 0.1)
    bow = across * np.sin(np.pi * share) * generator.uniform(-1, 1)
    tremble = across * generator.uniform(-0.3, 0.3, share.shape) * (share > 0) * (share < 1)
    line: Points = start + (end - start) * share + bow + tremble
    return line


def simulated_outlines(ids: Mapping[str, Sequence[str]], generator: np.random.Generator) -> dict[str, Any]:
    """Return a GeoJSON collection of regions with these ids: a column of cells for each region above."""
    columns, rows = len(ids), max(map(len, ids.values()))
    corners = np.stack(np.meshgrid(-120 + 9.0 * np.arange(columns + 1), 25 + 2.0 * np.arange(rows + 1)), axis=-1)
    corners = corners.swapaxes(0, 1) + generator.uniform(-0.3, 0.3, (columns + 1, rows + 1, 2))
    across = [[wound(corners[k, j], corners[k + 1, j], generator) for j in range(rows + 1)] for k in range(columns)]
    upward = [[wound(corners[k, j], corners[k, j + 1], generator) for j in range(rows)] for k in range(columns + 1)]
    features = []
    for k, names in enumerate(ids.values()):
        for j, name in enumerate(names):
            sides = (across[k][j], upward[k + 1][j], across[k][j + 1][::-1], upward[k][j][::-1])
            polygons = [[np.concatenate([side[:-1] for side in sides])]]
            if (k, j) == (columns - 1, 0):
                angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
                polygons.append([corners[-1, 0] + (2, 0) + 0.5 * np.column_stack([np.cos(angle), np.sin(angle)])])
            features.append(feature(name, polygons))
    return {"type": "FeatureCollection", "features": features}


def feature(region_id: str, polygons: Sequence[Sequence[Points]]) -> dict[str, Any]:
    """Return a region of polygons, each as its rings, as a feature."""
    closed = [[np.round(np.append(ring, ring[:1], axis=0), 5).tolist() for ring in polygon] for polygon in polygons]
    geometry: dict[str, Any] = {"type": "MultiPolygon", "coordinates": closed}
    if len(closed) == 1:
        geometry = {"type": "Polygon", "coordinates": closed[0]}
    return {"type": "Feature", "properties": {"region_id": region_id}, "geometry": geometry}


def write_outlines(path: Path, ids: Mapping[str, Sequence[str]], seed: int = 1) -> Path:
    """Write simulated outlines to a file."""
    path.write_text(json.dumps(simulated_outlines(ids, np.random.default_rng(seed))), encoding="utf-8")
    return path
