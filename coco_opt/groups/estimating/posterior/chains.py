"""Markov chains over the tables of a hierarchy, and the prior they share: thin shells around the compiled sweeps.

``MoveChain`` supports any queries (Metropolis moves of groups). With answers about single cells, complete rows of
cumulative counts can be drawn, which mixes far better in dense regions: by ``CountRowChain``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.errors import SolverError
from coco_opt.groups.estimating.posterior.observations import Survey, cumulative_rows, residuals
from coco_opt.groups.estimating.posterior.prior import (
    Hats,
    PriorOptions,
    SizeProbabilities,
    first_base,
    smooth_distribution,
)
from coco_opt.kernels.arrays import read_only

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_moves import Plan, Prior, Queries
    from coco_opt.kernels.posterior_shares import Basis, Shares

_STEPS = 256
_BATCH = 256  # leaves whose size distributions are processed together
_LEAST_MOVES = 4
_PRECISION = 20.0  # of the shape's factors at the start
_MOST_TRADED, _TRADED_SIZES = 64, 100  # groups, and sizes, of other trades where there are shifts
_SHIFT_TIME = 0.2  # of a shift, in that of a move with its exchanges and trades
_ENOUGH_ROWS, _LEAST_ACCEPTED = 2_000, 0.05  # rows after which so small a share of accepted ones ends a chain
_FLATTER = 0.6  # power of the distribution of half of the independent moves: rare sizes are tried more often


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """How moves are proposed: their number a sweep for each size expected to be occupied, and their kinds' shares.

    ``by_group`` moves take a group of the leaf at random, the others an occupied size. Leaves expected to have more
    than ``most_looked_at`` sizes have no such moves, because a group is found by a search through the sizes.
    ``independent`` moves are drawn from the leaf's own size distribution or a flatter one, the others go up to
    ``furthest`` sizes; ``several`` move more than one group. Of the moves of occupied sizes the share ``within`` stays
    within a window of sizes (``kernels.posterior_moves``). For each move there are ``exchanges`` of groups between
    leaves, and ``trades`` of several groups together, up to the share ``traded`` of a leaf's groups. ``shifts`` of
    large sizes come for each of the first moves, not more or fewer where a leaf gets more or fewer moves.
    """

    per_size: float = 4.0
    by_group: float = 0.4
    most_looked_at: float = 100.0
    independent: float = 0.6
    several: float = 0.2
    within: float = 0.0
    furthest: int = 299
    exchanges: float = 0.3
    trades: float = 0.0
    shifts: float = 0.0
    traded: float = 0.125


@dataclass(frozen=True, eq=False, slots=True)
class Scattered:
    """Size distributions that are sampled (``kernels.posterior_shares``), under hats.

    Chains begin near ``base`` float64[K + 1]. Regions vary around their parents, with strengths whose prior has the
    scale ``strength``.
    """

    base: Floats
    hats: Hats
    strength: float


@dataclass(frozen=True, eq=False, slots=True)
class Learned:
    """A prior of the leaves: ``probabilities`` float64[leaves, K + 1] (pi).

    Where pi is ``scattered``, ``probabilities`` is its expected value, and determines only the proposals. Then one row
    may serve several leaves: ``row`` int64[leaves], by default each leaf's own.
    """

    probabilities: Floats
    scattered: Scattered | None = None
    row: Ints | None = None

    def rows(self, leaves: int) -> Ints:
        """Return the row of ``probabilities`` of each of so many leaves."""
        return np.arange(leaves) if self.row is None else self.row


class SizeLearner:
    """Learns multinomial priors from the leaves' mean counts (leaves, K + 1); see ``prior.SizeProbabilities``."""

    def __init__(self, survey: Survey, shape: Floats, alone: Flags, options: PriorOptions) -> None:
        self._survey = survey
        self._probabilities = SizeProbabilities(survey.parent, shape, alone, options)
        hats = self._probabilities.hats
        distribution = smooth_distribution(shape, hats, alone) + options.floor
        self._scattered = Scattered(distribution / distribution.sum(), hats, options.borrowed)
        self.row: Ints = np.arange(survey.leaves.size)

    def learn(self, counts: Floats) -> Learned:
        """Return the prior after one more step."""
        parent = self._survey.parent
        full = np.zeros((parent.size, counts.shape[1]))
        full[self._survey.leaves] = counts
        for region in range(parent.size - 1, 0, -1):
            full[parent[region]] += full[region]
        return Learned(self._probabilities.learn(full)[self._survey.leaves], self._scattered)


