"""Asking the private histograms: what is asked is decided and checked on public facts, before the first noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.errors import InputError, ProblemError
from coco_opt.groups.answers import (
    KIND,
    MAX_SIZE,
    buckets_of,
    has_private_counts,
    max_size_of,
    split_name,
    split_of,
    starts_name,
)
from coco_opt.groups.asked.group_counts import MAX_GROUPS, check_group_counts
from coco_opt.groups.buckets import Buckets, Scheme, Split
from coco_opt.groups.choice import CHOICE, choice_question, lead_of_ranks
from coco_opt.groups.queries import GROUPS, Query, exact_answers, groups_question, question, rank_pieces
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.histograms.arrays import as_int64
from coco_opt.privacy import Asked, Cost, Exact, Measurement, Neighbours, NoiseSource, Question, add_noise
from coco_opt.privacy.answers import Progress
from coco_opt.privacy.noise import MAX_VALUE

Int64 = NDArray[np.int64]

_SPREADS = 64  # noise beyond this many spreads has probability below 1e-27


def asked_of(
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
) -> Asked:
    """Return what is asked of groups: the query of every level whose cost is not zero, root first.

    ``group_counts`` int64[regions] and ``max_size`` are public; ``levels`` are the levels' names ("level 0", ... unless
    given); ``buckets``, one a level, are the sizes over which its cumulative counts are summed (None: single cells).
    Where the numbers of groups are private, ``group_counts`` is None and ``counts_share``, between 0 and 1, is the part
    of each level's cost that asks for them; the leaves' must be asked. Raises ProblemError for parameters out of range,
    and where public facts alone do not keep every noisy value in 64 bits.
    """
    if not len(queries) == len(costs) == hierarchy.levels:
        raise ProblemError(f"{hierarchy.levels} levels need as many queries and costs")
    given = tuple(buckets) or (None,) * hierarchy.levels
    if len(given) != hierarchy.levels:
        raise ProblemError(f"{hierarchy.levels} levels need as many buckets, or none at all")
    if max_size < 1:
        raise ProblemError("max_size, the public bound on group sizes, must be at least 1")
    counts = _public_counts(hierarchy, group_counts)
    sizes_part, asked_counts = _parts_of_costs(costs, neighbours, counts, counts_share)
    rows = enumerate(zip(queries, costs, given, strict=True))
    questions = tuple(
        question(level, query, max_size, neighbours, cost * sizes_part, sums, private_counts=counts is None)
        for level, (query, cost, sums) in rows
        if cost
    )
    tables: dict[str, Int64] = {}
    for one in questions:
        regions, sums, widest = hierarchy.level_range(one.level), given[one.level], 1
        if isinstance(sums, Split):
            tables[split_name(one.level)] = np.array([sums.at], np.int64)
        elif one.query in ("buckets", "larger_buckets") and isinstance(sums, Buckets):
            tables[starts_name(one.level)] = sums.begin
            widest = int((sums.end - sums.begin).max())
        groups = MAX_GROUPS if counts is None else int(counts[regions.start : regions.stop].max())
        _check_values(one, groups, max_size, widest)
    for one in asked_counts:
        _check_values(one, MAX_GROUPS, max_size, 1)
    return Asked(
        kind=KIND,
        hierarchy=hierarchy,
        levels=tuple(levels) or tuple(f"level {level}" for level in range(hierarchy.levels)),
        questions=(*asked_counts, *questions),
        neighbours=neighbours,
        facts={MAX_SIZE: max_size},
        per_region={} if counts is None else {GROUPS: counts},
        tables=tables,
        region_ids=region_ids,
    )


def choice_of(asked: Asked, cost: Cost) -> Asked:
    """Return the question which query to ask of each level, at ``cost``, about what ``asked`` would ask of.

    ProblemError where the numbers of groups are private, for then ranks cannot be asked.
    """
    if has_private_counts(asked):
        raise ProblemError("ranks are as many as there are groups: with private numbers of groups there is no choice")
    question = choice_question(asked.hierarchy.levels, asked.neighbours, cost)
    return replace(asked, questions=(question,), tables={})


def _public_counts(hierarchy: Hierarchy, given: ArrayLike | None) -> Int64 | None:
    if given is None:
        return None
    counts = as_int64(given, "the public numbers of groups").copy()
    if counts.shape != (hierarchy.regions,) or counts.min() < 0:
        raise ProblemError(f"{hierarchy.regions} regions need as many public numbers of groups, none negative")
    return counts


def _parts_of_costs(
    costs: Sequence[Cost], neighbours: Neighbours, counts: Int64 | None, share: Fraction | None
) -> tuple[Fraction, tuple[Question, ...]]:
    """Return the part of each level's cost that asks about sizes, and the questions that ask for numbers of groups."""
    if (counts is None) != (share is not None):
        raise ProblemError("give either the public numbers of groups, or the share of the budget that asks for them")
    if share is None:
        return Fraction(1), ()
    if not 0 < share < 1:
        raise ProblemError("the share of the budget that asks for numbers of groups lies between 0 and 1")
    if not costs[-1]:
        raise ProblemError("private numbers of groups need the leaves' answers: give their level a share of the budget")
    asked = (groups_question(level, neighbours, cost * share) for level, cost in enumerate(costs) if cost)
    return 1 - share, tuple(asked)


