"""Rank histograms of the three posteriors: where true counts lie among the draws, and what intervals hold of them.

If a truth were one more draw, its rank among the draws would be uniform. A data set is only one truth, so its ranks are
uniform where the prior suits it. Counts are chosen and divided into classes by the draws alone, never by the truth: an
interval promises nothing for counts whose true size is known.
Sources: Cook, Gelman and Rubin 2006; Talts et al. 2018, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_experiments.beyond.study import GROWTH, QueryPlan, cells, grown
from coco_experiments.groups import SEEDED, Case
from coco_experiments.hay2010.data import generated
from coco_experiments.kuo2018.cases import TAXI_MAX_SIZE, hawaii_case, small_cases, taxi_case
from coco_experiments.outcome import Record, Table
from coco_experiments.statistics import between_ranks, ranks_among
from coco_experiments.study import Report, Runs, Study
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, small_tables
from coco_experiments.topdown.hawaii import EVEN, POSTERIOR, SETTING, SPLITS, VARIANTS
from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate
from coco_opt.groups.estimating.posterior.sampler import Posterior
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.ranges import UniversalHistogram, choose_fan_out, measure_ranges
from coco_opt.ranges.kind import generated_cells
from coco_opt.topdown.estimating.estimate import estimate_tables
from coco_opt.topdown.queries import parse_queries

SEEDS = (2050, 2051, 2052)  # of ranges; groups and tables have ranks enough under the first
TENTHS, MIDDLE = np.linspace(0.0, 1.0, 11), np.array([0.05, 0.95])
CLASSES = {"0": 0, "1 to 9": 1, "10 to 99": 10, "100 and more": 100}  # of medians, by the first of each
LENGTHS = (1, 4, 16, 64)  # cells of a range
Found = dict[str, list[list[float]]]
"""By text and class: of each class of medians how many counts, the share in the middle, and that in each tenth."""


@dataclass(frozen=True, eq=False, slots=True)
class Ranks:
    """The ends of the ranks of true counts [counts] among their draws, 0 to 1, and the draws' medians and spreads."""

    text: str
    first: Floats
    end: Floats
    median: NDArray[Any]
    spread: NDArray[Any]

    @classmethod
    def among(cls, text: str, draws: NDArray[Any], true: Ints) -> Ranks:
        """Return those of truths [counts] among sorted draws [counts, draws]."""
        low, median, high = (np.quantile(draws, part, axis=1, method="nearest") for part in (0.05, 0.5, 0.95))
        return cls(text, *ranks_among(draws, true[:, None]), median, high - low)


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """A data set, and the ranks that a seed's posterior of it has."""

    kind: str
    name: str
    ranks: Callable[[int], Iterator[Ranks]]


def of_groups(case: Case, queries: QueryPlan, seed: int) -> Iterator[Ranks]:
    """Yield the ranks of the numbers of groups of each size and of at most each size."""
    drawn = posterior_estimate(queries.measured(case, seed), SolverChoices(), coverage=0.9).drawn
    assert isinstance(drawn, Posterior)
    assert drawn.sizes is not None
    sizes = np.array([histogram.to_dense(case.max_size) for histogram in case.truth])
    for text, counts in (("groups of a size", drawn.sizes), ("groups of at most a size", drawn.cumulative)):
        true = (sizes if counts is drawn.sizes else np.cumsum(sizes, axis=1))[:, : counts.low.shape[1]].reshape(-1)
        marginals = counts.marginals()
        cell = np.repeat(np.arange(true.size), np.diff(marginals.offsets))
        below = np.bincount(cell, marginals.weights * (marginals.atoms < true[cell]), true.size)
        up_to = np.bincount(cell, marginals.weights * (marginals.atoms <= true[cell]), true.size)
        low, median, high = (counts.quantile(part, 20).reshape(-1) for part in (1, 10, 19))
        ranks = counts.draws + 1
        yield Ranks(text, below / ranks, (up_to + 1) / ranks, median, high - low)


def of_tables(tables: Tables, seed: int) -> Iterator[Ranks]:
    """Yield the ranks of the answers to each query at all levels."""
    posterior = estimate_tables(SPLITS[EVEN].measure(tables, seed), VARIANTS[POSTERIOR], SolverChoices()).posterior
    assert posterior is not None
    for query in parse_queries(SETTING.queries, tables.schema):
        for level in range(tables.hierarchy.levels):
            regions = tables.hierarchy.level_range(level)
            true = tables.counts.answers_to(query.operator, regions).reshape(-1)
            yield Ranks.among(query.text, posterior.sorted_answers(query, level, regions), true)


