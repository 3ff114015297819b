"""What a configuration of tables leaves to be chosen ("auto"), resolved from public numbers.

Resolved keys replace "auto" in the configuration: they are written into the manifest, and measured like keys that the
user wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from coco_opt.config.model import Config, digest_of
from coco_opt.config.sections import AUTO
from coco_opt.histograms import Hierarchy
from coco_opt.privacy.planner import uniform_shares
from coco_opt.topdown.measuring.automatic import chosen_allocation, chosen_strategy
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema


def resolved(
    config: Config,
    hierarchy: Hierarchy,
    schema: Schema,
    workload: Sequence[Query],
    keys: Mapping[str, Any] | None = None,
) -> Config:
    """Return a configuration whose queries, shares and allocation are chosen; ``keys`` are those chosen before."""
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
    return replace(config, method=method, privacy=privacy)


def chosen_keys(config: Config, settled: Config) -> dict[str, Any]:
    """Return the keys that ``config`` left open as plain values of the ``settled`` configuration."""
    keys: dict[str, Any] = {}
    if _queries_open(config):
        keys = {"strategy": list(settled.method.strategy), "shares": [str(share) for share in settled.method.shares]}
    if config.privacy.split == AUTO:
        keys["split"] = [str(share) for share in settled.privacy.split]
    return keys


def choice_digest(config: Config) -> str:
    """Return a digest of what a configuration leaves open and states otherwise: another one is chosen for anew."""
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
        strategy = chosen_strategy(workload, schema, config.privacy.cost)
        keys["strategy"] = [query.text for query in strategy.queries]
        keys["shares"] = [str(share) for share in strategy.shares]
    if config.privacy.split == AUTO:
        widths, levels = np.diff(hierarchy.level_start).tolist(), hierarchy.levels
        reads_all_levels = config.method.estimation in ("full", "posterior")
        weights = config.level_weights(levels)
        shares = chosen_allocation(widths, config.privacy.cost, weights) if reads_all_levels else uniform_shares(levels)
        keys["split"] = [str(share) for share in shares]
    return keys
