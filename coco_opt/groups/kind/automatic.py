"""What a configuration of groups leaves to be chosen ("auto"), resolved from public numbers or after a look.

Resolved keys replace "auto" in the configuration: they are written into the manifest, and measured like keys that the
user wrote.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from coco_opt.activity import doing
from coco_opt.array_types import Floats, Ints
from coco_opt.config.model import Config, digest_of
from coco_opt.config.sections import AUTO
from coco_opt.groups.buckets import Buckets, same_buckets
from coco_opt.groups.estimating.method import Consistency, joint_seconds, needed_levels
from coco_opt.groups.estimating.posterior.convergence import ANSWER_SECONDS, posterior_seconds
from coco_opt.groups.kind.section import GroupsSection, query_keys
from coco_opt.groups.measuring.automatic import (
    GROWTHS,
    LIMIT,
    QueryChoice,
    QuerySearch,
    Reader,
    assumed_distributions,
    bucket_count,
)
from coco_opt.groups.measuring.predicted import Regions, range_of
from coco_opt.groups.noisy_measurements import Loss, buckets_of, size_queries
from coco_opt.groups.queries import plain_query, sensitivity
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import DiscreteGaussian, MeasurementPlan
from coco_opt.privacy.planner import NoisePlan, Shares, allocation
from coco_opt.releases.kind import Figures

T = TypeVar("T")

_MOST_SIZES = 2_000_000  # beyond which sizes are not searched individually: the predictor holds their probabilities
_FEW_SIZES = 50
_DEFAULT_GROWTH, _DEFAULT_RATIO = 0.1, 2.0
_ALTERNATIVES = 4
_NO_ERROR = 1e-6  # entities

ASSUMED = 1_000
"""The number of groups of a leaf where the true numbers are private."""


def is_open(config: Config) -> bool:
    """Return whether buckets or the budget's allocation are to be chosen."""
    return _growths_open(config) or config.privacy.split == AUTO


def takes_look(config: Config) -> bool:
    """Return whether a look is to be paid for before they are chosen.

    Not where numbers of groups are private, since a look counts the groups of a known total; nor for a budget stated
    as (epsilon, delta), which two payments do not add up to.
    """
    pair = config.privacy.pair is not None and config.privacy.mechanism != "geometric"
    searched = config.method.max_size <= _MOST_SIZES
    return is_open(config) and config.auto.look > 0 and config.method.counts_share is None and not pair and searched


def chosen_keys(
    config: Config,
    tree: Hierarchy,
    groups: Ints,
    distributions: Mapping[str, Floats] | None = None,
    *,
    search: bool = True,
) -> tuple[dict[str, Any], tuple[QueryChoice, ...]]:
    """Return the keys that a configuration leaves open as plain values, and the ranking (empty where none was made).

    ``groups`` int64[regions] are the numbers of groups, public or assumed. ``distributions`` are those that the choice
    is held to: by default the family of ``assumed_distributions``. Without ``search`` open keys get fixed values,
    which stand in for those that a look will choose.
    """
    levels, max_size, cost = tree.levels, config.method.max_size, config.privacy.cost
    growths, shares, ranking = tuple[float, ...](), None, tuple[QueryChoice, ...]()
    settled = not _growths_open(config)
    if config.privacy.split != AUTO:
        shares = tuple(Fraction(part.amount) / cost.amount for part in config.levels_cost(levels))
    decided = settled and shares is not None
    if not decided and (not search or max_size > _MOST_SIZES):
        growths = (0.0,) * levels if max_size < _FEW_SIZES else (_DEFAULT_GROWTH,) * levels
        shares = shares or allocation(_DEFAULT_RATIO, levels)
    elif not decided:
        method = _expected_method(config, tree, groups)
        if method == "bottom_up" and shares is None:  # it reads the leaves alone
            shares, decided = (*(Fraction(0),) * (levels - 1), Fraction(1)), settled
        if not decided:
            problem = _search(config, tree, groups, shares, method)
            with doing("choosing the queries"):
                ranking = problem.ranked(distributions or assumed_distributions(max_size), _ALTERNATIVES)
            growths, shares = ranking[0].growths, ranking[0].shares
    keys: dict[str, Any] = {} if settled else {"bucket_growth": list(growths)}
    if config.privacy.split == AUTO:
        keys["split"] = [str(share) for share in shares or ()]
    return keys, ranking


def choice_digest(config: Config) -> str:
    """Return a digest of what a configuration leaves open and states otherwise; another digest needs another choice."""
    stated = [
        _growths_open(config),
        None if config.method.bucket_growth == AUTO else config.method.bucket_growth,
        config.method.bucket_edges,
        None if config.privacy.split == AUTO else str(config.privacy.split),
        config.auto.aim,
    ]
    return digest_of(stated)


