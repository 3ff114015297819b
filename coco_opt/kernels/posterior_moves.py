"""Metropolis moves of groups between sizes: the posterior of all histograms of a hierarchy at once.

The problem: draw from the posterior distribution of the leaves' histograms h, given noisy measurements of all regions.
The state is one histogram h a leaf, with its public number of groups; inner regions are sums.

1. Propose a move: m groups of one size a of a leaf go to another size b.
2. Compute the change of the log-likelihood. Every cumulative count between a and b changes by m in the leaf and in each
   of its ancestors, and nothing else does, so a move reads only the noisy measurements of those cells.
3. Accept the move with the probability of Metropolis et al. 1953 and Hastings 1970, in logarithms

       log prior(h') / prior(h) + log likelihood(h') / likelihood(h) + log proposal(h' -> h) / proposal(h -> h').

4. A sweep proposes fixed numbers of moves, exchanges and trades in every leaf; they must not depend on the state.

**Moves.** A proposal draws a uniformly among the occupied sizes, or is a group's, uniformly among the leaf's groups; m
is 1, or log-uniform, P(m) = log(1 + 1/m) / log(1 + h_a) on 1..h_a; b is drawn from the leaf's own distribution g, or is
a + d or a - d with d from a fixed list. The choice among these eight does not depend on the state, so each alone is a
reversible kernel, and so is their mixture. Hence with n occupied sizes (in a window: within it)

    log proposal ratio = log n(h) / n(h')               where a is a size's
                         + log (h_b + m) / h_a                  where a is a group's
                         + log log(1 + h_a) / log(1 + h_b + m)  where m is log-uniform
                         + log g_a / g_b                        where b is drawn from g.

**Windows.** Groups of large sizes are few, and a single one can often move only against one of a similar size. A window
is an octave of sizes, log-uniform in its place, which does not depend on the state. Sizes are drawn uniformly among
those occupied within it, and what would leave it is not proposed: so the kernel of each window is reversible, with n
counted within it.

**Exchanges.** An exchange takes a group of size a of one leaf and one of size b of another below the same ancestor,
both sizes drawn uniformly among the occupied ones, and gives each the other's size. Sums above both stay the same, so
an exchange can make moves that the noisy measurements of sums would forbid to a single group. Its proposal ratio is log
n(h) n(g) / n(h') n(g').

**Trades.** Where leaves have many groups, the noisy measurements of sums of cells prevent most single moves: m groups
must move against m others at the same time. A trade takes several such steps, each with the ratio of a move, and
accepts them together; m is log-uniform up to the least of the leaves' largest, and like the sizes' distances does not
depend on the state. It is a swap (m groups of a against m of b = a + d or a - d of another leaf; a drawn with P(a) =
log(1 + 1 / (a + 1)) / log(K + 2), ratio P(b) / P(a)); a shift (one group of a to a + d or a - d against one of c as far
back, of another leaf or the same, both in one window); a spread of 2 m groups of size a to a - d and a + d against the
opposite in another leaf; or either in a leaf alone. The middle of a spread is drawn like the a of a swap.

**Shifts.** In large hierarchies the large groups of many leaves fit the sums above in many ways, and between two ways
lie steps of four groups. So some trades are shifts of large sizes alone: of two groups, or of four, two in each of two
leaves, so that the first of one and the second of the other move as the other two do backwards. Then no leaf's sum
changes, and sums above change little where the groups of a pair are near each other. Half of the latter exchange the
first groups of both leaves. All four are drawn uniformly among the sizes occupied within the window.

**Prior.** It is multinomial, a product over sizes with log P = -log h! + h log pi. Or the size distribution is
scattered (``kernels.posterior_shares``): then every group is of one of its size's two hats, counts above are those of a
size and hat, and with the weights summed out the prior of a leaf is Polya's urn, prod_j Gamma(alpha_j + n_j) prod
B_j(k)^c / c! for c groups of size k and hat j and n_j of hat j. A group's hat is drawn by the share of its size's
groups, and that of its new size by the share of the hats.

Invariant: residual = (linear map of the state) - noisy measurement, for all blocks;
``occupied[leaf, :occupied_count[leaf]]`` lists the sizes with h > 0 and ``place`` is its inverse. Cost: O(levels x
buckets crossed) a move.
Source: Metropolis et al. 1953, Hastings 1970; Walker 1977 and Vose 1991 (alias tables); moves and their ratios are our
own.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled, compiled_in_place
from coco_opt.kernels.drawing import below, uniform
from coco_opt.kernels.posterior_shares import Basis, Shares, draw_collapsed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

GEOMETRIC, GAUSSIAN = 0, 1
MULTINOMIAL, SCATTERED = 0, 1
_DRAW_EVERY = 2  # sweeps
RANKS = -1
CELLS = 0
_OCTAVE = 2.0  # the upper end of a window of sizes in proportion to its lower end
_LARGE = 0.5  # large sizes are those above this power of all
_SWAP, _SHIFT, _AGAINST, _SPREAD, _GATHER, _CROSS = 0, 1, 2, 3, 4, 5  # kinds of trades


class Queries(NamedTuple):
    """Blocks of noisy measurements, one for each query and region, and the blocks that each leaf adds to.

    ``path[path_start[leaf]:path_start[leaf + 1]]`` are a leaf's blocks. Block n has its measurements at ``offset[n]``
    to ``offset[n + 1]``, a noise distribution, a steepness (1 / scale, or 1 / (2 variance) for the Gaussian), and a
    ``scheme``: RANKS
    for the sorted sizes max(size, floor[n]), else a list of buckets, ``begin`` and ``end`` at ``bucket_start[scheme]``
    to ``bucket_start[scheme + 1]``, in order; ``following[scheme, i]`` is the first bucket that ends behind cell i.
    Scheme CELLS has every cell on its own.
    """

    path_start: Ints
    path: Ints
    scheme: Ints
    offset: Ints
    distribution: Ints
    steepness: Floats
    floor: Ints
    bucket_start: Ints
    begin: Ints
    end: Ints
    following: Ints


class State(NamedTuple):
    """One chain: histograms [leaves, K + 1], the lists of occupied sizes, and each measurement's residual.

    Histograms and ``upper`` are int32 or int64, ``occupied`` and ``place`` int16 or int32: what holds their numbers.

    ``ranks`` has the present value of every measured rank, at its measurement's place; ``words`` the generator's state.
    Multinomial: ``factors`` (leaves, hats) are those of the leaves' size distributions, ``shape`` (K + 1,) the shape
    they multiply. Scattered: ``factors`` are scratch; ``upper`` [leaves, K + 1] counts the groups that are of the later
    of their size's two hats, ``of_hat`` int64[regions, hats] groups by hat, ``alpha`` (leaves, hats) are the parameters
    of the Dirichlet distribution of a leaf's weights and ``mass`` (hats,) is the shape's.
    """

    histograms: NDArray[Any]
    occupied: NDArray[Any]
    place: NDArray[Any]
    occupied_count: Ints
    residual: Ints
    ranks: Ints
    factors: Floats
    shape: Floats
    upper: NDArray[Any]
    of_hat: Ints
    alpha: Floats
    mass: Floats
    words: Words


class Prior(NamedTuple):
    """The prior of all leaves, float64[leaves, K + 1] each; what the kind does not use may be empty.

    Multinomial: size k has the probability pi(k) = shape[k] ((1 - part[k]) f[left[k]] + part[k] f[left[k] + 1]) with
    the factors f of a leaf's ``State``; shape, left and part are (K + 1,). Scattered: the same with weights that are
    summed out, so the labelled groups of a leaf follow the distribution of Polya's urn; ``region`` int64[leaves] are
    the leaves' regions. ``log_draw`` is log g, with g in alias tables (Walker 1977; Vose 1991): size k is kept with
    probability ``keep``, else ``alias``. These three have a row for every leaf, or one for several: ``row``
    int64[leaves] is each leaf's row.
    """

    kind: int
    left: Ints
    part: Floats
    region: Ints
    row: Ints
    log_draw: Floats
    keep: Floats
    alias: NDArray[np.int32]


class Plan(NamedTuple):
    """How moves are drawn: ``moves``, ``exchanges`` and ``trades`` int64[leaves] a sweep, and the list of steps.

    Of the moves the share ``independent`` is drawn from g, the share ``several`` takes several groups, and
    ``by_group`` float64[leaves] takes a group's size, out of ``groups`` int64[leaves] groups; of the others the share
    ``within`` stays within a window. Trades are of at most
    ``largest`` int64[leaves] groups, and swaps and spreads of sizes below ``traded_sizes``; ``shifts`` int64[leaves]
    more are shifts of large sizes.
    Exchanges are with a leaf below ``above[leaf, level]``, the leaf's ancestor at a level (-1: none); below region v
    there are the leaves ``under[under_start[v]:under_start[v + 1]]``.
    """

    moves: Ints
    exchanges: Ints
    above: Ints
    under_start: Ints
    under: Ints
    trades: Ints
    largest: Ints
    by_group: Floats
    groups: Ints
    independent: float
    several: float
    within: float
    steps: Ints
    shifts: Ints
    traded_sizes: int


class Trade(NamedTuple):
    """The kind of a trade, its two leaves (the first spreads), a and b, and the partner's first size.

    Where two shifts cancel, c is the leaf's other size, and ``near`` and ``far`` are the partner's two.
    """

    kind: int
    leaf: int
    partner: int
    a: int
    b: int
    c: int
    near: int
    far: int


class Drawn(NamedTuple):
    """The window low .. high - 1 of a shift, and how many sizes within it both leaves had when theirs were drawn."""

    low: int
    high: int
    number: int
    partner_number: int


class Step(NamedTuple):
    """Groups of a leaf and one size and hat, to go to another."""

    leaf: int
    a: int
    b: int
    upper_a: bool
    upper_b: bool


@compiled_in_place
def _loss(distribution: int, residual: int, change: int) -> float:
    """Return how much |residual| (or its square) grows."""
    if distribution == GEOMETRIC:
        return float(abs(residual + change) - abs(residual))
    # As an integer, the square of many groups times a wide bucket could overflow.
    return float(change) * (2.0 * residual + change)


@compiled_in_place
def _shift_buckets(queries: Queries, residual: Ints, block: int, low: int, high: int, by: int, write: bool) -> float:
    """Return the growth of the loss of a block when the cells low .. high - 1 change by ``by``; ``write`` does it."""
    distribution, scheme, base = queries.distribution[block], queries.scheme[block], queries.offset[block]
    # Single cells: plain loops, one for each distribution, which compile to vector instructions.
    if scheme == CELLS:
        cells, total = residual[base + low : base + high], 0
        if write:
            for i in range(cells.size):
                cells[i] += by
        elif distribution == GEOMETRIC:
            for i in range(cells.size):
                total += abs(cells[i] + by) - abs(cells[i])
        else:
            for i in range(cells.size):
                total += cells[i]
            return float(by) * (2.0 * total + float(by) * cells.size)
        return float(total)
    grown = 0.0
    first, last = queries.bucket_start[scheme], queries.bucket_start[scheme + 1]
    bucket = first + queries.following[scheme, low]
    # Only buckets that overlap low:high; each changes by its overlap.
    while bucket < last and queries.begin[bucket] < high:
        change = by * (min(queries.end[bucket], high) - max(queries.begin[bucket], low))
        position = base + bucket - first
        if write:
            residual[position] += change
        else:
            grown += _loss(distribution, residual[position], change)
        bucket += 1
    return grown


@compiled_in_place
def _rank_of(values: Ints, size: int, count_equal: bool) -> int:
    """Return how many of the sorted values lie below ``size``, or are at most it."""
    low, high = 0, values.size
    # Bisection in the sorted values.
    while low < high:
        middle = (low + high) // 2
        if values[middle] < size or (count_equal and values[middle] == size):
            low = middle + 1
        else:
            high = middle
    return low


@compiled_in_place
def _shift_ranks(
    queries: Queries, residual: Ints, ranks: Ints, block: int, a: int, b: int, m: int, write: bool
) -> float:
    """Return the growth of the loss of a block of ranks when m groups go from size a to b; ``write`` does it.

    The last m of size a leave and those between move m places down, or the first m leave and those between move up.
    """
    floor, distribution = queries.floor[block], queries.distribution[block]
    a, b = max(a, floor), max(b, floor)
    if a == b:
        return 0.0
    base, top = queries.offset[block], queries.offset[block + 1]
    values, away = ranks[base:top], residual[base:top]
    grown = 0.0
    if a < b:
        first, end = _rank_of(values, a, True) - m, _rank_of(values, b, False)
        # Values are sorted: the m that leave are followed by those between, which move m places down.
        for r in range(first, end):
            new = values[r + m] if r + m < end else b
            if write:
                away[r] += new - values[r]
                values[r] = new
            elif new != values[r]:
                grown += _loss(distribution, away[r], new - values[r])
    else:
        first, end = _rank_of(values, b, True), _rank_of(values, a, False) + m
        # The same upwards, from the end, so that no value is overwritten before it is read.
        for r in range(end - 1, first - 1, -1):
            new = values[r - m] if r - m >= first else b
            if write:
                away[r] += new - values[r]
                values[r] = new
            elif new != values[r]:
                grown += _loss(distribution, away[r], new - values[r])
    return grown


@compiled_in_place
def _shift(queries: Queries, state: State, leaf: int, a: int, b: int, m: int, spared: int, write: bool) -> float:
    """Return the change of the log-likelihood when m groups of a leaf go from size a to b; ``write`` does it.

    The last ``spared`` blocks of the leaf's path are left as they are.
    """
    low, high, by = min(a, b), max(a, b), m if b < a else -m
    change = 0.0
    # The blocks of the leaf and of its ancestors.
    for p in range(queries.path_start[leaf], queries.path_start[leaf + 1] - spared):
        block = queries.path[p]
        if queries.scheme[block] == RANKS:
            grown = _shift_ranks(queries, state.residual, state.ranks, block, a, b, m, write)
        else:
            grown = _shift_buckets(queries, state.residual, block, low, high, by, write)
        change -= queries.steepness[block] * grown
    return change


@compiled_in_place
def _probability(prior: Prior, state: State, leaf: int, size: int) -> float:
    """Return pi of one size of a multinomial prior."""
    left, part, factors = prior.left[size], prior.part[size], state.factors[leaf]
    return float(state.shape[size] * ((1.0 - part) * factors[left] + part * factors[left + 1]))


@compiled_in_place
def _log_prior_ratio(prior: Prior, state: State, leaf: int, a: int, b: int, m: int, at_a: int, at_b: int) -> float:
    """Return the change of the log prior when m of the at_a groups of size a join the at_b of size b."""
    rate = _probability(prior, state, leaf, b) / _probability(prior, state, leaf, a)
    if m == 1:
        return math.log(rate * (at_a / (at_b + 1.0)))
    # Multinomial: pi^h / h! of both sizes.
    rates = m * math.log(rate)
    leaving = math.lgamma(at_a + 1.0) - math.lgamma(at_a - m + 1.0)
    return rates + leaving + math.lgamma(at_b + 1.0) - math.lgamma(at_b + m + 1.0)


@compiled_in_place
def _log_urn_ratio(
    prior: Prior, state: State, leaf: int, a: int, b: int, m: int, at_a: int, at_b: int, upper_a: bool, upper_b: bool
) -> float:
    """Return the change of the log prior when m of at_a groups of a size and hat join the at_b of another."""
    hat_a, hat_b = prior.left[a] + (1 if upper_a else 0), prior.left[b] + (1 if upper_b else 0)
    rate = state.shape[b] * _share(prior, b, upper_b) / state.mass[hat_b]
    rate /= state.shape[a] * _share(prior, a, upper_a) / state.mass[hat_a]
    hat_counts, alpha = state.of_hat[prior.region[leaf]], state.alpha[leaf]
    if m == 1:
        urn = 1.0 if hat_a == hat_b else (alpha[hat_b] + hat_counts[hat_b]) / (alpha[hat_a] + hat_counts[hat_a] - 1.0)
        return math.log(rate * urn * (at_a / (at_b + 1.0)))
    # Several groups at once: the urn's rising factorials.
    ratio = m * math.log(rate)
    ratio += math.lgamma(at_a + 1.0) - math.lgamma(at_a - m + 1.0)
    ratio += math.lgamma(at_b + 1.0) - math.lgamma(at_b + m + 1.0)
    if hat_a != hat_b:
        ratio += math.lgamma(alpha[hat_b] + hat_counts[hat_b] + m) - math.lgamma(alpha[hat_b] + hat_counts[hat_b])
        ratio += math.lgamma(alpha[hat_a] + hat_counts[hat_a] - m) - math.lgamma(alpha[hat_a] + hat_counts[hat_a])
    return ratio


@compiled_in_place
def _share(prior: Prior, size: int, upper: bool) -> float:
    """Return the share of a size in the later of its two hats, or the earlier."""
    return float(prior.part[size] if upper else 1.0 - prior.part[size])


@compiled_in_place
def _regroup(state: State, leaf: int, a: int, b: int, m: int) -> None:
    """Move m groups in the histogram and keep the list of occupied sizes."""
    counts, occupied, place = state.histograms[leaf], state.occupied[leaf], state.place[leaf]
    if counts[b] == 0:
        occupied[state.occupied_count[leaf]] = b
        place[b] = state.occupied_count[leaf]
        state.occupied_count[leaf] += 1
    counts[a] -= m
    counts[b] += m
    # The last entry of the list takes the place of the size that is empty now.
    if counts[a] == 0:
        state.occupied_count[leaf] -= 1
        last = occupied[state.occupied_count[leaf]]
        occupied[place[a]] = last
        place[last] = place[a]


@compiled_in_place
def _try(queries: Queries, state: State, prior: Prior, plan: Plan, leaf: int) -> bool:
    """Propose one move and return whether it was accepted."""
    words, counts, occupied = state.words, state.histograms[leaf], state.occupied_count[leaf]
    sizes = counts.size
    by_group = uniform(words) < plan.by_group[leaf]
    low, high, number = 0, sizes, occupied
    if by_group:
        n, left = 0, below(words, plan.groups[leaf])
        # The size of a group that is drawn uniformly among all groups of the leaf.
        while left >= counts[state.occupied[leaf, n]]:
            left -= counts[state.occupied[leaf, n]]
            n += 1
        a = int(state.occupied[leaf, n])
    elif plan.within > 0.0 and uniform(words) < plan.within:
        low, high = _window(words, sizes, 0.0)
        a, number = _draw_within(state, leaf, low, high)
        if number == 0:
            return False
    else:
        a = int(state.occupied[leaf, below(words, occupied)])
    several, independent = uniform(words) < plan.several, high == sizes and uniform(words) < plan.independent
    at_a, upper_a, upper_b = counts[a], False, False
    if prior.kind == SCATTERED:
        upper_a = uniform(words) * counts[a] < state.upper[leaf, a]
        at_a = state.upper[leaf, a] if upper_a else counts[a] - state.upper[leaf, a]
    # How many groups: one, or log-uniform.
    m = 1
    if several:
        m = min(int(math.exp(uniform(words) * math.log(at_a + 1.0))), at_a)
    # Where they go: a draw from g by its alias table, or a step to either side.
    if independent:
        b = below(words, sizes)
        if uniform(words) >= prior.keep[prior.row[leaf], b]:
            b = int(prior.alias[prior.row[leaf], b])
    else:
        step = plan.steps[below(words, plan.steps.size)]
        b = a + step if uniform(words) < 0.5 else a - step
    if b < low or b >= high or b == a:
        return False
    at_b = counts[b]
    # The hat of the new size is drawn by the hats' shares; the ratio puts that right.
    if prior.kind == SCATTERED:
        upper_b = uniform(words) < prior.part[b]
        at_b = state.upper[leaf, b] if upper_b else counts[b] - state.upper[leaf, b]
        ratio = _log_urn_ratio(prior, state, leaf, a, b, m, at_a, at_b, upper_a, upper_b)
        ratio += math.log(_share(prior, a, upper_a) / _share(prior, b, upper_b))
        if not by_group:
            ratio += math.log((at_b + m) / (counts[b] + m) * (counts[a] / at_a))
    else:
        ratio = _log_prior_ratio(prior, state, leaf, a, b, m, at_a, at_b)
    # How many sizes are occupied afterwards: the reverse move draws among these.
    number_after = number + (1 if counts[b] == 0 else 0) - (1 if counts[a] == m else 0)
    if by_group:
        ratio += math.log((at_b + m) / at_a)
    elif number_after != number:
        ratio += math.log(number / number_after)
    if several and at_a != at_b + m:
        ratio += math.log(math.log(at_a + 1.0) / math.log(at_b + m + 1.0))
    if independent:
        ratio += prior.log_draw[prior.row[leaf], a] - prior.log_draw[prior.row[leaf], b]
    # The likelihood comes last, because it costs most.
    needed = math.log(uniform(words)) - ratio
    if _shift(queries, state, leaf, a, b, m, 0, False) < needed:
        return False
    _shift(queries, state, leaf, a, b, m, 0, True)
    _regroup(state, leaf, a, b, m)
    if prior.kind == SCATTERED:
        _relabel(prior, state, leaf, a, b, m, upper_a, upper_b)
    return True


@compiled_in_place
def _relabel(prior: Prior, state: State, leaf: int, a: int, b: int, m: int, upper_a: bool, upper_b: bool) -> None:
    """Move m groups in the counts by hat."""
    hat_counts = state.of_hat[prior.region[leaf]]
    hat_counts[prior.left[a] + (1 if upper_a else 0)] -= m
    hat_counts[prior.left[b] + (1 if upper_b else 0)] += m
    if upper_a:
        state.upper[leaf, a] -= m
    if upper_b:
        state.upper[leaf, b] += m


@compiled_in_place
def _partner(plan: Plan, leaf: int, words: Words) -> int:
    """Return another leaf below the leaf's ancestor at a level drawn evenly, or -1 where there is none."""
    above = plan.above[leaf, below(words, plan.above.shape[1])]
    if above < 0:
        return -1
    first, count = plan.under_start[above], plan.under_start[above + 1] - plan.under_start[above]
    partner = int(plan.under[first + below(words, count)])
    return -1 if partner == leaf else partner


