"""Simulated outlines of regions within regions, as GeoJSON: cells around random places, with edges that wind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import Voronoi

Points = NDArray[np.float64]

BENDS = 4  # halvings of an edge
_EDGE = 0.16  # how far an edge winds, relative to its length
_ROUNDS = 2  # of moving places to the middle of their cells
COAST = np.column_stack(
    [
        np.array(
            [-124, -95, -88, -83, -76, -68, -70, -76, -81, -80, -82, -90, -97, -103, -107, -117, -122], np.float64
        ),
        np.array([48, 49, 47, 42, 44, 47, 42, 37, 31, 26, 29, 30, 26, 29, 32, 32, 37], np.float64),
    ]
)  # roughly that of the contiguous United States


def inside(points: Points, ring: Points = COAST) -> NDArray[np.bool_]:
    """Return which points lie within a ring, by the parity of crossings."""
    x, y = points[:, :1], points[:, 1:]
    (ax, ay), (bx, by) = ring.T, np.roll(ring, -1, axis=0).T
    with np.errstate(divide="ignore", invalid="ignore"):
        crosses = ((ay > y) != (by > y)) & (x < (bx - ax) * (y - ay) / (by - ay) + ax)
    parity: NDArray[np.bool_] = crosses.sum(axis=1) % 2 == 1
    return parity


def places(count: int, generator: np.random.Generator) -> tuple[Points, Points]:
    """Return places within the coast, and further ones around them whose cells are sea."""
    low, high = COAST.min(axis=0) - 4, COAST.max(axis=0) + 4
    share = inside(generator.uniform(low, high, (20_000, 2))).mean()
    points = generator.uniform(low, high, (int(count / share * 1.3) + 60, 2))
    land = inside(points)
    points = np.concatenate([points[land][:count], points[~land]])
    for _ in range(_ROUNDS):
        voronoi = Voronoi(points)
        for k, region in enumerate(voronoi.point_region):
            corners = voronoi.regions[region]
            if -1 not in corners and k < count:
                points[k] = voronoi.vertices[corners].mean(axis=0)
    return points[:count], points[count:]


def wound(a: Points, b: Points, generator: np.random.Generator) -> Points:
    """Return an edge as a winding line from a to b."""
    line = np.array([a, b])
    for _ in range(BENDS):
        middle, along = (line[:-1] + line[1:]) / 2, np.diff(line, axis=0)
        middle += along[:, ::-1] * (1, -1) * generator.uniform(-_EDGE, _EDGE, (len(middle), 1))
        line = np.insert(line, range(1, len(line)), middle, axis=0)
    return line


def cells(land: Points, sea: Points, generator: np.random.Generator) -> list[Points]:
    """Return the outline of each place on land; neighbours share their winding edges point by point."""
    voronoi = Voronoi(np.concatenate([land, sea]))
    edges = {}
    for ridge in voronoi.ridge_vertices:
        a, b = sorted(ridge)
        edges[a, b] = wound(voronoi.vertices[a], voronoi.vertices[b], generator) if a >= 0 else None
    rings = []
    for region in voronoi.point_region[: len(land)]:
        corners = voronoi.regions[region]
        runs = [
            edges[a, b][:-1] if a < b else edges[b, a][:0:-1]
            for a, b in zip(corners, [*corners[1:], corners[0]], strict=True)
        ]
        rings.append(np.concatenate(runs))
    return rings


def islet(centre: Points, size: float, generator: np.random.Generator) -> Points:
    """Return a small closed line around a place."""
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    radius = size * generator.uniform(0.7, 1.0, angle.size)
    ring: Points = centre + np.column_stack([np.cos(angle), np.sin(angle)]) * radius[:, None]
    return ring


def grouped(points: Points, sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return points ordered so that runs of these sizes are compact: halved along the longer side again and again."""

    def order(chosen: NDArray[np.int64], sizes: Sequence[int]) -> list[NDArray[np.int64]]:
        if len(sizes) == 1:
            return [chosen]
        half = len(sizes) // 2
        sides = np.ptp(points[chosen], axis=0) * (0.75, 1.0)
        chosen = chosen[np.argsort(points[chosen, int(sides.argmax())], kind="stable")]
        cut = sum(sizes[:half])
        return order(chosen[:cut], sizes[:half]) + order(chosen[cut:], sizes[half:])

    return np.concatenate(order(np.arange(len(points)), sizes))


def simulated_outlines(ids: Mapping[str, Sequence[str]], generator: np.random.Generator) -> dict[str, Any]:
    """Return a GeoJSON collection of regions with these ids, by the region above; one in forty has islands."""
    sizes = [len(each) for each in ids.values()]
    land, sea = places(sum(sizes), generator)
    rings = cells(land, sea, generator)
    features = []
    for name, place in zip([one for each in ids.values() for one in each], grouped(land, sizes), strict=True):
        polygons = [[rings[place]]]
        if generator.random() < 1 / 40:
            near = sea[np.argsort(((sea - land[place]) ** 2).sum(axis=1))[:3]]
            polygons += [[islet(centre, generator.uniform(0.02, 0.12), generator)] for centre in near]
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
