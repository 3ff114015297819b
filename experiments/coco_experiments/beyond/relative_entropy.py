"""A convex program in the posterior's place: noise's absolute values and the relative entropy to a prior, certified.

Of the leaves' histograms h (groups of each size 0 .. K, summing to the public numbers G), with x_v the cumulative
counts of region v, A_v its buckets, y_v its noisy measurements and eps_v their weight:

    minimise   sum_v eps_v |A_v x_v - y_v|_1  +  sum_leaf sum_k [h log(h / lambda) - h + lambda]

Its dual has one price u in [-eps_v, eps_v] an answer. Given prices the best h has a closed form, lambda exp(-g) made to
sum to G, where g_k adds up the prices of all answers that a group of size k counts in: so that

    D(u) = -u y + sum_leaf [G log(G / Z) - G + sum lambda],   Z = sum_k lambda_k exp(-g_k)

is a lower bound for any u in the box, and its gradient is that h's residual A x - y.
"""

# CVXPY's types cover only part of its names and calls.
# mypy: disable-error-code="no-untyped-call,attr-defined"

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.prior import reaching, smoothed
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.histograms import Hierarchy

ROOT_REACH, REACH, BORROWED, FLOOR = 0.15, 0.3, 30.0, 1e-6  # of the prior
LEAST = 0.01  # groups that a leaf expects of any size: the solver's cones are of such weights


@dataclass(frozen=True, eq=False, slots=True)
class Level:
    """A measured level: its regions, the leaves below each (a range of leaves' numbers), buckets, answers, weight."""

    number: int
    first_leaf: NDArray[np.int64]
    buckets: Buckets
    answers: Floats
    weight: float


@dataclass(frozen=True, eq=False)
class RelativeEntropy:
    """The program: ``prior`` float64[leaves, K + 1] above 0 (lambda), ``groups`` float64[leaves], what was measured."""

    prior: Floats
    groups: Floats
    levels: tuple[Level, ...]

    @classmethod
    def of(cls, answers: GroupsMeasurements, prior: Floats) -> RelativeEntropy:
        """Return the program of a measurement of cumulative counts or buckets of them."""
        tree = answers.hierarchy
        levels = []
        weights = answers.weights("l1")
        for number in answers.measured_levels:
            regions = tree.level_range(number)
            first = np.array([tree.leaf_range(region).start - tree.leaves.start for region in regions], np.int64)
            buckets = answers.buckets(number) or Buckets.cells(answers.max_size)
            table = answers.table(number).astype(np.float64)
            levels.append(Level(number, first, buckets, table, float(weights[regions.start])))
        return cls(prior, answers.group_counts[tree.leaves.start :].astype(np.float64), tuple(levels))

    @cached_property
    def bounds(self) -> Floats:
        """Return the largest price of each answer, level by level."""
        return np.concatenate([np.full(level.answers.size, level.weight) for level in self.levels])

    def residuals(self, h: Floats) -> Floats:
        """Return A x - y of the leaves' histograms, all answers level by level."""
        cumulative = np.cumsum(h, axis=1)[:, :-1]
        parts = []
        for level in self.levels:
            x = np.add.reduceat(cumulative, level.first_leaf, axis=0)
            parts.append((np.add.reduceat(x, level.buckets.begin, axis=1) - level.answers).ravel())
        return np.concatenate(parts)

    def objective(self, h: Floats) -> float:
        """Return the program's objective; 0 log 0 is 0."""
        ratio = np.where(h > 0.0, h / self.prior, 1.0)
        entropy = float((h * np.log(ratio) - h + self.prior).sum())
        return float(self.bounds @ np.abs(self.residuals(h))) + entropy

    def histograms(self, prices: Floats) -> tuple[Floats, float]:
        """Return the best histograms given prices, float64[leaves, K + 1], and D(prices), a lower bound in the box."""
        leaves, sizes = self.prior.shape
        each = np.zeros((leaves, sizes - 1))
        value, begin = 0.0, 0
        for level in self.levels:
            u = prices[begin : begin + level.answers.size].reshape(level.answers.shape)
            begin += level.answers.size
            value -= float((u * level.answers).sum())
            below = np.diff(np.append(level.first_leaf, leaves))
            each += np.repeat(np.repeat(u, level.buckets.end - level.buckets.begin, axis=1), below, axis=0)
        # A group of size k counts in the cells k .. K - 1.
        g = np.zeros((leaves, sizes))
        g[:, :-1] = np.cumsum(each[:, ::-1], axis=1)[:, ::-1]
        logs = np.log(self.prior) - g
        top = logs.max(axis=1, keepdims=True)
        h = np.exp(logs - top)
        total = h.sum(axis=1)
        log_z = np.log(total) + top[:, 0]
        some = self.groups > 0
        G = self.groups
        value += float((G[some] * (np.log(G[some]) - log_z[some]) - G[some]).sum() + self.prior.sum())
        return h * (G / total)[:, None], value

    def certified(self, h: Floats, prices: Floats) -> tuple[float, float]:
        """Return the objective at h, and the gap to the bound that prices, cut off to their box, certify."""
        _, bound = self.histograms(np.clip(prices, -self.bounds, self.bounds))
        objective = self.objective(h)
        return objective, objective - bound


