"""Matching and merging (Algorithm 1): 3,000 regions, and how time grows with the runs of one family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from coco_experiments.bench.rows import Bench, Benchmark, take_turns
from coco_experiments.data import generated_counts
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimators import SizeEstimate
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.subtrees import match_and_merge, matching
from coco_opt.histograms import CountOfCounts, Hierarchy

SEED = 2018
LIMIT = 2.0

ALGORITHM, FAMILY = "matching and merging, certified", "one family, certified"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Regions below the root and leaves in each, groups a leaf, and the runs of the doubling families."""

    parents: int
    leaves: int
    groups: int
    runs: tuple[int, ...]


FULL = Sizes(54, 55, 200, (25_000, 50_000, 100_000, 200_000, 400_000))
SMALL = Sizes(3, 4, 60, (500, 1_000))
MAX_SIZE = 1_000


def estimates(histograms: list[CountOfCounts]) -> list[SizeEstimate]:
    """Return estimates with the paper's variance of cumulative counts, 4 / (eps^2 count), for eps = 1."""
    return [SizeEstimate.from_histogram(histogram, 4.0) for histogram in histograms]


def noisy_tree(sizes: Sizes) -> tuple[Hierarchy, list[SizeEstimate]]:
    """Return a made tree and estimates of all regions, the inner ones' sizes moved by up to two entities.

    Every region keeps its number of groups, as it is public.
    """
    rng = np.random.default_rng([SEED, sizes.parents])
    counts = generated_counts(sizes.parents, sizes.leaves, sizes.groups, MAX_SIZE, rng)
    moved = [
        CountOfCounts.from_runs(np.maximum(h.sizes + rng.integers(-2, 3, h.sizes.size), 0), h.counts)
        for h in counts.histograms()
    ]
    return counts.hierarchy, estimates(moved)


def family(runs: int) -> tuple[SizeEstimate, list[SizeEstimate]]:
    """Return a parent and four children with about ``runs`` runs together, half of them the children's."""
    rng = np.random.default_rng([SEED, runs])
    each = runs // 8
    children = [CountOfCounts.from_runs(rng.permutation(8 * each)[:each], rng.integers(1, 50, each)) for _ in range(4)]
    total = CountOfCounts.total(children)
    return estimates([total])[0], estimates(children)


def faults(hierarchy: Hierarchy, before: list[SizeEstimate], after: list[CountOfCounts]) -> list[str]:
    """Return one line for each promise that a result breaks: the groups of a leaf, the sums of an inner region."""
    wrong = [
        f"leaf {leaf} has {after[leaf].groups} groups, not {int(before[leaf].counts.sum())}"
        for leaf in hierarchy.leaves
        if after[leaf].groups != int(before[leaf].counts.sum())
    ]
    for region in range(hierarchy.regions):
        children = hierarchy.children(region)
        if len(children) and not after[region].equals(CountOfCounts.total(after[child] for child in children)):
            wrong.append(f"region {region} is not the sum of its children")
    return wrong


def many_regions(bench: Bench, sizes: Sizes) -> None:
    """Time Algorithm 1 on a whole tree, and say what is wrong with its result."""
    hierarchy, before = noisy_tree(sizes)
    algorithm = partial(matching, hierarchy, before, SolverChoices(), GroupsMethod(consistency="matching"))
    timing = take_turns({ALGORITHM: algorithm}, bench.repeats)[ALGORITHM]
    runs = sum(estimate.sizes.size for estimate in before)
    bench.row(f"{hierarchy.regions:,} regions", ALGORITHM, runs, timing.median, limit=LIMIT)
    bench.wrong += faults(hierarchy, before, timing.value)


def doubling(bench: Bench, runs: tuple[int, ...]) -> None:
    """Time one family by runs."""
    calls: dict[str, tuple[int, Callable[[], Any]]] = {}
    for size in runs:
        parent, children = family(size)
        counted = sum(estimate.sizes.size for estimate in (parent, *children))
        call = partial(match_and_merge, parent, children, SolverChoices())
        calls[f"doubling, {size:,} runs"] = counted, call
    bench.doubling(FAMILY, calls, f"{runs[0]:,} to {runs[-1]:,} runs")


def measure(bench: Bench) -> str:
    """Time 3,025 regions and families of doubling runs (small: some dozens of regions)."""
    sizes = SMALL if bench.small else FULL
    for part in bench.over((partial(many_regions, bench, sizes), partial(doubling, bench, sizes.runs))):
        part()
    return f"Matching and merging: median of {bench.repeats} runs"


NOTES = ("n: runs of all regions; every matching is certified optimal, which is in its time",)
MATCHING = Benchmark("bench/matching", measure, NOTES, (5, 2))