@compiled_in_place
def _common_blocks(queries: Queries, leaf: int, partner: int) -> int:
    """Return how many blocks at the ends of two leaves' paths are about regions above both."""
    last, partner_last = queries.path_start[leaf + 1], queries.path_start[partner + 1]
    most = min(last - queries.path_start[leaf], partner_last - queries.path_start[partner])
    shared = 0
    # Paths end with the regions that both leaves have in common.
    while shared < most and queries.path[last - 1 - shared] == queries.path[partner_last - 1 - shared]:
        shared += 1
    return shared


@compiled_in_place
def _try_exchange(queries: Queries, state: State, prior: Prior, plan: Plan, leaf: int) -> bool:
    """Propose that a group of a leaf and one of another change sizes; return whether it was accepted."""
    words = state.words
    partner = _partner(plan, leaf, words)
    if partner < 0 or state.occupied_count[partner] == 0:
        return False
    a = int(state.occupied[leaf, below(words, state.occupied_count[leaf])])
    b = int(state.occupied[partner, below(words, state.occupied_count[partner])])
    if a == b:
        return False
    ours, theirs = state.histograms[leaf], state.histograms[partner]
    ours_a, ours_b, theirs_a, theirs_b = ours[a], ours[b], theirs[a], theirs[b]
    upper_a = upper_b = False
    # The hat of each group by the share of its size's groups, at either leaf.
    if prior.kind == SCATTERED:
        upper_a = uniform(words) * ours_a < state.upper[leaf, a]
        upper_b = uniform(words) * theirs_b < state.upper[partner, b]
        if upper_a:
            ours_a, theirs_a = state.upper[leaf, a], state.upper[partner, a]
        else:
            ours_a, theirs_a = ours_a - state.upper[leaf, a], theirs_a - state.upper[partner, a]
        if upper_b:
            ours_b, theirs_b = state.upper[leaf, b], state.upper[partner, b]
        else:
            ours_b, theirs_b = ours_b - state.upper[leaf, b], theirs_b - state.upper[partner, b]
        ratio = _log_urn_ratio(prior, state, leaf, a, b, 1, ours_a, ours_b, upper_a, upper_b)
        ratio += _log_urn_ratio(prior, state, partner, b, a, 1, theirs_b, theirs_a, upper_b, upper_a)
        back = (ours_b + 1) / (ours[b] + 1) * ((theirs_a + 1) / (theirs[a] + 1))
        ratio += math.log(back / (ours_a / ours[a] * (theirs_b / theirs[b])))
    else:
        ratio = _log_prior_ratio(prior, state, leaf, a, b, 1, ours_a, ours_b)
        ratio += _log_prior_ratio(prior, state, partner, b, a, 1, theirs_b, theirs_a)
    occupied, partner_occupied = state.occupied_count[leaf], state.occupied_count[partner]
    occupied_after = occupied + (1 if ours[b] == 0 else 0) - (1 if ours[a] == 1 else 0)
    partner_after = partner_occupied + (1 if theirs[a] == 0 else 0) - (1 if theirs[b] == 1 else 0)
    ratio += math.log(occupied / occupied_after * (partner_occupied / partner_after))
    needed = math.log(uniform(words)) - ratio
    # The measurements of the regions above both, at the ends of their paths, do not change.
    spared = _common_blocks(queries, leaf, partner)
    change = _shift(queries, state, leaf, a, b, 1, spared, False)
    change += _shift(queries, state, partner, b, a, 1, spared, False)
    if change < needed:
        return False
    _shift(queries, state, leaf, a, b, 1, spared, True)
    _shift(queries, state, partner, b, a, 1, spared, True)
    _regroup(state, leaf, a, b, 1)
    _regroup(state, partner, b, a, 1)
    if prior.kind == SCATTERED:
        _relabel(prior, state, leaf, a, b, 1, upper_a, upper_b)
        _relabel(prior, state, partner, b, a, 1, upper_b, upper_a)
    return True


