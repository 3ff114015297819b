"""Match the groups of a parent with the groups of its children on runs (Kuo et al. 2018, Algorithm 2).

    minimise  sum over matched pairs of |size at the parent - size at the child|

over all one-to-one matchings. A run is (size, count): ``count`` groups of one size, and of one variance where the
caller keeps variances. The children's runs lie in one array, child c holding the runs offsets[c] .. offsets[c+1],
nondecreasing within a child.

1. Sort all children's runs by size; those of one size are a pool.
2. Match the smallest pool with the smallest groups left at the parent.
3. A pool that is larger than the parent's run gives in proportion to what each child has left, by largest fractions.
4. Go on with what is left of both, until everything is matched.

Invariant: the runs matched so far are the smallest ones on both sides. Cost: O(R log R) for R runs.
Source: Kuo et al. 2018, Algorithm 2, optimal by Lemma 5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coco_opt.errors import ProblemError
from coco_opt.kernels.compile import compiled
from coco_opt.kernels.sorting import nth_smallest

Int64Array = npt.NDArray[np.int64]
SizeArray = npt.NDArray[np.int64] | npt.NDArray[np.float64]

# count x total is formed exactly in int64; 3,037,000,499 is the integer square root of its range.
MAX_GROUPS = 3_037_000_499


class Matches(NamedTuple):
    """A sparse matching: ``groups[k]`` groups of ``parent_run[k]`` go with ``child_run[k]``."""

    parent_run: Int64Array
    child_run: Int64Array
    groups: Int64Array


@compiled
def _shares(left: Int64Array, take: int, pool: int) -> Int64Array:
    """Split ``take`` <= ``pool`` = sum(left) in proportion to ``left`` by largest fractions."""
    shares = np.empty(left.size, np.int64)
    fractions = np.empty(left.size, np.int64)
    missing = take
    # Round down the proportional shares; the remainders are compared as exact integers.
    for k in range(left.size):
        product = left[k] * take
        shares[k] = product // pool
        fractions[k] = shares[k] * pool - product  # negated: the largest comes first
        missing -= shares[k]
    if missing > 0:
        bound = nth_smallest(fractions.copy(), missing - 1)
        ties = missing
        # The largest fractions go up ...
        for k in range(left.size):
            if fractions[k] < bound:
                shares[k] += 1
                ties -= 1
        # ... and of equal ones those of the first children, until nothing is missing.
        for k in range(left.size):
            if ties > 0 and fractions[k] == bound:
                shares[k] += 1
                ties -= 1
    return shares


@compiled
def _give(
    out: Int64Array, used: int, parent_left: Int64Array, p: int, run_left: Int64Array, run: int, give: int
) -> tuple[Int64Array, int, int, int]:
    """Write ``give`` matches between the runs from ``p`` and ``run`` on, each taken in order."""
    # Take from the present run of each side until it is used up.
    while give > 0:
        while parent_left[p] == 0:
            p += 1
        while run_left[run] == 0:
            run += 1
        count = min(give, parent_left[p], run_left[run])
        if used == out.size:
            larger = np.empty(2 * used, np.int64)
            for k in range(used):
                larger[k] = out[k]
            out = larger
        out[used] = p
        out[used + 1] = run
        out[used + 2] = count
        used += 3
        parent_left[p] -= count
        run_left[run] -= count
        give -= count
    return out, used, p, run


@compiled
def _match(
    parent_left: Int64Array,
    parent_total: Int64Array,
    run_left: Int64Array,
    member_run: Int64Array,
    member_left: Int64Array,
    pool_first: Int64Array,
    pool_total: Int64Array,
) -> Int64Array:
    """Run Algorithm 2; a member is one child's groups of one size, a pool all members of that size."""
    out = np.empty(3 * (parent_left.size + run_left.size + 16), np.int64)
    used, p, t = 0, 0, 0
    # Pools by size, the smallest first.
    for k in range(pool_first.size - 1):
        first, stop = pool_first[k], pool_first[k + 1]
        left = member_left[first:stop]
        pool = pool_total[k]
        # Match as much of the pool as the parent's present size has left.
        while pool > 0:
            take = min(pool, parent_total[t])
            gives = _shares(left, take, pool)
            for m in range(stop - first):
                if gives[m] > 0:
                    out, used, p, member_run[first + m] = _give(
                        out, used, parent_left, p, run_left, member_run[first + m], gives[m]
                    )
                    left[m] -= gives[m]
            pool -= take
            parent_total[t] -= take
            if parent_total[t] == 0:
                t += 1
    return out[:used]


