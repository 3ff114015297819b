"""What a configuration of groups plans: the queries on public tables, the private table, and the post-processing.

Where the numbers of groups are private, the hierarchy is all that a plan reads. The method that is named is checked
against the measured queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from coco_opt.config.model import Config
from coco_opt.errors import InputError, Place
from coco_opt.estimators import estimator_row, estimator_rows
from coco_opt.files.regions import PublicRegions, read_regions
from coco_opt.groups.buckets import Buckets, Scheme, Split, same_buckets
from coco_opt.groups.estimating.method import ONE_PROGRAM, Consistency, GroupsMethod, needed_levels
from coco_opt.groups.kind.automatic import (
    assumed_counts,
    choice_digest,
    choice_tables,
    chosen_keys,
    price_notes,
    stated_buckets,
    takes_look,
    with_keys,
    with_measured_queries,
    with_method,
)
from coco_opt.groups.look import distribution_of_look, is_look
from coco_opt.groups.measuring.automatic import QueryChoice
from coco_opt.groups.measuring.entities import PublicGroups, read_group_counts, read_private, read_public, read_tables
from coco_opt.groups.measuring.measure import look_of, measurement_plan_of
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.measuring.sizes import read_public_sizes, read_sizes, read_sizes_regions
from coco_opt.groups.noisy_measurements import (
    buckets_of,
    counts_share_of,
    has_private_counts,
    max_size_of,
    size_queries,
    split_of,
)
from coco_opt.groups.queries import GROUPS, Query, plain_query
from coco_opt.privacy import Measurement, MeasurementPlan
from coco_opt.releases.kind import Plan

_NAMES = {"joint": "joint estimation", "convex": "the convex program"}
_COVERAGE = 0.9


def plan_groups(config: Config, *, counted: bool = False) -> Plan:
    """Read the public tables and plan the query of each level; with ``counted`` no id of a group is read.

    Raises ConfigError, InputError, HierarchyError, ProblemError.
    """
    data, spill = config.data, config.output.private
    public: PublicGroups | PublicRegions
    if config.method.counts_share is not None and data.sizes is None:
        public = read_regions(data.table_of("hierarchy"))
    elif data.sizes is None and counted:
        public = read_group_counts(data.table_of("groups"), data.table_of("hierarchy"))
    elif data.sizes is None:
        public = read_public(data.table_of("groups"), data.table_of("hierarchy"), spill)
    else:
        read = read_public_sizes if config.method.counts_share is None else read_sizes_regions
        public = read(data.table_of("sizes"), data.root, spill)
    return _planned(config, public=public, outline=counted)


def _planned(
    config: Config,
    keys: Mapping[str, Any] | None = None,
    *,
    public: PublicGroups | PublicRegions,
    outline: bool = False,
) -> Plan:
    """Return the plan for public tables that were read; an ``outline`` searches the choice of queries in full.

    ``keys`` are those that were chosen before, which are not chosen again.
    """
    look = takes_look(config)
    plan, ranking = _chosen(config, public, keys, search=outline or not look)
    plan = replace(
        plan,
        ranking=partial(choice_tables, config, plan.measurement_plan.levels, ranking, plan.config.method.consistency),
        choice=choice_digest(config),
        replanned=partial(_planned, public=public, outline=outline),
    )
    if not look:
        return plan
    assert isinstance(public, PublicGroups)
    provisional = look_of(plan.measurement_plan, config.privacy.cost * config.auto.look)
    return replace(plan, look=provisional, resolve=partial(_after_look, config, public), chosen={}, replanned=None)


def _after_look(config: Config, public: PublicGroups, look: Measurement, chosen: Mapping[str, Any] | None) -> Plan:
    """Return the plan for what a look leaves of the budget, under the size distribution that the look suggests."""
    left = config.privacy.cost * (1 - config.auto.look)
    config = replace(config, privacy=config.privacy.model_copy(update={left.unit: left.amount}))
    plan, _ = _chosen(config, public, chosen, look)
    shown = {**plan.chosen, "consistency": plan.config.method.consistency}
    words = ", ".join(f"{name} = {json.dumps(value)}" for name, value in shown.items())
    return replace(plan, also=(look,), notes=(f"Chosen after the look: {words}", *plan.notes))


def _chosen(
    config: Config,
    public: PublicGroups | PublicRegions,
    keys: Mapping[str, Any] | None,
    look: Measurement | None = None,
    *,
    search: bool = True,
) -> tuple[Plan, tuple[QueryChoice, ...]]:
    """Return the plan with the open keys as chosen before, or as chosen now, and the ranking of a choice."""
    ranking: tuple[QueryChoice, ...] = ()
    if keys is None:
        groups = public.group_counts if isinstance(public, PublicGroups) else assumed_counts(public.hierarchy)
        distributions = None if look is None else {"look": distribution_of_look(look)}
        keys, ranking = chosen_keys(config, public.hierarchy, groups, distributions, search=search)
    plan = _of_resolved(with_keys(config, keys), public)
    notes = price_notes(config, plan.measurement_plan.levels, ranking)
    return replace(plan, chosen=keys, notes=notes), ranking


def _of_resolved(config: Config, public: PublicGroups | PublicRegions) -> Plan:
    """Return the plan of a configuration whose queries and allocation are chosen."""
    share, levels = config.method.counts_share, public.hierarchy.levels
    costs = config.levels_cost(levels)
    if share is not None and not costs[-1]:
        message = 'leaves nothing for the last level, which group_counts = "private" needs: give it a share'
        raise config.error("privacy.split", message)
    regions = public.regions if isinstance(public, PublicGroups) else public
    measurement_plan = measurement_plan_of(
        public.hierarchy,
        public.group_counts if isinstance(public, PublicGroups) else None,
        queries=queries_of(config, levels),
        costs=costs,
        max_size=config.method.max_size,
        neighbours=config.privacy.neighbours,
        levels=regions.levels,
        region_ids=regions.region_ids,
        buckets=schemes_of(config, levels),
        counts_share=share,
    )
    config = with_method(config, measurement_plan)
    return Plan(config, measurement_plan, public)


def queries_of(config: Config, levels: int) -> tuple[Query, ...]:
    """Return the query of each level, root first, also of those that get no share of the budget."""
    queries: tuple[Query, ...] = config.per_level(config.method.query, levels, "groups.query")
    return queries


def schemes_of(config: Config, levels: int) -> tuple[Scheme | None, ...]:
    """Return the buckets or the split of sizes of each level's query, root first, None for single sizes.

    Raises ConfigError where a level has both, or has either with another query than "cumulative".
    """
    section, schemes = config.method, list[Scheme | None]()
    bucket_key = "groups.bucket_growth" if section.bucket_edges is None else "groups.bucket_edges"
    starts = config.per_level(section.rank_above, levels, "groups.rank_above")
    rows = zip(queries_of(config, levels), starts, stated_buckets(config, levels), strict=True)
    for level, (query, start, buckets) in enumerate(rows):
        key, does = ("groups.rank_above", "splits") if start else (bucket_key, "sums")
        if (start or buckets is not None) and query != "cumulative":
            message = (
                f"{does} cumulative counts, but the query of level {level} is {query}: give one per level, 0 there"
            )
            raise config.error(key, message)
        if start and buckets is not None:
            message = f"level {level} has buckets too: give a level either of the two, and 0 for the other"
            raise config.error(key, message)
        schemes.append(Split(start) if start else buckets)
    return tuple(schemes)


def read_counts(plan: Plan) -> PrivateCounts:
    """Open the private tables and count; raises InputError, whose message holds no private value."""
    data, measurement_plan, spill = plan.config.data, plan.measurement_plan, plan.config.output.private
    if data.sizes is None and not has_private_counts(measurement_plan):
        return read_private(plan.detail, data.table_of("entities"), spill)
    if data.sizes is None:
        counts = read_tables(data.table_of("entities"), data.table_of("groups"), data.table_of("hierarchy"), spill)
    else:
        counts = read_sizes(data.table_of("sizes"), data.root, spill)
    same_regions = counts.hierarchy.paths == measurement_plan.hierarchy.paths
    if not same_regions or not (
        has_private_counts(measurement_plan) or np.array_equal(counts.group_counts, measurement_plan.per_region[GROUPS])
    ):
        table = "hierarchy" if data.sizes is None else "sizes"
        message = "its regions or numbers of groups differ from those of the plan: it changed meanwhile"
        raise InputError("group-count-mismatch", message, Place(data.table_of(table).name))
    return counts


def size_remarks(plan: Plan, private: PrivateCounts) -> tuple[str, ...]:
    """Return how many groups are larger than the public bound, and what becomes of them: PRIVATE."""
    bound = max_size_of(plan.measurement_plan)
    groups, entities = private.above(bound)
    if not groups:
        return ()
    return (
        f"Groups larger than max_size = {bound:,}: {groups:,}. Each counts as a group of {bound:,}, which leaves "
        f"out {entities:,} of their entities. These two counts are private: do not choose max_size by them, "
        "because it is published",
    )


def method_of(config: Config, measurement_plan: MeasurementPlan, *also: MeasurementPlan) -> GroupsMethod:
    """Return the estimation method that a configuration names; its queries must be those of the first measurement.

    Raises ConfigError where the method cannot read the measured queries. By then either nothing has been paid, or
    everything has and another method is free.
    """
    config = with_method(with_measured_queries(config, measurement_plan), measurement_plan)
    section = config.method
    _check_measured(config, measurement_plan)
    if section.consistency != "posterior" and not all(map(is_look, also)):
        message = f'"{section.consistency}" reads one measurement: only "posterior" estimates several together'
        raise config.error("groups.consistency", message)
    coverage = _coverage(config)
    losses = config.per_level(section.loss, measurement_plan.hierarchy.levels, "groups.loss")
    _check_queries(config, measurement_plan)
    if section.consistency in ONE_PROGRAM and len(set(losses)) > 1:
        raise config.error("groups.loss", f"{_named(section.consistency)} fits all levels with one loss")
    _check_levels(config, measurement_plan)
    if section.consistency == "matching":
        _check_matching(config, measurement_plan)
    return GroupsMethod(
        losses=losses,
        ties=section.ties,
        consistency=section.consistency,
        merge=section.merge,
        rounding=section.rounding,
        variances=section.variances,
        intervals=coverage,
        unbiased=section.unbiased,
        seconds=config.auto.time,
    )


def _coverage(config: Config) -> float:
    """Return the coverage of intervals: as configured, else 0.9 where the method gives intervals."""
    configured, able = config.method.intervals, config.method.consistency == "posterior"
    if configured and not able:
        raise config.error("groups.intervals", 'only consistency = "posterior" gives intervals: leave this out, or 0')
    return float((_COVERAGE if able else 0.0) if configured is None else configured)


def _check_measured(config: Config, measurement_plan: MeasurementPlan) -> None:
    """Raise ConfigError where the configuration's queries are not those of the measurement."""
    section, levels = config.method, measurement_plan.hierarchy.levels
    if section.max_size != max_size_of(measurement_plan):
        raise config.error("groups.max_size", f"the measurement's is {max_size_of(measurement_plan)}")
    queries, schemes = queries_of(config, levels), schemes_of(config, levels)
    private, share = has_private_counts(measurement_plan), counts_share_of(measurement_plan)
    if private != (section.counts_share is not None):
        message = f'the measurement was made with group_counts = "{"private" if private else "public"}"'
        raise config.error("groups.group_counts", message)
    if share != section.counts_share:
        raise config.error("groups.group_counts_share", f'the measurement\'s is "{share}"')
    for level_query in size_queries(measurement_plan):
        level, query, name = level_query.level, plain_query(level_query), measurement_plan.levels[level_query.level]
        if queries[level] != ("cumulative" if query in ("buckets", "split") else query):
            raise config.error("groups.query", f"the query that was measured at {name!r} is {query!r}")
        split, scheme = split_of(measurement_plan, level), schemes[level]
        if (scheme if isinstance(scheme, Split) else None) != split:
            message = f"the measurement of {name!r} has ranks from another size on"
            raise config.error("groups.rank_above", message)
        measured, cells = buckets_of(measurement_plan, level), Buckets.cells(section.max_size)
        if isinstance(scheme, Split) or same_buckets([scheme or cells, measured or cells]):
            continue
        key = "groups.bucket_growth" if section.bucket_edges is None else "groups.bucket_edges"
        raise config.error(key, f"the measurement of {name!r} has other buckets of sizes")


