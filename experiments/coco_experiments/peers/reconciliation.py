"""Hierarchical reconciliation without privacy: base forecasts of every node made to add up, nonnegative where asked.

A geographic hierarchy of made demand; each node has its own unbiased forecast with a variance that grows with its mean.
hierarchicalforecast's MinT variants and coco-opt's trees get the same forecasts and the same structural weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from coco_solvers.generic.clarabel import Clarabel

from coco_experiments.peers.study import OURS, System, Trial, missing, peer_table, results_of, trial
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt import solving
from coco_opt.array_types import Floats
from coco_opt.problems.tree import Tree, TreeLeastSquares

SEEDS, SMALL_SEEDS = (1, 2, 3, 4, 5), (1, 2)
TREES, SMALL_TREES = ((4, 4), (8, 4), (4, 6)), ((3, 3),)  # fan-out and levels
ERROR = "mean squared error of a node, in units of its forecast's variance"
_PEER = "hierarchicalforecast"
FREE, POSITIVE = "structural weights", "structural weights, nonnegative"
_CONVEX = System("clarabel", POSITIVE)


@dataclass(frozen=True, eq=False, slots=True)
class Forecasts:
    """Base forecasts of all nodes of a tree, the truth, and their variances (nodes,), parents before children."""

    tree: Tree
    truth: Floats
    variance: Floats
    base: Floats

    @classmethod
    def simulated(cls, fan_out: int, levels: int, seed: int) -> Forecasts:
        """Return sparse demand at the leaves, and forecasts whose variance is the number of leaves of a node."""
        rng = np.random.default_rng([seed, fan_out, levels])
        tree = Tree.complete(fan_out, levels)
        leaves = fan_out ** (levels - 1)
        counts = np.zeros(tree.nodes)
        counts[-leaves:] = np.where(rng.random(leaves) < 0.4, rng.gamma(0.5, 4.0, leaves), 0.0)
        size = np.zeros(tree.nodes)
        size[-leaves:] = 1.0
        truth, variance = tree.sums(counts), tree.sums(size)
        return cls(tree, truth, variance, truth + rng.normal(0.0, np.sqrt(variance)))

    def problem(self, *, nonnegative: bool) -> TreeLeastSquares:
        """Return the least squares whose weights are 1 / variance."""
        return TreeLeastSquares(self.tree, self.base, self.variance, lower=0.0 if nonnegative else -np.inf)

    def error(self, estimate: Floats) -> float:
        """Return the mean squared error of a node in units of its variance."""
        return float(np.mean((estimate - self.truth) ** 2 / self.variance))

    def summing(self) -> Any:
        """Return the sparse matrix (nodes, leaves) that sums the leaves below each node."""
        from scipy.sparse import csr_matrix

        nodes, leaves = self.tree.nodes, int(self.tree.is_leaf.sum())
        rows, columns = [], []
        first = nodes - leaves
        for leaf in range(leaves):
            node = first + leaf
            while node >= 0:
                rows.append(node)
                columns.append(leaf)
                node = int(self.tree.parent[node])
        return csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(nodes, leaves))


def ours(forecasts: Forecasts, *, nonnegative: bool) -> Callable[[], Floats]:
    """Return coco-opt's reconciliation, certified."""
    return lambda: solving.solve(forecasts.problem(nonnegative=nonnegative)).value


def peer(forecasts: Forecasts, *, nonnegative: bool) -> Callable[[], Floats]:
    """Return hierarchicalforecast's MinT with structural weights, by its sparse implementation."""
    methods = import_module("hierarchicalforecast.methods")
    summing, base = forecasts.summing(), forecasts.base[:, None]

    def reconcile() -> Floats:
        method = methods.MinTraceSparse("wls_struct", nonnegative=nonnegative)
        fitted = method.fit_predict(S=summing, y_hat=base)["mean"]
        return np.asarray(fitted, np.float64).ravel()

    return reconcile


def convex(forecasts: Forecasts) -> Callable[[], Floats]:
    """Return the same quadratic program by an interior-point solver."""
    return lambda: solving.solve(forecasts.problem(nonnegative=True), Clarabel(), check=False).value


def systems() -> dict[System, Callable[[Forecasts], Callable[[], Floats]]]:
    """Return every way to reconcile, by name."""
    return {
        System(OURS, FREE): lambda forecasts: ours(forecasts, nonnegative=False),
        System(OURS, POSITIVE): lambda forecasts: ours(forecasts, nonnegative=True),
        System(_PEER, f"MinT, {FREE}"): lambda forecasts: peer(forecasts, nonnegative=False),
        System(_PEER, f"MinT, {POSITIVE}"): lambda forecasts: peer(forecasts, nonnegative=True),
        _CONVEX: convex,
    }


def faults(forecasts: Forecasts, system: System, estimate: Floats) -> list[str]:
    """Return what is wrong with coco-opt's own answer: it must add up, and be nonnegative where that was asked."""
    if not system.ours:
        return []
    leaves = np.where(forecasts.tree.is_leaf, estimate, 0.0)
    apart = float(np.abs(forecasts.tree.sums(leaves) - estimate).max())
    lines = [f"{system.name}: children miss their parent by {apart:.2g}"] if apart > 1e-6 else []
    if "nonnegative" in system.setting and estimate.min() < 0:
        lines.append(f"{system.name}: a value of {estimate.min():.2g}")
    return lines


def plan(data: Path | None, small: bool) -> list[tuple[tuple[int, int], Sequence[int]]]:
    """Return trees of 64 to 1,024 leaves; small: nine leaves."""
    return seeded(SMALL_TREES, SMALL_SEEDS) if small else seeded(TREES, SEEDS)


def measure(tree: tuple[int, int], seed: int) -> tuple[Trial, list[str]]:
    """Return every system's error on one draw of forecasts, and what is wrong with coco-opt's answers."""
    forecasts, wrong = Forecasts.simulated(*tree, seed), list[str]()
    calls = {system: make(forecasts) for system, make in systems().items() if system.version is not None}
    for system in (system for system in calls if system.ours):
        wrong += faults(forecasts, system, calls[system]())
    return trial(calls, lambda answer: {ERROR: forecasts.error(answer)}, warm=seed == SEEDS[0]), wrong


def report(found: Sequence[Runs[tuple[int, int], tuple[Trial, list[str]]]], path: Path) -> Report:
    """Return the comparison; it fails where coco-opt's answers do not add up."""
    results = []
    for runs in found:
        fan_out, levels = runs.case
        name = f"{fan_out ** (levels - 1):,} leaves, {levels} levels"
        results += results_of(name, systems(), [of_seed for of_seed, _ in runs.found])
    notes = (
        "Forecasts are simulated: unbiased, with a variance that is the number of leaves below a node.",
        "MinT with structural weights is least squares with these variances; nonnegative fits are biased but nearer.",
        *missing(list(systems())),
    )
    failures = (line for runs in found for _, wrong in runs.found for line in wrong)
    return Report({"": peer_table("Reconciliation of forecasts", results, notes)}, failures=failures)


RECONCILIATION = Study("peers/reconciliation", plan, measure, report)
