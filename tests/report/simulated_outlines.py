"""Simulated outlines of regions within regions, as GeoJSON: the cells of a grid whose lines wind, and an island."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
