"""Draws from the posterior of all tables: chains, when they stop, and what is kept of them.

This is post-processing: answers, noise distributions, constraints and the hierarchy are public. Shares, concentrations
and the distribution of the leaves' totals are unknown and drawn along, so that intervals account for all of them.
Every draw is a table of nonnegative integers that adds up and meets all constraints.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.activity import Progress, may_end_early
from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.posterior.chains import MOVES_A_SECOND, Criterion, chain_words, effective_size, split_r_hat, sweeps_within
from coco_opt.topdown.estimating.posterior.chains import Layout, MoveOptions, TableChain
from coco_opt.topdown.estimating.posterior.model import Model, best_division, divided, dividing
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.queries import Query

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_table_summaries import Draws

Kept = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""A draw: how many cells each leaf occupies, the cells and the counts, as narrow as they fit."""

_SCALARS = 4096  # whose draws are compared together
_OWN_SEED = 0x7461626C  # chains of tables have a seed of their own, whatever else a release draws


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """How long to sample, and when to stop.

    There are ``chains``, or ``fewer`` where so many could not take ``enough`` sweeps. They burn in for the share
    ``burn_in`` of the largest number of sweeps, of which the share ``dispersing`` is at temperatures from 1 to
    ``hottest``, another one for each chain: they begin far apart, so that R-hat shows whether they meet. Then come
    rounds of ``draws`` draws a chain, until at every level 95 % of the regions' scalars have split R-hat at most
    ``r_hat`` and half of them an effective size of at least ``effective``, or until the largest number of sweeps: about
    ``moves`` moves of all chains together, but ``least`` to ``most`` sweeps. In the first ``patience`` moves all
    regions must meet the criterion of all posteriors, too. Where ``seconds`` are stated, chains that have not converged
    after ``most`` sweeps go on up to those moves, or until all regions meet that criterion. Draws are ``thin`` sweeps
    apart at first. When there are more than ``kept``, every second is dropped, and they are twice as far apart from
    then on. Classes of cells are chosen after so many sweeps of a ``pilot``.

    All chains together take about ``seconds`` on two cores at most, but not less than ``briefest`` sweeps. They are
    counted in moves, so that a measurement always gives the same bits.
    """

    chains: int = 4
    fewer: int = 2
    enough: int = 500
    burn_in: float = 0.25
    dispersing: float = 0.2
    hottest: float = 4.0
    draws: int = 12
    pilot: int = 24
    thin: int = 1
    kept: int = 192
    r_hat: float = 1.1
    effective: float = 100.0
    moves: float = 3e8
    patience: float = 2e7  # four seconds: a few slow regions of many end no release, and none of few
    least: int = 240
    most: int = 2000
    seconds: float = math.inf
    briefest: int = 64
    threads: int | None = None
    proposals: MoveOptions = field(default_factory=MoveOptions)

    def __post_init__(self) -> None:
        if (
            min(self.chains, self.fewer) < 2
            or self.draws < 4
            or self.kept < 2 * self.chains * self.draws
            or self.thin < 1
        ):
            raise ProblemError("sampling needs two chains, four draws a round and room for two rounds")

    def affordable(self, moves: int) -> tuple[int, int, int]:
        """Return the number of chains, and their planned and largest number of sweeps of so many moves each."""
        allowed = min(self.moves, MOVES_A_SECOND * self.seconds)
        chains = self.chains if allowed >= self.enough * moves * self.chains else min(self.fewer, self.chains)
        longest = max(self.moves / max(moves * chains, 1), self.least)
        in_time = max(sweeps_within(self.seconds, moves * chains), self.briefest)
        planned = int(min(longest, self.most, in_time))
        return chains, planned, planned if math.isinf(self.seconds) else int(min(longest, in_time))


@dataclass(frozen=True, eq=False, slots=True)
class Sampled:
    """Draws of the leaves' tables, and how far the chains agree.

    ``r_hat`` and ``effective`` float64[regions, 2] are those of a region's persons, and of its persons in the cell that
    is largest at the root. ``strengths`` [levels] are the mean concentrations, the leaves' over their sizes too, among
    the ``classes`` where the answers of such a query divide the cells; ``accepted`` [4] the shares of accepted moves:
    of totals, within leaves, between leaves, and poured.
    """

    draws: Draws
    sweeps: int
    burn_in: int
    r_hat: Floats
    effective: Floats
    converged: bool
    strengths: Floats
    accepted: Floats
    classes: str | None = None
    stopped: bool = False

    @property
    def count(self) -> int:
        """Return the number of draws."""
        return int(self.draws.offset.shape[0])


