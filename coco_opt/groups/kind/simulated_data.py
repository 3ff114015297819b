"""Data like the private data that need no protection: simulated in the public shape of a plan, or named by the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import InputError, Place
from coco_opt.files.columns import SIZES
from coco_opt.files.inputs import Input
from coco_opt.files.source import names_of
from coco_opt.groups.kind.automatic import ASSUMED, assumed_counts
from coco_opt.groups.kind.plan import buckets_of, queries_of
from coco_opt.groups.measuring.entities import read_tables
from coco_opt.groups.measuring.measure import measurement_plan_of
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.measuring.sizes import read_sizes
from coco_opt.groups.noisy_measurements import has_private_counts, max_size_of
from coco_opt.groups.queries import GROUPS
from coco_opt.histograms import CountOfCounts
from coco_opt.releases.kind import Plan, SimulatedData

SEED = 20100901  # of simulated data: the same plan gives the same data
_MADE_POWER = 2.0


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
        max_size=max_size_of(plan.measurement_plan),
        neighbours=plan.measurement_plan.neighbours,
        levels=plan.measurement_plan.levels,
        region_ids=ids,
        buckets=buckets_of(plan.config, levels),
        counts_share=plan.config.method.counts_share,
    )
    return SimulatedData(plan.on(measurement_plan, None), counts, words)
