"""Arcs with fewer places: those are dropped first that change the areas on both sides of an arc least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.report.topology import Points


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