class MoveTables:
    """A prior and the plan of moves as the kernels read them; read-only, so all chains can share them.

    A size distribution that is not scattered has one hat at every size, and constant ``factors`` (leaves, hats).
    """

    def __init__(self, survey: Survey, prior: Learned, options: MoveOptions) -> None:
        from coco_opt.kernels import posterior_moves, posterior_shape, posterior_shares

        flatter = prior.probabilities**_FLATTER
        draw = np.ascontiguousarray(0.5 * prior.probabilities + 0.5 * flatter / flatter.sum(axis=1, keepdims=True))
        keep, alias = np.empty_like(draw), np.empty(draw.shape, np.int32)
        posterior_moves.alias_tables(draw, keep, alias)
        log_draw = np.log(draw)
        expected = occupied_sizes(survey, prior)
        kind = posterior_moves.MULTINOMIAL if prior.scattered is None else posterior_moves.SCATTERED
        sizes = draw.shape[1]
        hats = Hats(np.arange(sizes), np.zeros(sizes), sizes + 1, np.zeros(0, np.int64))
        shape, parent, strength = np.ones(sizes), np.zeros(0, np.int64), 1.0
        if prior.scattered is None:
            self.factors = np.concatenate([prior.probabilities, np.zeros((draw.shape[0], 1))], axis=1)
        else:
            shape, hats = prior.scattered.base, prior.scattered.hats
            strength, parent = prior.scattered.strength, survey.parent
            self.factors = np.ones((survey.leaves.size, hats.count))
        moves = np.ceil(options.per_size * expected).astype(np.int64)
        spread = (np.arange(_STEPS) + 0.5) / _STEPS
        steps = np.floor(float(min(options.furthest, survey.max_size) + 1) ** spread).astype(np.int64)
        self.prior: Prior = posterior_moves.Prior(
            kind, hats.left, hats.share, survey.leaves, prior.rows(survey.leaves.size), log_draw, keep, alias
        )
        knots, self.base = first_base(shape, hats)
        self.shape = self.base.values
        mass = hats.sums(self.shape[None])[0]
        scales = posterior_shape.Scales(*block_scales(hats, mass))
        self.basis: Basis = posterior_shares.Basis(
            read_only(parent), survey.levels(), survey.leaves, hats.left, hats.share, mass, strength, scales, knots
        )
        self.plan: Plan = posterior_moves.Plan(
            np.maximum(moves, _LEAST_MOVES),
            np.ceil(options.exchanges * np.maximum(moves, _LEAST_MOVES)).astype(np.int64),
            *leaves_under(survey),
            np.ceil(options.trades * np.maximum(moves, _LEAST_MOVES)).astype(np.int64),
            most_traded(survey.groups[survey.leaves], options),
            np.where(expected <= options.most_looked_at, options.by_group, 0.0),
            survey.groups[survey.leaves],
            options.independent,
            options.several,
            options.within,
            steps,
            np.ceil(options.shifts * np.maximum(moves, _LEAST_MOVES)).astype(np.int64),
            min(_TRADED_SIZES, sizes) if options.shifts else sizes,
        )
        self._first = self.plan

    def with_factors(self, factors: Floats) -> float:
        """Multiply each leaf's first number of moves, exchanges and trades by a factor; return that of all work.

        All chains that share these tables continue so.
        """
        first = self._first
        moves, exchanges, trades = (
            np.where(each > 0, np.maximum(np.ceil(factors * each), 1), 0).astype(np.int64)
            for each in (first.moves, first.exchanges, first.trades)
        )
        self.plan = first._replace(moves=moves, exchanges=exchanges, trades=trades)
        return float((moves.sum() + _SHIFT_TIME * first.shifts.sum()) / first.moves.sum())


