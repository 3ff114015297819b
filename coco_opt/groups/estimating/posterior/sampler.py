"""The posterior of all histograms of a hierarchy, from noisy answers to any queries about them.

This is post-processing: answers, noise distributions, the hierarchy and the numbers of groups are public. The shape of
the sizes, and how regions vary around it, are unknown and sampled too, so intervals account for both. The proposals are
learned during burn-in. Chains continue until all regions meet one criterion or a limit is reached. Every draw is a
consistent integer table.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from coco_opt.activity import Progress, doing, may_end_early
from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError, SolverError
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.chains import (
    CountRowChain,
    Learned,
    MoveChain,
    MoveOptions,
    MoveTables,
    SizeLearner,
    count_type,
)
from coco_opt.groups.estimating.posterior.convergence import Effort
from coco_opt.groups.estimating.posterior.observations import (
    Answers,
    Ranks,
    Survey,
    answers_by_region,
    compiled_queries,
    values_of,
)
from coco_opt.groups.estimating.posterior.prior import PriorOptions
from coco_opt.groups.estimating.posterior.recording import (
    Counted,
    Range,
    Recorder,
    compared,
    together,
    views_of,
)
from coco_opt.groups.estimating.posterior.spikes import isolated_sizes, root_shape, rough_sizes, size_probabilities
from coco_opt.histograms import CountOfCounts
from coco_opt.posterior.chains import Criterion, chain_words, effective_size, split_r_hat
from coco_opt.posterior.comparison import Distances

# With answers about cells, complete rows are drawn if leaves have so many groups on average and margins this narrow.
_DENSE, _WIDEST = 100.0, 40
_BATCH = 128  # leaves whose starts are computed together
_LAG = 4  # updates of the prior over which its movement is measured
_MOST_SCALARS = 2**27  # by which chains are compared
_LOOKED_AT = 8  # beyond the usual rounds chains are compared when there are about this share more
_LOOKS, _FEWEST_LOOKS = 6, 4  # tables of the burn-in by which moves are first distributed


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """How long to sample, and when to stop.

    The prior's expected value is learned again every ``update_every`` sweeps. This ends when, over four updates, it
    changed for at most the share ``prior_moves`` of all groups (total variation, leaves weighted by their groups); then
    chains take ``settle`` sweeps more. Burn-in has at least ``burn_in`` sweeps in all and about ``most_burn_in`` at
    most. Then come rounds of ``draws`` draws, ``thin`` sweeps apart, until all regions meet the ``criterion``, and not
    before ``least_rounds``; or until ``most_rounds``, or as many rounds as about ``seconds`` allow
    (as ``Effort`` counts them). After ``usual_rounds``, which end a run without stated ``seconds``, draws are further
    apart. After each round, the leaves of regions that do not meet it get more moves.
    """

    chains: int = 4
    burn_in: int = 80
    most_burn_in: int = 400
    prior_moves: float = 0.02
    update_every: int = 10
    settle: int = 20
    draws: int = 25
    thin: int = 2
    criterion: Criterion = field(default_factory=Criterion)
    least_rounds: int = 2
    usual_rounds: int = 40
    most_rounds: int = 640
    seconds: float = math.inf
    threads: int | None = None
    moves: MoveOptions = field(default_factory=MoveOptions)

    def __post_init__(self) -> None:
        if min(self.chains, self.burn_in, self.update_every, self.thin, self.most_rounds) < 1 or self.draws < 4:
            raise ProblemError("sampling needs at least one chain, sweep and round, and four draws a round")
        if self.chains * self.draws * self.least_rounds > np.iinfo(np.uint16).max:
            raise ProblemError("at most 65,535 draws can be recorded: take fewer chains, draws or rounds")


@dataclass(frozen=True, eq=False, slots=True)
class Posterior:
    """Draws of all regions: of Hc[0..K-1] (``cumulative``) and, if requested, H[0..K] (``sizes``) and ``summaries``.

    ``mean`` float64[regions, K] is that of Hc. ``r_hat`` and ``effective`` float64[regions, 3] are those of the
    entities, of Hc[0], and of Hc at the ``probe`` cell (``convergence.COUNTS``).
    ``accepted`` is the share of accepted moves;
    ``probabilities`` float64[leaves, K + 1] is the prior's expected share of each size, and ``prior_moved`` the share
    of all groups for which it changed over the last updates before it was frozen. Up to size ``single`` sizes vary
    alone; ``distances`` are those of the draws from the noisy answers.
    """

    cumulative: Counted
    sizes: Counted | None
    summaries: Counted | None
    mean: Floats
    draws: int
    sweeps: int
    probe: int
    r_hat: Floats
    effective: Floats
    accepted: float
    probabilities: Floats
    prior_moved: float
    single: int
    distances: Distances

    def quantile(self, part: int, of: int, *, upper: bool = False) -> Ints:
        """Return the lower (or upper) quantile part / of of Hc, int64[regions, K], nondecreasing in every region."""
        return self.cumulative.quantile(part, of, upper=upper)


def sample_posterior(
    survey: Survey,
    seed: int,
    *,
    prior: PriorOptions | None = None,
    options: SamplerOptions | None = None,
    start: Ints | None = None,
    sizes: bool = False,
    progress: Progress | None = None,
) -> Posterior:
    """Return the posterior of all regions; the same survey, seed and options give the same bits for any threads.

    ``start`` int64[leaves, K + 1] are histograms to begin with, by default near the leaves' fits or their size
    distribution. ``seed`` must not be that of the noise. With ``sizes`` H and the regions' summaries are counted too;
    ``progress`` is called with the sweeps done and their largest number. Complete rows are drawn where answers
    about leaves are about single cells and leaves have many groups; otherwise groups are moved.
    Raises ProblemError for a start with other numbers of groups. Memory: chains x (counts + a table).
    """
    chosen, how = prior or PriorOptions(), options or SamplerOptions()
    kind = chain_kind(survey)
    with ThreadPoolExecutor(how.threads or os.cpu_count()) as pool:
        try:
            return Sampler(survey, seed, chosen, how, kind, start=start, sizes=sizes, progress=progress).run(pool)
        except SolverError:
            # The start and the first size distribution can be so far apart that no row near the start is possible, and
            # answers in buckets above so sharp that hardly any is accepted; groups can always be moved.
            if kind is not CountRowChain:
                raise
            return Sampler(survey, seed, chosen, how, MoveChain, start=start, sizes=sizes, progress=progress).run(pool)


def chain_kind(survey: Survey) -> type[MoveChain]:
    """Return which chains mix faster: complete rows are drawn for dense leaves with narrow noise and single cells."""
    dense = groups_a_leaf(survey) >= _DENSE and _margin(survey) <= _WIDEST
    return CountRowChain if dense and survey.of_rows else MoveChain


def groups_a_leaf(survey: Survey) -> float:
    """Return the mean number of groups of a leaf."""
    return float(survey.groups[survey.leaves].mean())


class Takes(Protocol):
    """Takes draws of one chain, and records the scalars float64[regions x 3] by which chains are compared."""

    trace: list[Floats]

    def take(self, draws: int, thin: int) -> None:
        """Take so many draws, ``thin`` sweeps apart."""
        ...


@dataclass(frozen=True, slots=True)
class Judged:
    """The rounds and their sweeps, and the diagnostics of the chains' scalars after the last, float64[regions, 3]."""

    rounds: int
    sweeps: int
    r_hat: Floats
    effective: Floats


