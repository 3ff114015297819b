"""The queries about groups by size: their exact answers and their sensitivities.

A region has G groups of sizes 0..K, larger groups counted as K (the public bound). "sizes" is H[0..K], the groups of
each size (the paper's naive query); "cumulative" is Hc[0..K-1], the groups of each size or smaller; "ranks" is
Hg[1..G], the sizes of the groups in nondecreasing order. Kuo et al. 2018, section 4. "buckets" are sums of Hc over the
buckets of a partition of its cells: they are measured for "cumulative" where a partition is given. "split" is Hc below
a public size T, and max(Hg, T), the sizes from T on, of all groups (``coco_opt.groups.buckets.Split``).

Where the numbers of groups are private, G is measured too ("groups", one cell), and Hc is measured from above: "larger"
is G - Hc[0..K-1], the groups of more than each size, and "larger_buckets" its sums. An empty group changes none of
these cells, and a group that comes or goes with its only entity changes one, where it would change all cells of Hc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal, cast, get_args

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.groups.buckets import Buckets, Scheme, Split
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import NEIGHBOURS, Cost, LevelQuery, Neighbours, Sensitivity

Query = Literal["sizes", "ranks", "cumulative"]
QUERIES: tuple[Query, ...] = get_args(Query)
MeasuredQuery = Literal["sizes", "ranks", "cumulative", "buckets", "split", "larger", "larger_buckets"]
MEASURED_QUERIES: tuple[MeasuredQuery, ...] = get_args(MeasuredQuery)
GROUPS = "groups"
"""The number of groups of each region, and the number of its ranks, where public; else the query that measures it."""
FROM_ABOVE: Mapping[MeasuredQuery, MeasuredQuery] = {"cumulative": "larger", "buckets": "larger_buckets"}
"""The query measured in place of another where the numbers of groups are private."""

_PIECE = 1 << 20
_WORDS: Mapping[MeasuredQuery, str] = {
    "sizes": "groups of each size from 0 on",
    "ranks": "sizes of the groups, smallest first",
    "cumulative": "groups of each size from 0 on or smaller, the largest size left out",
    "buckets": "groups of each size or smaller, summed over the sizes of a bucket, the largest size left out",
    "split": "groups of each size below a public one or smaller, then the sizes of all groups, those below it as it is",
    "larger": "groups of more than each size from 0 on, the largest size left out",
    "larger_buckets": "groups of more than each size, summed over the sizes of a bucket, the largest size left out",
}
_BELOW: Mapping[MeasuredQuery, MeasuredQuery] = {above: query for query, above in FROM_ABOVE.items()}
# An entity moves one group by one size: two cells of H, one of Hc without its public last cell, one of Hg; clamping
# sizes to K never adds any. Replacing an entity moves one group down and one up, within a region or across two. Two
# such moves of H share a cell where both groups have one size: it changes by 2 and its neighbours by 1, 6 squared. In
# Hc and Hg the moves have opposite signs, so a shared cell cancels. A cell lies in one bucket: summing adds nothing,
# and two cells of one bucket cancel too. In a split a move is one cell or one rank, never both (``Split``). Where
# numbers of groups are private, a group may come or go with its only entity, and empty ones by themselves: that is one
# cell of H, at most one of G - Hc, and one of the numbers of groups.
_OF_SIZES: Mapping[Neighbours, Sensitivity] = {"add_remove": Sensitivity(2, 2), "replace": Sensitivity(4, 6)}
_OF_OTHERS: Mapping[Neighbours, Sensitivity] = {"add_remove": Sensitivity(1, 1), "replace": Sensitivity(2, 2)}


def sensitivity(query: MeasuredQuery, neighbours: Neighbours) -> Sensitivity:
    """Return by how much neighbouring databases change a query's cells on a level; ProblemError for unknown names."""
    check_query(query)
    return _sensitivity(query, neighbours)


def _sensitivity(query: str, neighbours: Neighbours) -> Sensitivity:
    if neighbours not in NEIGHBOURS:
        raise ProblemError(f"unknown neighbours {neighbours!r}: use one of {', '.join(NEIGHBOURS)}")
    return (_OF_SIZES if query == "sizes" else _OF_OTHERS)[neighbours]


def check_query(query: str) -> None:
    """Raise ProblemError for an unknown name."""
    if query not in MEASURED_QUERIES:
        raise ProblemError(f"unknown query {query!r}: use one of {', '.join(QUERIES)}")