def _check_queries(config: Config, measurement_plan: MeasurementPlan) -> None:
    """Raise ConfigError where a method does not read what was measured."""
    consistency: Consistency = config.method.consistency
    queries = {plain_query(level_query) for level_query in size_queries(measurement_plan)}
    reads = estimator_row("groups", consistency).queries
    if reads and not queries <= set(reads):
        message = f"{_named(consistency)} reads {_listed(reads)}, and {_listed(queries - set(reads))} was measured"
        readers = [row.name for row in estimator_rows("groups") if not row.queries or queries <= set(row.queries)]
    elif consistency == "convex" and len(queries) > 1:
        message = f"{_named(consistency)} reads one query on every measured level, {_listed(reads)}"
        readers = ["matching", "bottom_up", "none"]
    elif consistency == "joint" and not same_buckets(
        [buckets_of(measurement_plan, level_query.level) for level_query in size_queries(measurement_plan)]
    ):
        message = f"{_named(consistency)} reads the same buckets on every level"
        readers = ["matching", "posterior", "bottom_up", "none"]
    else:
        return
    others = f"use {_listed(readers)}, or before measuring another groups.query, bucket_growth or rank_above"
    raise config.error("groups.consistency", f"{message}: {others}")


def _named(consistency: Consistency) -> str:
    return _NAMES.get(consistency, repr(consistency))


