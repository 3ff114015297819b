"""The post-processing that a configuration asks for, checked against what was asked of the regions."""

from __future__ import annotations

from coco_opt.config.model import Config
from coco_opt.groups.answers import max_size_of
from coco_opt.groups.estimated.estimate import ONE_PROGRAM, Consistency, GroupsMethod, needed_levels
from coco_opt.groups.queries import GROUPS
from coco_opt.privacy import Asked

_NAMES = {"joint": "joint estimation", "convex": "the convex program"}
_READS = {"joint": ("cumulative",), "convex": ("sizes", "cumulative")}


def method_of(config: Config, asked: Asked) -> GroupsMethod:
    """Return the estimation that a configuration asks for.

    Raises ConfigError where it cannot read what was asked: nothing is paid by then, or everything is and another
    method is free.
    """
    section = config.method
    _check_asked(config, asked)
    losses = config.per_level(section.loss, asked.hierarchy.levels, "groups.loss")
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
    )


def _check_asked(config: Config, asked: Asked) -> None:
    """Raise ConfigError where the configuration asks something else than the measurement answers."""
    if config.method.max_size != max_size_of(asked):
        raise config.error("groups.max_size", f"the measurement's is {max_size_of(asked)}")
    queries = config.per_level(config.method.query, asked.hierarchy.levels, "groups.query")
    for question in asked.questions:
        if queries[question.level] != question.query:
            message = f"the measurement asked {question.query!r} of {asked.levels[question.level]!r}"
            raise config.error("groups.query", message)


def _check_queries(config: Config, asked: Asked) -> None:
    consistency: Consistency = config.method.consistency
    queries, reads = {question.query for question in asked.questions}, _READS[consistency]
    if len(queries) > 1 or not queries <= set(reads):
        message = (
            f"{_NAMES[consistency]} reads one query on every measured level, {' or '.join(map(repr, reads))}, and "
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

    if asked.hierarchy.levels > 1 and int(asked.per_region[GROUPS][0]) > MAX_GROUPS:
        message = f"matching takes at most {MAX_GROUPS:,} groups a region: choose another consistency"
        raise config.error("groups.consistency", message)