def count_type(survey: Survey) -> type[np.int32] | type[np.int64]:
    """Return the type that holds the groups of every leaf."""
    most = int(survey.groups[survey.leaves].max(initial=0))
    return np.int32 if most <= np.iinfo(np.int32).max else np.int64


def most_traded(groups: Ints, options: MoveOptions) -> Ints:
    """Return the most groups of a trade in each leaf, given its groups."""
    most: Ints = np.ceil(options.traded * groups).astype(np.int64)
    return np.minimum(most, _MOST_TRADED) if options.shifts else most


def occupied_sizes(survey: Survey, prior: Learned) -> Floats:
    """Return the expected number of sizes with groups of each leaf (leaves,), from size distributions."""
    groups, row = survey.groups[survey.leaves].astype(np.float64)[:, None], prior.rows(survey.leaves.size)
    expected = np.empty(row.size)
    for begin in range(0, row.size, _BATCH):
        some = slice(begin, begin + _BATCH)
        none = np.log1p(-np.minimum(prior.probabilities[row[some]], 1.0 - 1e-12))
        expected[some] = -np.expm1(groups[some] * none).sum(axis=1)
    return expected


def leaves_under(survey: Survey) -> tuple[Ints, Ints, Ints]:
    """Return each leaf's ancestors by level (leaves, levels), -1 where none, and each region's leaves.

    The latter are starts and places among the leaves.
    """
    levels, parent = survey.levels(), survey.parent
    above = np.full((survey.leaves.size, max(int(levels.max()), 1)), -1, np.int64)
    under: list[list[int]] = [[] for _ in parent]
    for place, leaf in enumerate(survey.leaves):
        region = int(parent[leaf])
        while region >= 0:
            above[place, levels[region]] = region
            under[region].append(place)
            region = int(parent[region])
    start = np.cumsum([0, *map(len, under)], dtype=np.int64)
    return above, start, np.array([place for places in under for place in places], np.int64)


def block_scales(hats: Hats, mass: Floats) -> tuple[Ints, Ints, Ints]:
    """Return the blocks of sizes of each scale as starts, begins and ends: runs of about a third of a size, and single.

    A size with a hat of its own has no block, because the hat's weight determines how often it occurs.
    """
    sizes = hats.left.size
    own = (hats.share == 0.0) & (hats.sums(np.ones((1, sizes)))[0][hats.left] == 1.0)
    runs, begin = [], 0
    while begin < sizes:
        end = begin + 1
        if not own[begin]:
            while end < min(begin + max(int(0.3 * begin), 1), sizes) and not own[end]:
                end += 1
            if end > begin + 1:
                runs.append((begin, end))
        begin = end
    single = [(k, k + 1) for k in np.flatnonzero(~own).tolist()]
    scales = [scale for scale in (runs, single) if scale]
    start = np.cumsum([0, *map(len, scales)])
    begins, ends = np.array([pair for scale in scales for pair in scale], np.int64).reshape(-1, 2).T
    return start, begins.copy(), ends.copy()


