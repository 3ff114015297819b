"""The outlines of regions as a page holds them: on a plane and a grid, in arcs that neighbours share, simplified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coco_opt.files.geometry import Outlines
from coco_opt.histograms import Hierarchy
from coco_opt.report.insets import laid_out, units_of
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
