"""Exact posterior draws of counts that split down a binary tree: messages upward, draws downward.

The problem: draw the counts of all nodes of a binary tree of intervals given the likelihood of each node's count and a
prior distribution of how a count splits between two children.

1. Upward, a node's message is its likelihood times the sum over all splits of the prior and both children's messages.
2. Downward, draw the root's count from its message, and every split from the prior times both children's messages.
3. Draw which component of the prior each split came from, and count these labels for the next draw of the weights.

A message is known on a grid of counts, ``base + i step``, and is interpolated between its points; where steps are 1 all
sums are exact. Below ``SMALL`` entities the prior is a table of probabilities; from there on it is a distribution
function of the share of the left child between knots, with a mass at both ends.

Invariant: a message's largest value is 1; counts of children add up to their parent's.
Cost: O(sum over nodes of the product of two grids) upward, O(sum of the grids) for a draw.
Source: forward filtering and backward sampling (Carter and Kohn 1994) on a tree; multiscale splits as in Kolaczyk 1999.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place
from coco_opt.kernels.drawing import uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SMALL = 64
"""Counts below it have the probabilities of their splits in tables."""
RATIO = 1.15
"""How much larger a count is at the end of a bucket; larger counts of one bucket split alike."""


class Nodes(NamedTuple):
    """A binary tree, parents first: ``left`` int64[nodes], -1 at leaves; the right child is the next node.

    Node v's count has the grid base[v] + i step[v], i < size[v], and its message the entries from offset[v] on.
    ``kind`` is its row in the prior's tables, ``share`` the share of the left child where all cells are alike.
    """

    left: Ints
    base: Ints
    step: Ints
    size: Ints
    offset: Ints
    kind: Ints
    share: Floats


class Splits(NamedTuple):
    """The prior: ``small`` [kinds, SMALL, SMALL], probabilities of a left child's count given its parent's.

    ``cumulative`` [kinds, buckets, knots] is the distribution function of the left share, without the mass ``alone``
    [kinds, buckets] at both ends.
    """

    small: Floats
    knots: Floats
    cumulative: Floats
    alone: Floats


class Components(NamedTuple):
    """The components of the prior, the first all in one child: ``small`` [shapes, components, SMALL, SMALL].

    ``cumulative`` [shapes, components, buckets, knots] of the others; ``shape`` and ``width`` [nodes] are those of
    every node; ``weight`` [widths, classes, components]; ``classes`` the class of each count below SMALL, then of each
    bucket.
    """

    small: Floats
    cumulative: Floats
    shape: Ints
    width: Ints
    weight: Floats
    classes: Ints


@compiled_in_place
def bucket_of(count: int, buckets: int) -> int:
    """Return the bucket of a count of at least SMALL."""
    return min(int(math.log(count / SMALL) / math.log(RATIO)), buckets - 1)


@compiled_in_place
def warped(cut: float, count: int, share: float) -> float:
    """Return where a cut between counts of the left child stands among the knots; one half is the expected share."""
    u = (cut + 0.5) / (count + 1.0)
    if u <= 0.0:
        return 0.0
    if u >= 1.0:
        return 1.0
    if share == 0.5:
        return u
    return float(u * (1.0 - share) / (u * (1.0 - share) + (1.0 - u) * share))


@compiled_in_place
def at(nodes: Nodes, messages: NDArray[Any], v: int, count: int) -> float:
    """Return a message at a count, between two points of the grid in proportion."""
    beyond = count - nodes.base[v]
    step = nodes.step[v]
    if beyond < 0 or beyond > (nodes.size[v] - 1) * step:
        return 0.0
    place = nodes.offset[v] + beyond // step
    rest = beyond % step
    if rest == 0:
        return float(messages[place])
    part = float(rest) / float(step)
    return float((1.0 - part) * messages[place] + part * messages[place + 1])


@compiled_in_place
def knot_before(knots: Floats, t: float) -> int:
    """Return the last knot at most t that has a next one."""
    low, high = 0, knots.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if knots[middle] <= t:
            low = middle
        else:
            high = middle
    return low


@compiled_in_place
def place_of(nodes: Nodes, v: int, count: int) -> tuple[int, int, int, int]:
    """Return the first and last point of the finer child's grid that a split can take, the finer child and the other.

    Points are numbered so that the left child's count rises.
    """
    left = nodes.left[v]
    fine, other = left, left + 1
    if nodes.step[other] < nodes.step[left]:
        fine, other = other, left
    base, step, size = nodes.base[fine], nodes.step[fine], nodes.size[fine]
    # The other child gets the rest, which its grid must reach.
    most = min(count - nodes.base[other], base + (size - 1) * step)
    least = max(count - nodes.base[other] - (nodes.size[other] - 1) * nodes.step[other], base)
    first, last = -((base - least) // step), (most - base) // step
    return first, last, fine, other


@compiled_in_place
def weigh(
    nodes: Nodes, splits: Splits, messages: NDArray[Any], v: int, count: int, scratch: Floats
) -> tuple[float, int, int, int, float, float]:
    """Return the sum over all splits of a count of the prior times both children's messages; fill ``scratch`` with it.

    Also returns the number of terms, the first left count and the step between them (0 for all integers), and the terms
    where the left child, or the right one, is empty and apart.
    """
    left = nodes.left[v]
    right = left + 1
    total = 0.0
    if count < SMALL:
        low = max(nodes.base[left], 0, count - nodes.base[right] - (nodes.size[right] - 1) * nodes.step[right])
        high = min(count - nodes.base[right], nodes.base[left] + (nodes.size[left] - 1) * nodes.step[left])
        kind = nodes.kind[v]
        if nodes.step[left] == 1 and nodes.step[right] == 1:
            own, rest = nodes.offset[left] - nodes.base[left], nodes.offset[right] - nodes.base[right] + count
            # Both grids have every integer: each split is read as it is.
            for a in range(low, high + 1):
                term = splits.small[kind, count, a] * messages[own + a] * messages[rest - a]
                scratch[a - low] = term
                total += term
        else:
            for a in range(low, high + 1):
                term = splits.small[kind, count, a] * at(nodes, messages, left, a)
                term *= at(nodes, messages, right, count - a)
                scratch[a - low] = term
                total += term
        return total, high - low + 1, low, 0, 0.0, 0.0
    kind, bucket = nodes.kind[v], bucket_of(count, splits.alone.shape[1])
    alone, share = splits.alone[kind, bucket], nodes.share[v]
    # All in the right child, then all in the left one.
    empty = alone * (1.0 - share) * at(nodes, messages, left, 0) * at(nodes, messages, right, count)
    full = alone * share * at(nodes, messages, left, count) * at(nodes, messages, right, 0)
    total += empty + full
    first, last, fine, other = place_of(nodes, v, count)
    step, number = nodes.step[fine], last - first + 1
    if number <= 0:
        return total, 0, 0, step, empty, full
    point = nodes.base[fine] + first * step
    entry, forward = nodes.offset[fine] + first, 1
    if fine != left:
        point, entry, forward = count - (nodes.base[fine] + last * step), nodes.offset[fine] + last, -1
    knots, cumulative = splits.knots, splits.cumulative
    half = 0.5 * step
    t = warped(point - half, count, share)
    k = knot_before(knots, t)
    before = cumulative[kind, bucket, k] + (t - knots[k]) / (knots[k + 1] - knots[k]) * (
        cumulative[kind, bucket, k + 1] - cumulative[kind, bucket, k]
    )
    # Where steps are equal, all points of the other child lie alike between two points of its grid.
    alike = nodes.step[other] == step
    rest = count - (point if fine == left else count - point) - nodes.base[other]
    place, part = nodes.offset[other] + rest // step, float(rest % step) / float(step)
    last = nodes.offset[other] + nodes.size[other] - 1
    # The share of the left child rises from one point to the next, and the knots with it.
    for i in range(number):
        a = point + i * step
        t = warped(a + half, count, share)
        while k + 2 < knots.size and knots[k + 1] <= t:
            k += 1
        until = cumulative[kind, bucket, k] + (t - knots[k]) / (knots[k + 1] - knots[k]) * (
            cumulative[kind, bucket, k + 1] - cumulative[kind, bucket, k]
        )
        term = (until - before) * messages[entry + forward * i]
        if alike:
            j = place - forward * i
            term *= (1.0 - part) * messages[j] + part * messages[min(j + 1, last)]
        else:
            term *= at(nodes, messages, other, count - a if fine == left else a)
        scratch[i] = term
        total += term
        before = until
    return total, number, point, step, empty, full


@compiled_in_place
def upward(nodes: Nodes, splits: Splits, likelihood: NDArray[Any], messages: NDArray[Any], scratch: Floats) -> int:
    """Fill the messages of all inner nodes; return a node that no count fits, -1 if there is none."""
    # Nodes from the last on: children come after their parents, so that their messages are there.
    for v in range(nodes.left.size - 1, -1, -1):
        begin, size = nodes.offset[v], nodes.size[v]
        if nodes.left[v] < 0:
            continue
        largest = 0.0
        for i in range(size):
            value = 0.0
            if likelihood[begin + i] > 0.0:
                value = (
                    likelihood[begin + i]
                    * weigh(nodes, splits, messages, v, nodes.base[v] + i * nodes.step[v], scratch)[0]
                )
            messages[begin + i] = value
            largest = max(largest, value)
        if not largest > 0.0:
            return v
        # Messages are needed up to a factor only; products of small ones would underflow.
        for i in range(size):
            messages[begin + i] /= largest
    return -1


@compiled_in_place
def chosen(weights: Floats, number: int, target: float) -> int:
    """Return the first place up to which weights sum to more than the target."""
    reached = 0.0
    for i in range(number):
        reached += weights[i]
        if target < reached:
            return i
    return number - 1


@compiled_in_place
def share_within(nodes: Nodes, splits: Splits, v: int, count: int, low: float, high: float, u: float) -> int:
    """Return a left count between two cuts, drawn from the prior by the uniform number u."""
    kind, bucket, share = nodes.kind[v], bucket_of(count, splits.alone.shape[1]), nodes.share[v]
    knots, cumulative = splits.knots, splits.cumulative
    ends = 0.0
    begin = 0.0
    # The prior probability below either cut.
    for side in range(2):
        t = warped(low if side == 0 else high, count, share)
        k = knot_before(knots, t)
        value = cumulative[kind, bucket, k] + (t - knots[k]) / (knots[k + 1] - knots[k]) * (
            cumulative[kind, bucket, k + 1] - cumulative[kind, bucket, k]
        )
        if side == 0:
            begin = value
        else:
            ends = value
    # Between them, the share below which the prior has the drawn probability.
    target = begin + u * (ends - begin)
    first, last = 0, knots.size - 1
    while last - first > 1:
        middle = (first + last) // 2
        if cumulative[kind, bucket, middle] <= target:
            first = middle
        else:
            last = middle
    rise = cumulative[kind, bucket, first + 1] - cumulative[kind, bucket, first]
    t = knots[first]
    if rise > 0.0:
        t += (target - cumulative[kind, bucket, first]) / rise * (knots[first + 1] - knots[first])
    # Undo the warp.
    u = t * share / (t * share + (1.0 - t) * (1.0 - share))
    return max(min(int(u * (count + 1.0)), int(high)), math.ceil(low))


@compiled_in_place
def draw(
    nodes: Nodes, splits: Splits, messages: NDArray[Any], words: NDArray[np.uint64], counts: Ints, scratch: Floats
) -> None:
    """Draw the counts of all nodes (nodes,), the root's first."""
    total = 0.0
    for i in range(nodes.size[0]):
        scratch[i] = messages[nodes.offset[0] + i]
        total += scratch[i]
    # The root: a point of its grid by its message, and any integer near that point.
    i = chosen(scratch, nodes.size[0], uniform(words) * total)
    within = int((uniform(words) - 0.5) * nodes.step[0]) if nodes.step[0] > 1 else 0
    counts[0] = max(nodes.base[0] + i * nodes.step[0] + within, nodes.base[0])
    # From the root on, each count is split by the terms that its message was the sum of.
    for v in range(nodes.left.size):
        left, count = nodes.left[v], counts[v]
        if left < 0:
            continue
        if count == 0:
            counts[left] = counts[left + 1] = 0
            continue
        total, number, point, step, empty, full = weigh(nodes, splits, messages, v, count, scratch)
        target = uniform(words) * total
        if target < empty:
            a = 0
        elif target < empty + full:
            a = count
        elif number > 0:
            a = point + chosen(scratch, number, target - empty - full) * max(step, 1)
            if step > 1:
                low, high = max(a - 0.5 * step, 0.0), min(a + 0.5 * step, float(count))
                a = share_within(nodes, splits, v, count, low, high, uniform(words))
        else:
            # No grid reaches so far: split as expected.
            a = int(nodes.share[v] * count)
        counts[left], counts[left + 1] = a, count - a


