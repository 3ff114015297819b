"""The queries about groups by size: their exact answers, and by how much one entity changes them.

A region has G groups of sizes 0..K, larger ones counted as K (the public bound). "sizes" is H[0..K], the groups of each
size (the paper's naive query); "cumulative" is Hc[0..K-1], the groups of each size or smaller; "ranks" is Hg[1..G], the
sizes of the groups in nondecreasing order. Kuo et al. 2018, section 4. "buckets" are sums of Hc over the buckets of a
partition of its cells: what "cumulative" asks where a partition is given. "split" asks for Hc below a public size T and
for max(Hg, T), the sizes from T on, of all groups (``coco_opt.groups.buckets.Split``).

Where the numbers of groups are private, G is asked too ("groups", one cell), and Hc is asked from above: "larger" is
G - Hc[0..K-1], the groups of more than each size, and "larger_buckets" its sums. An empty group changes none of these
cells and a group that comes or goes with its only entity one, where it would change all cells of Hc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.buckets import Buckets, Scheme, Split
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import NEIGHBOURS, Cost, Neighbours, Question, Sensitivity

Query = Literal["sizes", "ranks", "cumulative"]
QUERIES: tuple[Query, ...] = get_args(Query)
AskedQuery = Literal["sizes", "ranks", "cumulative", "buckets", "split", "larger", "larger_buckets"]
ASKED_QUERIES: tuple[AskedQuery, ...] = get_args(AskedQuery)
GROUPS = "groups"
"""The number of groups of each region: public, and then the number of its ranks, or else the question that asks it."""
FROM_ABOVE: Mapping[AskedQuery, AskedQuery] = {"cumulative": "larger", "buckets": "larger_buckets"}
"""What is asked in the place of a query where the numbers of groups are private."""

_PIECE = 1 << 20
_WORDS: Mapping[AskedQuery, str] = {
    "sizes": "groups of each size from 0 on",
    "ranks": "sizes of the groups, smallest first",
    "cumulative": "groups of each size from 0 on or smaller, the largest size left out",
    "buckets": "groups of each size or smaller, summed over the sizes of a bucket, the largest size left out",
    "split": "groups of each size below a public one or smaller, then the sizes of all groups, those below it as it is",
    "larger": "groups of more than each size from 0 on, the largest size left out",
    "larger_buckets": "groups of more than each size, summed over the sizes of a bucket, the largest size left out",
}
_BELOW: Mapping[AskedQuery, AskedQuery] = {above: query for query, above in FROM_ABOVE.items()}
# An entity moves one group by one size: two cells of H, one of Hc without its public last cell, one of Hg; clamping
# sizes to K never adds to it. Replacing an entity moves one group down and one up, within a region or across two. Two
# such moves of H share a cell where both groups have one size: it changes by 2 and its neighbours by 1, 6 squared. In
# Hc and Hg the moves have opposite signs, so a shared cell cancels. A cell lies in one bucket: summing adds nothing,
# and two cells of one bucket cancel too. In a split a move is one cell or one rank, never both (``Split``). Where
# numbers of groups are private, a group may come or go with its only entity, and empty ones by themselves: that is one
# cell of H, at most one of G - Hc, and one of the numbers of groups.
_SENSITIVITIES: Mapping[tuple[AskedQuery, Neighbours], Sensitivity] = {
    ("sizes", "add_remove"): Sensitivity(2, 2),
    ("sizes", "replace"): Sensitivity(4, 6),
    ("cumulative", "add_remove"): Sensitivity(1, 1),
    ("cumulative", "replace"): Sensitivity(2, 2),
    ("buckets", "add_remove"): Sensitivity(1, 1),
    ("buckets", "replace"): Sensitivity(2, 2),
    ("split", "add_remove"): Sensitivity(1, 1),
    ("split", "replace"): Sensitivity(2, 2),
    ("ranks", "add_remove"): Sensitivity(1, 1),
    ("ranks", "replace"): Sensitivity(2, 2),
    ("larger", "add_remove"): Sensitivity(1, 1),
    ("larger", "replace"): Sensitivity(2, 2),
    ("larger_buckets", "add_remove"): Sensitivity(1, 1),
    ("larger_buckets", "replace"): Sensitivity(2, 2),
}
_OF_GROUPS: Mapping[Neighbours, Sensitivity] = {"add_remove": Sensitivity(1, 1), "replace": Sensitivity(2, 2)}


def sensitivity(query: AskedQuery, neighbours: Neighbours) -> Sensitivity:
    """Return by how much neighbouring databases change a query's cells on a level; ProblemError for unknown names."""
    check_query(query)
    _check_neighbours(neighbours)
    return _SENSITIVITIES[query, neighbours]


def _check_neighbours(neighbours: Neighbours) -> None:
    if neighbours not in NEIGHBOURS:
        raise ProblemError(f"unknown neighbours {neighbours!r}: use one of {', '.join(NEIGHBOURS)}")


