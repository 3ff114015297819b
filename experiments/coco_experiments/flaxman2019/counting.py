"""Mechanisms that count persons, raking, and the direct estimate from their runs (Flaxman 2019, sections 2.2 and 2.3).

Raking scales children so that they sum to their parent, top-down. It needs no optimisation and no rounding; its results
may be negative or fractional.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError

SamplerName = Literal["ratio", "exact"]
MechanismName = Literal["GDPC", "RDPC", "ADPC"]
Mechanism = Callable[[np.random.Generator], Floats]

MECHANISMS: tuple[MechanismName, ...] = ("GDPC", "RDPC", "ADPC")
PARTS = 4


def children_of(people: int, per_cell: Fraction | int, levels: int) -> int:
    """Return C = floor((N / mu)^(1/J)) as an exact integer root (a power of 1/3 in doubles floors 1000 to 9)."""
    if people < 1 or per_cell <= 0 or levels < 1 or people < per_cell:
        raise ProblemError("the cells need at least one person each, and a hierarchy one level")
    cells = int(people / Fraction(per_cell))
    root = max(1, round(cells ** (1.0 / levels)))
    while root**levels > cells:
        root -= 1
    while (root + 1) ** levels <= cells:
        root += 1
    return int(root)


@dataclass(frozen=True, eq=False, slots=True)
class UniformTree:
    """The regions of J nested levels with C children each, breadth first: ``parent`` int64[n], ``level_start``."""

    children: int
    levels: int
    parent: Ints
    level_start: Ints

    @classmethod
    def of(cls, children: int, levels: int) -> UniformTree:
        """Build the tree of C^0 + ... + C^J regions."""
        if children < 1 or levels < 1:
            raise ProblemError("a tree needs at least one child a region and one level below the root")
        starts = np.cumsum([0, *(children**level for level in range(levels + 1))], dtype=np.int64)
        parent = (np.arange(starts[-1], dtype=np.int64) - 1) // children
        if children == 1:
            parent = np.arange(starts[-1], dtype=np.int64) - 1
        parent[0] = -1
        return cls(children, levels, parent, starts)

    @property
    def cells(self) -> int:
        """Number of leaves, C^J."""
        return int(self.children**self.levels)

    def counts(self, leaves: Ints) -> Ints:
        """Return the count of every region from the leaves', int64[regions]."""
        level_counts = [leaves]
        for _ in range(self.levels):
            level_counts.append(level_counts[-1].reshape(-1, self.children).sum(axis=1))
        return np.concatenate(level_counts[::-1])


def population(people: int, tree: UniformTree, rng: np.random.Generator) -> Ints:
    """Return the counts of people placed uniformly at random, int64[cells].

    The distribution is that of N rows of J uniform digits, drawn as one multinomial: O(cells), not O(N).
    """
    shares = np.full(tree.cells, 1.0 / tree.cells)
    return np.asarray(rng.multinomial(people, shares), dtype=np.int64)


def noise(epsilon: float, n: int, sampler: SamplerName, rng: np.random.Generator) -> Ints:
    """Return ``n`` two-sided geometric variables whose probabilities fall by a ratio a at each step from 0.

    "ratio": a = 1 - epsilon, the paper's sampler (geometric(p = epsilon) twice, subtracted); its loss is
    -log(1 - epsilon), above epsilon. "exact": a = exp(-epsilon). Raises ProblemError where there is no such
    distribution.
    """
    if epsilon <= 0 or (sampler == "ratio" and epsilon >= 1):
        raise ProblemError("geometric noise needs an epsilon above 0, and below 1 for the ratio 1 - epsilon")
    if sampler == "ratio":
        return np.asarray(rng.geometric(epsilon, n) - rng.geometric(epsilon, n), dtype=np.int64)
    pairs = np.floor(rng.standard_exponential((2, n)) / epsilon)
    return np.asarray(pairs[0] - pairs[1], dtype=np.int64)


def mechanism(
    name: MechanismName,
    tree: UniformTree,
    leaves: Ints,
    epsilon: float,
    *,
    sampler: SamplerName = "exact",
    parts: int = PARTS,
) -> Mechanism:
    """Return a function that runs a mechanism on the counts ``leaves`` and gives the noisy cells, float64[cells].

    ``parts`` is ADPC's P. For experiments only: numpy's noise is NOT PRIVATE.
    """
    if name == "GDPC":
        return lambda rng: (leaves + noise(epsilon, leaves.size, sampler, rng)).astype(np.float64)
    if name == "ADPC":
        return lambda rng: _averaged_parts(leaves, epsilon, parts, sampler, rng)
    if name != "RDPC":
        raise ProblemError(f"unknown mechanism {name!r}: use one of {', '.join(MECHANISMS)}")
    counts = tree.counts(leaves)
    return lambda rng: _raked_levels(tree, counts, epsilon, sampler, rng)