@compiled_in_place
def _apply_step(queries: Queries, state: State, prior: Prior, step: Step, m: int, spared: int) -> None:
    """Take a step's m groups from one size to the other."""
    leaf, a, b, upper_a, upper_b = step
    _shift(queries, state, leaf, a, b, m, spared, True)
    _regroup(state, leaf, a, b, m)
    if prior.kind == SCATTERED:
        _relabel(prior, state, leaf, a, b, m, upper_a, upper_b)


@compiled_in_place
def _step_of(trade: Trade, n: int) -> tuple[int, int, int]:
    """Return leaf, size before and size after of the n-th step of a trade."""
    if trade.kind == _CROSS:
        by = trade.b - trade.a if n == 0 or n == 3 else trade.a - trade.b
        before = (trade.a, trade.c, trade.near, trade.far)[n]
        return (trade.leaf if n < 2 else trade.partner), before, before + by
    if trade.kind <= _SHIFT:
        return (trade.leaf, trade.a, trade.b) if n == 0 else (trade.partner, trade.c, trade.c + trade.a - trade.b)
    end = 2 * trade.a - trade.b if n % 2 else trade.b
    spreads = n < 2 if trade.kind == _AGAINST else trade.kind == _SPREAD
    leaf = trade.leaf if n < 2 else trade.partner
    return (leaf, trade.a, end) if spreads else (leaf, end, trade.a)