def check_query(query: str) -> None:
    """Raise ProblemError for an unknown name."""
    if query not in ASKED_QUERIES:
        raise ProblemError(f"unknown query {query!r}: use one of {', '.join(QUERIES)}")


def question(
    level: int,
    query: Query,
    max_size: int,
    neighbours: Neighbours,
    cost: Cost,
    buckets: Scheme | None = None,
    *,
    private_counts: bool = False,
) -> Question:
    """Return the question that asks every region of a level; raise ProblemError for unknown names.

    ``buckets`` sum what "cumulative" asks; they must hold every cell. A ``Split`` asks ranks from a size on. With
    ``private_counts`` no answer and no number of answers tells the number of groups: cumulative counts are asked from
    above, and ranks raise ProblemError.
    """
    check_query(query)
    asked: AskedQuery = query
    if isinstance(buckets, Split):
        _check_split(query, max_size, buckets)
        asked = "split"
    elif buckets is not None:
        _check_buckets(query, max_size, buckets)
        asked = query if buckets.of_cells(max_size) else "buckets"
    if private_counts:
        if asked in ("ranks", "split"):
            raise ProblemError("ranks are as many as there are groups: with private numbers of groups ask 'cumulative'")
        asked = FROM_ABOVE.get(asked, asked)
    size: int | str = GROUPS if asked == "ranks" else f"{GROUPS} + {_split_of(buckets).at}" if asked == "split" else 0
    size = size or cells(asked, max_size, 0, buckets)
    return Question(level, asked, _WORDS[asked], size, sensitivity(asked, neighbours), cost)


def groups_question(level: int, neighbours: Neighbours, cost: Cost) -> Question:
    """Return the question that asks every region of a level for its number of groups, where these are private."""
    _check_neighbours(neighbours)
    return Question(level, GROUPS, "number of groups", 1, _OF_GROUPS[neighbours], cost)


def with_public_counts(asked: Question) -> Question:
    """Return the question whose answers tell the same once the numbers of groups are released: Hc for G - Hc."""
    query = plain_query(asked)
    return asked if query == asked.query else replace(asked, query=query, words=_WORDS[query])


def plain_query(asked: Question) -> AskedQuery:
    """Return what a question is about, whether it was asked from above or not."""
    query = cast(AskedQuery, asked.query)
    return _BELOW.get(query, query)


def _check_split(query: str, max_size: int, split: Split) -> None:
    if query != "cumulative":
        raise ProblemError(f"a split asks cumulative counts below a size: it cannot be asked with the query {query!r}")
    if split.at >= max_size:
        raise ProblemError(f"a split must be below max_size = {max_size:,}: from there on every rank is the same")


def _check_buckets(query: str, max_size: int, buckets: Buckets) -> None:
    if query != "cumulative":
        raise ProblemError(f"buckets are sums of cumulative counts: they cannot be asked with the query {query!r}")
    starts, ends = buckets.begin, buckets.end
    if starts[0] != 0 or ends[-1] != max_size or (starts[1:] != ends[:-1]).any():
        raise ProblemError(f"buckets must hold every size from 0 to below max_size = {max_size:,} once")


def exact_answers(
    histogram: CountOfCounts, query: AskedQuery, max_size: int, buckets: Scheme | None = None
) -> NDArray[np.int64]:
    """Return a region's cells before the noise, int64, their sizes clamped to ``max_size`` = K first.

    They are K + 1, K, as many as buckets, G, or for a split T + G.

    As private as the histogram is.
    """
    clamped = histogram.clamp(max_size)
    if query == "sizes":
        return clamped.to_dense(max_size)
    if query == "cumulative":
        return clamped.cumulative(max_size)[:-1]
    if query == "buckets":
        return _of(buckets).sums(clamped.cumulative(max_size)[:-1])
    if query == "split":
        return _split_of(buckets).answers(clamped.cumulative(max_size)[:-1], clamped.ranks())
    if query == "larger":
        return clamped.groups - clamped.cumulative(max_size)[:-1]
    if query == "larger_buckets":
        return _of(buckets).sums(clamped.groups - clamped.cumulative(max_size)[:-1])
    check_query(query)
    return clamped.ranks()


def rank_pieces(histogram: CountOfCounts, max_size: int) -> Iterator[NDArray[np.int64]]:
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


def cells(query: AskedQuery, max_size: int, groups: int, buckets: Scheme | None = None) -> int:
    """Return the number of cells of a region's answer."""
    if query == "split":
        return _split_of(buckets).at + groups
    if query in ("buckets", "larger_buckets"):
        return _of(buckets).count
    return {"sizes": max_size + 1, "ranks": groups, "cumulative": max_size, "larger": max_size}[query]


def _split_of(scheme: Scheme | None) -> Split:
    if not isinstance(scheme, Split):
        raise ProblemError("the query 'split' needs the size that it is at")
    return scheme


def _of(buckets: Scheme | None) -> Buckets:
    if not isinstance(buckets, Buckets):
        raise ProblemError("the query 'buckets' needs the buckets that it sums over")
    return buckets
