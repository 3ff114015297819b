"""The posterior of all histograms of a hierarchy, from noisy answers to any questions about them.

Post-processing only: answers, laws, the hierarchy and the numbers of groups are public. A prior is learned from the
answers while the chains burn in and is then frozen, so that what is recorded is the posterior under one prior; chains
go on until split R-hat and effective sizes hold or a cap is reached. Every draw is a whole consistent table.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimated.posterior.chains import (
    Learned,
    MoveChain,
    MoveOptions,
    MoveTables,
    RowChain,
    learned_prior,
)
from coco_opt.groups.estimated.posterior.diagnostics import effective_size, split_r_hat
from coco_opt.groups.estimated.posterior.prior import FloatArray, IntArray, PriorOptions
from coco_opt.groups.estimated.posterior.recorded import Counted, Range, Recorder, size_counts, together
from coco_opt.groups.estimated.posterior.spikes import standing_alone
from coco_opt.groups.estimated.posterior.survey import Answers, Survey, compiled_questions

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """How long to sample, and when to stop.

    Every chain takes ``burn_in`` sweeps, the prior learned anew every ``update_every`` of them but for the last
    ``settle``, then rounds of ``draws`` draws, ``thin`` sweeps apart. It ends when at every level 95 % of the regions'
    scalars have split R-hat at most ``r_hat`` and half of them an effective size of at least ``effective``, and not
    before ``least_rounds``; or after ``most_rounds``.
    """

    chains: int = 4
    burn_in: int = 80
    update_every: int = 10
    settle: int = 20
    draws: int = 25
    thin: int = 2
    r_hat: float = 1.05
    effective: float = 200.0
    least_rounds: int = 2
    most_rounds: int = 40
    threads: int | None = None
    moves: MoveOptions = field(default_factory=MoveOptions)

    def __post_init__(self) -> None:
        if min(self.chains, self.burn_in, self.update_every, self.thin, self.most_rounds) < 1 or self.draws < 4:
            raise ProblemError("sampling needs at least one chain, sweep and round, and four draws a round")
        if self.chains * self.draws * self.most_rounds > np.iinfo(np.uint16).max:
            raise ProblemError("at most 65,535 draws can be recorded: take fewer chains, draws or rounds")


@dataclass(frozen=True, eq=False, slots=True)
class Posterior:
    """Draws of all regions: of Hc[0..K-1] (``cumulative``) and, where they were asked for, of H[0..K] (``sizes``).

    ``mean`` float64[regions, K] is that of Hc. ``r_hat`` and ``effective`` float64[regions, 3] are those of the
    entities, of Hc[0], and of Hc at the ``probe`` cell; ``converged`` tells whether they held before the cap.
    ``outside`` is the share of values outside their windows, ``accepted`` that of moves; ``chances``
    float64[leaves, K + 1] is the prior's expected share of each size.
    """

    cumulative: Counted
    sizes: Counted | None
    mean: FloatArray
    draws: int
    sweeps: int
    probe: int
    r_hat: FloatArray
    effective: FloatArray
    converged: bool
    accepted: float
    outside: float
    chances: FloatArray

    def quantile(self, part: int, of: int, *, upper: bool = False) -> IntArray:
        """Return the lower (or upper) quantile part / of of Hc, int64[regions, K], nondecreasing in every region."""
        return self.cumulative.quantile(part, of, upper=upper)

    @property
    def lower_median(self) -> IntArray:
        """Return the smallest medians; of each region alone an estimate of least expected distance."""
        return self.quantile(1, 2)

    @property
    def upper_median(self) -> IntArray:
        """Return the largest medians."""
        return self.quantile(1, 2, upper=True)


def sample_posterior(
    survey: Survey,
    seed: int,
    *,
    prior: PriorOptions | None = None,
    options: SamplerOptions | None = None,
    start: NDArray[np.int64] | None = None,
    sizes: bool = False,
    progress: Progress | None = None,
) -> Posterior:
    """Return the posterior of all regions; the same survey, seed and options give the same bits for any threads.

    ``start`` int64[leaves, K + 1] are histograms to begin with, by default the leaves' own fits. ``seed`` must not be
    that of the noise. With ``sizes`` draws of H are counted too; ``progress`` is told the sweeps done and their largest
    number. Whole rows are drawn where the prior is of increments and all answers are about single cells,
    otherwise groups are moved. Raises ProblemError for a start of other groups. Memory: chains x (counts + a table).
    """
    sampler = _Sampler(survey, seed, prior or PriorOptions(), options or SamplerOptions(), start)
    sampler.told, sampler.sizes = progress, Range() if sizes else None
    with ThreadPoolExecutor(sampler.options.threads or os.cpu_count()) as pool:
        return sampler.run(pool)


class _Sampler:
    """One run: burn-in, then rounds of draws."""

    def __init__(
        self, survey: Survey, seed: int, prior: PriorOptions, options: SamplerOptions, start: IntArray | None
    ) -> None:
        self.survey, self.prior, self.options = survey, prior, options
        histograms = start_histograms(survey) if start is None else start
        leaves = survey.leaves
        if histograms.shape != (leaves.size, survey.max_size + 1) or (histograms < 0).any():
            raise ProblemError("a start needs one histogram of sizes 0 .. max_size for every leaf")
        if (histograms.sum(axis=1) != survey.groups[leaves]).any():
            raise ProblemError("the histograms of a start must have the leaves' numbers of groups")
        questions = compiled_questions(survey)
        self.by_rows = prior.kind == "increments" and survey.only_cells
        words = [np.random.SeedSequence([seed, n]).generate_state(1, np.uint64)[0] for n in range(options.chains)]
        kind: Callable[..., MoveChain | RowChain] = RowChain if self.by_rows else MoveChain
        self.chains = [kind(survey, questions, histograms, word) for word in words]
        self.margin = _margin(survey)
        self.tables = [np.empty((survey.parent.size, survey.max_size), np.int64) for _ in self.chains]
        counts = histograms.astype(np.float64)
        # Fits have too few sizes that occur, for they are flat: every size is taken to occur half as often at least.
        seen = np.minimum(1.0, 0.5 * (counts > 0.0) + 0.5 * counts.mean(axis=1, keepdims=True))
        self.counts, self.present = counts, seen
        self.alone = standing_alone(survey, prior.reach)
        self.learned: Learned
        self.cumulative = Range()
        self.sizes: Range | None = None
        self.told: Progress | None = None

    def run(self, pool: ThreadPoolExecutor) -> Posterior:
        self._burn_in(pool)
        return self._record(pool)

    def _learn(self) -> None:
        self.learned = learned_prior(self.survey, self.counts, self.present, self.prior, self.alone)
        shared = None if self.by_rows else MoveTables(self.survey, self.learned, self.options.moves)
        for chain in self.chains:
            if isinstance(chain, MoveChain):
                chain.use(self.learned, shared)
            else:
                chain.use(self.learned)

    def _advance(self, pool: ThreadPoolExecutor, sweeps: int) -> None:
        for _ in pool.map(lambda chain: chain.advance(sweeps), self.chains):
            pass

    def _look(self, pool: ThreadPoolExecutor) -> None:
        """Write every chain's present table."""
        for _ in pool.map(lambda n: self.chains[n].fill(self.tables[n]), range(len(self.chains))):
            pass

    def _burn_in(self, pool: ThreadPoolExecutor) -> None:
        """Let the chains forget where they began, learn the prior, and see which values the cells take."""
        options = self.options
        self._learn()
        self._look(pool)
        self._see(anew=True)
        self._set_windows(4 * self.margin)
        done = 0
        while done < options.burn_in:
            step = min(options.update_every, options.burn_in - done)
            self._advance(pool, step)
            done += step
            if options.burn_in - done >= options.settle:
                self._update(1.0 / min(1 + done / options.update_every, 5.0))
            self._look(pool)
            self._see(anew=2 * done <= options.burn_in or done == step)
            self._set_windows(self.margin)
            self._tell(done)

    def _see(self, *, anew: bool) -> None:
        """Widen the ranges of values by every chain's present table; ``anew``: forget those seen before."""
        groups = self.survey.groups
        for n, table in enumerate(self.tables):
            self.cumulative.see(table, anew=anew and n == 0)
            if self.sizes is not None:
                self.sizes.see(size_counts(table, groups), anew=anew and n == 0)

    def _tell(self, sweeps: int, *, last: bool = False) -> None:
        if self.told is not None:
            most = self.options.burn_in + self.options.most_rounds * self.options.draws * self.options.thin
            self.told(most if last else sweeps, most)

    def _update(self, weight: float) -> None:
        """Mix the chains' mean counts since the last time into the running ones, and learn the prior from them."""
        means = [chain.take_means() for chain in self.chains]
        counts, present = (np.mean([pair[n] for pair in means], axis=0) for n in (0, 1))
        self.counts += weight * (counts - self.counts)
        self.present += weight * (present - self.present)
        self._learn()

    def _set_windows(self, margin: int) -> None:
        leaves, seen = self.survey.leaves, self.cumulative
        for chain in self.chains:
            if isinstance(chain, RowChain):
                lowest, highest = (ends[leaves].astype(np.int64) for ends in (seen.lowest, seen.highest))
                chain.within(lowest - margin, highest + margin)

    def _record(self, pool: ThreadPoolExecutor) -> Posterior:
        survey, options = self.survey, self.options
        probe, levels = self._probe(), survey.levels()
        sizes = None if self.sizes is None else self.sizes.windows(survey.groups)
        windows = self.cumulative.windows(survey.groups), sizes
        recorders = [
            Recorder(chain, table, survey.groups, windows, probe)
            for chain, table in zip(self.chains, self.tables, strict=True)
        ]
        converged, rounds = False, 0
        while rounds < options.most_rounds and not converged:
            for _ in pool.map(lambda one: one.take(options.draws, options.thin), recorders):
                pass
            rounds += 1
            traces = np.stack([np.stack(one.trace) for one in recorders])
            r_hat = split_r_hat(traces).reshape(-1, 3)
            effective = effective_size(traces).reshape(-1, 3)
            converged = rounds >= options.least_rounds and _holds(levels, r_hat, effective, options)
            self._tell(options.burn_in + rounds * options.draws * options.thin, last=converged)
        draws = len(recorders) * rounds * options.draws
        proposed = sum(chain.proposed for chain in self.chains)
        cumulative = together([one.cumulative for one in recorders], draws)
        tallies = [one.sizes for one in recorders if one.sizes is not None]
        return Posterior(
            cumulative=cumulative,
            sizes=together(tallies, draws) if tallies else None,
            mean=np.sum([one.cumulative.sums for one in recorders], axis=0) / draws,
            draws=draws,
            sweeps=options.burn_in + rounds * options.draws * options.thin,
            probe=probe,
            r_hat=r_hat,
            effective=effective,
            converged=converged,
            accepted=sum(chain.accepted for chain in self.chains) / proposed if proposed else 1.0,
            outside=sum(one.cumulative.outside for one in recorders) / (draws * cumulative.low.size),
            chances=self.learned.chances,
        )

    def _probe(self) -> int:
        """Return the cell where about half of the root's groups of size above 0 are counted."""
        row = self.tables[0][0]
        return int(np.searchsorted(row, (row[0] + self.survey.groups[0] + 1) // 2).clip(0, row.size - 1))


def _holds(levels: IntArray, r_hat: FloatArray, effective: FloatArray, options: SamplerOptions) -> bool:
    for level in range(int(levels.max()) + 1):
        at = levels == level
        if float(np.quantile(r_hat[at], 0.95)) > options.r_hat or float(np.median(effective[at])) < options.effective:
            return False
    return True


def _margin(survey: Survey) -> int:
    """Return the room in groups around a row's values: 2.5 times the spread of the widest noise on a leaf."""
    leaves = set(survey.leaves.tolist())
    every = [(one.region, float(one.law.spread)) for one in survey.answers]
    own = [spread for region, spread in every if region in leaves]
    return math.ceil(2.5 * max(own or [spread for _, spread in every] or [1.0])) + 2


def start_histograms(survey: Survey) -> IntArray:
    """Return histograms int64[leaves, K + 1] to begin with: each leaf's isotonic fit, or its share of an ancestor's."""
    fits: dict[int, IntArray] = {}
    for one in survey.answers:
        if one.region not in fits:
            fits[one.region] = _fit(one, int(survey.groups[one.region]), survey.max_size)
    rows = np.zeros((survey.leaves.size, survey.max_size), np.int64)
    for place, leaf in enumerate(survey.leaves):
        region = int(leaf)
        while region >= 0 and region not in fits:
            region = int(survey.parent[region])
        if region >= 0:
            share = int(survey.groups[leaf]) / max(int(survey.groups[region]), 1)
            rows[place] = np.floor(fits[region] * share + 0.5).astype(np.int64)
    return np.diff(rows, axis=1, prepend=0, append=survey.groups[survey.leaves][:, None])


def _fit(one: Answers, groups: int, max_size: int) -> IntArray:
    """Return nondecreasing cumulative counts int64[K] near one region's answers."""
    from coco_opt.kernels import isotonic_l1

    if not isinstance(one.question, Buckets):
        sizes = isotonic_l1.fit(one.values.astype(np.int64), 0, max_size)
        return np.cumsum(np.bincount(sizes, minlength=max_size + 1))[:-1].astype(np.int64)
    width = one.question.end - one.question.begin
    means = np.floor(one.values / width + 0.5).astype(np.int64)
    fitted = isotonic_l1.fit_weighted(means, width.astype(np.float64), 0, groups)
    # Between the buckets' middles counts rise evenly: flat within buckets, all leaves would err in the same direction.
    middle = 0.5 * (one.question.begin + one.question.end - 1)
    return np.floor(np.interp(np.arange(max_size), middle, fitted) + 0.5).astype(np.int64)