class MoveChain:
    """Metropolis moves of groups, from given histograms int64[leaves, K + 1]."""

    def __init__(self, survey: Survey, queries: Queries, histograms: NDArray[Any], word: np.uint64) -> None:
        from coco_opt.kernels import posterior_moves

        self._survey, self._queries, self._leaves = survey, queries, survey.leaves
        residual, ranks = residuals(survey, cumulative_rows(survey, histograms))
        shape = histograms.shape
        counted = count_type(survey)
        listed = np.int16 if survey.max_size <= np.iinfo(np.int16).max else np.int32
        self._state = posterior_moves.State(
            histograms.astype(counted),
            np.zeros(shape, listed),
            np.zeros(shape, listed),
            np.zeros(shape[0], np.int64),
            residual,
            ranks,
            np.zeros((1, 1)),
            np.ones(shape[1]),
            np.zeros(shape, counted),
            np.zeros((1, 1), np.int64),
            np.zeros((1, 1)),
            np.zeros(1),
            np.array([word], np.uint64),
        )
        posterior_moves.list_occupied(self._state)
        self._sums, self._sweeps = np.zeros((0, shape[1])), 0
        self._tables: MoveTables | None = None
        self._shares: Shares | None = None
        self.proposed = self.accepted = 0

    def use(self, prior: Learned, tables: MoveTables | None = None) -> None:
        """Continue under another prior; all chains may share ``tables``."""
        from coco_opt.kernels import posterior_shape, posterior_shares

        self._tables = tables or MoveTables(self._survey, prior, MoveOptions())
        if self._sums.shape != prior.probabilities.shape:
            self._sums, self._sweeps = np.zeros(prior.probabilities.shape), 0
        basis = self._tables.basis
        if basis.parent.size == 0 or self._shares is None:
            shape = self._tables.shape.copy()
            blocks, scales = basis.scales.begin.size, basis.scales.start.size - 1
            buffers = *np.zeros((2, shape.size)), *np.zeros((2, blocks)), *np.zeros((2, basis.mass.size))
            own = posterior_shape.Shape(shape, np.ones(blocks), np.full(scales, _PRECISION), *buffers)
            regions = basis.parent.size
            weights = np.tile(basis.mass, (regions, 1))
            strengths = np.full(int(basis.level.max()) + 1, basis.strength)
            self._shares = posterior_shares.Shares(
                weights,
                strengths,
                np.zeros(weights.shape, np.int64),
                basis.mass.copy(),
                own,
                type(self._tables.base)(*(each.copy() for each in self._tables.base)),
            )
            factors = self._tables.factors
            self._state = self._state._replace(
                factors=factors.copy(),
                shape=shape,
                of_hat=self._shares.counts,
                alpha=np.ones(factors.shape),
                mass=self._shares.mass,
            )
            if regions:  # every group starts in the earlier hat of its size
                for leaf, region in enumerate(self._leaves):
                    np.add.at(self._shares.counts[region], basis.left, self._state.histograms[leaf])
                posterior_shares.set_alpha(basis, self._shares, self._state.alpha)

    def advance(self, sweeps: int) -> None:
        """Take so many sweeps."""
        from coco_opt.kernels import posterior_moves

        assert self._tables is not None
        assert self._shares is not None
        prior, plan, basis = self._tables.prior, self._tables.plan, self._tables.basis
        self.accepted += posterior_moves.advance(
            self._queries, self._state, prior, plan, basis, self._shares, sweeps, self._sums
        )
        self.proposed += sweeps * self.work[0]
        self._sweeps += sweeps

    @property
    def work(self) -> tuple[int, int]:
        """Return the moves of a sweep, exchanges and trades included, and the states of the rows that it draws."""
        assert self._tables is not None
        plan = self._tables.plan
        return int(plan.moves.sum() + plan.exchanges.sum() + plan.trades.sum() + plan.shifts.sum()), 0

    @property
    def steepness(self) -> Floats:
        """The steepness of every block's noise distribution (blocks,); chains continue with another that is set."""
        return self._queries.steepness

    @steepness.setter
    def steepness(self, steepness: Floats) -> None:
        self._queries = self._queries._replace(steepness=steepness)

    @property
    def residual(self) -> Ints:
        """The present values less their noisy answers, of all blocks in order."""
        return self._state.residual

    @property
    def lists(self) -> tuple[NDArray[Any], NDArray[Any], Ints]:
        """The present histograms (leaves, K + 1), the lists of their occupied sizes, and the lists' lengths."""
        return self._state.histograms, self._state.occupied, self._state.occupied_count

    def take_means(self) -> Floats:
        """Return the mean counts (rows of the prior, K + 1) since the last call."""
        means = self._sums / max(self._sweeps, 1)
        self._sums[:], self._sweeps = 0.0, 0
        return means

    def fill(self, table: Ints) -> None:
        """Write the present cumulative counts int64[regions, K]."""
        from coco_opt.kernels import posterior_record

        posterior_record.cumulate(self._survey.parent, self._leaves, self._state.histograms, table)