@compiled_in_place
def _window(words: Words, sizes: int, least: float) -> tuple[int, int]:
    """Return a window low .. high - 1 of sizes, its width in proportion to its place.

    The place is log-uniform, from the power ``least`` of all sizes on.
    """
    low = math.exp((least + (1.0 - least) * uniform(words)) * math.log(float(sizes)))
    return int(low) - 1, min(int(_OCTAVE * low), sizes)


@compiled_in_place
def _count_within(state: State, leaf: int, low: int, high: int) -> int:
    """Return how many sizes low .. high - 1 of a leaf are occupied."""
    occupied, number = state.occupied[leaf], 0
    for n in range(state.occupied_count[leaf]):
        number += int(occupied[n] >= low) & int(occupied[n] < high)
    return number


@compiled_in_place
def _draw_within(state: State, leaf: int, low: int, high: int) -> tuple[int, int]:
    """Return one of a leaf's occupied sizes low .. high - 1, drawn uniformly, and their number; 0 of them: -1."""
    occupied, number = state.occupied[leaf], _count_within(state, leaf, low, high)
    if number == 0:
        return -1, 0
    left = below(state.words, number)
    n = 0
    while occupied[n] < low or occupied[n] >= high or left > 0:
        left -= int(occupied[n] >= low) & int(occupied[n] < high)
        n += 1
    return int(occupied[n]), number


