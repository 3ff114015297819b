"""Data like the private that nobody needs to protect: made in the public shape of a plan, or named by the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import InputError, Place
from coco_opt.groups.answers import has_private_counts, max_size_of
from coco_opt.groups.asked.measure import asked_of
from coco_opt.groups.asked.private import PrivateCounts
from coco_opt.groups.asked.sizes import read_sizes
from coco_opt.groups.kind.plan import buckets_of, queries_of
from coco_opt.groups.queries import GROUPS
from coco_opt.histograms import CountOfCounts
from coco_opt.releases.kind import LookAlike, Plan

SEED = 20100901  # of what is made: the same plan every time
SUPPOSED = 1_000
"""The number of groups of a leaf of made data where the true numbers are private."""
_MADE_POWER = 2.0


def supposed_groups(plan: Plan) -> NDArray[np.int64]:
    """Return the public number of groups of every region, int64[regions], or a supposed one where they are private."""
    asked = plan.asked
    if not has_private_counts(asked):
        return asked.per_region[GROUPS]
    return asked.hierarchy.aggregate(np.full(len(asked.hierarchy.leaves), SUPPOSED, np.int64))


def made_look_alike(plan: Plan, branches: int | None = None) -> LookAlike:
    """Make data of the public shape: the true numbers of groups, sizes s with probability in proportion to 1/s^2.

    ``branches`` keeps the first so many children of each region.
    """
    asked = plan.asked
    tree, where = asked.hierarchy, np.arange(asked.hierarchy.regions)
    if branches is not None:
        tree, where = tree.first_branches(branches)
    groups = supposed_groups(plan)[where]
    chances = np.arange(1, max_size_of(asked) + 1, dtype=np.float64) ** -_MADE_POWER
    chances /= chances.sum()
    rng = np.random.default_rng(SEED)
    made = (rng.multinomial(int(groups[leaf]), chances) for leaf in tree.leaves)
    leaves = [CountOfCounts.from_dense(np.concatenate([[0], counts]).astype(np.int64)) for counts in made]
    numbers = f"{SUPPOSED} groups a leaf" if has_private_counts(asked) else "the public numbers of groups"
    words = f"made data: {numbers}, sizes s with probability in proportion to 1/s^2"
    ids = tuple(asked.region_ids[region] for region in where.tolist())
    return asked_like(plan, PrivateCounts.of_leaves(tree, leaves), ids, words)


def read_look_alike(plan: Plan, path: Path) -> LookAlike:
    """Read public data like the private: a table of sizes with as many levels. Raises InputError."""
    levels = plan.asked.hierarchy.levels
    root = (plan.config.data.root or plan.asked.hierarchy.names[0]) if levels == 1 else None
    counts = read_sizes(path, root, plan.config.output.private)
    if counts.hierarchy.levels != levels:
        message = f"has {counts.hierarchy.levels} levels, but the data to release have {levels}"
        raise InputError("other-levels", message, Place(path.name))
    return asked_like(plan, counts, (), f"the look-alike {path.name}")


def asked_like(plan: Plan, counts: PrivateCounts, ids: tuple[str | None, ...], words: str) -> LookAlike:
    """Return a look-alike of given counts, asked what the plan asks; ``ids`` are those of its regions, if any."""
    levels = counts.hierarchy.levels
    asked = asked_of(
        counts.hierarchy,
        None if has_private_counts(plan.asked) else counts.group_counts,
        queries=queries_of(plan.config, levels),
        costs=plan.config.levels_cost(levels),
        max_size=max_size_of(plan.asked),
        neighbours=plan.asked.neighbours,
        levels=plan.asked.levels,
        region_ids=ids,
        buckets=buckets_of(plan.config, levels),
        counts_share=plan.config.method.counts_share,
    )
    return LookAlike(plan.on(asked, None), counts, words)
