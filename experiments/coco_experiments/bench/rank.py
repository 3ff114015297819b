"""Ranks of a nation's groups with loss l2: noise and fit streamed, measured and estimated, and the exact shortcut.

The shortcut draws the fit itself (``kuo2018.draws``); a chi-square holds its outcomes to noise and fit.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np

from coco_experiments.bench.apart import apart
from coco_experiments.bench.rows import Bench, Benchmark, take_turns
from coco_experiments.groups import Case
from coco_experiments.kuo2018.draws import estimate_ranks
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMeasurements, RegionMeasurement
from coco_opt.groups.estimating.estimators import FitOptions, estimate
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.queries import rank_pieces, sensitivity
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.kernels.isotonic_l2 import BlockStream
from coco_opt.privacy import Epsilon, NoiseSource, SecureNoise, SeededNoise

GROUPS, SMALL_GROUPS = 240_908_081, 30_000  # Kuo et al.'s partially synthetic data, which has 2,352 distinct sizes
LARGEST, DISTINCT = 10_000, 2_352
DRAWS, SMALL_DRAWS = 20_000, 2_000
STREAMED, SEALED, SHORTCUT = "noise and fit, streamed", "measured in memory, estimated", "the exact shortcut"
STREAMED_LIMIT, STREAMED_MEMORY, SHORTCUT_LIMIT = 4.0, 200.0, 0.2
EPSILON = Fraction(1)
TINY = CountOfCounts(np.array([1, 2, 5]), np.array([4, 2, 1]))
_SHARES = (0.27, 0.33, 0.16, 0.13, 0.07, 0.03, 0.01)
_SPREADS = 5.0


def nation(groups: int) -> CountOfCounts:
    """Return simulated groups: households of 1 to 7 people, and one group of each of the larger sizes."""
    rng = np.random.default_rng(2018)
    large = np.sort(rng.choice(np.arange(8, LARGEST + 1), min(DISTINCT - 7, groups // 10), replace=False))
    counts = np.floor(np.array(_SHARES) * (groups - large.size)).astype(np.int64)
    counts[0] += groups - large.size - counts.sum()
    return CountOfCounts(np.append(np.arange(1, 8), large), np.append(counts, np.ones(large.size, np.int64)))


def streamed(groups: int) -> int:
    """Draw every group's noise and pool it as it comes; nothing else is kept. Return the number of blocks."""
    stream = BlockStream()
    noise = (
        Epsilon(EPSILON)
        .distribution(sensitivity("ranks", "add_remove"))
        .opened(SecureNoise(), measurement="ranks", region="all")
    )
    for piece in rank_pieces(nation(groups), LARGEST):
        stream.push(noise.add_to(piece))
    return int(stream.blocks()[0].size)


def sealed(groups: int) -> int:
    """Measure the ranks of one region and estimate them with a certificate. Return the number of released sizes."""
    return int(estimated(nation(groups), SecureNoise()).size)


def answered(truth: CountOfCounts, source: NoiseSource) -> RegionMeasurement:
    """Return the noisy ranks of one region."""
    counts = PrivateCounts.of_leaves(Hierarchy.from_paths([("all",)]), [truth])
    return GroupsMeasurements(Case.of("all", counts, LARGEST).measured(source, [Epsilon(EPSILON)], "ranks"))[0]


def estimated(truth: CountOfCounts, source: NoiseSource) -> np.ndarray:
    """Return the released sizes of a region's groups, each distinct one once."""
    return estimate(answered(truth, source), FitOptions("l2"), SolverChoices()).histogram.sizes


def shortcut(truth: CountOfCounts, rng: np.random.Generator) -> CountOfCounts:
    """Return the released histogram by the shortcut."""
    return estimate_ranks(truth, max_size=LARGEST, epsilon=EPSILON, rng=rng, solvers=SolverChoices()).histogram


def chi_square(draws: int) -> tuple[float, int]:
    """Return the two-sample chi-square of ``draws`` outcomes of a tiny region either way, and its degrees of freedom.

    Outcomes are whole released histograms; those seen fewer than ten times in all are one class.
    """
    rng, solvers, options = np.random.default_rng(7), SolverChoices(), FitOptions("l2")
    tallies = [
        Counter(_key(shortcut(TINY, rng)) for _ in range(draws)),
        Counter(_key(estimate(answered(TINY, SeededNoise(seed)), options, solvers).histogram) for seed in range(draws)),
    ]
    every = tallies[0] + tallies[1]
    common = [outcome for outcome, times in every.items() if times >= 10]
    seen = np.array([[tally[outcome] for outcome in common] for tally in tallies], np.float64)
    seen = np.column_stack([seen, draws - seen.sum(axis=1)])
    seen = seen[:, seen.sum(axis=0) > 0]
    statistic = float(((seen[0] - seen[1]) ** 2 / seen.sum(axis=0)).sum())
    return statistic, seen.shape[1] - 1


def _key(histogram: CountOfCounts) -> tuple[int, ...]:
    return (*histogram.sizes.tolist(), *histogram.counts.tolist())


def measure(bench: Bench) -> str:
    """Time 240.9 million simulated groups (small: 30,000); wrong is a shortcut with other outcomes."""
    groups, draws = (SMALL_GROUPS, SMALL_DRAWS) if bench.small else (GROUPS, DRAWS)
    limits: dict[str, tuple[str, dict[str, Any]]] = {
        STREAMED: ("streamed", {"limit": STREAMED_LIMIT, "peak_limit": STREAMED_MEMORY}),
        SEALED: ("sealed", {}),
    }
    for what, (function, limit) in bench.over(limits.items()):
        target = f"coco_experiments.bench.rank:{function}"
        apart(target, SMALL_GROUPS)  # compiles
        bench.apart("simulated nation", what, groups, apart(target, groups), **limit)
    truth, rng = nation(groups), np.random.default_rng(1)
    timing = take_turns({SHORTCUT: lambda: shortcut(truth, rng)}, bench.repeats)[SHORTCUT]
    bench.row("simulated nation", SHORTCUT, groups, timing.median, limit=SHORTCUT_LIMIT)
    statistic, degrees = chi_square(draws)
    if statistic > degrees + _SPREADS * (2 * degrees) ** 0.5:
        words = f"chi-square {statistic:.0f} of {degrees}"
        bench.wrong.append(f"the shortcut's outcomes are not those of noise and fit: {words}")
    bench.notes.append(
        f"chi-square of the shortcut against noise and fit, {draws:,} outcomes of {TINY.groups} groups each: "
        f"{statistic:.1f} over {degrees} degrees of freedom ({statistic / degrees:.3f} a degree)"
    )
    return f"Ranks of {groups:,} groups, loss l2: one run, the shortcut's median of {bench.repeats}"


NOTES = (
    "noise is drawn under a key of the operating system; what runs in its own process says the cores' seconds and "
    "its largest memory, Python and its packages included; certificates are in the times of estimates",
)
RANK = Benchmark("bench/rank", measure, NOTES, (9, 9))