def of_ranges(truth: Ints, epsilon: Fraction, seed: int) -> Iterator[Ranks]:
    """Yield the ranks of the sums of disjoint ranges of each length."""
    cost, sums = Epsilon(epsilon), np.concatenate([[0], np.cumsum(truth)])
    measured = measure_ranges(truth, cost, source=SeededNoise(seed), fan_out=choose_fan_out(truth.size, cost))
    posterior = UniversalHistogram.fit(measured, "posterior").posterior
    assert posterior is not None
    for length in LENGTHS:
        begin = np.arange(0, truth.size - length + 1, length)
        draws = np.sort(posterior.draws.answers(begin, begin + length), axis=1)
        yield Ranks.among("ranges", draws, sums[begin + length] - sums[begin])


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return Taxi and Hawaii's blocks as groups, Hawaii's blocks as tables, and ranges of simulated counts."""
    if small:
        cases = [(case, cells(case)) for case in small_cases(60)[:1]]
        blocks = generated_blocks(np.random.default_rng(7), 2, 2, 2, 4)
    else:
        cases = [(taxi := taxi_case(data, TAXI_MAX_SIZE), cells(taxi))]
        cases.append((blocks_by_size := hawaii_case(data), grown(blocks_by_size, GROWTH)[0]))
        blocks = hawaii(data)
    settings = [Setting("groups", case.name, partial(of_groups, case, queries)) for case, queries in cases]
    settings.append(Setting("tables", "blocks", partial(of_tables, small_tables(blocks))))
    rng, cells_of_ranges = np.random.default_rng(4), 256 if small else 512
    sparse = np.where(rng.random(cells_of_ranges) < 0.03, rng.integers(1, 60, cells_of_ranges), 0)
    spiky = rng.poisson(20, cells_of_ranges)
    spiky[rng.choice(cells_of_ranges, 8)] = 2000
    counts = {"clusters": generated(cells_of_ranges).values, "humps": generated_cells(cells_of_ranges)}
    counts |= {"sparse": sparse, "spiky": spiky}
    settings += [
        Setting("ranges", f"{name}, epsilon {epsilon}", partial(of_ranges, truth, epsilon))
        for name, truth in counts.items()
        for epsilon in (Fraction(1), Fraction(1, 10))
    ]
    one = SEEDS[:1]
    return [(setting, SEEDS if setting.kind == "ranges" and not small else one) for setting in settings]


def measure(setting: Setting, seed: int) -> Found:
    """Return what one seed's draws say of the counts that they leave uncertain."""
    found: Found = {}
    for text, several in groupby(setting.ranks(seed), lambda ranks: ranks.text):
        rows = [np.stack([ranks.first, ranks.end, ranks.median])[:, ranks.spread > 0] for ranks in several]
        first, end, median = np.concatenate(rows, axis=1)
        ends = np.stack([*between_ranks(first, end, MIDDLE).T, *between_ranks(first, end, TENTHS).T])
        classes = np.searchsorted([*CLASSES.values()], median, side="right") - 1
        sums = [[float((classes == k).sum()), *ends[:, classes == k].sum(axis=1).tolist()] for k in range(len(CLASSES))]
        found[text] = sums
    return found


def report(results: Sequence[Runs[Setting, Found]], path: Path) -> Report:
    """Return a row a data set and what is counted: the ten bins, and what intervals hold by the draws' medians."""
    rows: list[Record] = []
    for runs in results:
        for text in runs.found[0]:
            sums = np.sum([found[text] for found in runs.found], axis=0)
            number, middle, *tenths = sums.sum(axis=0)
            shares = {f"rank {k}": 10.0 * tenth / number for k, tenth in enumerate(tenths, 1)}
            by_class = zip(CLASSES, sums, strict=True)
            held = {f"median {name}": 100.0 * row[1] / row[0] if row[0] else None for name, row in by_class}
            head: Record = {"kind": runs.case.kind, "data": runs.case.name, "counts": text, "ranks": int(number)}
            rows.append({**head, **shares, "% inside": 100.0 * middle / number, **held})
    notes = (
        SEEDED,
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, fixed beforehand. Counts whose intervals of 90 % are wider than one number.",
        "rank 1 to 10: truths among the lowest to the highest tenth of their draws, 1 where all tenths have as many.",
        "% inside: held by intervals of 90 %, ties split, of all and by the median of the draws.",
    )
    return Report({"": Table.of("Ranks of true counts among the draws of a posterior", rows, notes)})


def key(setting: Setting, seed: int) -> str:
    """Return what a finding is stored by."""
    return f"{setting.kind}, {setting.name}, {seed}"


RANKS = Study("beyond/ranks", plan, measure, report, key=key)
