"""Data like the private data that need no protection: simulated in the public shape of a plan, or named by the user."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.config.model import Config
from coco_opt.errors import InputError, Place
from coco_opt.files.columns import SIZES
from coco_opt.files.inputs import Input
from coco_opt.files.source import names_of
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.kind.automatic import ASSUMED, assumed_counts
from coco_opt.groups.kind.plan import buckets_of, queries_of
from coco_opt.groups.measuring.entities import read_tables
from coco_opt.groups.measuring.measure import look_of, measurement_plan_of
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.measuring.sizes import read_sizes
from coco_opt.groups.noisy_measurements import has_private_counts, max_size_of
from coco_opt.groups.queries import GROUPS
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.releases.kind import Plan, SimulatedData

SEED = 20100901  # of simulated data: the same plan gives the same data
_MADE_POWER = 2.0
_FEW_LEAVES, _FEW_GROUPS, _FEW_SIZES = 12, 125, 40
_BRIEF = 1.0  # seconds of chains, as counted for large data: the fewest sweeps


def assumed_groups(plan: Plan) -> Ints:
    """Return the public number of groups of every region, int64[regions], or an assumed number if they are private."""
    measurement_plan = plan.measurement_plan
    if not has_private_counts(measurement_plan):
        return measurement_plan.per_region[GROUPS]
    return assumed_counts(measurement_plan.hierarchy)


def numbers_words(plan: Plan) -> str:
    """Return in words where the numbers of groups come from."""
    return f"{ASSUMED} groups a leaf" if has_private_counts(plan.measurement_plan) else "the public numbers of groups"


def simulated_data_of(
    plan: Plan,
    branches: int | None = None,
    probabilities: Floats | None = None,
    distribution: str = "sizes s with probability in proportion to 1/s^2, an assumption",
) -> SimulatedData:
    """Simulate data of the public shape: the true numbers of groups, sizes s with probability in proportion to 1/s^2.

    ``branches`` keeps the first so many children of each region. ``probabilities`` float64[max_size + 1] are those of
    the sizes from 0 on, where they are others, which ``distribution`` says in words.
    """
    measurement_plan = plan.measurement_plan
    tree, where = measurement_plan.hierarchy, np.arange(measurement_plan.hierarchy.regions)
    if branches is not None:
        tree, where = tree.first_branches(branches)
    groups = assumed_groups(plan)[where]
    if probabilities is None:
        probabilities = np.zeros(max_size_of(measurement_plan) + 1)
        probabilities[1:] = np.arange(1, probabilities.size, dtype=np.float64) ** -_MADE_POWER
        probabilities /= probabilities.sum()
    rng = np.random.default_rng(SEED)
    draws = (rng.multinomial(int(groups[leaf]), probabilities) for leaf in tree.leaves)
    leaves = [CountOfCounts.from_dense(counts.astype(np.int64)) for counts in draws]
    words = f"simulated data: {numbers_words(plan)}, {distribution}"
    ids = tuple(measurement_plan.region_ids[region] for region in where.tolist())
    return queries_like(plan, PrivateCounts.of_leaves(tree, leaves), ids, words)


def read_simulated_data(plan: Plan, path: Path) -> SimulatedData:
    """Read public data like the private: a table of sizes with as many levels, or entities and their groups.

    The groups lie next to the entities, in a file with the name of the configured file. Columns have the names that
    [data] states. Raises InputError.
    """
    data, levels, spill = plan.config.data, plan.measurement_plan.hierarchy.levels, plan.config.output.private
    groups = None if data.sizes is not None else data.neighbour_of(path, "groups")
    if groups is not None:
        counts = read_tables(Input(path, data.columns), groups, data.table_of("hierarchy"), spill)
    else:
        table = Input(path, data.columns)
        rootless = len(names_of(table)) - len(SIZES.last) == levels - 1
        counts = read_sizes(table, plan.measurement_plan.hierarchy.names[0] if rootless else None, spill)
    if counts.hierarchy.levels != levels:
        message = f"has {counts.hierarchy.levels} levels, but the data to release have {levels}"
        raise InputError("other-levels", message, Place(path.name))
    return queries_like(plan, counts, (), f"the public table {path.name}")


def queries_like(plan: Plan, counts: PrivateCounts, ids: tuple[str | None, ...], words: str) -> SimulatedData:
    """Return simulated data from counts, with the plan's queries; ``ids`` are those of its regions, if any."""
    levels = counts.hierarchy.levels
    measurement_plan = measurement_plan_of(
        counts.hierarchy,
        None if has_private_counts(plan.measurement_plan) else counts.group_counts,
        queries=queries_of(plan.config, levels),
        costs=plan.config.levels_cost(levels),
        max_size=plan.config.method.max_size,
        neighbours=plan.measurement_plan.neighbours,
        levels=plan.measurement_plan.levels,
        region_ids=ids,
        buckets=buckets_of(plan.config, levels),
        counts_share=plan.config.method.counts_share,
    )
    return SimulatedData(plan.on(measurement_plan, None), counts, words)