def _averaged_parts(leaves: Ints, epsilon: float, parts: int, sampler: SamplerName, rng: np.random.Generator) -> Floats:
    total = np.zeros(leaves.size, np.int64)
    for _ in range(parts):
        total += noise(epsilon / parts, leaves.size, sampler, rng)
    return leaves + total / parts


def _raked_levels(
    tree: UniformTree, counts: Ints, epsilon: float, sampler: SamplerName, rng: np.random.Generator
) -> Floats:
    noisy = counts + noise(epsilon / (tree.levels + 1), counts.size, sampler, rng)
    return rake(noisy, tree.parent, tree.level_start)[tree.level_start[-2] :]


def budget_loss(epsilon: float, sampler: SamplerName) -> float:
    """Return the true loss of one geometric count: epsilon, or -log(1 - epsilon) for the paper's sampler."""
    return epsilon if sampler == "exact" else -math.log1p(-epsilon)


def rake(noisy: NDArray[Any], parent: Ints, level_start: Ints) -> Floats:
    """Return consistent values of every region, float64 like ``noisy``: [regions] or [regions, cells].

    ``parent`` and ``level_start`` are those of a ``Hierarchy`` (breadth first, -1 at the root). The root keeps its
    noisy value; a child gets its noisy value times the parent's raked value, over the sum of the noisy values of all
    the parent's children. Where that sum is zero, the children share the parent's value equally. Raises ProblemError
    where shapes do not fit. O(regions x cells).
    """
    raked = np.array(noisy, dtype=np.float64)
    if len(raked) != len(parent) or int(level_start[-1]) != len(parent):
        raise ProblemError("raking needs one value a region of the hierarchy")
    for start, stop in pairwise(level_start[1:].tolist()):
        above = parent[start:stop]
        sums, siblings = np.zeros_like(raked[:start]), np.bincount(above, minlength=start)[above]
        np.add.at(sums, above, raked[start:stop])
        total = sums[above]
        equal = raked[above] / siblings.reshape((-1,) + (1,) * (raked.ndim - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = raked[start:stop] * (raked[above] / total)
        raked[start:stop] = np.where(total == 0, equal, scaled)
    return raked


@dataclass(frozen=True, eq=False, slots=True)
class DirectEstimate:
    """Log-ratios log P[D] / P[D'] at integer errors ``k``, int64[m]: of "error = k" and of "error >= k", float64[m].

    NaN where an event never happened on one side. The ratios are noisy: where few runs are in an event they say next
    to nothing, and their maximum is biased upwards.
    """

    k: Ints
    equal: Floats
    at_least: Floats

    @property
    def maximum(self) -> tuple[float, float]:
        """Largest |log-ratio| of either kind, NaN where there is none."""
        return _largest(self.equal), _largest(self.at_least)


def direct_estimate(first: NDArray[Any], second: NDArray[Any]) -> DirectEstimate:
    """Return the estimate from the errors of one cell, one a run, on D and on D', both relative to D's exact count.

    Errors that are not integers are rounded down to unit bins. Raises ProblemError without runs. O(runs log runs).
    """
    if len(first) == 0 or len(second) == 0:
        raise ProblemError("a direct estimate needs runs on both databases")
    first_errors, second_errors = (np.floor(np.asarray(errors)).astype(np.int64) for errors in (first, second))
    low = min(int(first_errors.min()), int(second_errors.min()))
    points = max(int(first_errors.max()), int(second_errors.max())) - low + 1
    counts = [np.bincount(errors - low, minlength=points) for errors in (first_errors, second_errors)]
    above = [np.cumsum(count[::-1])[::-1] for count in counts]
    return DirectEstimate(
        np.arange(low, low + points, dtype=np.int64),
        _log_ratio(counts[0] / first_errors.size, counts[1] / second_errors.size),
        _log_ratio(above[0] / first_errors.size, above[1] / second_errors.size),
    )


def _log_ratio(first: Floats, second: Floats) -> Floats:
    both = (first > 0) & (second > 0)
    ratio = np.full(first.size, np.nan)
    ratio[both] = np.log(first[both] / second[both])
    return ratio


def _largest(ratios: Floats) -> float:
    return float(np.nanmax(np.abs(ratios))) if np.isfinite(ratios).any() else float("nan")