class CountRowChain(MoveChain):
    """Draws complete rows in turn under size distributions, given answers about single cells, without moves.

    Answers in buckets, of regions above the leaves, accept or refuse a row: they are behind those about cells.
    """

    _low: Ints
    _start: Ints
    _powers: Floats

    def __init__(self, survey: Survey, queries: Queries, histograms: NDArray[Any], word: np.uint64) -> None:
        super().__init__(survey, queries, histograms, word)
        cells = survey.blocks_of_cells
        self._cells = cells * survey.max_size
        # The paths of leaves to their blocks about cells, and to those in buckets, as starts and blocks.
        self._paths = []
        for some in (queries.path < cells, queries.path >= cells):
            before = np.concatenate([[0], np.cumsum(some)])
            self._paths.append((before[queries.path_start], queries.path[some]))
        self._tried = np.zeros(2, np.int64)  # rows with answers in buckets: drawn, accepted

    @property
    def work(self) -> tuple[int, int]:
        """Return the exchanges of a sweep, and the states of the rows that it draws."""
        assert self._tables is not None
        return int(self._tables.plan.exchanges.sum()), int(self._start[:, -1].sum())

    def within(self, lowest: Ints, highest: Ints) -> None:
        """Use windows lowest .. highest, int64[leaves, K], which must hold the present rows."""
        self._low, self._start = windows_within(lowest, highest, self._survey.groups[self._leaves])
        self._powers = _powers(self._queries, self._start)

    def advance(self, sweeps: int) -> None:
        """Take so many sweeps, then exchanges; SolverError where a window leaves no path."""
        from coco_opt.kernels import posterior_moves, posterior_rows, posterior_weights

        assert self._tables is not None
        assert self._shares is not None
        queries, state = self._queries, self._state
        answers = posterior_weights.CellAnswers(
            state.residual[: self._cells].reshape(-1, self._survey.max_size),
            queries.distribution,
            queries.steepness,
            *self._paths[0],
        )
        sums = posterior_rows.Sums(
            state.residual,
            *self._paths[1],
            queries.distribution,
            queries.steepness,
            queries.offset,
            queries.scheme,
            queries.bucket_start,
            queries.begin,
            queries.end,
            self._tried,
        )
        rows = posterior_rows.CountRows(
            self._survey.groups[self._leaves],
            self._low,
            self._start,
            self._powers,
            state.histograms,
            state.occupied,
            state.occupied_count,
            state.upper,
            state.factors,
            state.shape,
            state.words,
        )
        basis = self._tables.basis
        if not posterior_rows.advance(answers, sums, rows, basis, self._shares, sweeps, self._sums):
            raise SolverError("a row has no state of positive weight within its window: the answers are too far apart")
        if self._tried[0] >= _ENOUGH_ROWS and self._tried[1] < _LEAST_ACCEPTED * self._tried[0]:
            raise SolverError("answers in buckets refuse almost every row that answers about cells suggest")
        self._sweeps += sweeps
        # Where sums above are sharp no single leaf can give up a group, but two leaves can exchange groups.
        posterior_moves.list_occupied(state)
        prior = self._tables.prior._replace(kind=posterior_moves.MULTINOMIAL)
        posterior_moves.exchange(queries, state, prior, self._tables.plan)


def windows_within(lowest: Ints, highest: Ints, totals: Ints) -> tuple[Ints, Ints]:
    """Return low int64[leaves, K] and start int64[leaves, K + 1] of windows cut to 0 .. totals (leaves,)."""
    low = np.maximum(lowest, 0)
    width = np.minimum(highest, totals[:, None]) - low + 1
    start = np.zeros((low.shape[0], low.shape[1] + 1), np.int64)
    np.cumsum(width, axis=1, out=start[:, 1:])
    return low, start


def _powers(queries: Queries, start: Ints) -> Floats:
    """Return exp(-d steepness) of every block, for all distances d within the widest window."""
    return np.exp(-queries.steepness[:, None] * np.arange(float(np.diff(start, axis=1).max() + 1)))