def small_instance(plan: Plan, method: GroupsMethod) -> tuple[SimulatedData, GroupsMethod]:
    """Return a few leaves with few groups of few sizes, under the queries of a plan, and the method with brief chains.

    A small hierarchy is taken as it is, with no more groups a leaf than are usual in a small one; in place of a large
    one stands one of as many levels, whose leaves have most groups, none, one, and some at the bound. Fewer regions,
    groups and sizes pose the same problems with fewer unknowns: what is queried of each level, and with which noise,
    stays, and so does the mean number of groups a leaf as far as it decides between kinds of chains.
    """
    tree, groups = _few_leaves(plan)
    config = replace(plan.config, method=_of_few_sizes(plan.config))
    rng, bound = np.random.default_rng(SEED), config.method.max_size
    weights = np.arange(1.0, bound + 1.0) ** -_MADE_POWER
    leaves = []
    for number, count in enumerate(groups.tolist()):
        sizes = rng.choice(bound, size=count, p=weights / weights.sum()) + 1
        sizes = np.full(count, bound) if number % 4 == 3 else sizes
        leaves.append(CountOfCounts.from_dense(np.bincount(sizes, minlength=bound + 1).astype(np.int64)))
    small = replace(plan, config=config)
    simulated = queries_like(small, PrivateCounts.of_leaves(tree, leaves), (), "a small simulated instance")
    looks = [plan.look] if plan.look is not None else [look.measurement_plan for look in plan.also]
    if looks:
        look = look_of(simulated.plan.measurement_plan, looks[0].cost)
        simulated = replace(simulated, plan=replace(simulated.plan, look=look))
    return simulated, replace(method, seconds=min(method.seconds, _BRIEF))


def _few_leaves(plan: Plan) -> tuple[Hierarchy, Ints]:
    """Return a small hierarchy and its leaves' numbers of groups; private numbers are not looked at."""
    tree = plan.measurement_plan.hierarchy
    counts = assumed_groups(plan)[tree.leaves.start : tree.leaves.stop]
    usual = np.array([4 * int(min(np.ceil(counts.mean()), _FEW_GROUPS)), 0, 1, 3])
    if len(tree.leaves) > _FEW_LEAVES:
        middle = tuple("m" for _ in range(tree.levels - 3))
        # With three levels or more, two of the regions in the middle have a single child.
        branches = ("a", "b", "c", "a") if tree.levels > 2 else ("",) * 4
        paths = [("root", *((branch, *middle) if branch else ()), f"leaf {n}") for n, branch in enumerate(branches)]
        return Hierarchy.from_paths(paths), np.minimum(usual, counts.max())
    if has_private_counts(plan.measurement_plan):
        return tree, np.resize(usual, counts.size)
    return tree, np.minimum(counts, usual[0])


def _of_few_sizes(config: Config) -> Any:
    """Return the section of a configuration whose sizes are cut off at a small bound, if its own is larger."""
    section, bound = config.method, min(config.method.max_size, _FEW_SIZES)
    if bound == section.max_size:
        return section

    def cut(value: Any) -> Any:
        return tuple(map(cut, value)) if isinstance(value, tuple) else min(value, bound // 2)

    edges = section.bucket_edges
    if edges is not None:
        lists = edges if isinstance(edges[0], tuple) else (edges,)
        fewer = tuple(tuple(size for size in starts if size < bound) for starts in lists)
        edges = fewer if isinstance(edges[0], tuple) else fewer[0]
    update = {"max_size": bound, "rank_above": cut(section.rank_above), "bucket_edges": edges}
    return section.model_copy(update=update)