class Sampler:
    """One run: burn-in, then rounds of draws, all counted cell by cell."""

    learners: ClassVar[type[SizeLearner]] = SizeLearner

    def __init__(
        self,
        survey: Survey,
        seed: int,
        prior: PriorOptions,
        options: SamplerOptions,
        kind: type[MoveChain],
        *,
        start: Ints | None = None,
        near: Sequence[CountOfCounts] = (),
        sizes: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.survey, self.prior, self.options = survey, prior, options
        self.learner: SizeLearner
        histograms = self._begin(start, near)
        queries = compiled_queries(survey)
        words = chain_words(seed, options.chains)
        self.chains: Sequence[MoveChain] = [kind(survey, queries, histograms, word) for word in words]
        self.margin = _margin(survey)
        self.burnt, self.moved = 0, math.inf
        self.tables: list[Ints] = []
        self.learned: Learned
        self.shared: MoveTables | None = None
        self.effort = Effort(survey, options.seconds)
        self.recorded = partial(views_of, survey.groups, survey.max_size, sizes=sizes)
        self.ranges = [Range(view) for view in self.recorded()]
        self.progress = progress

    def _begin(self, start: Ints | None, near: Sequence[CountOfCounts] = ()) -> NDArray[Any]:
        """Return the histograms to begin with; set the learner and the mean counts it learns from first.

        They are the leaves' histograms ``near``, if given, else lie between fits and expected counts.
        """
        survey, leaves, options = self.survey, self.survey.leaves, self.prior
        batches = [np.arange(begin, min(begin + _BATCH, leaves.size)) for begin in range(0, leaves.size, _BATCH)]
        fitted = np.zeros(survey.max_size + 1)
        for places in batches:
            fitted += start_histograms(survey, places).sum(axis=0)
        alone = isolated_sizes(survey, 2.0 * options.root_reach)
        self.prior = options = replace(options, single=rough_sizes(survey, alone, options.reach))
        shape = root_shape(survey, fitted, alone, options.root_reach)
        self.learner = learner = self.learners(survey, shape, alone, options)
        self.counts = np.zeros((int(learner.row.max()) + 1, survey.max_size + 1))
        histograms = np.empty((leaves.size, survey.max_size + 1), count_type(survey))
        for places in batches:
            if near:
                histograms[places] = [near[place].to_dense(survey.max_size) for place in places.tolist()]
            else:
                fits = start_histograms(survey, places)
                histograms[places] = first_histograms(survey, size_probabilities(shape), fits, places)
            np.add.at(self.counts, learner.row[places], histograms[places])
        if start is None:
            return histograms
        if start.shape != histograms.shape or (start < 0).any():
            raise ProblemError("a start needs one histogram of sizes 0 .. max_size for every leaf")
        if (start.sum(axis=1) != survey.groups[leaves]).any():
            raise ProblemError("the histograms of a start must have the leaves' numbers of groups")
        return start

    def run(self, pool: ThreadPoolExecutor) -> Posterior:
        """Burn in and draw."""
        self.tables = [np.empty((self.survey.parent.size, self.survey.max_size), np.int64) for _ in self.chains]
        with doing("learning the prior"):
            self._burn_in(pool)
        with doing("drawing tables"):
            return self._record(pool)

    def _learn(self) -> None:
        self.learned = self.learner.learn(self.counts)
        self.shared = MoveTables(self.survey, self.learned, self.options.moves)
        for chain in self.chains:
            chain.use(self.learned, self.shared)

    def _distribute_moves(self, distance: Floats) -> None:
        """Give the leaves more or fewer moves by how far regions (regions,) are from the criterion."""
        if self.shared is not None:
            self.effort.distribute(distance)
            self._use_factors()

    def _use_factors(self) -> None:
        if self.shared is not None:
            self.effort.moves = self.shared.with_factors(self.effort.factors)

    def _advance(self, pool: ThreadPoolExecutor, sweeps: int) -> None:
        for _ in pool.map(lambda chain: chain.advance(sweeps), self.chains):
            pass

    def _look(self, pool: ThreadPoolExecutor) -> None:
        """Write every chain's present table."""
        for _ in pool.map(lambda n: self.chains[n].fill(self.tables[n]), range(len(self.chains))):
            pass

    def _burn_in(self, pool: ThreadPoolExecutor) -> None:
        """Learn the prior until it stops moving, then let the chains settle and see which values the cells take."""
        options = self.options
        self._learn()
        self._look(pool)
        self._see(anew=True)
        self._set_windows(4 * self.margin)
        before: deque[Floats] = deque(maxlen=_LAG + 1)
        trace: deque[list[Floats]] = deque(maxlen=_LOOKS)
        while not self._learned_enough(before):
            self._advance(pool, options.update_every)
            self.burnt += options.update_every
            self._update(1.0 / min(self.burnt / options.update_every, 5.0))
            before.append(self.learned.probabilities)
            self._look(pool)
            self._see(anew=len(before) <= _LAG)
            self._set_windows(self.margin)
            trace.append([compared(table, self._probe()) for table in self.tables])
            self._report_progress(self.burnt)
        self.effort.spend(self.burnt + options.settle)
        if self.tables and len(trace) >= _FEWEST_LOOKS:  # more moves where the chains' last tables differ
            r_hat = split_r_hat(np.stack(trace, axis=1)).reshape(-1, 3)
            self._distribute_moves(options.criterion.distance(r_hat, np.full(r_hat.shape, np.inf)))
        for sweeps in _parts(options.settle, options.update_every // 2):
            self._advance(pool, sweeps)
            self.burnt += sweeps
            self._look(pool)
            self._see(anew=False)
            self._set_windows(self.margin)
            self._report_progress(self.burnt)

    def _learned_enough(self, before: deque[Floats]) -> bool:
        """Return whether the prior changed little over the last updates, or the cap is reached; record the change."""
        options, groups = self.options, self.survey.groups[self.survey.leaves]
        if len(before) > _LAG:
            of_row = np.bincount(self.learned.rows(groups.size), groups)
            share = of_row / max(int(groups.sum()), 1)
            self.moved = float((0.5 * share @ np.abs(before[-1] - before[0])).sum())
        if self.burnt + options.settle < options.burn_in:
            return False
        return self.moved <= options.prior_moves or self.burnt + options.settle >= options.most_burn_in

    def _see(self, *, anew: bool) -> None:
        """Widen the ranges of values by every chain's present table; ``anew``: forget those seen before."""
        for n, table in enumerate(self.tables):
            for values in self.ranges:
                values.see(table, anew=anew and n == 0)

    def _report_progress(self, sweeps: int, *, last: bool = False) -> None:
        if self.progress is not None:
            may_end_early()
            rounds = min(self.options.usual_rounds, self.options.most_rounds)
            most = max(self.burnt, self.options.burn_in) + rounds * self.options.draws * self.options.thin
            self.progress(most if last else min(sweeps, most), most)

    def _update(self, weight: float) -> None:
        """Mix the chains' mean counts since the last update into the running means, and learn the prior from them."""
        counts = np.mean([chain.take_means() for chain in self.chains], axis=0)
        self.counts += weight * (counts - self.counts)
        self._learn()

    def _set_windows(self, margin: int) -> None:
        leaves, seen = self.survey.leaves, self.ranges[0]
        for chain in self.chains:
            if isinstance(chain, CountRowChain):
                lowest, highest = (ends[leaves].astype(np.int64) for ends in (seen.lowest, seen.highest))
                chain.within(lowest - margin, highest + margin)

    def _record(self, pool: ThreadPoolExecutor) -> Posterior:
        options, probe, windows = self.options, self._probe(), [values.windows() for values in self.ranges]
        recorders = [
            Recorder(chain, table, self.recorded(), windows, probe)
            for chain, table in zip(self.chains, self.tables, strict=True)
        ]
        moves, states = self.chains[0].work
        first = moves / self.effort.moves, states / self.effort.moves
        self.effort.limit(*(len(self.chains) * each for each in first))
        judged = self._rounds(pool, recorders)
        draws = len(recorders) * judged.rounds * options.draws
        proposed = sum(chain.proposed for chain in self.chains)
        tallies = zip(*(recorder.tallies for recorder in recorders), strict=True)
        cumulative, *further = (together(each, draws) for each in tallies)
        sizes, of_regions = further or (None, None)
        return Posterior(
            cumulative,
            sizes,
            of_regions,
            mean=np.sum([recorder.tallies[0].sums for recorder in recorders], axis=0) / draws,
            draws=draws,
            sweeps=self.burnt + judged.sweeps,
            probe=probe,
            r_hat=judged.r_hat,
            effective=judged.effective,
            accepted=sum(chain.accepted for chain in self.chains) / proposed if proposed else 1.0,
            prior_moved=self.moved,
            probabilities=self.learned.probabilities,
            single=self.prior.single,
            distances=reduce(add, [recorder.distances for recorder in recorders]),
        )

    def _rounds(self, pool: ThreadPoolExecutor, recorders: Sequence[Takes]) -> Judged:
        """Take rounds of draws until all regions have converged or a limit is reached."""
        options, criterion = self.options, self.options.criterion
        effort, finished, rounds, sweeps = self.effort, False, 0, 0
        room = _MOST_SCALARS // (3 * self.survey.parent.size * options.draws * len(recorders))
        counted = np.iinfo(np.uint16).max // (options.draws * len(recorders))
        longest = options.usual_rounds if math.isinf(options.seconds) else max(options.usual_rounds, room)
        most = min(options.most_rounds, longest, counted)
        while not finished:
            thin = options.thin * (1 + rounds // options.usual_rounds)
            list(pool.map(lambda recorder, thin=thin: recorder.take(options.draws, thin), recorders))
            effort.spend(options.draws * thin)
            rounds, sweeps = rounds + 1, sweeps + options.draws * thin
            self._forget(recorders, rounds)
            exhausted = effort.exhausted(options.draws * thin)
            if (
                rounds > options.usual_rounds
                and rounds % max(rounds // _LOOKED_AT, 1)
                and rounds < most
                and not exhausted
            ):
                continue
            traces = np.stack([np.stack(recorder.trace) for recorder in recorders])
            r_hat = split_r_hat(traces).reshape(-1, 3)
            effective = effective_size(traces).reshape(-1, 3)
            settled = bool(criterion.met(r_hat, effective).all()) or exhausted
            finished = rounds >= most or (rounds >= options.least_rounds and settled)
            self._report_progress(self.burnt + sweeps, last=finished)
            if not finished:
                self._distribute_moves(self._share_of_draws(rounds) * criterion.distance(r_hat, effective))
        return Judged(rounds, sweeps, r_hat, effective)

    def _forget(self, recorders: Sequence[Takes], rounds: int) -> None:
        """Forget nothing: moves were distributed in the burn-in."""

    def _share_of_draws(self, rounds: int) -> float:
        """Return by what the distance from the criterion is multiplied after so many rounds."""
        return 1.0

    def _probe(self) -> int:
        """Return the cell where about half of the root's groups of size above 0 are counted."""
        row = self.tables[0][0]
        return int(np.searchsorted(row, (row[0] + self.survey.groups[0] + 1) // 2).clip(0, row.size - 1))


def _parts(total: int, each: int) -> list[int]:
    """Return ``total`` in parts of at most ``each``."""
    size = max(each, 1)
    return [min(size, total - done) for done in range(0, total, size)]


def _margin(survey: Survey) -> int:
    """Return the margin in groups around a row's values: 2.5 times the spread of the widest noise on a leaf."""
    leaves = set(survey.leaves.tolist())
    every = [(answers.region, float(answers.distribution.spread)) for answers in survey.answers]
    own = [spread for region, spread in every if region in leaves]
    return math.ceil(2.5 * max(own or [spread for _, spread in every] or [1.0])) + 2


def _integer_histograms(counts: Floats, groups: Ints) -> Ints:
    """Return integer histograms near expected counts (leaves, K + 1), with the given numbers of groups."""
    rows = np.floor(np.cumsum(counts, axis=1) + 0.5).astype(np.int64)
    rows[:, -1] = groups
    return np.diff(np.minimum(rows, groups[:, None]), axis=1, prepend=0)


def first_histograms(survey: Survey, distribution: Floats, fits: Ints, places: Ints) -> Ints:
    """Return histograms int64[places, K + 1] between fits of some leaves and their counts expected from a distribution.

    Chains forget a start slowly where noise is wide compared with a leaf's groups, and there a fit is mostly noise. The
    fit's weight is 1 - variance of the noise / mean square of the difference of both, in answers, at least 0 (James and
    Stein 1961), and 0 for a leaf without answers. ``distribution`` has sum 1.
    """
    leaves, by_region = survey.leaves[places], answers_by_region(survey)
    groups = survey.groups[leaves]
    means = _integer_histograms(groups[:, None] * distribution, groups)
    rows = np.cumsum(fits, axis=1)[:, :-1], np.cumsum(means, axis=1)[:, :-1]
    share = np.zeros((places.size, 1))
    for place, leaf in enumerate(leaves.tolist()):
        for answers in by_region.get(leaf, ()):
            own, other = (values_of(answers.query, table[place], int(groups[place])) for table in rows)
            square = float(((own - other).astype(np.float64) ** 2).sum()) / max(own.size, 1)  # no ranks of no groups
            share[place] = max(share[place, 0], 1.0 - float(answers.distribution.variance) / square if square else 0.0)
    return _integer_histograms(share * fits + (1.0 - share) * means, groups)


def start_histograms(survey: Survey, places: Ints) -> Ints:
    """Return histograms int64[places, K + 1] of some leaves: their isotonic fits, or their shares of an ancestor's."""
    leaves, by_region = survey.leaves[places], answers_by_region(survey)
    rows = np.zeros((leaves.size, survey.max_size), np.int64)
    above: dict[int, Ints] = {}
    for place, leaf in enumerate(leaves.tolist()):
        region = leaf
        while region >= 0 and region not in by_region:
            region = int(survey.parent[region])
        if region == leaf:
            rows[place] = _region_fit(survey, region, by_region[region])
        elif region >= 0:
            if region not in above:
                above[region] = _region_fit(survey, region, by_region[region])
            share = int(survey.groups[leaf]) / max(int(survey.groups[region]), 1)
            rows[place] = np.floor(above[region] * share + 0.5).astype(np.int64)
    return np.diff(rows, axis=1, prepend=0, append=survey.groups[leaves][:, None])


def _region_fit(survey: Survey, region: int, answers: Sequence[Answers]) -> Ints:
    """Return nondecreasing cumulative counts int64[K] near the answers about a region."""
    groups = int(survey.groups[region])
    first, *others = answers
    row = _fit(first, groups, survey.max_size)
    for block in others:
        if isinstance(block.query, Ranks) and block.query.floor > 0:
            # The upper part of a split: below its size the cells have more information.
            row[block.query.floor :] = _fit(block, groups, survey.max_size)[block.query.floor :]
            row = np.maximum.accumulate(row)
    return row


def _fit(answers: Answers, groups: int, max_size: int) -> Ints:
    """Return nondecreasing cumulative counts int64[K] near one region's answers."""
    from coco_opt.kernels import isotonic_l1

    if not isinstance(answers.query, Buckets):
        sizes = isotonic_l1.fit(answers.values.astype(np.int64), 0, max_size)
        return np.cumsum(np.bincount(sizes, minlength=max_size + 1))[:-1].astype(np.int64)
    width = answers.query.end - answers.query.begin
    means = np.floor(answers.values / width + 0.5).astype(np.int64)
    fitted = isotonic_l1.fit_weighted(means, width.astype(np.float64), 0, groups)
    # Counts rise evenly between the buckets' middles; flat buckets would give all leaves errors in one direction.
    middle = 0.5 * (answers.query.begin + answers.query.end - 1)
    return np.floor(np.interp(np.arange(max_size), middle, fitted) + 0.5).astype(np.int64)
