"""The queries about groups by size: their exact answers, and by how much one entity changes them.

A region has G groups of sizes 0..K, larger ones counted as K (the public bound). "sizes" is H[0..K], the groups of each
size (the paper's naive query); "cumulative" is Hc[0..K-1], the groups of each size or smaller; "ranks" is Hg[1..G], the
sizes of the groups in nondecreasing order. Kuo et al. 2018, section 4. "buckets" are sums of Hc over the buckets of a
partition of its cells: what "cumulative" asks where a partition is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.buckets import Buckets
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import NEIGHBOURS, Cost, Neighbours, Question, Sensitivity

Query = Literal["sizes", "ranks", "cumulative"]
QUERIES: tuple[Query, ...] = get_args(Query)
AskedQuery = Literal["sizes", "ranks", "cumulative", "buckets"]
ASKED_QUERIES: tuple[AskedQuery, ...] = get_args(AskedQuery)
GROUPS = "groups"
"""The name of the public number of groups of each region, which is also the number of its ranks."""

_WORDS: Mapping[AskedQuery, str] = {
    "sizes": "groups of each size from 0 on",
    "ranks": "sizes of the groups, smallest first",
    "cumulative": "groups of each size from 0 on or smaller, the largest size left out",
    "buckets": "groups of each size or smaller, summed over the sizes of a bucket, the largest size left out",
}
# An entity moves one group by one size: two cells of H, one of Hc without its public last cell, one of Hg; clamping
# sizes to K never adds to it. Replacing an entity moves one group down and one up, within a region or across two. Two
# such moves of H share a cell where both groups have one size: it changes by 2 and its neighbours by 1, 6 squared. In
# Hc and Hg the moves have opposite signs, so a shared cell cancels. A cell lies in one bucket: summing adds nothing,
# and two cells of one bucket cancel too.
_SENSITIVITIES: Mapping[tuple[AskedQuery, Neighbours], Sensitivity] = {
    ("sizes", "add_remove"): Sensitivity(2, 2),
    ("sizes", "replace"): Sensitivity(4, 6),
    ("cumulative", "add_remove"): Sensitivity(1, 1),
    ("cumulative", "replace"): Sensitivity(2, 2),
    ("buckets", "add_remove"): Sensitivity(1, 1),
    ("buckets", "replace"): Sensitivity(2, 2),
    ("ranks", "add_remove"): Sensitivity(1, 1),
    ("ranks", "replace"): Sensitivity(2, 2),
}


def sensitivity(query: AskedQuery, neighbours: Neighbours) -> Sensitivity:
    """Return by how much neighbouring databases change a query's cells on a level; ProblemError for unknown names."""
    check_query(query)
    if neighbours not in NEIGHBOURS:
        raise ProblemError(f"unknown neighbours {neighbours!r}: use one of {', '.join(NEIGHBOURS)}")
    return _SENSITIVITIES[query, neighbours]


def check_query(query: str) -> None:
    """Raise ProblemError for an unknown name."""
    if query not in ASKED_QUERIES:
        raise ProblemError(f"unknown query {query!r}: use one of {', '.join(QUERIES)}")


def question(
    level: int, query: Query, max_size: int, neighbours: Neighbours, cost: Cost, buckets: Buckets | None = None
) -> Question:
    """Return the question that asks every region of a level; raise ProblemError for unknown names.

    ``buckets`` sum what "cumulative" asks; they must hold every cell.
    """
    check_query(query)
    asked: AskedQuery = query
    if buckets is not None:
        _check_buckets(query, max_size, buckets)
        asked = query if buckets.of_cells(max_size) else "buckets"
    size: int | str = GROUPS if query == "ranks" else cells(asked, max_size, 0, buckets)
    return Question(level, asked, _WORDS[asked], size, sensitivity(asked, neighbours), cost)


def _check_buckets(query: str, max_size: int, buckets: Buckets) -> None:
    if query != "cumulative":
        raise ProblemError(f"buckets are sums of cumulative counts: they cannot be asked with the query {query!r}")
    starts, ends = buckets.begin, buckets.end
    if starts[0] != 0 or ends[-1] != max_size or (starts[1:] != ends[:-1]).any():
        raise ProblemError(f"buckets must hold every size from 0 to below max_size = {max_size:,} once")


def exact_answers(
    histogram: CountOfCounts, query: AskedQuery, max_size: int, buckets: Buckets | None = None
) -> NDArray[np.int64]:
    """Return a region's cells before the noise, int64[K + 1, K, buckets or G], sizes clamped to ``max_size`` = K first.

    As private as the histogram is.
    """
    clamped = histogram.clamp(max_size)
    if query == "sizes":
        return clamped.to_dense(max_size)
    if query == "cumulative":
        return clamped.cumulative(max_size)[:-1]
    if query == "buckets":
        return _of(buckets).sums(clamped.cumulative(max_size)[:-1])
    check_query(query)
    return clamped.ranks()


def cells(query: AskedQuery, max_size: int, groups: int, buckets: Buckets | None = None) -> int:
    """Return the number of cells of a region's answer."""
    if query == "buckets":
        return _of(buckets).count
    return {"sizes": max_size + 1, "ranks": groups, "cumulative": max_size}[query]


def _of(buckets: Buckets | None) -> Buckets:
    if buckets is None:
        raise ProblemError("the query 'buckets' needs the buckets that it sums over")
    return buckets