def solved(problem: RelativeEntropy) -> tuple[Floats, Floats]:
    """Return histograms and prices by CVXPY and Clarabel: an exponential cone for every unknown count."""
    import cvxpy as cp

    leaves = problem.groups.size
    h = cp.Variable(problem.prior.shape, nonneg=True)
    cells = cp.cumsum(h, axis=1)[:, :-1]
    constraints: list[Any] = [cp.sum(h, axis=1) == problem.groups]
    cost: Any = cp.sum(cp.kl_div(h, problem.prior))
    for level in problem.levels:
        below = np.diff(np.append(level.first_leaf, leaves))
        widths = level.buckets.end - level.buckets.begin
        rest = cp.Variable(level.answers.shape)
        constraints.append(_adding(below).T @ cells @ _adding(widths) - level.answers == rest)
        cost += level.weight * cp.sum(cp.abs(rest))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of inaccurate answers: the gap says how far
        cp.Problem(cp.Minimize(cost), constraints).solve(solver="CLARABEL")
    prices = np.concatenate([np.asarray(level.dual_value).ravel() for level in constraints[1:]])
    table = np.maximum(np.asarray(h.value), 0.0)
    return table * (problem.groups / np.maximum(table.sum(axis=1), 1e-300))[:, None], prices


def _adding(widths: NDArray[np.int64]) -> Any:
    """Return the sparse matrix (all, groups) that adds up neighbours, so many each."""
    from scipy.sparse import csr_array

    total = int(widths.sum())
    return csr_array((np.ones(total), (np.arange(total), np.repeat(np.arange(widths.size), widths))))


def learned(tree: Hierarchy, h: Floats, groups: NDArray[np.int64]) -> Floats:
    """Return the prior lambda = G pi that histograms of the leaves teach: smoothed, and borrowed from parents."""
    sizes = h.shape[1]
    table = tree.aggregate(h)
    probabilities = np.empty_like(table)
    root = smoothed(table[0], reaching(sizes, ROOT_REACH))
    probabilities[0] = root / root.sum() + FLOOR
    for region in range(1, tree.regions):
        own = smoothed(table[region], reaching(sizes, REACH))
        probabilities[region] = (own + BORROWED * probabilities[tree.parent[region]]) / (own.sum() + BORROWED)
    leaves = probabilities[tree.leaves.start :]
    expected: Floats = groups[tree.leaves.start :, None] * leaves / leaves.sum(axis=1, keepdims=True)
    return np.maximum(expected, LEAST)