def level_query(
    level: int,
    query: Query,
    max_size: int,
    neighbours: Neighbours,
    cost: Cost,
    buckets: Scheme | None = None,
    *,
    private_counts: bool = False,
) -> LevelQuery:
    """Return the query about every region of a level; raise ProblemError for unknown names.

    ``buckets`` sum the cells of "cumulative"; they must hold every cell. A ``Split`` measures ranks from a size on.
    With ``private_counts`` no answer and no number of answers reveals the number of groups: cumulative counts are
    measured from above, and ranks raise ProblemError.
    """
    check_query(query)
    measured_query: MeasuredQuery = query
    if buckets is not None:
        buckets.check(query, max_size)
        measured_query = "split" if isinstance(buckets, Split) else query if buckets.of_cells(max_size) else "buckets"
    if private_counts:
        if measured_query in ("ranks", "split"):
            raise ProblemError("ranks are as many as there are groups: use 'cumulative' if these numbers are private")
        measured_query = FROM_ABOVE.get(measured_query, measured_query)
    size: int | str = cells(measured_query, max_size, 0, buckets)
    if measured_query in ("ranks", "split"):
        size = f"{GROUPS} + {size}" if size else GROUPS
    return LevelQuery(
        level, measured_query, _WORDS[measured_query], size, sensitivity(measured_query, neighbours), cost
    )


def groups_query(level: int, neighbours: Neighbours, cost: Cost) -> LevelQuery:
    """Return the query for the number of groups of every region of a level, where these are private."""
    return LevelQuery(level, GROUPS, "number of groups", 1, _sensitivity(GROUPS, neighbours), cost)


def with_public_counts(query: LevelQuery) -> LevelQuery:
    """Return the equivalent query once the numbers of groups are released: Hc in place of G - Hc."""
    name = plain_query(query)
    return query if name == query.name else replace(query, name=name, words=_WORDS[name])


def plain_query(query: LevelQuery) -> MeasuredQuery:
    """Return the name of a query, that of Hc also where it is measured from above."""
    name = cast(MeasuredQuery, query.name)
    return _BELOW.get(name, name)


def exact_answers(histogram: CountOfCounts, query: MeasuredQuery, max_size: int, buckets: Scheme | None = None) -> Ints:
    """Return a region's cells before the noise, int64, their sizes clamped to ``max_size`` = K first.

    They are K + 1, K, as many as buckets, G, or for a split T + G.

    As private as the histogram is.
    """
    check_query(query)
    clamped = histogram.clamp(max_size)
    if query == "sizes":
        return clamped.to_dense(max_size)
    if query == "ranks":
        return clamped.ranks()
    values = clamped.cumulative(max_size)[:-1]
    if query == "split":
        return _split_of(buckets).answers(values, clamped.ranks())
    if query in ("larger", "larger_buckets"):
        values = clamped.groups - values
    return _buckets_of(buckets).sums(values) if query in ("buckets", "larger_buckets") else values


def rank_pieces(histogram: CountOfCounts, max_size: int) -> Iterator[Ints]:
    """Yield the exact ranks, int64[G] in all, a million at a time (one empty piece of no group); clamped as above.

    As private as the histogram is. Memory is that of a piece, whatever G is.
    """
    sizes, stops = histogram.clamp(max_size).rank_runs()
    groups = histogram.groups
    for begin in range(0, max(groups, 1), _PIECE):
        end = min(begin + _PIECE, groups)
        runs = slice(int(np.searchsorted(stops, begin, "right")), int(np.searchsorted(stops, end, "left")) + 1)
        ends = np.clip(stops[runs], begin, end)
        lengths = ends - np.append(begin, ends[:-1])
        yield np.repeat(sizes[runs], lengths)


def cells(query: MeasuredQuery, max_size: int, groups: int, buckets: Scheme | None = None) -> int:
    """Return the number of cells of a region's answer."""
    if query == "split":
        return _split_of(buckets).at + groups
    if query in ("buckets", "larger_buckets"):
        return _buckets_of(buckets).count
    return {"sizes": max_size + 1, "ranks": groups, "cumulative": max_size, "larger": max_size}[query]


def _split_of(scheme: Scheme | None) -> Split:
    if not isinstance(scheme, Split):
        raise ProblemError("the query 'split' needs the size at which it splits")
    return scheme


def _buckets_of(buckets: Scheme | None) -> Buckets:
    if not isinstance(buckets, Buckets):
        raise ProblemError("the query 'buckets' needs the buckets that it sums over")
    return buckets
