"""The post-processing that a configuration names, checked against the measured queries."""

from __future__ import annotations

from collections.abc import Iterable

from coco_opt.config.model import Config
from coco_opt.estimators import estimator_row, estimator_rows
from coco_opt.groups.buckets import Buckets, Split, same_buckets
from coco_opt.groups.estimating.method import ONE_PROGRAM, Consistency, GroupsMethod, needed_levels
from coco_opt.groups.kind.automatic import with_measured_queries, with_method
from coco_opt.groups.kind.plan import buckets_of as configured_buckets
from coco_opt.groups.kind.plan import queries_of
from coco_opt.groups.look import is_look
from coco_opt.groups.noisy_measurements import (
    buckets_of,
    counts_share_of,
    has_private_counts,
    max_size_of,
    size_queries,
    split_of,
)
from coco_opt.groups.queries import GROUPS, plain_query
from coco_opt.privacy import MeasurementPlan

_NAMES = {"joint": "joint estimation", "convex": "the convex program"}
_COVERAGE = 0.9


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
    queries, schemes = queries_of(config, levels), configured_buckets(config, levels)
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
