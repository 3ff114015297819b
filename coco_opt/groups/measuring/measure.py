"""Measure the private histograms: the queries are planned and checked on public information, before the first noise.

Where the Groups table is not public (Kuo et al. 2018, footnote 4), numbers of groups are private.
Neighbours then differ by one entity and, where it is alone in its group, by that group too; or by one empty group.
Under "replace" an entity, or an empty group, is moved. A level's numbers of groups so change by one in all (by two
where one group goes and another comes), and the answers about sizes by no more than with public numbers, because they
count from above (``coco_opt.groups.queries``). Hiding a group of s entities costs s times the sizes' part and once
the counts'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.activity import Progress
from coco_opt.array_types import Ints
from coco_opt.errors import InputError, ProblemError
from coco_opt.groups.buckets import Buckets, Scheme, Split
from coco_opt.groups.look import LOOK_GROWTH
from coco_opt.groups.noisy_measurements import (
    KIND,
    MAX_SIZE,
    buckets_of,
    has_private_counts,
    max_size_of,
    split_name,
    split_of,
    starts_name,
)
from coco_opt.groups.queries import GROUPS, Query, exact_answers, groups_query, level_query, rank_pieces
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.histograms.arrays import as_int64
from coco_opt.privacy import Cost, Drawing, Exact, LevelQuery, Measurement, MeasurementPlan, Neighbours, NoiseSource
from coco_opt.privacy.noise import MAX_VALUE

MAX_GROUPS = 2**40  # in one region; far above any data, and sums of counts and noise keep all digits in a float


def check_group_counts(hierarchy: Hierarchy, truth: Sequence[CountOfCounts]) -> None:
    """Raise InputError where a private number of groups cannot be measured; the message never shows it.

    too-large: it is above 2^40; group-count-mismatch: it is not the sum of its children's.
    """
    counts = np.array([histogram.groups for histogram in truth], np.int64)
    if counts.max() > MAX_GROUPS:
        raise InputError("too-large", "a region has more than 2^40 groups")
    if not np.array_equal(hierarchy.aggregate(counts[hierarchy.leaves.start :]), counts):
        raise InputError("group-count-mismatch", "a region's number of groups is not the sum of its children's")


_SPREADS = 64  # noise beyond this many spreads has probability below 1e-27


def measurement_plan_of(
    hierarchy: Hierarchy,
    group_counts: ArrayLike | None,
    *,
    queries: Sequence[Query],
    costs: Sequence[Cost],
    max_size: int,
    neighbours: Neighbours,
    levels: Sequence[str] = (),
    region_ids: Sequence[str | None] = (),
    buckets: Sequence[Scheme | None] = (),
    counts_share: Fraction | None = None,
) -> MeasurementPlan:
    """Return the measurement plan of groups: the query of every level whose cost is not zero, root first.

    ``group_counts`` int64[regions] and ``max_size`` are public; ``levels`` are the levels' names ("level 0", ... by
    default); ``buckets``, one per level, are the sizes over which its cumulative counts are summed (None: single
    cells). Where the numbers of groups are private, ``group_counts`` is None and ``counts_share``, between 0 and 1, is
    the part of each level's cost that measures them; the leaves' must be measured. Raises ProblemError for parameters
    out of range, and where public information does not keep every noisy value in 64 bits.
    """
    if not len(queries) == len(costs) == hierarchy.levels:
        raise ProblemError(f"{hierarchy.levels} levels need as many queries and costs")
    schemes = tuple(buckets) or (None,) * hierarchy.levels
    if len(schemes) != hierarchy.levels:
        raise ProblemError(f"{hierarchy.levels} levels need as many buckets, or none at all")
    if max_size < 1:
        raise ProblemError("max_size, the public bound on group sizes, must be at least 1")
    counts = None if group_counts is None else as_int64(group_counts, "the public numbers of groups").copy()
    if counts is not None and (counts.shape != (hierarchy.regions,) or counts.min() < 0):
        raise ProblemError(f"{hierarchy.regions} regions need as many public numbers of groups, none negative")
    sizes_part, counts_queries = _parts_of_costs(costs, neighbours, counts, counts_share)
    rows = enumerate(zip(queries, costs, schemes, strict=True))
    level_queries = tuple(
        level_query(level, query, max_size, neighbours, cost * sizes_part, scheme, private_counts=counts is None)
        for level, (query, cost, scheme) in rows
        if cost
    )
    tables: dict[str, Ints] = {}
    for planned_query in level_queries:
        regions, scheme, widest = hierarchy.level_range(planned_query.level), schemes[planned_query.level], 1
        if isinstance(scheme, Split):
            tables[split_name(planned_query.level)] = np.array([scheme.at], np.int64)
        elif planned_query.name in ("buckets", "larger_buckets") and isinstance(scheme, Buckets):
            tables[starts_name(planned_query.level)] = scheme.begin
            widest = int((scheme.end - scheme.begin).max())
        groups = MAX_GROUPS if counts is None else int(counts[regions.start : regions.stop].max())
        _check_values(planned_query, groups, max_size, widest)
    for planned_query in counts_queries:
        _check_values(planned_query, MAX_GROUPS, max_size, 1)
    return MeasurementPlan(
        kind=KIND,
        hierarchy=hierarchy,
        levels=tuple(levels) or tuple(f"level {level}" for level in range(hierarchy.levels)),
        queries=(*counts_queries, *level_queries),
        neighbours=neighbours,
        parameters={MAX_SIZE: max_size},
        per_region={} if counts is None else {GROUPS: counts},
        tables=tables,
        region_ids=region_ids,
    )


def look_of(plan: MeasurementPlan, cost: Cost) -> MeasurementPlan:
    """Return the measurement plan of a look at the data of another plan: the root's buckets, for ``cost``.

    Raises ProblemError for a cost of zero.
    """
    levels, max_size = plan.hierarchy.levels, max_size_of(plan)
    query: Query = "cumulative"
    nothing = cost * 0
    return measurement_plan_of(
        plan.hierarchy,
        plan.per_region[GROUPS],
        queries=[query] * levels,
        costs=(cost, *(nothing,) * (levels - 1)),
        max_size=max_size,
        neighbours=plan.neighbours,
        levels=plan.levels,
        region_ids=tuple(plan.region_ids),
        buckets=(Buckets.by_growth(max_size, LOOK_GROWTH), *(None,) * (levels - 1)),
    )


def _parts_of_costs(
    costs: Sequence[Cost], neighbours: Neighbours, counts: Ints | None, share: Fraction | None
) -> tuple[Fraction, tuple[LevelQuery, ...]]:
    """Return the part of each level's cost for queries about sizes, and the queries for numbers of groups."""
    if (counts is None) != (share is not None):
        raise ProblemError("give either the public numbers of groups, or the share of the budget that measures them")
    if share is None:
        return Fraction(1), ()
    if not 0 < share < 1:
        raise ProblemError("the share of the budget for numbers of groups must lie between 0 and 1")
    if not costs[-1]:
        raise ProblemError(
            "private numbers of groups need the leaves to be measured: give their level a share of the budget"
        )
    counts_queries = (groups_query(level, neighbours, cost * share) for level, cost in enumerate(costs) if cost)
    return 1 - share, tuple(counts_queries)