def sample_tables(
    model: Model,
    tables: Sequence[SparseTables],
    seed: int,
    options: SamplerOptions | None = None,
    progress: Progress | None = None,
    queries: Sequence[Query] = (),
) -> Sampled:
    """Return draws of all leaves' tables from chains that begin at ``tables`` of all levels.

    The tables meet the constraints. The same model, tables, seed and options give the same draws for any number of
    threads. One of the ``queries`` may divide the cells into classes.

    Memory: chains x (answers + occupied cells) + draws x occupied cells.
    """
    chosen = options or SamplerOptions()
    answers, values = model.answers(tuple(tables))
    layout = Layout.of(model, answers, tables[-1], chosen.proposals)
    moves = int(layout.tree.moves.sum())
    number, most, longest = chosen.affordable(moves)
    words = chain_words(seed, number, _OWN_SEED)
    by = _dividing(layout, TableChain(layout, values.copy(), tables[-1], words[0]), queries, chosen.pilot)
    if by is not None:
        layout = replace(layout, up=divided(by.operator))
    own = [*(values.copy() for _ in words[1:]), values]
    chains = [TableChain(layout, left, tables[-1], word) for left, word in zip(own, words, strict=True)]
    largest = int(np.argmax(np.bincount(tables[0].cells, tables[0].counts, tables[0].size)))
    run = _Run(model, layout, chains, chosen, (most, longest), largest, progress)
    with ThreadPoolExecutor(chosen.threads or os.cpu_count()) as pool:
        sampled = run(pool)
    longer = replace(chosen, seconds=sys.float_info.max).affordable(moves)
    stopped = not sampled.converged and math.isfinite(chosen.seconds) and longer != (number, most, longest)
    return replace(sampled, classes=None if by is None else by.text, stopped=stopped)


def _dividing(layout: Layout, pilot: TableChain, queries: Sequence[Query], sweeps: int) -> Query | None:
    """Return the query whose answers are to be classes, by the tables of a pilot chain."""
    of_cells = dividing(queries, layout.up.size - 1)
    if not of_cells:
        return None
    for _ in range(sweeps):
        may_end_early()
        pilot.advance(1)
    return best_division(of_cells, pilot.leaves(), pilot.prior.share[:, :-1], layout.tree.row)


class _Run:
    """The chains of one run and what is kept of them."""

    def __init__(
        self,
        model: Model,
        layout: Layout,
        chains: Sequence[TableChain],
        options: SamplerOptions,
        sweeps: tuple[int, int],
        largest: int,
        progress: Progress | None,
    ) -> None:
        self.layout, self.chains, self.options, self.largest = layout, chains, options, largest
        self.levels, self.progress = model.hierarchy.level, progress
        self.most, self.longest = sweeps
        self.recorders = [_Recorder(layout, chain, largest) for chain in chains]
        self.room = options.kept // len(chains)
        self.sweeps, self.thin = 0, options.thin

    def __call__(self, pool: ThreadPoolExecutor) -> Sampled:
        """Burn in and draw."""
        options = self.options
        burn_in = int(options.burn_in * self.most)
        hot = int(options.dispersing * burn_in)
        while self.sweeps < burn_in:
            end = burn_in if self.sweeps >= hot else hot
            self._advance(pool, min(8, end - self.sweeps), hot=self.sweeps < hot)
        sure = options.patience / max(int(self.layout.tree.moves.sum()) * len(self.chains), 1)
        converged, judged = False, None
        while not converged:
            for _ in range(options.draws):
                self._advance(pool, self.thin)
                list(pool.map(_Recorder.take, self.recorders))
            while len(self.recorders[0].kept) > self.room:
                self.thin *= 2
                for recorder in self.recorders:
                    recorder.halve()
            judged = self._judge()
            everywhere = bool(Criterion().met(*judged[:2]).all())
            converged = (judged[2] and (everywhere or self.sweeps > sure)) or (everywhere and self.sweeps > self.most)
            if self.sweeps + options.draws * self.thin > self.longest and len(self.recorders[0].kept) >= self.room // 2:
                break
        assert judged is not None
        if self.progress is not None:
            self.progress(self.most, self.most)
        tried = np.sum([chain.state.tried for chain in self.chains], axis=0)
        return Sampled(
            _joined([draw for recorder in self.recorders for draw in recorder.hand_over()]),
            self.sweeps,
            burn_in,
            *judged[:2],
            converged,
            np.mean([recorder.strengths / recorder.taken for recorder in self.recorders], axis=0),
            tried[:, 1] / np.maximum(tried[:, 0], 1),
        )

    def _advance(self, pool: ThreadPoolExecutor, sweeps: int, *, hot: bool = False) -> None:
        temperatures = np.geomspace(1.0, self.options.hottest, len(self.chains)).tolist()

        def advance(chain: TableChain, temperature: float) -> None:
            if hot:
                chain.disperse(sweeps, temperature)
            else:
                chain.advance(sweeps)

        list(pool.map(advance, self.chains, temperatures))
        self.sweeps += sweeps
        if self.progress is not None:
            may_end_early()
            self.progress(min(self.sweeps, self.most), self.most)

    def _judge(self) -> tuple[Floats, Floats, bool]:
        """Return split R-hat, effective sizes and whether both meet their bounds at every level."""
        scalars = 2 * self.levels.size
        r_hat, effective = np.empty((2, scalars))
        for begin in range(0, scalars, _SCALARS):
            some = slice(begin, begin + _SCALARS)
            traces = np.array([[row[some] for row in recorder.trace] for recorder in self.recorders], np.float64)
            r_hat[some], effective[some] = split_r_hat(traces), effective_size(traces)
        r_hat, effective = r_hat.reshape(-1, 2), effective.reshape(-1, 2)
        met = all(
            float(np.quantile(r_hat[self.levels == level], 0.95, method="higher")) <= self.options.r_hat
            and float(np.median(effective[self.levels == level])) >= self.options.effective
            for level in range(int(self.levels.max()) + 1)
        )
        return r_hat, effective, met