@compiled_in_place
def _draw_both(state: State, leaf: int, partner: int, low: int, high: int) -> tuple[int, int, int, int]:
    """Return an occupied size low .. high - 1 and their number of two leaves; 0 at last where either has none."""
    a, number = _draw_within(state, leaf, low, high)
    if number == 0:
        return -1, 0, -1, 0
    c, partner_number = _draw_within(state, partner, low, high)
    return a, number, c, partner_number


@compiled_in_place
def _try_trade(queries: Queries, state: State, prior: Prior, plan: Plan, leaf: int) -> bool:
    """Propose several steps of m groups each, all together; return whether they were accepted."""
    words, sizes = state.words, state.histograms.shape[1]
    which = below(words, 5)
    kind = _SWAP if which < 2 else (_SHIFT if which == 2 else _AGAINST)
    if which == 4:
        kind = _SPREAD if uniform(words) < 0.5 else _GATHER
    partner = leaf
    if kind <= _AGAINST and (kind != _SHIFT or uniform(words) < 0.5):
        partner = _partner(plan, leaf, words)
        if partner < 0 or state.occupied_count[partner] == 0:
            return False
    # Buckets do not distinguish near sizes, so take the smaller of two steps.
    distance = int(plan.steps[min(below(words, plan.steps.size), below(words, plan.steps.size))])
    most = 1 if kind == _SHIFT else min(plan.largest[leaf], plan.largest[partner])
    m = min(int(math.exp(uniform(words) * math.log(most + 1.0))), most)
    low, high, number, partner_number, c = 0, sizes, 0, 0, 0
    if kind == _SHIFT:
        low, high = _window(words, sizes, 0.0)
        a, number, c, partner_number = _draw_both(state, leaf, partner, low, high)
        if partner_number == 0:
            return False
    else:
        a = int(math.exp(uniform(words) * math.log(plan.traded_sizes + 1.0))) - 1
    b = a + distance if uniform(words) < 0.5 else a - distance
    if kind != _SHIFT:
        c = b if kind == _SWAP else 2 * a - b
    back = c + a - b if kind <= _SHIFT else c
    if min(b, back) < low or max(b, back) >= high or (kind == _SWAP and b >= plan.traded_sizes):
        return False
    first, second = (leaf, partner) if uniform(words) < 0.5 or kind != _AGAINST else (partner, leaf)
    trade = Trade(kind, first, second, a, b, c, 0, 0)
    # Only a shift changes any of the sums above both leaves.
    spared = 0 if partner == leaf or kind == _SHIFT else _common_blocks(queries, leaf, partner)
    # A swap's first size is log-uniform, and that of its reverse is b.
    ratio = math.log(math.log1p(1.0 / (b + 1.0)) / math.log1p(1.0 / (a + 1.0))) if kind == _SWAP else 0.0
    drawn = Drawn(low, high, number, partner_number)
    return _take_trade(queries, state, prior, trade, m, spared, ratio, drawn)


