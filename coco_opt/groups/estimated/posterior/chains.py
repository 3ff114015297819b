"""Markov chains over the tables of a hierarchy, and the prior they share: thin shells around the compiled sweeps.

``MoveChain`` takes any questions (Metropolis moves of groups); ``RowChain`` only answers about single cells and
increment priors, and then draws whole rows of cumulative counts, which mixes far better in dense regions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import SolverError
from coco_opt.groups.estimated.posterior.prior import (
    BoolArray,
    FloatArray,
    Hats,
    IntArray,
    PriorOptions,
    SizeChances,
    increment_prior,
)
from coco_opt.groups.estimated.posterior.survey import Survey, residuals

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_moves import Plan, Prior, Questions
    from coco_opt.kernels.posterior_shares import Basis, Shares

_STEPS = 256
_LEAST_MOVES = 4


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """How moves are proposed: their number a sweep for each size expected to be occupied, and their kinds' shares.

    ``by_group`` take a group of the leaf at random, the others an occupied size; of leaves expected to have more than
    ``most_looked_at`` sizes none do, for a group is found by looking through the sizes. ``independent`` are drawn from
    the leaf's own law of sizes, the others go up to ``furthest`` sizes; ``several`` take more than one group.
    """

    per_size: float = 4.0
    by_group: float = 0.8
    most_looked_at: float = 100.0
    independent: float = 0.3
    several: float = 0.2
    furthest: int = 299


@dataclass(frozen=True, eq=False, slots=True)
class Scattered:
    """Laws of sizes that are drawn along (``kernels.posterior_shares``): a shape float64[K + 1] of sum 1 under hats.

    ``strength`` is that of the root, and the mean of the others' own prior.
    """

    shape: FloatArray
    hats: Hats
    strength: float


@dataclass(frozen=True, eq=False, slots=True)
class Learned:
    """A prior of the leaves: ``chances`` float64[leaves, K + 1] (pi, or an increment's share of the mean); q, rho.

    Where pi is ``scattered``, ``chances`` is what is expected of it, and tells what to propose alone.
    """

    chances: FloatArray
    q: FloatArray
    rho: FloatArray
    increments: bool
    scattered: Scattered | None = None


class SizeLearner:
    """Learns multinomial priors from the leaves' mean counts (leaves, K + 1); see ``prior.SizeChances``."""

    def __init__(self, survey: Survey, shape: FloatArray, alone: BoolArray, options: PriorOptions) -> None:
        self._survey = survey
        self._chances = SizeChances(survey.parent, shape, alone, options)
        self._strength = options.borrowed

    def learn(self, counts: FloatArray, present: FloatArray) -> Learned:
        """Return the prior one step on."""
        parent = self._survey.parent
        full = np.zeros((parent.size, counts.shape[1]))
        full[self._survey.leaves] = counts
        for region in range(parent.size - 1, 0, -1):
            full[parent[region]] += full[region]
        none, own = np.zeros((1, 1)), self._chances
        scattered = Scattered(own.shape, own.hats, self._strength)
        return Learned(own.learn(full)[self._survey.leaves], none, none, increments=False, scattered=scattered)


class IncrementLearner:
    """Learns increment priors from the leaves' mean counts and shares of presence; see ``prior.increment_prior``."""

    def __init__(self, reach: float) -> None:
        self._reach = reach

    def learn(self, counts: FloatArray, present: FloatArray) -> Learned:
        """Return the prior that they lead to."""
        q, rho = increment_prior(present, counts, self._reach)
        mean = q / (1.0 - rho)
        return Learned(mean / mean.sum(axis=1, keepdims=True), q, rho, increments=True)


@dataclass(eq=False, slots=True)
class _Means:
    counts: FloatArray
    present: FloatArray
    sweeps: int = 0

    def take(self) -> tuple[FloatArray, FloatArray]:
        n = max(self.sweeps, 1)
        found = self.counts / n, self.present / n
        self.counts[:] = 0.0
        self.present[:] = 0.0
        self.sweeps = 0
        return found


class MoveTables:
    """A prior and the plan of moves as the kernels read them; read only, so that all chains share them.

    A law of sizes that is not scattered has a hat of its own at every size, and ``factors`` (leaves, hats) that stay.
    """

    def __init__(self, survey: Survey, prior: Learned, options: MoveOptions) -> None:
        from coco_opt.kernels import posterior_moves, posterior_shares

        groups = survey.groups[survey.leaves].astype(np.float64)[:, None]
        draw = np.ascontiguousarray(prior.chances)
        keep, alias = np.empty_like(draw), np.empty(draw.shape, np.int32)
        posterior_moves.alias_tables(draw, keep, alias)
        log_draw = np.log(draw)
        if prior.increments:
            expected = prior.q.sum(axis=1)
            with np.errstate(divide="ignore"):
                tables = np.log1p(-prior.q), np.log(prior.q * (1.0 - prior.rho)), np.log(np.maximum(prior.rho, 1e-300))
            kind = posterior_moves.INCREMENTS
        else:
            expected = -np.expm1(groups * np.log1p(-np.minimum(draw, 1.0 - 1e-12))).sum(axis=1)
            none = np.zeros((1, 1))
            tables = none, none, none
            kind = posterior_moves.MULTINOMIAL
        sizes = draw.shape[1]
        hats = Hats(np.arange(sizes), np.zeros(sizes), sizes + 1)
        shape, parent, strength = np.ones(sizes), np.zeros(0, np.int64), 1.0
        self.factors = np.concatenate([draw, np.zeros((draw.shape[0], 1))], axis=1)
        if prior.scattered is not None:
            shape, hats, strength = prior.scattered.shape, prior.scattered.hats, prior.scattered.strength
            parent = survey.parent
            self.factors = np.ones((draw.shape[0], hats.count))
        mass = hats.sums(shape[None])[0]
        moves = np.ceil(options.per_size * expected).astype(np.int64)
        spread = (np.arange(_STEPS) + 0.5) / _STEPS
        steps = np.floor(float(min(options.furthest, survey.max_size) + 1) ** spread).astype(np.int64)
        self.prior: Prior = posterior_moves.Prior(kind, shape, hats.left, hats.share, *tables, log_draw, keep, alias)
        self.basis: Basis = posterior_shares.Basis(
            parent, survey.levels(), survey.leaves, hats.left, hats.share, mass, strength
        )
        self.plan: Plan = posterior_moves.Plan(
            np.maximum(moves, _LEAST_MOVES),
            np.where(expected <= options.most_looked_at, options.by_group, 0.0),
            survey.groups[survey.leaves],
            options.independent,
            options.several,
            steps,
        )


class MoveChain:
    """Metropolis moves of groups, from given histograms int64[leaves, K + 1]."""

    def __init__(self, survey: Survey, questions: Questions, histograms: IntArray, word: np.uint64) -> None:
        from coco_opt.kernels import posterior_moves, posterior_record

        self._survey, self._questions, self._leaves = survey, questions, survey.leaves
        table = np.empty((survey.parent.size, survey.max_size), np.int64)
        posterior_record.cumulate(survey.parent, self._leaves, histograms, table)
        residual, ranks = residuals(survey, table)
        shape = histograms.shape
        self._state = posterior_moves.State(
            histograms.copy(),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(shape[0], np.int64),
            residual,
            ranks,
            np.zeros((1, 1)),
            np.array([word], np.uint64),
        )
        posterior_moves.list_occupied(self._state)
        self._means = _Means(np.zeros(shape), np.zeros(shape))
        self._tables: MoveTables | None = None
        self._shares: Shares | None = None
        self.proposed = self.accepted = 0

    def use(self, prior: Learned, tables: MoveTables | None = None) -> None:
        """Go on under another prior; ``tables`` may be shared by all chains."""
        from coco_opt.kernels import posterior_shares

        self._tables = tables or MoveTables(self._survey, prior, MoveOptions())
        basis = self._tables.basis
        if basis.parent.size == 0 or self._shares is None:
            self._state = self._state._replace(factors=self._tables.factors.copy())
            regions = basis.parent.size
            weights = np.tile(basis.mass, (regions, 1))
            strengths = np.full(int(basis.level.max()) + 1, basis.strength)
            self._shares = posterior_shares.Shares(
                weights, strengths, np.zeros(weights.shape, np.int64), np.zeros((strengths.size, 2))
            )

    def advance(self, sweeps: int) -> None:
        """Take so many sweeps."""
        from coco_opt.kernels import posterior_moves

        assert self._tables is not None
        assert self._shares is not None
        prior, plan, basis = self._tables.prior, self._tables.plan, self._tables.basis
        means = self._means
        self.accepted += posterior_moves.advance(
            self._questions, self._state, prior, plan, basis, self._shares, sweeps, means.counts, means.present
        )
        self.proposed += sweeps * int(plan.moves.sum())
        means.sweeps += sweeps

    def take_means(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean counts and shares of draws with any (leaves, K + 1) since the last call."""
        return self._means.take()

    def fill(self, table: IntArray) -> None:
        """Write the present cumulative counts int64[regions, K]."""
        from coco_opt.kernels import posterior_record

        posterior_record.cumulate(self._survey.parent, self._leaves, self._state.histograms, table)


class RowChain:
    """Whole rows drawn in turn, from given histograms; ``margin`` groups of room around the values seen so far."""

    def __init__(self, survey: Survey, questions: Questions, histograms: IntArray, word: np.uint64) -> None:
        from coco_opt.kernels import posterior_record

        self._survey, self._leaves = survey, survey.leaves
        self._questions = questions
        self._totals = survey.groups[self._leaves]
        self._rows = np.ascontiguousarray(np.cumsum(histograms, axis=1)[:, :-1])
        table = np.empty((survey.parent.size, survey.max_size), np.int64)
        posterior_record.cumulate(survey.parent, self._leaves, histograms, table)
        self._residual = residuals(survey, table)[0].reshape(-1, survey.max_size)
        self._words = np.array([word], np.uint64)
        self._means = _Means(np.zeros(histograms.shape), np.zeros(histograms.shape))
        self._prior: Learned | None = None
        self._low: NDArray[np.int64] = self._rows
        self._start = np.zeros(histograms.shape, np.int64)
        self._powers: FloatArray = np.ones((1, 1))
        self.proposed = self.accepted = 0

    def use(self, prior: Learned) -> None:
        """Go on under another prior."""
        self._prior = prior

    def within(self, lowest: IntArray, highest: IntArray) -> None:
        """Use windows lowest .. highest, int64[leaves, K], which must hold the present rows."""
        self._low = np.maximum(lowest, 0)
        high = np.minimum(highest, self._totals[:, None])
        width = high - self._low + 1
        self._start = np.zeros(self._means.counts.shape, np.int64)
        np.cumsum(width, axis=1, out=self._start[:, 1:])
        self._powers = np.exp(-self._questions.steepness[:, None] * np.arange(float(width.max() + 1)))

    def advance(self, sweeps: int) -> None:
        """Take so many sweeps; SolverError where a window leaves no path."""
        from coco_opt.kernels import posterior_region

        assert self._prior is not None
        questions, means = self._questions, self._means
        answers = posterior_region.CellAnswers(
            self._residual, questions.law, questions.steepness, questions.path_start, questions.path
        )
        rows = posterior_region.Rows(self._rows, self._totals, self._low, self._start, self._powers, self._words)
        prior = posterior_region.Increments(self._prior.q, self._prior.rho)
        complete = posterior_region.advance(answers, rows, prior, sweeps, means.counts, means.present)
        if not complete:
            raise SolverError("a row has no state of positive weight within its window: the answers are too far apart")
        means.sweeps += sweeps

    @property
    def rows(self) -> IntArray:
        """The leaves' present cumulative counts, int64[leaves, K]."""
        return self._rows

    def take_means(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean counts and shares of draws with any (leaves, K + 1) since the last call."""
        return self._means.take()

    def fill(self, table: IntArray) -> None:
        """Write the present cumulative counts int64[regions, K]."""
        from coco_opt.kernels import posterior_record

        table[:] = 0
        table[self._leaves] = self._rows
        posterior_record.add_up(self._survey.parent, table)
