"""What a configuration of groups asks, read and checked on public tables, and the private table that it is asked of."""

from __future__ import annotations

import numpy as np

from coco_opt.config.model import Config
from coco_opt.errors import InputError, Place
from coco_opt.groups.asked.entities import PublicGroups, read_private, read_public
from coco_opt.groups.asked.measure import asked_of
from coco_opt.groups.asked.private import PrivateCounts
from coco_opt.groups.asked.sizes import read_public_sizes, read_sizes
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.queries import GROUPS, Query
from coco_opt.releases.kind import Plan


def plan_groups(config: Config) -> Plan:
    """Read the public tables and decide what is asked of each level.

    Raises ConfigError, InputError, HierarchyError, ProblemError.
    """
    public = _read_public(config)
    levels = public.hierarchy.levels
    asked = asked_of(
        public.hierarchy,
        public.group_counts,
        queries=queries_of(config, levels),
        costs=config.levels_cost(levels),
        max_size=config.method.max_size,
        neighbours=config.privacy.neighbours,
        levels=public.regions.levels,
        region_ids=public.regions.region_ids,
        buckets=buckets_of(config, levels),
    )
    return Plan(config, asked, public)


def queries_of(config: Config, levels: int) -> tuple[Query, ...]:
    """Return the query of each level, root first, also of those that get no share of the budget."""
    queries: tuple[Query, ...] = config.per_level(config.method.query, levels, "groups.query")
    return queries


def buckets_of(config: Config, levels: int) -> tuple[Buckets | None, ...]:
    """Return the buckets of sizes each level is asked for, root first, None for single sizes.

    ConfigError where a level has another query than "cumulative", whose answers alone are summed.
    """
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


def _read_public(config: Config) -> PublicGroups:
    data = config.data
    if data.sizes is not None:
        return read_public_sizes(data.given("sizes"), data.root)
    return read_public(data.given("groups"), data.given("hierarchy"))


def read_counts(plan: Plan) -> PrivateCounts:
    """Open the private table and count; raises InputError, whose message holds no private value."""
    data, asked = plan.config.data, plan.asked
    if data.sizes is None:
        return read_private(plan.detail, data.given("entities"))
    counts = read_sizes(data.given("sizes"), data.root)
    same = counts.hierarchy.paths == asked.hierarchy.paths
    if not same or not np.array_equal(counts.group_counts, asked.per_region[GROUPS]):
        message = "its regions or numbers of groups are no longer those that were planned with: it changed meanwhile"
        raise InputError("group-count-mismatch", message, Place(data.given("sizes").name))
    return counts
