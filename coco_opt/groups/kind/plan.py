"""What a configuration of groups asks, read and checked on public tables, and the private table that it is asked of.

Where the numbers of groups are private, the hierarchy is all that a plan reads.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from coco_opt.config.model import Config
from coco_opt.errors import InputError, Place
from coco_opt.files.regions import PublicRegions, read_regions
from coco_opt.groups.answers import has_private_counts
from coco_opt.groups.asked.entities import PublicGroups, read_group_counts, read_private, read_public, read_tables
from coco_opt.groups.asked.measure import asked_of
from coco_opt.groups.asked.private import PrivateCounts
from coco_opt.groups.asked.sizes import read_public_sizes, read_sizes, read_sizes_regions
from coco_opt.groups.buckets import Buckets, Scheme, Split
from coco_opt.groups.queries import GROUPS, Query
from coco_opt.releases.kind import Plan


def plan_groups(config: Config, *, counted: bool = False) -> Plan:
    """Read the public tables and decide what is asked of each level; ``counted`` reads no id of a group.

    Raises ConfigError, InputError, HierarchyError, ProblemError.
    """
    public = _read_public(config, counted) if config.method.counts_share is None else _read_regions(config)
    return _planned(config, public)


def _planned(config: Config, public: PublicGroups | PublicRegions) -> Plan:
    """Return the plan for public tables that were read."""
    share, levels = config.method.counts_share, public.hierarchy.levels
    costs = config.levels_cost(levels)
    if share is not None and not costs[-1]:
        message = 'leaves nothing for the last level, which group_counts = "private" needs: give it a share'
        raise config.error("privacy.split", message)
    regions = public.regions if isinstance(public, PublicGroups) else public
    asked = asked_of(
        public.hierarchy,
        public.group_counts if isinstance(public, PublicGroups) else None,
        queries=queries_of(config, levels),
        costs=costs,
        max_size=config.method.max_size,
        neighbours=config.privacy.neighbours,
        levels=regions.levels,
        region_ids=regions.region_ids,
        buckets=buckets_of(config, levels),
        counts_share=share,
    )
    return Plan(config, asked, public, again=partial(_planned, public=public))


def queries_of(config: Config, levels: int) -> tuple[Query, ...]:
    """Return the query of each level, root first, also of those that get no share of the budget."""
    queries: tuple[Query, ...] = config.per_level(config.method.query, levels, "groups.query")
    return queries


def buckets_of(config: Config, levels: int) -> tuple[Scheme | None, ...]:
    """Return the buckets or the split of sizes each level is asked for, root first, None for single sizes.

    ConfigError where a level has another query than "cumulative", whose answers alone are summed or split, or both.
    """
    splits, found = _splits(config, levels), list[Scheme | None](_buckets(config, levels))
    for level, split in enumerate(splits):
        if split is not None:
            if found[level] is not None:
                message = f"level {level} has buckets too: give one of the two a level, 0 for the other"
                raise config.error("groups.rank_above", message)
            found[level] = split
    return tuple(found)


def _splits(config: Config, levels: int) -> tuple[Split | None, ...]:
    key = "groups.rank_above"
    found = [Split(at) if at else None for at in config.per_level(config.method.rank_above, levels, key)]
    for level, (query, split) in enumerate(zip(queries_of(config, levels), found, strict=True)):
        if split is not None and query != "cumulative":
            message = f"splits cumulative counts, and level {level} is asked for its {query}: give one a level, 0 there"
            raise config.error(key, message)
    return tuple(found)


def _buckets(config: Config, levels: int) -> tuple[Buckets | None, ...]:
    method = config.method
    key = "groups.bucket_growth" if method.bucket_edges is None else "groups.bucket_edges"
    if method.bucket_edges is None:
        growths = config.per_level(method.bucket_growth, levels, key)
        found = [Buckets.by_growth(method.max_size, growth) if growth else None for growth in growths]
    else:
        edges = method.bucket_edges
        lists = config.per_level(edges, levels, key) if isinstance(edges[0], tuple) else (edges,) * levels
        found = [Buckets.from_starts(starts, method.max_size) if starts else None for starts in lists]
    for level, (query, buckets) in enumerate(zip(queries_of(config, levels), found, strict=True)):
        if buckets is not None and query != "cumulative":
            message = f"sums cumulative counts, and level {level} is asked for its {query}: give one a level, 0 there"
            raise config.error(key, message)
    return tuple(found)


def _read_public(config: Config, counted: bool) -> PublicGroups:
    data = config.data
    if data.sizes is not None:
        return read_public_sizes(data.given("sizes"), data.root, config.output.private)
    if counted:
        return read_group_counts(data.given("groups"), data.given("hierarchy"))
    return read_public(data.given("groups"), data.given("hierarchy"), config.output.private)


def _read_regions(config: Config) -> PublicRegions:
    data = config.data
    if data.sizes is not None:
        return read_sizes_regions(data.given("sizes"), data.root, config.output.private)
    return read_regions(data.given("hierarchy"))


def read_counts(plan: Plan) -> PrivateCounts:
    """Open the private tables and count; raises InputError, whose message holds no private value."""
    data, asked, spill = plan.config.data, plan.asked, plan.config.output.private
    if data.sizes is None and not has_private_counts(asked):
        return read_private(plan.detail, data.given("entities"), spill)
    if data.sizes is None:
        counts = read_tables(data.given("entities"), data.given("groups"), data.given("hierarchy"), spill)
    else:
        counts = read_sizes(data.given("sizes"), data.root, spill)
    same = counts.hierarchy.paths == asked.hierarchy.paths
    if not same or not (has_private_counts(asked) or np.array_equal(counts.group_counts, asked.per_region[GROUPS])):
        table = "hierarchy" if data.sizes is None else "sizes"
        message = "its regions or numbers of groups are no longer those that were planned with: it changed meanwhile"
        raise InputError("group-count-mismatch", message, Place(data.given(table).name))
    return counts
