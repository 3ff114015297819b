"""Data like the private data that need no protection: simulated in the public shape of a plan, or named by the user.

Two neighbouring tables of groups, and the counts of a table or a release that an audit compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.config.model import Config
from coco_opt.errors import InputError, Place, ProblemError
from coco_opt.files.inputs import SIZES, Input
from coco_opt.files.regions import read_regions
from coco_opt.files.similar_rows import is_release, rows_of_regions, shared_words
from coco_opt.files.source import names_of
from coco_opt.groups.estimating.estimate import GroupsResult
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.kind.automatic import ASSUMED, assumed_counts
from coco_opt.groups.kind.plan import queries_of, schemes_of
from coco_opt.groups.measuring.entities import read_tables
from coco_opt.groups.measuring.measure import look_of, measurement_plan_of
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.measuring.sizes import read_sizes
from coco_opt.groups.noisy_measurements import has_private_counts, max_size_of
from coco_opt.groups.queries import FROM_ABOVE, GROUPS, MeasuredQuery, exact_answers
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import MeasurementPlan, Pair
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


def simulated_or_public(plan: Plan, public: Path | None = None, branches: int | None = None) -> SimulatedData:
    """Return simulated data with the public numbers of groups, or a public table of sizes."""
    return simulated_data_of(plan, branches) if public is None else read_simulated_data(plan, public)


def read_simulated_data(plan: Plan, path: Path) -> SimulatedData:
    """Read public data like the private: a table of sizes or a release with as many levels, or entities and groups.

    The groups lie next to the entities, in a file with the name of the configured file; those in regions of the plan
    are used. Columns have the names that [data] states. Raises InputError.
    """
    data, levels, spill = plan.config.data, plan.measurement_plan.hierarchy.levels, plan.config.output.private
    groups, words = (
        None if data.sizes is not None else data.neighbour_of(path, "groups"),
        f"the public table {path.name}",
    )
    if is_release(path):
        from coco_opt.groups.kind.files import read_groups_release

        release = read_groups_release(path)
        tree = release.hierarchy
        counts = PrivateCounts.of_leaves(tree, [release.histograms[leaf] for leaf in tree.leaves])
        ids = (release.region_ids[leaf] for leaf in tree.leaves)
        words = f"the release {path.name}{shared_words(plan.measurement_plan.region_ids, ids)}"
    elif groups is not None:
        regions = read_regions(data.table_of("hierarchy"))
        entities, groups, left_out = rows_of_regions(Input(path, data.columns), groups, regions.ids)
        counts, words = read_tables(entities, groups, data.table_of("hierarchy"), spill), words + left_out  # type: ignore[arg-type]
    else:
        table = Input(path, data.columns)
        rootless = len(names_of(table)) - len(SIZES.last) == levels - 1
        counts = read_sizes(table, plan.measurement_plan.hierarchy.names[0] if rootless else None, spill)
    if counts.hierarchy.levels != levels:
        message = f"has {counts.hierarchy.levels} levels, but the data to release have {levels}"
        raise InputError("other-levels", message, Place(path.name))
    return queries_like(plan, counts, (), words)


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
        buckets=schemes_of(plan.config, levels),
        counts_share=plan.config.method.counts_share,
    )
    looks = [plan.look] if plan.look is not None else [look.measurement_plan for look in plan.also]
    look = look_of(measurement_plan, looks[0].cost) if looks else None
    return SimulatedData(replace(plan.on(measurement_plan, None), look=look), counts, words)


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


def neighbouring(counts: PrivateCounts, measurement_plan: MeasurementPlan) -> Pair[PrivateCounts]:
    """Return a pair that isolates one entity: the largest group below ``max_size`` of the smallest leaf grows by one.

    Large groups stand alone in their cells, and a small leaf has little to hide in. "replace" takes the entity from
    the smallest nonempty other group of that leaf, or of another leaf. Sizes are clamped to the public bound first.
    Where the numbers of groups are private, the entity brings a group of its own. Raises ProblemError where no group
    can grow or give.
    """
    tree, max_size = counts.hierarchy, max_size_of(measurement_plan)
    leaves = [counts.leaf(leaf).clamp(max_size) for leaf in range(len(tree.leaves))]
    if has_private_counts(measurement_plan):
        return _with_a_group(tree, leaves, measurement_plan)
    order = sorted(range(len(leaves)), key=lambda leaf: leaves[leaf].groups)
    growing = ((leaf, leaves[leaf].sizes[leaves[leaf].sizes < max_size]) for leaf in order)
    grown = next(((leaf, int(sizes[-1])) for leaf, sizes in growing if sizes.size), None)
    if grown is None:
        raise ProblemError(f"no group is smaller than max_size = {max_size}: there is no neighbour to audit with")
    leaf, size = grown
    moves = [(leaf, size, size + 1)]
    names = tree.paths[tree.leaves.start :]
    words = f"one entity added to a group of {size:,} in {names[leaf]!r}"
    if measurement_plan.neighbours == "replace":
        giver, giver_size = _giver(leaves, [leaf, *(candidate for candidate in order if candidate != leaf)], leaf, size)
        moves.append((giver, giver_size, giver_size - 1))
        words += f", taken from a group of {giver_size:,} in {names[giver]!r}"
    changed = list(leaves)
    for place, before, after in moves:
        changed[place] = resized(changed[place], before, after)
    return Pair(PrivateCounts.of_leaves(tree, leaves), PrivateCounts.of_leaves(tree, changed), words)


def _with_a_group(
    tree: Hierarchy, leaves: Sequence[CountOfCounts], measurement_plan: MeasurementPlan
) -> Pair[PrivateCounts]:
    """Return a pair in which the smallest leaf gains a group of one entity, for "replace" moved from another leaf."""
    order = sorted(range(len(leaves)), key=lambda leaf: leaves[leaf].groups)
    names, changed = tree.paths[tree.leaves.start :], list(leaves)
    changed[order[0]] = CountOfCounts.total([leaves[order[0]], CountOfCounts.from_runs([1], [1])])
    words = f"one entity in a group of its own added to {names[order[0]]!r}"
    if measurement_plan.neighbours == "replace":
        giver = next((leaf for leaf in order[1:] if 1 in leaves[leaf].sizes), None)
        if giver is None:
            raise ProblemError("no other leaf has a group of one entity: there is no neighbour to audit with")
        changed[giver] = resized(leaves[giver], 1, None)
        words += f", taken with its group from {names[giver]!r}"
    return Pair(PrivateCounts.of_leaves(tree, leaves), PrivateCounts.of_leaves(tree, changed), words)


def resized(histogram: CountOfCounts, before: int, after: int | None) -> CountOfCounts:
    """Return the histogram after a group of size ``before`` changed to size ``after``, or was removed for None."""
    place = int(np.searchsorted(histogram.sizes, before))
    if place == histogram.distinct or histogram.sizes[place] != before:
        raise ProblemError("there is no group of that size to change")
    counts = histogram.counts.copy()
    counts[place] -= 1
    if after is None:
        return CountOfCounts.from_runs(histogram.sizes[counts > 0], counts[counts > 0])
    return CountOfCounts.from_runs(np.append(histogram.sizes, after), np.append(counts, 1))


def _giver(leaves: Sequence[CountOfCounts], order: Sequence[int], grown: int, size: int) -> tuple[int, int]:
    for leaf in order:
        for giver_size, count in zip(leaves[leaf].sizes.tolist(), leaves[leaf].counts.tolist(), strict=True):
            # The group that grows cannot give as well: that would change nothing.
            if giver_size > 0 and count - (leaf == grown and giver_size == size) > 0:
                return leaf, giver_size
    raise ProblemError("no other group has an entity to give: there is no neighbour to audit with")


def cumulative_counts(
    measurement_plan: MeasurementPlan, table: PrivateCounts | GroupsResult
) -> Mapping[str, NDArray[Any]]:
    """Return the cumulative counts of every level's regions in order, cells 0..max_size-1, int64.

    Where the numbers of groups are private, they count the groups above each size, since the group that an entity
    brings would change all cumulative counts. One entity changes one cell of a region by one. For a private table the
    cells from a region's largest group on are masked: there the released count is nearly always the number of groups,
    and its residual carries no information.
    """
    tree, max_size = measurement_plan.hierarchy, max_size_of(measurement_plan)
    exact = isinstance(table, PrivateCounts)
    query: MeasuredQuery = FROM_ABOVE["cumulative"] if has_private_counts(measurement_plan) else "cumulative"
    histograms = table.histograms() if isinstance(table, PrivateCounts) else table.histograms
    levels: dict[str, NDArray[Any]] = {}
    for level in range(tree.levels):
        level_histograms = [histograms[region].clamp(max_size) for region in tree.level_range(level)]
        counts = np.concatenate([exact_answers(histogram, query, max_size) for histogram in level_histograms])
        if exact:
            cells = np.arange(max_size)
            levels[measurement_plan.levels[level]] = np.ma.MaskedArray(
                counts, np.concatenate([cells >= histogram.max_size for histogram in level_histograms])
            )
        else:
            levels[measurement_plan.levels[level]] = counts
    return levels
