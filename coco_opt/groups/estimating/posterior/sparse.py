"""The posterior of hierarchies with too many regions x sizes to store for every chain: draws list the sizes that occur.

Chains are those of ``sampler``, but fewer. In the burn-in the noise above the leaves is first taken as wider than it
is, and becomes what it is step by step (simulated annealing, Kirkpatrick, Gelatt and Vecchi 1983). Moves are proposed
from size distributions that leaves of the same parent share. The table of least expected error and the intervals are
computed from the draws, one stretch of sizes after the other. Each stretch is the same integer program, with counts
bounded below by those at the end of the stretch before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.activity import Progress
from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.intervals import SUMMARIES, Intervals, SummaryIntervals
from coco_opt.groups.estimating.posterior.chains import Learned, MoveChain, SizeLearner
from coco_opt.groups.estimating.posterior.convergence import MANY_REGIONS
from coco_opt.groups.estimating.posterior.observations import Survey
from coco_opt.groups.estimating.posterior.prior import PriorOptions
from coco_opt.groups.estimating.posterior.recording import parts_of_quantiles, summary_values
from coco_opt.groups.estimating.posterior.sampler import (
    Sampler,
    SamplerOptions,
    Takes,
)
from coco_opt.histograms import CountOfCounts
from coco_opt.posterior.comparison import Distances
from coco_opt.problems import ExpectedDistance, Marginals

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_sparse import Tree

MANY_CELLS = 2**23  # regions x sizes beyond which draws are stored by the sizes that occur
# Groups a leaf from which single moves mix too slowly under buckets, and rows of cells take too long.
MANY_GROUPS, MANY_IN_CELLS = 5_000, 50_000
CHAINS, MOST_BURN_IN, LEAST_ROUNDS, MOST_ROUNDS = 2, 240, 4, 7
# The burn-in's sweeps. Each has so many moves a leaf on average, but at most so many times the first number.
BURN_IN, BURN_IN_MOVES, MOVES_A_LEAF = 200, 16.0, 560.0
# Beyond MANY_REGIONS, large groups fit in too many ways for these moves, and the burn-in is shifts of them for the most
# part. Then there are so many shifts a move, and the rounds begin with more moves than the burn-in had.
MANY_BURN_IN_MOVES, SHIFTS, MORE_MOVES, MANY_MOST_ROUNDS = 4.0, 24.0, 2.0, 9
PER_SIZE, TRADES, WITHIN = 2.0, 2.0, 0.5  # moves a size, trades a move, share of the moves within a window
_WIDER = 8.0  # times as wide is the noise one level above the leaves in the beginning, squared two levels above
_SHARE = 3.0  # a burn-in takes at most one in so many of all sweeps
_STRETCH = 2**20  # regions x sizes of a stretch


def fewer_chains(options: SamplerOptions, regions: int) -> SamplerOptions:
    """Return options of so few chains and rounds that draws of many regions fit into memory, with trades of groups."""
    many = regions > MANY_REGIONS
    return replace(
        options,
        chains=min(options.chains, CHAINS),
        burn_in=max(options.burn_in, BURN_IN),
        most_burn_in=max(options.burn_in, MOST_BURN_IN),
        least_rounds=max(options.least_rounds, LEAST_ROUNDS),
        most_rounds=min(options.most_rounds, MANY_MOST_ROUNDS if many else MOST_ROUNDS),
        moves=replace(options.moves, per_size=PER_SIZE, trades=TRADES, within=WITHIN, shifts=SHIFTS if many else 0.0),
    )


def has_parents(survey: Survey) -> bool:
    """Return whether all leaves lie on one level below the root, as shared size distributions require."""
    levels = survey.levels()
    return bool((levels[survey.leaves] == levels.max()).all()) and int(levels.max()) > 0


class _SharedLearner(SizeLearner):
    """Learns size distributions of the leaves' parents only."""

    def __init__(self, survey: Survey, shape: Floats, alone: Flags, options: PriorOptions) -> None:
        inner = np.setdiff1d(np.arange(survey.parent.size), survey.leaves)
        number = np.full(survey.parent.size, -1)
        number[inner] = np.arange(inner.size)
        parent = np.where(inner > 0, number[survey.parent[inner]], -1)
        upper = Survey(parent, survey.groups[inner], survey.max_size, ())
        super().__init__(upper, shape, alone, options)
        self.row = np.searchsorted(inner[upper.leaves], survey.parent[survey.leaves])

    def learn(self, counts: Floats) -> Learned:
        """Return the prior one step on, by mean counts (parents of leaves, K + 1)."""
        return replace(super().learn(counts), row=self.row)