def _check_values(asked: Question, groups: int, max_size: int, width: int) -> None:
    widest = _SPREADS * asked.law.spread
    largest = groups * (max_size + widest) if asked.query in ("ranks", "split") else groups * width
    if largest > MAX_VALUE:
        raise ProblemError(
            f"an answer about the {asked.query} of {groups:,} groups of sizes up to {max_size:,} may not fit in 64 "
            "bits: lower max_size or raise the budget"
        )


def exact_parts(asked: Asked, truth: Sequence[CountOfCounts]) -> Iterable[Exact]:
    """Return the exact answers to all questions, one part a region; ``truth`` is PRIVATE, one histogram a region.

    Raises, before the first part is made, ProblemError where a region has no histogram and InputError
    (group-count-mismatch) where one does not hold the public number of groups or, where they are private, these do not
    sum.
    """
    tree = asked.hierarchy
    if len(truth) != tree.regions:
        raise ProblemError(f"{tree.regions} regions need as many histograms and group counts")
    if has_private_counts(asked):
        check_group_counts(tree, truth)
        return _parts(asked, truth)
    counts = asked.per_region[GROUPS]
    for one in asked.questions:
        for region in tree.level_range(one.level):
            check_groups(truth[region], tree.paths[region], int(counts[region]))
    return _parts(asked, truth)


def _parts(asked: Asked, truth: Sequence[CountOfCounts]) -> Iterable[Exact]:
    tree, max_size = asked.hierarchy, max_size_of(asked)
    for one in asked.questions:
        if one.query == CHOICE:
            leads = [
                sum(lead_of_ranks(truth[region], max_size) for region in tree.level_range(level))
                for level in range(tree.levels)
            ]
            yield Exact(one, tree.paths[0], np.array(leads, np.int64))
            continue
        scheme = split_of(asked, one.level) or buckets_of(asked, one.level)
        for region in tree.level_range(one.level):
            if one.query == "ranks":
                yield from (Exact(one, tree.paths[region], piece) for piece in rank_pieces(truth[region], max_size))
                continue
            if one.query == GROUPS:
                values = np.array([truth[region].groups], np.int64)
            else:
                values = exact_answers(truth[region], one.query, max_size, scheme)  # type: ignore[arg-type]
            yield Exact(one, tree.paths[region], values)


def check_groups(histogram: CountOfCounts, region: str, groups: int) -> None:
    """Raise InputError unless the private histogram holds exactly the public number of groups."""
    if histogram.groups != groups:
        raise InputError(
            "group-count-mismatch",
            f"region {region!r}: the histogram does not hold the public number of groups, {groups:,}",
        )


def measured(
    asked: Asked, truth: Sequence[CountOfCounts], source: NoiseSource, progress: Progress | None = None
) -> Measurement:
    """Return the noisy answers to what is asked; raises what ``exact_parts`` and ``add_noise`` raise."""
    parts = exact_parts(asked, truth)
    answers = add_noise(asked.questions, parts, asked.hierarchy, asked.per_region, source, progress)
    return Measurement(asked, answers, source.name, source.private)


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
    """Return the noisy answers of all regions of the levels that have a budget.

    ``truth``, PRIVATE, and the public ``group_counts`` come one a region in the hierarchy's order; ``queries`` and
    ``costs`` one a level, root first (a cost of zero: not measured), and so do ``buckets``, over which cumulative
    counts are summed or split (None: single cells; a level's buckets hold every size once). Where the numbers of groups
    are private, ``group_counts`` is None and ``counts_share`` the part of each level's cost that asks for them (Kuo et
    al. 2018, footnote 4). ``progress`` is told the answers done and their number. Everything is checked before the
    first noise is drawn: raises ProblemError for public parameters, InputError for a histogram without the public
    number of groups.
    """
    asked = asked_of(
        hierarchy,
        group_counts,
        queries=queries,
        costs=costs,
        max_size=max_size,
        neighbours=neighbours,
        buckets=buckets,
        counts_share=counts_share,
    )
    return measured(asked, truth, source, progress)
