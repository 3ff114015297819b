"""The outlines of regions as a page holds them: on a plane and a grid, in arcs that neighbours share, simplified.

Far regions, such as Alaska, lie in insets below the rest. The plane has areas in one proportion; its projection suits
the places that it is given: conic, or cylindrical near the equator and worldwide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.files.geometry import Outlines
from coco_opt.histograms import Hierarchy
from coco_opt.report.topology import CORNERS, Points, Topology, simplified, topology, united, without_spikes

MOST_PLACES = 80_000
"""The maximum number of places of a page's outlines; deeper levels are left out where their corners alone are more."""
_GRID = 16_384  # units along the longer side


def map_data(outlines: Outlines, tree: Hierarchy, levels: int) -> dict[str, Any] | None:
    """Return the outlines of the regions of the first ``levels`` levels as JSON-able values, None where there are none.

    A region without an outline of its own has that of its children together. ``steps`` are the places of all arcs as
    differences (x, y) from the place before, ``lengths`` the number of places of each arc; ``rings`` are, by region,
    lists of arcs, ``~arc`` for an arc that runs backwards. ``apart`` are the regions in insets.
    """
    on_grid, apart = _on_grid(outlines, tree)
    cut = topology(on_grid)
    drawn = _of_levels(Topology(cut.arcs, _with_unions(cut, tree)), tree, levels)
    if not drawn.bounds:
        return None
    used = sorted(frozenset().union(*drawn.bounds.values()))
    arcs = simplified([drawn.arcs[arc] for arc in used], MOST_PLACES)
    number = {arc: k for k, arc in enumerate(used)}
    rings = [
        [[number[arc] if arc >= 0 else ~number[~arc] for arc in ring] for ring in drawn.rings(region)]
        if region in drawn.bounds
        else None
        for region in range(tree.level_range(levels - 1).stop)
    ]
    steps = [np.diff(arc, axis=0, prepend=np.zeros((1, 2), np.int64)) for arc in arcs]
    return {
        "apart": apart,
        "lengths": [len(arc) for arc in arcs],
        "steps": np.concatenate(steps).ravel().tolist(),
        "rings": rings,
    }


def _on_grid(outlines: Outlines, tree: Hierarchy) -> tuple[dict[int, Sequence[Points]], list[int]]:
    """Return the rings by region on a grid, y downwards, and the regions in insets; regions of no size get squares."""
    rings = [ring for each in outlines.rings.values() for ring in each]
    lengths = [len(ring) for ring in rings]
    owners = [region for region, each in outlines.rings.items() for _ in each]
    plane, apart = laid_out(np.concatenate(rings), np.repeat(units_of(owners, tree.level, tree.parent), lengths))
    low, high = plane.min(axis=0), plane.max(axis=0)
    unit = max(float((high - low).max()), 1e-12) / _GRID
    placed = iter(np.split(np.rint((plane - low) / unit).astype(np.int64), np.cumsum(lengths)[:-1]))
    by_region = {region: [next(placed) for _ in each] for region, each in outlines.rings.items()}
    return {region: _visible(each) for region, each in by_region.items()}, apart


def _visible(rings: Sequence[Points]) -> Sequence[Points]:
    """Return the rings of a region, or a square where all of them enclose nothing on the grid."""
    if any(len(without_spikes(ring)) >= CORNERS for ring in rings):
        return rings
    corner = rings[0].min(axis=0)
    return [corner + np.array([(0, 0), (1, 0), (1, 1), (0, 1)])]


def _with_unions(cut: Topology, tree: Hierarchy) -> dict[int, frozenset[int]]:
    """Return the arcs that bound each region, those above the outlines' regions included."""
    bounds = dict(cut.bounds)
    for level in reversed(range(tree.levels - 1)):
        for region in tree.level_range(level):
            parts = [bounds[child] for child in tree.children(region) if child in bounds]
            if region not in bounds and parts:
                bounds[region] = united(parts)
    return bounds


def _of_levels(cut: Topology, tree: Hierarchy, levels: int) -> Topology:
    """Return the outlines of as many of the first levels as a page holds, in arcs of these levels alone."""
    for depth in range(levels, 0, -1):
        bounds = {region: bound for region, bound in cut.bounds.items() if tree.level[region] < depth and bound}
        drawn = Topology(cut.arcs, bounds)
        if any(bound for region, bound in cut.bounds.items() if region not in bounds):
            # Where only smaller regions meet, no arc needs to end.
            drawn = topology({region: [drawn.corners(ring) for ring in drawn.rings(region)] for region in bounds})
        if 2 * len(frozenset().union(*drawn.bounds.values())) <= MOST_PLACES:
            return drawn
    return Topology((), {})


_WIDE = 180.0  # degrees of longitude from which a cone would fold around
_FLAT = 0.1  # constant of a cone that is nearly a cylinder
_SIXTH = 1 / 6  # of the latitudes lies outside each standard parallel (Deetz and Adams 1934)


