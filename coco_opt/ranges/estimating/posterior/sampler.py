"""Draws from the posterior of the counts of all cells: chains, when they stop, and what is kept.

This is post-processing: noisy counts, their noise distributions and the tree are public. The weights of the prior are
unknown and drawn along, so that intervals account for them. Every draw is a vector of nonnegative integers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.activity import Progress
from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.posterior.chains import Criterion, answers_seed, effective_size, split_r_hat, sweeps_within
from coco_opt.ranges.estimating.posterior.layout import Layout
from coco_opt.ranges.estimating.posterior.prior import SplitComponents, SplitPrior
from coco_opt.ranges.interval_counts import IntervalCounts

MAX_CELLS = 2**20
"""Cells of the largest domain whose posterior is drawn: its memory is some 2 kB a cell."""

_OWN_SEED = 0x72616E67  # chains of ranges have a seed of their own, whatever else a release draws
_TOP = 63  # widest intervals by whose counts chains are compared


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """How long to sample, and when to stop.

    Each of ``chains`` begins with ``burn_in`` rounds. Then come ``rounds`` rounds: in each, a chain takes draws of all
    counts, and draws the weights given the last round. There are more rounds where a domain has fewer than ``work`` /
    ``rounds`` cells, because their weights are less sure, up to ``most``; each has as many draws as give ``draws`` a
    chain. If the chains do not meet the criterion, their draws become burn-in, and twice as many rounds follow, with
    half as many draws each; ``attempts`` times at most.
    """

    chains: int = 2
    burn_in: int = 8
    rounds: int = 20
    most: int = 480
    work: int = 24_576
    draws: int = 96
    attempts: int = 2

    def __post_init__(self) -> None:
        if min(self.chains, self.rounds, self.attempts) < 1 or self.draws < 4:
            raise ProblemError("sampling needs a chain, a round, an attempt, and four draws a chain")

    @classmethod
    def within(cls, seconds: float, cells: int) -> SamplerOptions:
        """Return options with as many attempts as take so many seconds, two at least, and as memory has room for."""
        options = cls()
        for number in range(options.attempts + 1, _MOST_ATTEMPTS + 1):
            longer = replace(options, attempts=number)
            if posterior_seconds(cells, number) > seconds or longer.most_draws(cells) * cells > _MOST_NUMBERS:
                break
            options = longer
        return options

    def first(self, cells: int) -> tuple[int, int]:
        """Return the number of rounds of the first attempt, and the draws of each, for a domain of so many cells."""
        rounds = min(max(self.rounds, self.work // cells), self.most)
        return rounds, max(1, -(-self.draws // rounds))

    def most_draws(self, cells: int) -> int:
        """Return how many draws the last attempt takes."""
        rounds, draws = self.first(cells)
        last = self.attempts - 1
        return self.chains * (rounds << last) * max(draws >> last, 1)


LEAST_DRAWS = 192
"""Draws that every run of the usual options takes."""

_ROUND_MOVES = 100.0  # of tables, whose time a round of both chains takes for a cell
_MOST_ATTEMPTS, _MOST_NUMBERS = 10, 2**24  # drawn counts of the last attempt


def posterior_seconds(cells: int, attempts: int = 1) -> float:
    """Return about how many seconds the posterior takes on two cores if its chains agree after so many attempts."""
    options = SamplerOptions()
    rounds, _ = options.first(cells)
    every = max(options.burn_in, rounds // 4) + rounds * ((1 << attempts) - 1)
    return every / sweeps_within(1.0, _ROUND_MOVES * cells)


@dataclass(frozen=True, eq=False, slots=True)
class Sampled:
    """Draws of the cells' counts int[draws, cells], chain by chain, and how far the chains agree.

    ``r_hat`` and ``effective`` are the largest and the least of any of the widest intervals' counts and of the number
    of empty cells; ``counts_agree`` says whether the chains agree on the counts.
    """

    cells: NDArray[np.int32] | Ints
    rounds: int
    r_hat: float
    effective: float
    converged: bool
    counts_agree: bool


def sample_counts(
    counts: IntervalCounts,
    options: SamplerOptions | None = None,
    *,
    threads: int = 1,
    progress: Progress | None = None,
) -> Sampled:
    """Return draws of the cells' counts given the noisy counts of all intervals.

    The same counts and options give the same draws for any number of threads. ProblemError for more than ``MAX_CELLS``
    cells. O(cells x points of a grid squared) a round; 2 kB a cell.
    """
    chosen = options or SamplerOptions()
    if counts.domain.cells > MAX_CELLS:
        raise ProblemError(f"the posterior is for up to {MAX_CELLS:,} cells; this domain has {counts.domain.cells:,}")
    layout = Layout.of(counts)
    nodes = layout.nodes
    components = SplitComponents.of(layout, int((nodes.base + nodes.step * nodes.size).max()))
    seed = answers_seed("coco-opt ranges posterior", [repr(counts).encode(), counts.values.astype("<i8").tobytes()])
    seeds = np.random.SeedSequence([seed, _OWN_SEED]).spawn(chosen.chains)
    chains = [_Chain(components, seed) for seed in seeds]
    with ThreadPoolExecutor(min(threads, chosen.chains)) as pool:
        return _Run(chains, pool, chosen, progress)(*chosen.first(counts.domain.cells))


class _Run:
    """The chains of one run, and how far they are."""

    def __init__(
        self, chains: list[_Chain], pool: ThreadPoolExecutor, options: SamplerOptions, progress: Progress | None
    ) -> None:
        self.chains, self.pool, self.options, self.progress = chains, pool, options, progress
        self.done = 0

    def __call__(self, rounds: int, draws: int) -> Sampled:
        """Burn in and draw until the chains agree."""
        burn_in = max(self.options.burn_in, rounds // 4)
        total = burn_in + rounds
        self._advance(burn_in, 1, total)
        for attempt in range(self.options.attempts):
            for chain in self.chains:
                chain.forget()
            self._advance(rounds << attempt, max(draws >> attempt, 1), total)
            traces = np.array([chain.trace for chain in self.chains], np.float64)
            r_hat, effective = split_r_hat(traces), effective_size(traces)
            met = [bool(Criterion().met(r_hat[None, :k], effective[None, :k])[0]) for k in (r_hat.size, -1)]
            if met[0]:
                break
        cells = np.concatenate([draws for chain in self.chains for draws in chain.drawn])
        return Sampled(cells, self.done, float(r_hat.max()), float(effective.min()), *met)

    def _advance(self, rounds: int, draws: int, total: int) -> None:
        for _ in range(rounds):
            list(self.pool.map(lambda chain: chain.round(draws), self.chains))
            self.done += 1
            if self.progress is not None:
                self.progress(min(self.done, total), total)


class _Chain:
    """The prior's weights of one chain, and the draws that it keeps."""

    def __init__(self, components: SplitComponents, seed: np.random.SeedSequence) -> None:
        self.layout, self.rng = components.layout, np.random.default_rng(seed)
        self.prior = SplitPrior(components)
        layout, nodes = self.layout, self.layout.nodes
        self.messages = layout.likelihood.copy()
        self.words = self.rng.integers(0, 2**64, 1, np.uint64)
        self.counts = np.zeros(nodes.left.size, np.int64)
        self.scratch = np.zeros(2 * int(nodes.size.max()) + 256)
        self.drawn: list[NDArray[Any]] = []
        self.trace: list[Ints] = []

    def round(self, draws: int) -> None:
        """Draw counts given the weights, then weights given the last counts."""
        from coco_opt.kernels import posterior_splits as kernels

        layout, splits = self.layout, self.prior.splits()
        node = kernels.upward(layout.nodes, splits, layout.likelihood, self.messages, self.scratch)
        if node >= 0:
            raise ProblemError("the noisy counts contradict each other by more than their noise can explain")
        for _ in range(draws):
            kernels.draw(layout.nodes, splits, self.messages, self.words, self.counts, self.scratch)
            self._keep()
        labels = np.zeros(self.prior.weight.shape, np.int64)
        kernels.label(layout.nodes, splits, self.prior.components(), self.counts, self.words, labels, self.scratch)
        self.prior.draw_weights(labels, self.rng)

    def _keep(self) -> None:
        cells = self.counts[self.layout.binary.leaves]
        self.drawn.append(cells.astype(np.int32 if self.counts[0] < 2**31 else np.int64)[None])
        self.trace.append(np.append(self.counts[:_TOP], np.count_nonzero(cells == 0)))

    def forget(self) -> None:
        """Drop all draws."""
        self.drawn, self.trace = [], []