def match_runs(
    parent_sizes: SizeArray,
    parent_counts: Int64Array,
    child_sizes: SizeArray,
    child_counts: Int64Array,
    offsets: Int64Array,
) -> Matches:
    """Match every group of the parent with one group of a child at the least total |size difference|.

    Repeatedly takes the smallest unmatched size at the parent and the smallest among all children: a pool no
    larger than the parent's is matched entirely, else each child gives in proportion to what it has left,
    rounded by largest fractions (ties to the lowest child). Runs of equal size (different variances) are
    taken in input order, and so are children. Sizes int64 or float64, nondecreasing; counts int64 > 0
    with equal sums (groups), at most 3.03e9 in all. Returns the matches in the order of matching. Raises
    ProblemError on other input. O(R log R) for R runs plus, for every parent size that meets a larger pool, a
    pass over the children in that pool. Source: Kuo et al. 2018, Algorithm 2 (optimal by Lemma 5).
    """
    _check(parent_sizes, parent_counts, child_sizes, child_counts, offsets)
    if parent_counts.size == 0:
        none = np.empty(0, np.int64)
        return Matches(none, none.copy(), none.copy())
    child_of = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    # Stable: runs of one size stay in the order of children and of input.
    order = np.argsort(child_sizes, kind="stable")
    size, child = child_sizes[order], child_of[order]
    new_size = np.r_[True, size[1:] != size[:-1]]
    # A member begins where the size or the child changes; a pool where the size does.
    member_run = np.flatnonzero(new_size | np.r_[True, child[1:] != child[:-1]])
    pool_first = np.r_[np.flatnonzero(new_size[member_run]), member_run.size]
    run_left = child_counts[order]
    member_left = np.add.reduceat(run_left, member_run)
    parent_first = np.flatnonzero(np.r_[True, parent_sizes[1:] != parent_sizes[:-1]])
    triples = _match(
        parent_counts.copy(),
        np.add.reduceat(parent_counts, parent_first),
        run_left,
        member_run,
        member_left,
        pool_first,
        np.add.reduceat(member_left, pool_first[:-1]),
    )
    return Matches(triples[0::3].copy(), order[triples[1::3]], triples[2::3].copy())


def _check(
    parent_sizes: SizeArray,
    parent_counts: Int64Array,
    child_sizes: SizeArray,
    child_counts: Int64Array,
    offsets: Int64Array,
) -> None:
    if parent_sizes.shape != parent_counts.shape or child_sizes.shape != child_counts.shape:
        raise ProblemError("sizes and counts of the runs must have the same length")
    check_offsets(offsets, child_sizes.size)
    for counts in (parent_counts, child_counts):
        if counts.dtype != np.int64 or np.any(counts <= 0):
            raise ProblemError("the counts of the runs must be positive int64")
    falls = child_sizes[1:] < child_sizes[:-1]
    # Sizes may fall from one child to the next.
    inner = offsets[(offsets > 0) & (offsets < child_sizes.size)]
    falls[inner - 1] = False
    if np.any(falls) or np.any(parent_sizes[1:] < parent_sizes[:-1]):
        raise ProblemError("the sizes of the runs must be nondecreasing at the parent and within each child")
    if not (np.all(np.isfinite(parent_sizes)) and np.all(np.isfinite(child_sizes))):
        raise ProblemError("the sizes of the runs must be finite")
    total = sum(parent_counts.tolist())
    if total != sum(child_counts.tolist()):
        raise ProblemError("the parent must have as many groups as its children together")
    if total > MAX_GROUPS:
        raise ProblemError(f"matching takes at most {MAX_GROUPS:,} groups a parent")


def check_offsets(offsets: Int64Array, runs: int) -> None:
    """Raise ProblemError unless ``offsets`` cuts ``runs`` concatenated runs into children."""
    if offsets.ndim != 1 or offsets.size < 1 or offsets.dtype != np.int64:
        raise ProblemError("offsets must be one int64 array, one longer than the number of children")
    if offsets[0] != 0 or offsets[-1] != runs or np.any(offsets[1:] < offsets[:-1]):
        raise ProblemError("offsets must rise from 0 to the number of child runs")


def potentials(
    parent_sizes: Int64Array, parent_counts: Int64Array, child_sizes: Int64Array, child_counts: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return the optimal dual (f at the parent's runs, f at the children's runs) of the transport problem.

    f is 1-Lipschitz in the size, with slope sign(F_children - F_parent) for the cumulative counts F, so that
    sum(parent_counts f) - sum(child_counts f) is the least cost, and |s - t| - (f(s) - f(t)) >= 0 for every
    pair. The gap of any feasible flow is therefore sum(flow (|s - t| - (f_parent - f_child))), term by term.
    Sizes and counts are int64; the runs may come in any order. O(R log R) for R runs.
    Source: the Kantorovich dual on the line; Kuo et al. 2018, Lemma 1, gives the same value.
    """
    sizes, where = np.unique(np.concatenate([parent_sizes, child_sizes]), return_inverse=True)
    surplus = np.zeros(sizes.size, np.int64)
    np.add.at(surplus, where, np.concatenate([-parent_counts, child_counts]))
    # Between two neighbouring sizes f rises where the children have more groups below, and falls where the parent has.
    slope = np.sign(np.cumsum(surplus))[:-1]
    f = np.concatenate([np.zeros(min(1, sizes.size), np.int64), np.cumsum(slope * np.diff(sizes))])
    values = f[where]
    return values[: parent_sizes.size], values[parent_sizes.size :]