@compiled_in_place
def _try_shift(queries: Queries, state: State, prior: Prior, plan: Plan, leaf: int) -> bool:
    """Propose a shift of two large groups, or two shifts that cancel; return whether it was accepted."""
    words, crossed, partner = state.words, uniform(state.words) < 0.5, leaf
    if crossed or uniform(words) < 0.5:
        partner = _partner(plan, leaf, words)
        if partner < 0 or state.occupied_count[partner] == 0:
            return False
    low, high = _window(words, state.histograms.shape[1], _LARGE)
    a, number, c, partner_number = _draw_both(state, leaf, partner, low, high)
    if partner_number == 0:
        return False
    distance = int(plan.steps[min(below(words, plan.steps.size), below(words, plan.steps.size))])
    b = a + distance if uniform(words) < 0.5 else a - distance
    trade = Trade(_SHIFT, leaf, partner, a, b, c, 0, 0)
    if crossed:
        other, far = _draw_within(state, leaf, low, high)[0], _draw_within(state, partner, low, high)[0]
        # Half of them let the first group of each leaf change places.
        trade = Trade(_CROSS, leaf, partner, a, c if uniform(words) < 0.5 else b, other, c, far)
    if trade.b == a or not _stays_within(state, trade, low, high):
        return False
    return _take_trade(queries, state, prior, trade, 1, 0, 0.0, Drawn(low, high, number, partner_number))