def with_keys(config: Config, keys: Mapping[str, Any]) -> Config:
    """Return a configuration with the open keys that ``chosen_keys`` returned for it."""
    method, privacy = config.method, config.privacy
    if method.bucket_growth == AUTO:
        growths = tuple(map(float, keys["bucket_growth"])) if _growths_open(config) else 0.0
        method = method.model_copy(update={"bucket_growth": growths})
    if privacy.split == AUTO:
        privacy = privacy.model_copy(update={"split": tuple(map(Fraction, keys["split"]))})
    return replace(config, method=method, privacy=privacy)


def with_method(config: Config, measurement_plan: MeasurementPlan) -> Config:
    """Return a configuration whose method is chosen: it reads what was measured and every key that is set.

    The posterior where it takes the time of [auto], "joint" or "matching" else; these also where keys that they alone
    read are set.
    """
    section = config.method
    method: dict[str, Any] = {"bucket_growth": 0.0} if section.bucket_growth == AUTO else {}
    if AUTO in _each(section.loss):
        likelihood = _likelihood(section, measurement_plan)
        losses = tuple(likelihood if loss == AUTO else loss for loss in _each(section.loss))
        method["loss"] = losses[0] if isinstance(section.loss, str) else losses
    if section.consistency == AUTO:
        queries = {plain_query(level_query) for level_query in size_queries(measurement_plan)}
        levels = measurement_plan.hierarchy.levels
        alike = same_buckets(buckets_of(measurement_plan, level) for level in range(levels))
        measured = {level_query.level for level_query in measurement_plan.queries}
        names = _methods(section, queries, measurement_plan.answers, config.auto.time, alike=alike)
        readable = (name for name in names if measured >= set(needed_levels(name, levels)))
        method["consistency"] = next(readable, "none")
    return replace(config, method=section.model_copy(update=method)) if method else config


def _each(value: T | tuple[T, ...]) -> tuple[T, ...]:
    """Return the values of a key that holds one for all levels, or one a level."""
    return value if isinstance(value, tuple) else (value,)


def _likelihood(section: GroupsSection, measurement_plan: MeasurementPlan) -> Loss:
    """Return the loss whose least value is the most likely: squares where noise is Gaussian.

    A tie rule that is set belongs to absolute values.
    """
    gaussian = any(isinstance(each.distribution, DiscreteGaussian) for each in measurement_plan.queries)
    return "l2" if gaussian and "ties" not in section.model_fields_set else "l1"


def _methods(
    section: GroupsSection, queries: Collection[str], answers: float, seconds: float, *, alike: bool
) -> list[Consistency]:
    """Return the methods that read some queries and every key that is set, in their order, without those too slow.

    ``alike``: whether all levels have the same buckets.
    """
    explicit = section.model_fields_set
    of_matching = "sizes" in queries or bool({"merge", "rounding", "variances"} & explicit)
    of_fits = (set(_each(section.loss)) != {AUTO} or "ties" in explicit) and not section.intervals
    one_loss = len(set(_each(section.loss))) == 1
    quick = bool(section.intervals) or posterior_seconds(answers) <= seconds
    joint = set(queries) <= {"cumulative", "buckets"} and alike and one_loss and joint_seconds(answers) <= seconds
    readers: list[tuple[Consistency, bool]] = [
        ("posterior", quick and not of_matching and not of_fits),
        ("joint", joint and not of_matching),
        ("matching", True),
        ("bottom_up", True),
    ]
    return [name for name, reads in readers if reads]


def _expected_method(config: Config, tree: Hierarchy, groups: Ints) -> Consistency:
    """Return the method that is set, or that will be chosen for the queries of the fewest answers that are possible."""
    section, levels = config.method, tree.levels
    if section.consistency != AUTO:
        method: Consistency = section.consistency
        return method
    counts = np.diff(tree.level_start).astype(np.float64)
    if _growths_open(config):
        answers, alike = float(counts.sum()) * bucket_count(section.max_size, max(GROWTHS)), True
    else:
        buckets = _buckets_or_cells(config, levels)
        sizes = [each.count for each in buckets]
        ranks = any(config.per_level(section.rank_above, levels, "groups.rank_above"))
        answers, alike = float(counts @ sizes) + float(groups.sum()) * ranks, same_buckets(buckets)
    return _methods(section, set(_each(section.query)), answers, config.auto.time, alike=alike)[0]


def stated_buckets(config: Config, levels: int) -> tuple[Buckets | None, ...]:
    """Return the buckets of each level by the keys that are set, None for single sizes; equal ones are the same."""
    section = config.method
    if section.bucket_edges is None:
        growth = 0.0 if section.bucket_growth == AUTO else section.bucket_growth
        growths = config.per_level(growth, levels, "groups.bucket_growth")
        by_growth = {each: Buckets.by_growth(section.max_size, each) if each else None for each in set(growths)}
        return tuple(by_growth[each] for each in growths)
    edges = section.bucket_edges
    lists = config.per_level(edges, levels, "groups.bucket_edges") if isinstance(edges[0], tuple) else (edges,) * levels
    by_starts = {each: Buckets.from_starts(each, section.max_size) if each else None for each in set(lists)}
    return tuple(by_starts[each] for each in lists)


