"""Made persons in public regions and cells, for what must not open the private table."""

from __future__ import annotations

import numpy as np

from coco_opt.histograms import Hierarchy
from coco_opt.topdown.counts import TableCounts
from coco_opt.topdown.schema import Schema

MADE_SEED = 7
_PERSONS = 200


def made_tables(hierarchy: Hierarchy, schema: Schema, seed: int = MADE_SEED) -> TableCounts:
    """Return 200 persons a leaf: leaves alike, cells very unlike, as those of people are."""
    rng = np.random.default_rng(seed)
    leaves, cells = len(hierarchy.leaves), schema.size
    persons = _PERSONS * leaves
    weights = rng.exponential(size=cells) ** 3
    where = rng.integers(leaves, size=persons), rng.choice(cells, size=persons, p=weights / weights.sum())
    return TableCounts.from_microdata(hierarchy, schema, *where)


def first_branches(hierarchy: Hierarchy, most: int) -> Hierarchy:
    """Return the hierarchy with the first ``most`` children of each region and what lies below them."""
    kept = {0}
    for region in range(1, hierarchy.regions):
        parent = int(hierarchy.parent[region])
        if parent in kept and region - int(hierarchy.first_child[parent]) < most:
            kept.add(region)
    lineages = [(*reversed(hierarchy.ancestors(leaf)), leaf) for leaf in hierarchy.leaves if leaf in kept]
    return Hierarchy.from_paths([[hierarchy.names[region] for region in lineage] for lineage in lineages])