@compiled_in_place
def label(
    nodes: Nodes,
    splits: Splits,
    parts: Components,
    counts: Ints,
    words: NDArray[np.uint64],
    labels: Ints,
    scratch: Floats,
) -> None:
    """Draw the component of every split and add it to ``labels`` [widths, classes, components]."""
    number = parts.weight.shape[2]
    buckets = splits.alone.shape[1]
    for v in range(nodes.left.size):
        count = counts[v]
        if nodes.left[v] < 0 or count < 2:
            continue
        a, width = counts[nodes.left[v]], parts.width[v]
        total = 0.0
        if count < SMALL:
            group = parts.classes[count]
            # Small counts: a component is as probable as its weight times its probability of this split.
            for k in range(number):
                scratch[k] = parts.weight[width, group, k] * parts.small[parts.shape[v], k, count, a]
                total += scratch[k]
        else:
            bucket = bucket_of(count, buckets)
            group = parts.classes[SMALL + bucket]
            share = nodes.share[v]
            # Component 0 puts all into one child; the others spread over the interval around the split.
            scratch[0] = 0.0
            if a == 0:
                scratch[0] = parts.weight[width, group, 0] * (1.0 - share)
            elif a == count:
                scratch[0] = parts.weight[width, group, 0] * share
            total = scratch[0]
            low, high = warped(a - 0.5, count, share), warped(a + 0.5, count, share)
            i, j = knot_before(splits.knots, low), knot_before(splits.knots, high)
            x = (low - splits.knots[i]) / (splits.knots[i + 1] - splits.knots[i])
            y = (high - splits.knots[j]) / (splits.knots[j + 1] - splits.knots[j])
            for k in range(1, number):
                f = parts.cumulative[parts.shape[v], k]
                begin = f[bucket, i] + x * (f[bucket, i + 1] - f[bucket, i])
                until = f[bucket, j] + y * (f[bucket, j + 1] - f[bucket, j])
                scratch[k] = parts.weight[width, group, k] * (until - begin)
                total += scratch[k]
        if total > 0.0:
            labels[width, group, chosen(scratch, number, uniform(words) * total)] += 1