def _buckets_or_cells(config: Config, levels: int) -> tuple[Buckets, ...]:
    """Return the ``stated_buckets``, with buckets of one size each in the place of single sizes."""
    cells = Buckets.cells(config.method.max_size)
    return tuple(cells if each is None else each for each in stated_buckets(config, levels))


def with_measured_queries(config: Config, measurement_plan: MeasurementPlan) -> Config:
    """Return a configuration whose open buckets are those of a measurement."""
    if not _growths_open(config):
        return config
    keys = query_keys(measurement_plan)
    update: dict[str, Any] = {"bucket_growth": 0.0}
    if "bucket_edges" in keys:
        update["bucket_edges"] = tuple(map(tuple, keys["bucket_edges"]))
    if "rank_above" in keys:
        update["rank_above"] = tuple(keys["rank_above"])
    return replace(config, method=config.method.model_copy(update=update))


def choice_tables(
    config: Config, levels: Sequence[str], ranking: Sequence[QueryChoice], method: Consistency
) -> tuple[Figures, ...]:
    """Return the choice and the next best candidates as a table: ranges of the predicted errors by level.

    Only the keys that ``config`` leaves open are shown, and last an even allocation. Predictions of other methods than
    the posterior rank queries, but their errors are too far off to be shown.
    """
    if not ranking:
        return ()
    if method != "posterior":
        levels = ()
    keys: dict[str, list[str]] = {}
    if _growths_open(config):
        keys["bucket_growth"] = [" ".join(f"{growth:g}" for growth in choice.growths) for choice in ranking]
    if config.privacy.split == AUTO:
        keys["split"] = [" ".join(f"{float(share):.3f}" for share in choice.shares) for choice in ranking]
    rows = tuple(
        (*values, f"{choice.regret:.2f} times the best", *(range_words(*range_of(choice.errors)) if levels else ()))
        for choice, *values in zip(ranking, *keys.values(), strict=True)
    )
    if levels and "split" in keys:
        even = ["best for it", "even"][-len(keys) :]
        rows += ((*even, "", *range_words(*range_of(ranking[0].even))),)
    title = f"Chosen queries and the next best, for estimation by {method!r}"
    title += ": expected mean earth mover's distance of a region (entities)" if levels else ""
    return (Figures(title, (*keys, "error at most", *levels), rows, numeric=len(keys)),)


def price_notes(config: Config, levels: Sequence[str], ranking: Sequence[QueryChoice]) -> tuple[str, ...]:
    """Return which levels pay for the mean over the levels; empty for none, and where the user asked for it."""
    prices = zip(levels, ranking[0].price.tolist() if ranking else np.zeros(len(levels)), strict=True)
    paying = [f"{level} {price:.2g} times as much" for level, price in prices if price > LIMIT]
    if config.privacy.split != AUTO or len(set(config.level_weights(len(levels)))) > 1 or not paying:
        return ()
    note = (
        "For a smaller mean over the levels, some are expected to err more than with an even allocation "
        f'(split = "uniform"): {", ".join(paying)}'
    )
    return (note,)


def range_words(low: Floats, high: Floats) -> tuple[str, ...]:
    """Return ranges of errors by level in words, from float64[levels] each; what no release would show is 0."""
    pairs = zip(low.tolist(), high.tolist(), strict=True)
    return tuple(" to ".join(map(_error_words, pair)) for pair in pairs)


def _error_words(error: float) -> str:
    if error < _NO_ERROR:
        return "0"
    return f"{error:,.0f}" if error >= 100 else f"{error:.3g}"


def assumed_counts(tree: Hierarchy) -> Ints:
    """Return assumed numbers of groups, int64[regions], where the true numbers are private."""
    return tree.aggregate(np.full(len(tree.leaves), ASSUMED, np.int64))


def _growths_open(config: Config) -> bool:
    section = config.method
    ranks = any(_each(section.rank_above))
    if section.consistency == "convex":
        return False  # it reads single sizes alone
    return (
        section.bucket_growth == AUTO
        and section.bucket_edges is None
        and not ranks
        and set(_each(section.query)) == {"cumulative"}
    )


def _search(
    config: Config,
    tree: Hierarchy,
    groups: Ints,
    shares: Shares | None,
    method: Consistency,
) -> QuerySearch:
    share = config.method.counts_share
    cost = config.privacy.cost if share is None else config.privacy.cost * (1 - share)
    noise = NoisePlan(cost, (sensitivity("cumulative", config.privacy.neighbours),) * tree.levels)
    weights, seconds = np.array(config.level_weights(tree.levels)), config.auto.time
    most = {"posterior": seconds / ANSWER_SECONDS, "joint": seconds / joint_seconds(1.0)}
    limited = config.method.consistency == AUTO and not config.method.intervals
    reader: Reader = "posterior" if method == "posterior" else "joint" if method in ("joint", "convex") else "fits"
    return QuerySearch(
        Regions.of(tree, groups),
        config.method.max_size,
        noise,
        weights,
        None if _growths_open(config) else _buckets_or_cells(config, tree.levels),
        shares,
        reader,
        most.get(method, math.inf) if limited else math.inf,
    )