@dataclass(frozen=True, eq=False, slots=True)
class SparseDraws:
    """All draws of all regions: draw d has those of region v at start[d, v] to start[d, v + 1] of sizes and counts.

    The other fields are those of ``sampler.Posterior``.
    """

    survey: Survey
    start: Ints
    sizes: NDArray[Any]
    counts: NDArray[Any]
    sweeps: int
    r_hat: Floats
    effective: Floats
    prior_moved: float
    single: int
    distances: Distances

    @property
    def draws(self) -> int:
        """Return the number of draws."""
        return len(self.start)


class _Recorder:
    """Lists one chain's draws, and traces scalars."""

    def __init__(self, chain: MoveChain, tree: Tree, inner: int, probe: int) -> None:
        self.chain, self.tree, self.probe = chain, tree, probe
        self._inner = np.empty((inner, chain.lists[0].shape[1]), np.int64)
        self.start: list[Ints] = []
        self.sizes: list[NDArray[Any]] = []
        self.counts: list[NDArray[Any]] = []
        self.trace: list[Floats] = []
        self.distances = Distances(chain.residual.size)

    def take(self, draws: int, thin: int) -> None:
        """Take so many draws, ``thin`` sweeps apart."""
        from coco_opt.kernels import posterior_sparse

        regions = self.tree.parent.size
        for _ in range(draws):
            self.chain.advance(thin)
            lists = posterior_sparse.Lists(*self.chain.lists)
            start, scalars = np.empty(regions + 1, np.int64), np.empty((regions, 3))
            posterior_sparse.add_up(self.tree, lists, self._inner, start)
            sizes = np.empty(int(start[-1]), lists.occupied.dtype)
            counts = np.empty(sizes.size, np.int32 if self._inner.max() <= np.iinfo(np.int32).max else np.int64)
            posterior_sparse.write(self.tree, lists, self._inner, start, self.probe, sizes, counts, scalars)
            self.start.append(start)
            self.sizes.append(sizes)
            self.counts.append(counts)
            self.trace.append(scalars.ravel())
            self.distances.take(self.chain.residual)

    def forget(self, first: int) -> None:
        """Forget so many of the first draws."""
        for draws in (self.start, self.sizes, self.counts, self.trace):
            del draws[:first]
        if len(self.trace) <= self.distances.draws // 2:
            self.distances = Distances(self.chain.residual.size)