def _check_values(query: LevelQuery, groups: int, max_size: int, width: int) -> None:
    widest = _SPREADS * query.distribution.spread
    largest = groups * (max_size + widest) if query.name in ("ranks", "split") else groups * width
    if largest > MAX_VALUE:
        raise ProblemError(
            f"an answer about the {query.name} of {groups:,} groups of sizes up to {max_size:,} may not fit "
            "in 64 bits: lower max_size or raise the budget"
        )


def exact_parts(measurement_plan: MeasurementPlan, truth: Sequence[CountOfCounts]) -> Iterable[Exact]:
    """Return the exact answers to all queries, one part per region; ``truth`` is PRIVATE, one histogram per region.

    Raises, before the first part is computed, ProblemError where a region has no histogram and InputError
    (group-count-mismatch) where one does not hold the public number of groups or, where they are private, these do not
    sum.
    """
    tree, max_size = measurement_plan.hierarchy, max_size_of(measurement_plan)
    if len(truth) != tree.regions:
        raise ProblemError(f"{tree.regions} regions need as many histograms and group counts")
    if has_private_counts(measurement_plan):
        check_group_counts(tree, truth)
    else:
        counts = measurement_plan.per_region[GROUPS]
        for level in {query.level for query in measurement_plan.queries}:
            for region in tree.level_range(level):
                check_groups(truth[region], tree.paths[region], int(counts[region]))

    def parts() -> Iterator[Exact]:
        for query in measurement_plan.queries:
            scheme = split_of(measurement_plan, query.level) or buckets_of(measurement_plan, query.level)
            for region in tree.level_range(query.level):
                path, histogram = tree.paths[region], truth[region]
                if query.name == "ranks":
                    yield from (Exact(query, path, piece) for piece in rank_pieces(histogram, max_size))
                elif query.name == GROUPS:
                    yield Exact(query, path, np.array([histogram.groups], np.int64))
                else:
                    yield Exact(query, path, exact_answers(histogram, query.name, max_size, scheme))  # type: ignore[arg-type]

    return parts()