def _listed(names: Iterable[str]) -> str:
    *first, last = (f"'{name}'" for name in names)
    return f"{', '.join(first)} or {last}" if first else last


def _check_levels(config: Config, measurement_plan: MeasurementPlan) -> None:
    consistency: Consistency = config.method.consistency
    measured = {level_query.level for level_query in measurement_plan.queries}
    levels = measurement_plan.hierarchy.levels
    missing = [level for level in needed_levels(consistency, levels) if level not in measured]
    if missing:
        names = ", ".join(repr(measurement_plan.levels[level]) for level in missing)
        readers = [row.name for row in estimator_rows("groups") if set(needed_levels(row.name, levels)) <= measured]
        message = (
            f"{consistency!r} reads the answers of every level it fits, and privacy.split leaves none for {names}: "
            f"choose {_listed(readers)}, or before measuring another split"
        )
        raise config.error("groups.consistency", message)


def _check_matching(config: Config, measurement_plan: MeasurementPlan) -> None:
    """Raise ConfigError where a region with children has more groups than matching takes."""
    # Imported here: it brings the compiled kernels with it.
    from coco_opt.kernels.matching import MAX_GROUPS

    if has_private_counts(measurement_plan):
        return  # the number is not known before it is released: matching raises an error then
    if measurement_plan.hierarchy.levels > 1 and int(measurement_plan.per_region[GROUPS][0]) > MAX_GROUPS:
        message = f"matching takes at most {MAX_GROUPS:,} groups a region: choose another consistency"
        raise config.error("groups.consistency", message)