@compiled_in_place
def _stays_within(state: State, trade: Trade, low: int, high: int) -> bool:
    """Return whether no group would leave the window; False too where one group would have to move twice.

    Nor may the two groups of a leaf exchange sizes in four steps: the reverse would have to take them in another order,
    in which their hats are drawn with other probabilities.
    """
    for n in range(4 if trade.kind == _CROSS else 2):
        after = _step_of(trade, n)[2]
        if after < low or after >= high:
            return False
    if trade.kind == _CROSS:
        if trade.c == trade.b or trade.far == trade.near + trade.a - trade.b:
            return False
        alone = trade.a == trade.c and state.histograms[trade.leaf, trade.a] < 2
        return not (alone or (trade.near == trade.far and state.histograms[trade.partner, trade.near] < 2))
    return True


@compiled_in_place
def _take_trade(
    queries: Queries, state: State, prior: Prior, trade: Trade, m: int, spared: int, ratio: float, drawn: Drawn
) -> bool:
    """Take the steps of a trade of m groups, and undo them if it is rejected; ``ratio`` is that of the proposals."""
    words, kind = state.words, trade.kind
    steps = 4 if kind in (_AGAINST, _CROSS) else 2
    done = labels = 0
    # Take the steps one after the other, and undo them all if the last ratio says so.
    while done < steps:
        mover, before, after = _step_of(trade, done)
        counts = state.histograms[mover]
        if counts[before] < m:
            break
        at_a, at_b, upper_a, upper_b = int(counts[before]), int(counts[after]), False, False
        if prior.kind == SCATTERED:
            upper_a = uniform(words) * counts[before] < state.upper[mover, before]
            upper_b = uniform(words) < prior.part[after]
            at_a = int(state.upper[mover, before] if upper_a else counts[before] - state.upper[mover, before])
            at_b = int(state.upper[mover, after] if upper_b else counts[after] - state.upper[mover, after])
            if at_a < m:
                break
            ratio += _log_urn_ratio(prior, state, mover, before, after, m, at_a, at_b, upper_a, upper_b)
            ratio += math.log(_share(prior, before, upper_a) / _share(prior, after, upper_b))
            ratio += math.log((at_b + m) / (counts[after] + m) * (counts[before] / at_a))
        else:
            ratio += _log_prior_ratio(prior, state, mover, before, after, m, at_a, at_b)
        ratio += _shift(queries, state, mover, before, after, m, spared, False)
        _apply_step(queries, state, prior, Step(mover, before, after, upper_a, upper_b), m, spared)
        labels |= (int(upper_a) + 2 * int(upper_b)) << (2 * done)
        done += 1
    # A shift's sizes are drawn among the occupied ones of the window, so their numbers enter the ratio.
    if kind in (_SHIFT, _CROSS) and done == steps:
        after = _count_within(state, trade.leaf, drawn.low, drawn.high)
        partner_after = _count_within(state, trade.partner, drawn.low, drawn.high)
        once = math.log(drawn.number / after * (drawn.partner_number / partner_after))
        ratio += 2.0 * once if kind == _CROSS else once
    if done == steps and math.log(uniform(words)) < ratio:
        return True
    # Rejected: take the steps back, the last one first.
    while done > 0:
        done -= 1
        mover, before, after = _step_of(trade, done)
        label = labels >> (2 * done)
        _apply_step(queries, state, prior, Step(mover, after, before, label & 2 > 0, label & 1 > 0), m, spared)
    return False


