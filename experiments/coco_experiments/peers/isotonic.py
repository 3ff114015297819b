"""Isotonic regression by coco-opt, SciPy, scikit-learn and general solvers: objective above the optimum, seconds.

With p = 1 the dual is a flow of least cost, which a network simplex solves (networkx, in Python: on fewer numbers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from coco_experiments.bench.isotonic import INSTANCES
from coco_experiments.bench.rows import take_turns
from coco_experiments.peers.study import OURS, Result, System, missing, peer_table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt import solving
from coco_opt.array_types import Ints
from coco_opt.problem import Problem
from coco_opt.problems import IsotonicL1, IsotonicL2
from coco_opt.registry import make_solver

SIZES, SMALL_SIZES = ((2, 1_000_000), (1, 20_000), (1, 1_000)), ((2, 5_000), (1, 200))
REPEATS = 5
CERTIFIED = System(OURS, "solve with certificate")
ABOVE = "objective above the optimum, relative"
TOLERANCE = 1e-6
NETWORK = System("networkx", "network simplex on the dual flow")
PEERS = {
    2: (System("scipy", "optimize.isotonic_regression"), System("scikit-learn", "isotonic.isotonic_regression")),
    1: (System("highspy", "linear program"), System("clarabel", "linear program"), NETWORK),
}
_MOST_NUMBERS = 2_000  # for the network simplex


def network_simplex(y: Ints) -> Ints:
    """Return an L1 fit from the flow of least cost that is its dual.

    An arc i -> i + 1 carries the multiplier of x_i <= x_(i+1). Arcs from and to a hub, of capacity 1 and cost -y_i and
    y_i, carry the sign g_i of x_i - y_i, negated: x_i <= y_i where g_i = 1, x_i >= y_i where g_i = -1, else equal.
    """
    networkx = import_module("networkx")
    n, graph = y.size, networkx.DiGraph()
    graph.add_edges_from((i, i + 1) for i in range(n - 1))
    graph.add_edges_from(("hub", i, {"capacity": 1, "weight": -value}) for i, value in enumerate(y.tolist()))
    graph.add_edges_from((i, "hub", {"capacity": 1, "weight": value}) for i, value in enumerate(y.tolist()))
    flow = networkx.network_simplex(graph)[1]
    sign = np.array([flow["hub"][i] - flow[i]["hub"] for i in range(n)])
    starts = np.flatnonzero([i == 0 or flow[i - 1][i] == 0 for i in range(n)])
    lowest = np.where(sign < 1, y, y.min())
    fitted = np.maximum.accumulate(np.maximum.reduceat(lowest, starts))
    return np.repeat(fitted, np.diff(starts, append=n))


def calls_of(p: int, y: Ints) -> tuple[Problem[Any, Any], dict[System, Callable[[], Any]]]:
    """Return the problem and what each installed system does; the peers get the floats that they work on."""
    problem = IsotonicL2(y) if p == 2 else IsotonicL1(y, ties="upper")
    calls: dict[System, Callable[[], Any]] = {CERTIFIED: lambda: solving.solve(problem).value}
    reals = y.astype(np.float64)
    for system in PEERS[p]:
        if system.version is None or (system == NETWORK and y.size > _MOST_NUMBERS):
            continue
        if system.package == "scipy":
            from scipy.optimize import isotonic_regression

            calls[system] = lambda: isotonic_regression(reals).x
        elif system == NETWORK:
            calls[system] = partial(network_simplex, y)
        elif system.package == "scikit-learn":
            calls[system] = partial(import_module("sklearn.isotonic").isotonic_regression, reals)
        else:
            solver = make_solver({"highspy": "highs", "clarabel": "clarabel"}[system.package])
            calls[system] = lambda solver=solver: solving.solve(problem, solver, check=False).value  # type: ignore[misc]
    return problem, calls


def measure(size: tuple[int, int, int], seed: int) -> list[Result]:
    """Return a result an instance and system; runs differ in time alone, for nothing here is random."""
    (p, n, repeats), results = size, []
    for name, instance in INSTANCES.items():
        problem, calls = calls_of(p, instance(n))
        timings = take_turns({system.name: call for system, call in calls.items()}, repeats)
        best = solving.solve(problem).objective
        for system in calls:
            timing = timings[system.name]
            above = (problem.objective(np.asarray(timing.value)) - best) / max(1.0, best)
            results.append(Result(f"{name}, n = {n:,}", system, {ABOVE: (above,)}, timing.seconds))
    return results


def plan(data: Path | None, small: bool) -> list[tuple[tuple[int, int, int], Sequence[int]]]:
    """Return p = 2 at a million and p = 1 at 20,000 and 1,000 numbers, and how often; small: some thousands."""
    return seeded((*size, 1 if small else REPEATS) for size in (SMALL_SIZES if small else SIZES))


def report(found: Sequence[Runs[tuple[int, int, int], list[Result]]], path: Path) -> Report:
    """Return a table a size; it fails where a peer's objective is below the certified optimum."""
    tables, worse = {}, []
    for number, runs in enumerate(found, 1):
        (p, n, _), (results,) = runs.case, runs.found
        worse += [
            f"{result.instance}: {result.system.name} is below coco-opt's certified optimum"
            for result in results
            if not result.system.ours and result.errors[ABOVE][0] < -TOLERANCE
        ]
        notes = (
            "Nothing is random here: the error is the objective above the certified optimum, relative to it.",
            "coco-opt's seconds include the certificate. General solvers include writing the program.",
            *missing(PEERS[p]),
        )
        title = f"Isotonic regression, p = {p}, {n:,} numbers"
        tables[f"_{number}" if number > 1 else ""] = peer_table(title, results, notes)
    return Report(tables, failures=worse)


ISOTONIC = Study("peers/isotonic", plan, measure, report)