class SparseSampler(Sampler):
    """One run whose draws are stored by the sizes that occur."""

    learners: ClassVar[type[SizeLearner]] = _SharedLearner
    chains: Sequence[MoveChain]

    def __init__(
        self,
        survey: Survey,
        seed: int,
        prior: PriorOptions,
        options: SamplerOptions,
        near: Sequence[CountOfCounts] = (),
        progress: Progress | None = None,
    ) -> None:
        """Begin at the leaves' histograms ``near``, if given; chains settle sooner if these are near all answers."""
        super().__init__(survey, seed, prior, options, MoveChain, near=near, progress=progress)
        steepness = self.chains[0].steepness
        levels = survey.levels()
        above = (levels.max() - levels)[[answers.region for answers in survey.answers]]
        self._steepness, self._wider = steepness, _WIDER**above

    def _learn(self) -> None:
        first = self.shared is None
        super()._learn()
        if first and self.shared is not None:  # few moves a sweep of the burn-in where leaves move much
            options = self.options
            most = MANY_BURN_IN_MOVES if options.moves.shifts else BURN_IN_MOVES
            allowed = self.effort.most / (_SHARE * options.burn_in)
            wanted = min(MOVES_A_LEAF / float(self.shared.plan.moves.mean()), allowed)
            self.effort.factors *= float(np.clip(wanted, 1.0, most))
        self._use_factors()

    def _advance(self, pool: ThreadPoolExecutor, sweeps: int) -> None:
        """Take sweeps of the burn-in: the leaves come near their own answers first, and then agree with those above."""
        done = min(self.burnt / max(self.options.burn_in - self.options.settle, 1), 1.0)
        for chain in self.chains:
            chain.steepness = self._steepness * self._wider ** (done - 1.0)
        super()._advance(pool, sweeps)

    def _look(self, pool: ThreadPoolExecutor) -> None:
        """Write no tables, because none are needed."""

    def _see(self, *, anew: bool) -> None:
        """Record no ranges, because draws are listed, not counted in windows."""

    def _set_windows(self, margin: int) -> None:
        """Set no windows, because groups are moved, not rows drawn."""

    def _forget(self, recorders: Sequence[Takes], rounds: int) -> None:
        """Forget the first half of all rounds: moves are distributed between rounds, and slow leaves still drift."""
        for recorder in recorders:
            assert isinstance(recorder, _Recorder)
            recorder.forget(len(recorder.trace) - (rounds + 1) // 2 * self.options.draws)

    def _share_of_draws(self, rounds: int) -> float:
        """Return the root of the share of the draws that the last round will have left; 1 where time is not short.

        The distance from the criterion falls in proportion to the draws, so at first few leaves need more moves.
        """
        if not self.options.moves.shifts:
            return 1.0
        return math.sqrt(((rounds + 1) // 2) / ((self.options.most_rounds + 1) // 2))

    def sample(self, pool: ThreadPoolExecutor) -> SparseDraws:
        """Burn in and draw."""
        from coco_opt.kernels.posterior_sparse import Tree

        self._burn_in(pool)
        if self.options.moves.shifts:
            self.effort.least = min(float(self.effort.factors.min()), MANY_BURN_IN_MOVES)
            self.effort.factors *= MORE_MOVES
            self._use_factors()
        survey = self.survey
        leaf, inner = np.full((2, survey.parent.size), -1)
        leaf[survey.leaves] = np.arange(survey.leaves.size)
        inner[leaf < 0] = np.arange(survey.parent.size - survey.leaves.size)
        tree, groups = Tree(survey.parent, leaf, inner), int(survey.groups[0])
        row = np.cumsum(self.counts.sum(axis=0))[:-1]
        probe = int(np.searchsorted(row, 0.5 * (row[0] + groups)).clip(0, row.size - 1))
        recorders = [_Recorder(chain, tree, int(inner.max()) + 1, probe) for chain in self.chains]
        judged = self._rounds(pool, recorders)
        self.chains = ()
        starts = [start for recorder in recorders for start in recorder.start]
        begin = np.cumsum([0, *(int(start[-1]) for start in starts[:-1])])
        return SparseDraws(
            survey,
            np.stack(starts) + begin[:, None],
            _concatenated([recorder.sizes for recorder in recorders]),
            _concatenated([recorder.counts for recorder in recorders]),
            self.burnt + judged.sweeps,
            judged.r_hat,
            judged.effective,
            self.moved,
            self.prior.single,
            reduce(add, [recorder.distances for recorder in recorders]),
        )


def _concatenated(lists: Sequence[list[NDArray[Any]]]) -> NDArray[Any]:
    """Return all pieces concatenated, and release their memory."""
    joined = np.concatenate([piece for pieces in lists for piece in pieces])
    for pieces in lists:
        pieces.clear()
    return joined


def sparse_estimate(
    drawn: SparseDraws, solvers: SolverChoices, coverage: float
) -> tuple[list[CountOfCounts], Intervals | None, float]:
    """Return the table of least expected error of draws, intervals of a coverage above 0, and the uncertified gap.

    The gap is relative to the expected error, and of the complete integer program: it does not assume the bounds
    between stretches.
    """
    survey, tail = drawn.survey, (1 - Fraction(str(coverage))) / 2
    intervals = _empty_intervals(survey, coverage)
    entries: list[tuple[Ints, ...]] = []
    gap = cost = 0.0
    before = np.zeros(survey.parent.size, np.int64)
    for sizes, marginals in _stretches(drawn, tail, intervals):
        table = _best_counts(survey, marginals, drawn.draws, before, solvers)
        free = ExpectedDistance(survey.parent, survey.groups, marginals, total=drawn.draws)
        gap, cost = gap + free.gap(table, free.multipliers(table)), cost + free.objective(table)
        entries.append(_record_stretch(intervals, sizes, table, before))
        before = table[:, -1].copy()
    entries.append(
        _record_stretch(intervals, slice(survey.max_size, survey.max_size + 1), survey.groups[:, None], before)
    )
    region, size, count = (np.concatenate(part) for part in zip(*entries, strict=True))
    order = np.argsort(region, kind="stable")
    ends = np.searchsorted(region[order], np.arange(1, survey.parent.size))
    pairs = zip(np.split(size[order], ends), np.split(count[order], ends), strict=True)
    histograms = [CountOfCounts.from_runs(*pair) for pair in pairs]
    if coverage:
        intervals = replace(intervals, summaries=_summaries(drawn, histograms, tail))
    return histograms, intervals if coverage else None, gap / max(cost, 1.0)


def _empty_intervals(survey: Survey, coverage: float) -> Intervals:
    """Return empty intervals, int32 where that can hold all groups: int64 would take a gigabyte for a nation."""
    kind = np.int32 if int(survey.groups[0]) <= np.iinfo(np.int32).max else np.int64
    groups_lower, groups_upper, at_most_lower, at_most_upper = (
        np.empty((survey.parent.size, survey.max_size + 1), kind) for _ in range(4)
    )
    return Intervals(coverage, groups_lower, groups_upper, at_most_lower, at_most_upper)


def _stretches(drawn: SparseDraws, tail: Fraction, intervals: Intervals) -> Iterator[tuple[slice, Marginals]]:
    """Yield stretches of the sizes 0 .. K - 1 and the distributions of their Hc; fill in their draws' intervals."""
    from coco_opt.kernels import posterior_sparse

    survey, regions = drawn.survey, drawn.survey.parent.size
    entries = posterior_sparse.Entries(
        np.append(0, np.cumsum(np.diff(drawn.start, axis=1).sum(axis=0))),
        np.empty_like(drawn.sizes),
        np.empty(drawn.sizes.size, np.int16),
        np.empty_like(drawn.counts),
    )
    posterior_sparse.by_size(drawn.start, drawn.sizes, drawn.counts, survey.max_size, entries)
    reached, running = entries.first[:-1].copy(), np.zeros((regions, drawn.draws), np.int64)
    ranks = np.array(_ranks(tail, drawn.draws))
    ends = posterior_sparse.Ends(
        intervals.groups_lower, intervals.groups_upper, intervals.at_most_lower, intervals.at_most_upper
    )
    width = max(_STRETCH // regions, 1)
    for begin in range(0, survey.max_size + 1, width):
        # The last size's cumulative counts are public and have no cost; its groups have an interval too.
        end = min(begin + width, survey.max_size + 1)
        offsets = np.empty(regions * (end - begin) + 1, np.int64)
        atoms, weights = posterior_sparse.distributions(entries, reached, running, begin, end, ranks, ends, offsets)
        cells = min(end, survey.max_size) - begin
        if cells < end - begin:
            offsets, atoms, weights = _without_last(offsets, atoms, weights, end - begin)
        if cells:
            yield slice(begin, begin + cells), Marginals((regions, cells), offsets, atoms, weights)


def _without_last(offsets: Ints, atoms: Ints, weights: Ints, cells: int) -> tuple[Ints, ...]:
    """Return the atoms of every region's cells except the last."""
    lengths = np.diff(offsets).reshape(-1, cells)
    inner = np.repeat(np.tile(np.arange(cells) < cells - 1, len(lengths)), lengths.ravel())
    return np.append(0, np.cumsum(lengths[:, :-1])), atoms[inner], weights[inner]


def _ranks(tail: Fraction, draws: int) -> tuple[int, int]:
    """Return the places of the lower quantile ``tail`` and the upper 1 - ``tail`` among sorted draws, from 0."""
    lower = max(math.ceil(tail * draws) - 1, 0)
    return lower, min(math.floor((1 - tail) * draws), draws - 1)


def _best_counts(survey: Survey, marginals: Marginals, total: int, before: Ints, solvers: SolverChoices) -> Ints:
    """Return the best integer counts of a stretch that are at least those before it."""
    regions = np.repeat(np.arange(survey.parent.size), np.diff(marginals.offsets[:: marginals.shape[1]]))
    above = Marginals(marginals.shape, marginals.offsets, marginals.atoms - before[regions], marginals.weights)
    problem = ExpectedDistance(survey.parent, survey.groups - before, above, total=total)
    counts: Ints = solvers.nearest(problem)[0] + before[:, None]
    return counts


def _record_stretch(intervals: Intervals, sizes: slice, table: Ints, before: Ints) -> tuple[Ints, ...]:
    """Widen the intervals of a stretch to hold its counts; return the regions, sizes and counts of its groups."""
    increments = np.diff(table, axis=1, prepend=before[:, None])
    for lower, upper, value in (
        (intervals.groups_lower, intervals.groups_upper, increments),
        (intervals.at_most_lower, intervals.at_most_upper, table),
    ):
        lower[:, sizes] = np.minimum(lower[:, sizes], value)
        upper[:, sizes] = np.maximum(upper[:, sizes], value)
    region, size = np.nonzero(increments)
    return region, size + sizes.start, increments[region, size]


def _summaries(drawn: SparseDraws, histograms: Sequence[CountOfCounts], tail: Fraction) -> SummaryIntervals:
    from coco_opt.kernels import posterior_sparse

    groups, (denominator, parts) = drawn.survey.groups, parts_of_quantiles()
    of_draws = np.empty((drawn.draws, groups.size, 3 + parts.size), np.int64)
    posterior_sparse.summarise(drawn.start, drawn.sizes, drawn.counts, groups, denominator, parts, of_draws)
    value = np.empty((1, *of_draws.shape[1:]), np.int64)
    start = np.cumsum([[0, *(histogram.distinct for histogram in histograms)]], axis=1)
    sizes, counts = (
        np.concatenate(part)
        for part in zip(*((histogram.sizes, histogram.counts) for histogram in histograms), strict=True)
    )
    posterior_sparse.summarise(start, sizes, counts, groups, denominator, parts, value)
    of_draws.sort(axis=0)
    lower, upper = _ranks(tail, drawn.draws)
    ends = np.minimum(of_draws[lower], value[0]), np.maximum(of_draws[upper], value[0])
    return SummaryIntervals(SUMMARIES, *(summary_values(values, groups) for values in (value[0], *ends)))