@compiled_in_place
def sweep(queries: Queries, state: State, prior: Prior, plan: Plan) -> int:
    """Propose ``plan.moves[leaf]`` moves, then exchanges and trades in each leaf; return how many were accepted.

    O(levels x buckets crossed) a move.
    """
    accepted = 0
    # The number of proposals a leaf gets does not depend on the state.
    for leaf in range(state.occupied_count.size):
        if state.occupied_count[leaf] == 0:
            continue
        for _ in range(plan.moves[leaf]):
            accepted += _try(queries, state, prior, plan, leaf)
        for _ in range(plan.exchanges[leaf]):
            accepted += _try_exchange(queries, state, prior, plan, leaf)
        for _ in range(plan.trades[leaf]):
            accepted += _try_trade(queries, state, prior, plan, leaf)
        for _ in range(plan.shifts[leaf]):
            accepted += _try_shift(queries, state, prior, plan, leaf)
    return accepted


@compiled_in_place
def exchange(queries: Queries, state: State, prior: Prior, plan: Plan) -> int:
    """Propose the exchanges of each leaf alone; return how many were accepted."""
    accepted = 0
    for leaf in range(state.occupied_count.size):
        if state.occupied_count[leaf] > 0:
            for _ in range(plan.exchanges[leaf]):
                accepted += _try_exchange(queries, state, prior, plan, leaf)
    return accepted


@compiled_in_place
def advance(
    queries: Queries,
    state: State,
    prior: Prior,
    plan: Plan,
    basis: Basis,
    shares: Shares,
    sweeps: int,
    counts: Floats,
) -> int:
    """Take ``sweeps`` sweeps; before every second one draw the unknowns of scattered size distributions.

    Adds each size's counts to float64[rows, K + 1] after each (``Prior.row``).
    """
    accepted = 0
    for n in range(sweeps):
        if prior.kind == SCATTERED and n % _DRAW_EVERY == 0:
            draw_collapsed(
                basis,
                shares,
                state.histograms,
                state.occupied,
                state.occupied_count,
                state.upper,
                state.alpha,
                state.factors,
                state.words,
            )
        accepted += sweep(queries, state, prior, plan)
        # Record every size that occurs; the others add nothing.
        for leaf in range(state.occupied_count.size):
            row = prior.row[leaf]
            for n in range(state.occupied_count[leaf]):
                size = state.occupied[leaf, n]
                counts[row, size] += state.histograms[leaf, size]
    return accepted


@compiled_in_place
def list_occupied(state: State) -> None:
    """Fill the lists of occupied sizes from the histograms."""
    for leaf in range(state.occupied_count.size):
        state.occupied_count[leaf] = 0
        for size in range(state.histograms.shape[1]):
            if state.histograms[leaf, size] > 0:
                state.occupied[leaf, state.occupied_count[leaf]] = size
                state.place[leaf, size] = state.occupied_count[leaf]
                state.occupied_count[leaf] += 1


@compiled
def alias_tables(probabilities: Floats, keep: Floats, alias: NDArray[np.int32]) -> None:
    """Fill alias tables of rows of probabilities that sum to 1 (Vose 1991); O(entries)."""
    n = probabilities.shape[1]
    small, large = np.empty(n, np.int64), np.empty(n, np.int64)
    for row in range(probabilities.shape[0]):
        smalls = larges = 0
        # Scale to a mean of 1, and divide the entries into those below and above it.
        for k in range(n):
            keep[row, k] = probabilities[row, k] * n
            alias[row, k] = k
            if keep[row, k] < 1.0:
                small[smalls] = k
                smalls += 1
            else:
                large[larges] = k
                larges += 1
        # Fill a small entry up from a large one, which may become small itself.
        while smalls and larges:
            smalls -= 1
            poor, rich = small[smalls], large[larges - 1]
            alias[row, poor] = rich
            keep[row, rich] -= 1.0 - keep[row, poor]
            if keep[row, rich] < 1.0:
                larges -= 1
                small[smalls] = rich
                smalls += 1
        # Entries left over by rounding errors are kept with probability 1.
        for k in range(smalls):
            keep[row, small[k]] = 1.0
        for k in range(larges):
            keep[row, large[k]] = 1.0