def check_groups(histogram: CountOfCounts, region: str, groups: int) -> None:
    """Raise InputError unless the private histogram holds exactly the public number of groups."""
    if histogram.groups != groups:
        raise InputError(
            "group-count-mismatch",
            f"region {region!r}: the histogram does not hold the public number of groups, {groups:,}",
        )


def measured(
    measurement_plan: MeasurementPlan,
    truth: Sequence[CountOfCounts],
    source: NoiseSource,
    progress: Progress | None = None,
) -> Measurement:
    """Return the noisy measurements of a plan; raises what ``exact_parts`` and ``noisy_parts`` raise."""
    return Drawing.of(measurement_plan, exact_parts(measurement_plan, truth), source, progress).measurement()


def measure_hierarchy(
    truth: Sequence[CountOfCounts],
    hierarchy: Hierarchy,
    group_counts: ArrayLike | None,
    *,
    queries: Sequence[Query],
    costs: Sequence[Cost],
    max_size: int,
    neighbours: Neighbours,
    source: NoiseSource,
    progress: Progress | None = None,
    buckets: Sequence[Scheme | None] = (),
    counts_share: Fraction | None = None,
) -> Measurement:
    """Return the noisy measurements of all regions on the levels that have a budget.

    Parameters
    ----------
    truth : sequence of CountOfCounts, one for each region
        PRIVATE: the histograms in the hierarchy's order.
    hierarchy : Hierarchy
        The regions, public.
    group_counts : array_like of int, shape (regions,), or None
        The public number of groups of every region; None if the numbers are private.
    queries : sequence of {"cumulative", "sizes", "ranks"}, one for each level
        What is measured, root first.
    costs : sequence of Epsilon or Rho, one for each level
        What each level may cost, root first; a level of cost 0 is not measured.
    max_size : int
        The public bound K of sizes, in entities; larger groups count as this size.
    neighbours : {"add_remove", "replace"}
        By what neighbouring data sets differ: one entity is added or removed, or moved.
    source : NoiseSource
        Where the noise comes from, such as ``SeededNoise`` or ``OpenDPNoise``.
    progress : callable, optional
        Called with the number of answers done and of all.
    buckets : sequence of Scheme or None, one for each level, optional
        Buckets over which cumulative counts are summed; None for single sizes. A level's buckets hold every size once.
    counts_share : Fraction, optional
        The part of each level's cost that measures private numbers of groups (Kuo et al. 2018, footnote 4).

    Returns
    -------
    Measurement
        Queries, noisy integers, noise distributions and costs.

    Raises
    ------
    ProblemError
        Public parameters are wrong.
    InputError
        A histogram has not the public number of groups.

    Notes
    -----
    Everything is checked before the first noise is drawn. Regions of one level are disjoint, so a level is charged
    once. Source: Kuo et al. 2018, section 4.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import CountOfCounts, Epsilon, Hierarchy, SeededNoise, measure_hierarchy
    >>> tree = Hierarchy.from_paths([("nation", "north"), ("nation", "south")])
    >>> north, south = CountOfCounts.from_ranks([1, 1, 2, 3]), CountOfCounts.from_ranks([1, 2, 2])
    >>> noisy = measure_hierarchy(
    ...     [north + south, north, south], tree, [7, 4, 3], queries=["cumulative"] * 2,
    ...     costs=Epsilon(Fraction(1)).shared(["1/2", "1/2"]), max_size=5, neighbours="add_remove",
    ...     source=SeededNoise(7),
    ... )
    >>> noisy.cost == Epsilon(Fraction(1))
    True
    """
    measurement_plan = measurement_plan_of(
        hierarchy,
        group_counts,
        queries=queries,
        costs=costs,
        max_size=max_size,
        neighbours=neighbours,
        buckets=buckets,
        counts_share=counts_share,
    )
    return measured(measurement_plan, truth, source, progress)