def projected(degrees: Floats) -> Floats:
    """Return places float64[n, 2] (longitude, latitude in degrees) on a plane, y upwards, areas in one proportion.

    Albers' conic projection with standard parallels a sixth inside the latitudes, or Lambert's cylindrical one
    (Snyder 1987, equations 14-1 to 14-6 and 10-1 to 10-2). Longitudes are cut where the widest gap is, so that places
    on both sides of 180 degrees lie together.
    """
    turned = unwrapped(degrees[:, 0])
    west, east = turned.min(), turned.max()
    longitude = np.radians(turned - (west + east) / 2)
    latitude = np.radians(degrees[:, 1])
    south, north = latitude.min(), latitude.max()
    first, second = south + (north - south) * _SIXTH, north - (north - south) * _SIXTH
    cone = (np.sin(first) + np.sin(second)) / 2
    if abs(cone) < _FLAT or east - west > _WIDE:
        parallel = np.sqrt((np.cos(first) ** 2 + np.cos(second) ** 2) / 2)
        return np.column_stack([longitude * parallel, np.sin(latitude) / parallel])
    constant = np.cos(first) ** 2 + 2 * cone * np.sin(first)
    radius = np.sqrt(np.maximum(0.0, constant - 2 * cone * np.sin(latitude))) / cone
    return np.column_stack([radius * np.sin(cone * longitude), -radius * np.cos(cone * longitude)])


def unwrapped(longitude: Floats) -> Floats:
    """Return longitudes counted eastwards from the middle of the widest gap between them, in degrees."""
    around = np.unique(np.mod(longitude, 360.0))
    gaps = np.diff(around, append=around[0] + 360.0)
    widest = int(gaps.argmax())
    cut = around[widest] + gaps[widest] / 2
    counted: Floats = np.mod(longitude - cut, 360.0)
    return counted


_CELLS = 40  # along the longer side: what is one empty cell or more away is apart
_GAIN = 1.5  # insets are worth it if the rest then takes this much less area
_GROWTH = 1.1  # of the main map for a cluster that stays on it
_WIDEST, _HIGHEST, _LEAST = 0.28, 0.25, 0.05  # of an inset, relative to the main map
_MARGIN = 0.02
_POINT = 1e-6  # of the main map's width: the least side of what lies in an inset


def laid_out(degrees: Floats, units: Ints) -> tuple[Floats, list[int]]:
    """Return places (longitude, latitude) on a plane, y downwards, and the units that lie in insets.

    ``units`` number the region of each place; a region is never divided. The main map has the cluster of most regions
    and what lies within or close to its box. Every inset is projected on its own, and has a scale of its own.
    """
    plane = projected(degrees)
    clusters = _clusters(plane, units)
    main = _main(plane, units, clusters)
    if main.all():
        return plane * (1.0, -1.0), []
    plane = np.empty_like(plane)
    plane[main] = _from_corner(projected(degrees[main]))
    width, height = plane[main].max(axis=0)
    left, top = 0.0, height * (1 + _MARGIN)
    for cluster in np.unique(clusters[~main]):
        inset = clusters == cluster
        corner = _from_corner(projected(degrees[inset]))
        sides = np.maximum(corner.max(axis=0), _POINT * width)  # an outline may have no width or no height
        scale = min(_WIDEST * width / sides[0], _HIGHEST * height / sides[1], max(1.0, _LEAST * width / sides.max()))
        plane[inset] = corner * scale + (left, top)
        left += sides[0] * scale + 2 * _MARGIN * width
    return plane, np.unique(units[~main]).tolist()


def _from_corner(plane: Floats) -> Floats:
    """Return places with y downwards, counted from the upper left corner of their box."""
    turned = plane * (1.0, -1.0)
    corner: Floats = turned - turned.min(axis=0)
    return corner


def _clusters(plane: Floats, units: Ints) -> Ints:
    """Return the cluster of each place: what touches on a coarse grid, or belongs to one region, is together."""
    from scipy.ndimage import label
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    low, high = plane.min(axis=0), plane.max(axis=0)
    cells = ((plane - low) / max(float((high - low).max()), 1e-12) * (_CELLS - 1)).astype(np.int64)
    grid = np.zeros((_CELLS, _CELLS), np.bool_)
    grid[cells[:, 0], cells[:, 1]] = True
    spots = np.asarray(label(grid, np.ones((3, 3)))[0])[cells[:, 0], cells[:, 1]]
    numbers = units - units.min() + spots.max() + 1
    links = coo_array((np.ones(len(units)), (spots, numbers)), shape=(numbers.max() + 1,) * 2)
    together: Ints = connected_components(links, directed=False)[1][spots].astype(np.int64)
    return together


def _main(plane: Floats, units: Ints, clusters: Ints) -> Flags:
    """Return the places on the main map; all of them where insets would gain little."""
    count = {int(cluster): len(np.unique(units[clusters == cluster])) for cluster in np.unique(clusters)}
    order = sorted(count, key=lambda cluster: (-count[cluster], cluster))
    main = clusters == order[0]
    for cluster in order[1:]:
        joined = main | (clusters == cluster)
        if _area(plane[joined]) <= _GROWTH * _area(plane[main]):
            main = joined
    everything = np.ones(len(units), np.bool_)
    return main if _area(plane) > _GAIN * _area(plane[main]) else everything


def _area(plane: Floats) -> float:
    """Return the area of the box around places."""
    width, height = np.ptp(plane, axis=0)
    return float(width * height)


def units_of(regions: Sequence[int], level: Ints, parent: Ints) -> Ints:
    """Return for each region its ancestor on the first level that divides the land; itself where it lies higher."""
    first = next((depth for depth in range(int(level.max()) + 1) if np.count_nonzero(level == depth) > 1), 0)
    above = np.array(regions, np.int64)
    while (level[above] > first).any():
        above = np.where(level[above] > first, parent[above], above)
    return above
