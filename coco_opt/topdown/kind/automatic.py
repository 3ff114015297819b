"""What a configuration of tables leaves to be chosen ("auto"), resolved from public numbers.

Resolved keys replace "auto" in the configuration: they are written into the manifest, and measured like keys that the
user wrote.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from coco_opt.activity import doing
from coco_opt.config.model import Config, digest_of
from coco_opt.config.sections import AUTO
from coco_opt.histograms import Hierarchy
from coco_opt.privacy.planner import uniform_shares
from coco_opt.releases.kind import Figures
from coco_opt.topdown.measuring.automatic import (
    ranked_allocations,
    ranked_strategies,
)
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema

_SHOWN = 4  # of the choice and the next best


def resolved(
    config: Config,
    hierarchy: Hierarchy,
    schema: Schema,
    workload: Sequence[Query],
    keys: Mapping[str, Any] | None = None,
) -> tuple[Config, Mapping[str, Any]]:
    """Return a configuration whose queries, shares and allocation are chosen, and the keys that it left open.

    ``keys`` are those that were chosen before.
    """
    keys = _chosen(config, hierarchy, schema, workload) if keys is None else keys
    method, privacy = config.method, config.privacy
    if "strategy" in keys:
        shares = tuple(map(Fraction, keys["shares"]))
        method = method.model_copy(update={"strategy": tuple(keys["strategy"]), "shares": shares})
    else:
        unset = {"strategy": "workload", "shares": "uniform"}
        method = method.model_copy(update={key: value for key, value in unset.items() if getattr(method, key) == AUTO})
    if "split" in keys:
        privacy = privacy.model_copy(update={"split": tuple(map(Fraction, keys["split"]))})
    return replace(config, method=method, privacy=privacy), keys


def choice_digest(config: Config) -> str:
    """Return a digest of what a configuration leaves open and states otherwise; another digest needs another choice."""
    method = config.method
    split = None if config.privacy.split == AUTO else str(config.privacy.split)
    return digest_of(
        [_queries_open(config), str(method.strategy), str(method.shares), method.workload, split, config.auto.aim]
    )


def _queries_open(config: Config) -> bool:
    """Return whether queries and shares are to be chosen; passes name queries that are measured, so these stay."""
    method = config.method
    return method.strategy == AUTO and method.shares == AUTO and not method.passes


def _chosen(config: Config, hierarchy: Hierarchy, schema: Schema, workload: Sequence[Query]) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    if _queries_open(config):
        with doing("choosing the queries"):
            strategy, _ = ranked_strategies(tuple(workload), schema, type(config.privacy.cost))[0]
        keys["strategy"] = [query.text for query in strategy.queries]
        keys["shares"] = [str(share) for share in strategy.shares]
    if config.privacy.split == AUTO:
        widths, levels = np.diff(hierarchy.level_start).tolist(), hierarchy.levels
        weights = config.level_weights(levels)
        shares = uniform_shares(levels)
        if _reads_all_levels(config):
            shares, _ = ranked_allocations(widths, config.privacy.cost, weights)[0]
        keys["split"] = [str(share) for share in shares]
    return keys


def choice_tables(
    config: Config, settled: Config, hierarchy: Hierarchy, schema: Schema, workload: Sequence[Query]
) -> tuple[Figures, ...]:
    """Return what was chosen and the next best as a table: queries, allocations, and predicted errors over the best's.

    An error is the geometric mean of the standard errors of linear estimates over the queries of the workload and, as
    [auto] aim weighs them, the levels. ``settled`` is the configuration with the choice.
    """
    cost, levels = config.privacy.cost, hierarchy.levels
    stated = tuple(Fraction(level.amount) / cost.amount for level in settled.levels_cost(levels))
    strategies, allocations = [(_stated(settled), 0.0)], [(stated, 0.0)]
    if _queries_open(config):
        ranked = ranked_strategies(tuple(workload), schema, type(cost))
        strategies = [
            ((tuple(query.text for query in strategy.queries), strategy.shares), aim) for strategy, aim in ranked
        ]
    if config.privacy.split == AUTO and _reads_all_levels(config):
        widths = np.diff(hierarchy.level_start).tolist()
        allocations = ranked_allocations(widths, cost, config.level_weights(levels))
    pairs = sorted(product(strategies, allocations), key=lambda pair: pair[0][1] + pair[1][1])
    # Pairs are equal but for rounding errors: the chosen pair is the first.
    pairs = list(dict.fromkeys([(strategies[0], allocations[0]), *pairs]))[:_SHOWN]
    if len(pairs) < 2:
        return ()
    least = strategies[0][1] + allocations[0][1]
    rows = tuple(
        (
            "; ".join(queries),
            " ".join(f"{float(share):.3g}" for share in shares),
            " ".join(f"{float(share):.3g}" for share in split),
            f"{math.exp(max(aim + split_aim - least, 0.0)):.3g}",
        )
        for ((queries, shares), aim), (split, split_aim) in pairs
    )
    title = "Chosen queries and the next best: predicted error, in the geometric mean, over the best's"
    return (Figures(title, ("strategy", "shares", "split", "times the best"), rows, numeric=3),)


def _stated(config: Config) -> tuple[tuple[str, ...], tuple[Fraction, ...]]:
    """Return the queries and shares of a configuration in its own words."""
    method = config.method
    queries = (method.strategy,) if isinstance(method.strategy, str) else tuple(method.strategy)
    plain = not isinstance(method.shares, str) and not isinstance(method.shares[0], tuple)
    return queries, tuple(method.shares) if plain else ()


def _reads_all_levels(config: Config) -> bool:
    """Return whether the estimation reads all levels' answers together, so that an allocation can be weighed."""
    return config.method.estimation in ("full", "posterior")
