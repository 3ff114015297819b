"""The post-processing that a configuration asks for, checked against what was asked of the regions."""

from __future__ import annotations

import numpy as np

from coco_opt.config.model import Config
from coco_opt.groups.answers import (
    buckets_of,
    counts_share_of,
    has_private_counts,
    max_size_of,
    size_questions,
    split_of,
)
from coco_opt.groups.buckets import Buckets, Scheme, Split
from coco_opt.groups.estimated.method import ONE_PROGRAM, Consistency, GroupsMethod, needed_levels
from coco_opt.groups.kind.plan import buckets_of as configured_buckets
from coco_opt.groups.kind.plan import queries_of
from coco_opt.groups.queries import GROUPS, plain_query
from coco_opt.privacy import Asked

_NAMES = {"joint": "joint estimation", "convex": "the convex program"}
_READS = {"joint": ("cumulative", "buckets"), "convex": ("sizes", "cumulative")}
_COVERAGE = 0.9


def method_of(config: Config, asked: Asked, *also: Asked) -> GroupsMethod:
    """Return the estimation that a configuration asks for; its questions must be those of the first measurement.

    Raises ConfigError where it cannot read what was asked: nothing is paid by then, or everything is and another
    method is free.
    """
    section = config.method
    _check_asked(config, asked)
    if also and section.consistency != "posterior":
        message = f'"{section.consistency}" reads one measurement: only "posterior" estimates several together'
        raise config.error("groups.consistency", message)
    coverage = _coverage(config)
    losses = config.per_level(section.loss, asked.hierarchy.levels, "groups.loss")
    _check_buckets(config, asked)
    if section.consistency in ONE_PROGRAM:
        if len(set(losses)) > 1:
            raise config.error("groups.loss", f"{_NAMES[section.consistency]} fits all levels with one loss")
        _check_queries(config, asked)
    _check_levels(config, asked)
    if section.consistency == "matching":
        _check_matching(config, asked)
    return GroupsMethod(
        losses=losses,
        ties=section.ties,
        consistency=section.consistency,
        merge=section.merge,
        rounding=section.rounding,
        variances=section.variances,
        intervals=coverage,
        unbiased=section.unbiased,
    )


def _coverage(config: Config) -> float:
    """Return the coverage of intervals: what is configured, else 0.9 where the method gives any."""
    wanted, able = config.method.intervals, config.method.consistency == "posterior"
    if wanted and not able:
        raise config.error("groups.intervals", 'only consistency = "posterior" gives intervals: leave this out, or 0')
    return float((_COVERAGE if able else 0.0) if wanted is None else wanted)


def _check_asked(config: Config, asked: Asked) -> None:
    """Raise ConfigError where the configuration asks something else than the measurement answers."""
    if not size_questions(asked):
        message = "the measurement says which query to ask, and nothing of sizes: write that query, then measure"
        raise config.error("groups.query", message)
    if config.method.max_size != max_size_of(asked):
        raise config.error("groups.max_size", f"the measurement's is {max_size_of(asked)}")
    levels = asked.hierarchy.levels
    queries, buckets = queries_of(config, levels), configured_buckets(config, levels)
    _check_counts(config, asked)
    for question in size_questions(asked):
        query = plain_query(question)
        if queries[question.level] != ("cumulative" if query in ("buckets", "split") else query):
            message = f"the measurement asked {query!r} of {asked.levels[question.level]!r}"
            raise config.error("groups.query", message)
        scheme, split = buckets[question.level], split_of(asked, question.level)
        if (scheme if isinstance(scheme, Split) else None) != split:
            message = f"the measurement asked {asked.levels[question.level]!r} for ranks from another size on"
            raise config.error("groups.rank_above", message)
        if split is None and not _same(scheme, buckets_of(asked, question.level), max_size_of(asked)):
            key = "groups.bucket_growth" if config.method.bucket_edges is None else "groups.bucket_edges"
            raise config.error(
                key, f"the measurement asked {asked.levels[question.level]!r} for other buckets of sizes"
            )


def _check_counts(config: Config, asked: Asked) -> None:
    share, private = config.method.counts_share, has_private_counts(asked)
    if private != (share is not None):
        message = f'the measurement was made with group_counts = "{"private" if private else "public"}"'
        raise config.error("groups.group_counts", message)
    found = counts_share_of(asked)
    if found != share:
        raise config.error("groups.group_counts_share", f'the measurement\'s is "{found}"')


def _same(configured: Scheme | None, asked: Buckets | None, max_size: int) -> bool:
    cells = Buckets.cells(max_size)
    begin = configured.begin if isinstance(configured, Buckets) else cells.begin
    return np.array_equal(begin, (asked or cells).begin)


def _check_buckets(config: Config, asked: Asked) -> None:
    """Raise ConfigError where a method does not read buckets, or the posterior sizes."""
    consistency: Consistency = config.method.consistency
    queries = {plain_query(question) for question in size_questions(asked)}
    if consistency == "posterior" and "sizes" in queries:
        message = (
            "'posterior' reads cumulative counts, buckets of them, and ranks: ask another groups.query than 'sizes'"
        )
        raise config.error("groups.consistency", message)
    if consistency in ONE_PROGRAM and "split" in queries:
        message = (
            f"{_NAMES[consistency]} reads no ranks, as rank_above asks: use 'posterior', 'matching', 'bottom_up' or "
            "'none', or leave rank_above out"
        )
        raise config.error("groups.consistency", message)
    if consistency == "convex" and "buckets" in queries:
        message = (
            f"{_NAMES[consistency]} reads single cells, not buckets of sizes: use 'joint', 'posterior', 'matching', "
            "'bottom_up' or 'none', or leave the buckets out"
        )
        raise config.error("groups.consistency", message)


def _check_queries(config: Config, asked: Asked) -> None:
    consistency: Consistency = config.method.consistency
    queries, reads = {plain_query(question) for question in size_questions(asked)}, _READS[consistency]
    if not queries <= set(reads) or (consistency == "convex" and len(queries) > 1):
        named = "'cumulative'" if consistency == "joint" else " or ".join(map(repr, reads))
        message = (
            f"{_NAMES[consistency]} reads one query on every measured level, {named}, and "
            f"{', '.join(sorted(queries))} was asked: choose another consistency, or before measuring another "
            "groups.query"
        )
        raise config.error("groups.consistency", message)


def _check_levels(config: Config, asked: Asked) -> None:
    consistency: Consistency = config.method.consistency
    measured = {question.level for question in asked.questions}
    missing = [level for level in needed_levels(consistency, asked.hierarchy.levels) if level not in measured]
    if missing:
        names = ", ".join(repr(asked.levels[level]) for level in missing)
        others = "'joint' or 'convex'" if consistency == "bottom_up" else "'joint', 'convex' or 'bottom_up'"
        message = (
            f"{consistency!r} reads the answers of every level it fits, and privacy.split leaves none for {names}: "
            f"choose {others}, or before measuring another split"
        )
        raise config.error("groups.consistency", message)


def _check_matching(config: Config, asked: Asked) -> None:
    """Raise ConfigError where a region with children has more groups than matching takes."""
    # Imported here: it brings the compiled kernels with it.
    from coco_opt.kernels.matching import MAX_GROUPS

    if has_private_counts(asked):
        return  # the number is not known before it is released: matching says so then
    if asked.hierarchy.levels > 1 and int(asked.per_region[GROUPS][0]) > MAX_GROUPS:
        message = f"matching takes at most {MAX_GROUPS:,} groups a region: choose another consistency"
        raise config.error("groups.consistency", message)
