"""Notes on what is allowed and yet seldom meant: repeated levels, almost equal names of regions, a huge budget."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import islice

import numpy as np

from coco_opt.privacy.cost import Cost, Rho
from coco_opt.privacy.measurement import MeasurementPlan

_MOST = 50_000  # regions of a level whose names are compared; levels of more have codes for names
_SHOWN = 5
_MOST_EPSILON = 20  # a guess is right with probability e^20 / (1 + e^20)
_MOST_RHO = 10  # an epsilon of about 33 at delta = 1/1000000
_ACCENTS = re.compile("[\u0300-\u036f]")
_SIGNS = re.compile(r"(?<!\d)[\W_]+|[\W_]+(?!\d)")


def budget_notes(cost: Cost) -> Iterator[str]:
    """Yield a note on a budget that protects hardly anybody."""
    if protects_hardly(cost):
        yield (
            f"Note: {cost} protects hardly anybody: whoever thinks one of two answers of a person as likely as the "
            "other may be certain of the answer after the release. Most published tables spend an epsilon between "
            "0.1 and 10"
        )


def protects_hardly(cost: Cost) -> bool:
    """Return whether a cost allows to be certain of what somebody's record says."""
    return cost.amount > (_MOST_RHO if isinstance(cost, Rho) else _MOST_EPSILON)


def region_notes(plan: MeasurementPlan) -> Iterator[str]:
    """Yield notes on the hierarchy: levels with the same regions, often a column that is no level; similar names."""
    counts = np.diff(plan.hierarchy.level_start)
    for level in np.flatnonzero(counts[1:] == counts[:-1]) + 1:
        above, name = plan.levels[level - 1], plan.levels[level]
        yield (
            f"Note: every region of level {above!r} has one region of {name!r} below it, which says nothing new for "
            f"its share of the budget: if {name!r} is no level, leave its column out of the hierarchy; if {above!r} "
            f"lies within {name!r}, list the levels in their order, root first"
        )
    pairs = list(islice(_similar_pairs(plan), _SHOWN + 1))
    for pair in pairs[:_SHOWN]:
        described = []
        for region in pair:  # its first leaf's id finds its row of the hierarchy
            path, identity = plan.hierarchy.path(region), plan.region_ids[plan.hierarchy.leaf_range(region).start]
            described.append(repr(path) if identity is None else f"{path!r} (region_id {identity!r})")
        yield (
            f"Note: {' and '.join(described)} are two regions, and their names differ in capitals, accents, spaces or "
            "punctuation alone: if they are one, give it one name in the hierarchy"
        )
    if len(pairs) > _SHOWN:
        yield "Note: further regions have names that are almost those of others"


def _similar_pairs(plan: MeasurementPlan) -> Iterator[tuple[int, int]]:
    """Yield pairs of regions of one parent whose names differ in capitals, accents, spaces or punctuation alone.

    Signs between digits count.
    """
    tree = plan.hierarchy
    for level in range(1, tree.levels):
        regions = tree.level_range(level)
        if len(regions) > _MOST:
            return
        seen: dict[tuple[int, str], int] = {}
        for region in regions:
            letters = _ACCENTS.sub("", unicodedata.normalize("NFKD", tree.names[region])).casefold()
            name = _SIGNS.sub("", letters)
            first = seen.setdefault((int(tree.parent[region]), name), region) if name else region
            if first != region:
                yield first, region