class _Recorder:
    """The draws that are kept of one chain, with two scalars of every region."""

    def __init__(self, layout: Layout, chain: TableChain, largest: int) -> None:
        self.layout, self.chain, self.largest = layout, chain, largest
        self.kept: list[Kept] = []
        self.trace: list[NDArray[Any]] = []
        self.strengths, self.taken = np.zeros(layout.tree.above.shape[1]), 0

    def take(self) -> None:
        """Keep the present tables."""
        leaves = self.chain.leaves()
        used = np.diff(leaves.offsets)
        self.kept.append((_narrow(used), _narrow(leaves.cells), _narrow(leaves.counts)))
        chosen = leaves.cells == self.largest
        own = np.bincount(leaves.owners[chosen], leaves.counts[chosen], leaves.regions)
        scalars = np.stack([self.chain.state.persons[:, -1], own], axis=1)
        tree, levels = self.layout.tree, self.layout.tree.above.shape[1]
        ends = [*tree.place[1:].tolist(), tree.start.size]
        parts = [
            np.add.reduceat(scalars, tree.start[tree.place[level] : ends[level] - 1], axis=0) for level in range(levels)
        ]
        self.trace.append(_narrow(np.concatenate(parts).reshape(-1)))
        self.strengths += self.chain.strengths()
        self.taken += 1

    def hand_over(self) -> list[Kept]:
        """Return all draws, and keep none."""
        kept, self.kept = self.kept, []
        return kept

    def halve(self) -> None:
        """Drop every second draw."""
        self.kept, self.trace = self.kept[1::2], self.trace[1::2]


def _narrow(numbers: Ints) -> NDArray[Any]:
    """Return nonnegative numbers of 16 bits where they fit, and else of 32."""
    narrow = np.uint16 if int(numbers.max(initial=0)) <= np.iinfo(np.uint16).max else np.int32
    return numbers.astype(narrow)


def _joined(kept: list[Kept]) -> Draws:
    """Return draws one after the other; ``kept`` is emptied, so that no draw is in memory twice."""
    from coco_opt.kernels import posterior_table_summaries as summaries

    sizes = [cells.size for _, cells, _ in kept]
    ends = np.cumsum(sizes)
    offset = np.zeros((len(kept), kept[0][0].size + 1), np.int64)
    cell = np.empty(int(ends[-1]), max((draw[1].dtype for draw in kept), key=lambda width: width.itemsize))
    number = np.empty(int(ends[-1]), max((draw[2].dtype for draw in kept), key=lambda width: width.itemsize))
    for place in range(len(kept) - 1, -1, -1):
        used, cells, numbers = kept.pop()
        begin, end = int(ends[place]) - sizes[place], int(ends[place])
        offset[place, 0] = begin
        np.cumsum(used, out=offset[place, 1:], dtype=np.int64)
        offset[place, 1:] += begin
        cell[begin:end], number[begin:end] = cells, numbers
    return summaries.Draws(offset, cell, number)
