"""Outlines as arcs that neighbours share, so that they can be united and simplified without gaps between them.

Outlines are cut where three of them meet (Bostock's TopoJSON); an arc is stored once, whoever it bounds. The outline of
several regions together consists of the arcs that bound an odd number of them. Simplifying drops those places first
that change the areas on both sides of an arc least.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints

Points = Ints
"""Places on a grid, int64[n, 2]."""

CORNERS = 3
"""The least number of corners of a ring."""


@dataclass(frozen=True, eq=False, slots=True)
class Topology:
    """Arcs, each as its places from end to end, and the arcs that bound each region; a closed arc repeats its first."""

    arcs: Sequence[Points]
    bounds: Mapping[int, frozenset[int]]

    def rings(self, region: int) -> list[list[int]]:
        """Return closed lines that bound a region, as arcs in their order; ``~arc`` runs backwards."""
        return joined(self.bounds[region], self.arcs)

    def corners(self, ring: Sequence[int]) -> Points:
        """Return the places on a ring, the first not repeated."""
        runs = [self.arcs[arc] if arc >= 0 else self.arcs[~arc][::-1] for arc in ring]
        return np.concatenate([run[:-1] for run in runs])


def topology(outlines: Mapping[int, Sequence[Points]]) -> Topology:
    """Return the arcs of outlines, rings on a grid by region. O(places log places)."""
    owners = [region for region, rings in outlines.items() for _ in rings]
    rings = [without_spikes(ring) for rings in outlines.values() for ring in rings]
    areas = [(owner, ring) for owner, ring in zip(owners, rings, strict=True) if len(ring) >= CORNERS]
    if not areas:
        return Topology((), {region: frozenset() for region in outlines})
    places, vertices = np.unique(np.concatenate([ring for _, ring in areas]), axis=0, return_inverse=True)
    starts = np.cumsum([0, *(len(ring) for _, ring in areas)])
    ends = _meeting(vertices, starts)
    numbers: dict[bytes, int] = {}
    arcs: list[Points] = []
    bounds: dict[int, set[int]] = {region: set() for region in outlines}
    for (owner, _), start, stop in zip(areas, starts[:-1], starts[1:], strict=True):
        for run in _cut(vertices[start:stop], ends[start:stop]):
            arc = numbers.setdefault(run.tobytes(), len(arcs))
            if arc == len(arcs):
                arcs.append(places[run])
            bounds[owner] ^= {arc}
    return Topology(arcs, {region: frozenset(bound) for region, bound in bounds.items()})


def without_spikes(ring: Points) -> Points:
    """Return a ring without corners at the place of the corner before, and without spikes of no width."""
    while True:
        ring = ring[(ring != np.roll(ring, 1, axis=0)).any(axis=1)]
        spikes = (np.roll(ring, 1, axis=0) == np.roll(ring, -1, axis=0)).all(axis=1)
        if len(ring) < CORNERS or not spikes.any():
            return ring
        ring = ring[~(spikes & ~np.roll(spikes, 1))] if not spikes.all() else ring[:0]


def _meeting(vertices: Ints, starts: Ints) -> Flags:
    """Return where outlines meet or part: places whose neighbours are not the same in every ring through them."""
    before, after = np.roll(vertices, 1), np.roll(vertices, -1)
    before[starts[:-1]], after[starts[1:] - 1] = vertices[starts[1:] - 1], vertices[starts[:-1]]
    count = int(vertices.max()) + 1
    pair = np.minimum(before, after) * count + np.maximum(before, after)
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(least, vertices, pair)
    np.maximum.at(most, vertices, pair)
    meets: Flags = (least != most)[vertices]
    return meets


def _cut(ring: Ints, ends: Flags) -> Iterable[Ints]:
    """Yield the runs of a ring between its ends, in a direction and, where it has no end, from a place of its own."""
    cuts = np.flatnonzero(ends)
    if not cuts.size:
        cuts = np.array([int(ring.argmin())])
    ring, cuts = np.append(np.roll(ring, -cuts[0]), ring[cuts[0]]), np.append(cuts - cuts[0], ring.size)
    for start, stop in pairwise(cuts.tolist()):
        run = ring[start : stop + 1]
        backwards = (run[-1], run[-2]) < (run[0], run[1])
        yield np.ascontiguousarray(run[::-1] if backwards else run)


def joined(arcs: Iterable[int], places: Sequence[Points]) -> list[list[int]]:
    """Return arcs joined into closed lines, each as arcs in their order; ``~arc`` runs backwards."""
    ways: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for arc in sorted(arcs, reverse=True):
        ways[_place(places[arc], 0)].append(arc)
        ways[_place(places[arc], -1)].append(~arc)
    used: set[int] = set()
    return [_walk(arc, places, ways, used) for arc in sorted(arcs) if arc not in used]


def _walk(first: int, places: Sequence[Points], ways: Mapping[tuple[int, int], list[int]], used: set[int]) -> list[int]:
    """Return a closed line that begins with an arc; every place is left as often as it is reached."""
    ring, way, home = [], first, _place(places[first], 0)
    while True:
        arc = max(way, ~way)
        used.add(arc)
        ring.append(way)
        here = _place(places[arc], -1 if way >= 0 else 0)
        if here == home:
            return ring
        way = next(way for way in ways[here] if max(way, ~way) not in used)


def _place(points: Points, end: int) -> tuple[int, int]:
    return int(points[end, 0]), int(points[end, 1])


def united(bounds: Iterable[frozenset[int]]) -> frozenset[int]:
    """Return the arcs that bound some regions together."""
    together: frozenset[int] = frozenset()
    for bound in bounds:
        together ^= bound
    return together


def simplified(arcs: Sequence[Points], most: int) -> list[Points]:
    """Return arcs of at most ``most`` places in all, where their ends and what keeps areas open are no more.

    Visvalingam and Whyatt 1993, in rounds: each drops places whose triangle with their neighbours is smaller than those
    of both neighbours, smallest first. Places in line with their neighbours are always dropped. An island keeps three
    corners, and one of two arcs between the same ends keeps a place that parts them.
    """
    if not arcs:
        return []
    places = np.concatenate(arcs)
    arc = np.repeat(np.arange(len(arcs)), [len(each) for each in arcs])
    fixed = _fixed(arcs)
    while True:
        areas = np.where(fixed, np.inf, _triangles(places))
        lowest = (areas < np.append(np.inf, areas[:-1])) & (areas <= np.append(areas[1:], np.inf))
        candidates = np.flatnonzero(lowest & np.isfinite(areas))
        number = max(len(places) - most, int((areas[candidates] == 0.0).sum()))
        if number <= 0 or not candidates.size:
            break
        # Larger triangles wait: what is dropped now may leave smaller triangles behind.
        limit = np.sort(areas)[min(number, areas.size) - 1]
        dropped = candidates[np.argsort(areas[candidates], kind="stable")][:number]
        dropped = dropped[areas[dropped] <= limit]
        remaining = np.ones(len(places), np.bool_)
        remaining[dropped] = False
        places, arc, fixed = places[remaining], arc[remaining], fixed[remaining]
    return np.split(places, np.flatnonzero(np.diff(arc)) + 1)


def _triangles(places: Points) -> Floats:
    """Return twice the area of the triangle of each place and its neighbours in the list."""
    before, after = np.roll(places, 1, axis=0) - places, np.roll(places, -1, axis=0) - places
    areas: Floats = np.abs(before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0]).astype(np.float64)
    return areas


def _fixed(arcs: Sequence[Points]) -> Flags:
    """Return the places that stay: both ends, and those without which an arc would enclose nothing."""
    ends = [tuple(sorted((tuple(each[0]), tuple(each[-1])))) for each in arcs]
    times = Counter(ends)
    fixed = []
    for each, pair in zip(arcs, ends, strict=True):
        stays = np.zeros(len(each), np.bool_)
        stays[[0, -1]] = True
        if pair[0] == pair[1]:
            apart = int(((each - each[0]) ** 2).sum(axis=1).argmax())
            stays[[apart, _farthest(each, each[apart])]] = True
        elif times[pair] > 1 and len(each) > 2:
            stays[_farthest(each, each[-1])] = True
        fixed.append(stays)
    return np.concatenate(fixed)


def _farthest(arc: Points, end: Ints) -> int:
    """Return the place of an arc that is farthest from the line from its first place to ``end``."""
    along, places = end - arc[0], arc - arc[0]
    return int(np.abs(along[0] * places[:, 1] - along[1] * places[:, 0]).argmax())
