"""Least squares on trees: two passes against OpenDP's consistent tree, exact nonnegativity against Clarabel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from coco_solvers.generic.clarabel import Clarabel
from coco_solvers.structured.tree import TreePasses

from coco_experiments.bench.rows import PAIRED, Bench, Benchmark, take_turns
from coco_opt import solving
from coco_opt.kernels import tree_bounded_l2, tree_passes
from coco_opt.problems.tree import Tree, TreeLeastSquares
from coco_opt.solution import Solution

SEED = 2010
TOLERANCE = 1e-9

FIT, SOLVE, OPENDP = "kernel, two passes", "solve with certificate", "OpenDP consistent b-ary tree"
POSITIVE, POSITIVE_SOLVE = "kernel, nonnegative", "solve nonnegative with certificate"
CLARABEL = "Clarabel, its own seconds"
OPENDP_TARGET, CLARABEL_TARGET = 50.0, 10.0
CLARABEL_LIMIT = 0.065  # a tenth of 0.65 s, once measured for hierarchicalforecast's Clarabel path
MILLION_LIMIT = 5.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Heights of the complete trees: {fan-out: height} without bounds, the rest nonnegative."""

    free: tuple[tuple[int, int], ...]
    clarabel: tuple[int, int]
    million: tuple[tuple[int, int], ...]
    doubling: tuple[int, ...]


FULL = Sizes(((2, 17), (16, 5)), (4, 8), ((2, 21), (4, 11)), (15, 16, 17, 18, 19, 20, 21))
SMALL = Sizes(((2, 9), (16, 3)), (4, 5), ((2, 12),), (9, 10, 11))


def instance(fan_out: int, height: int) -> TreeLeastSquares:
    """Return a tree of sparse counts (one leaf in eight filled) with integer Laplace noise of scale height."""
    rng = np.random.default_rng([SEED, fan_out, height])
    tree = Tree.complete(fan_out, height)
    leaves = fan_out ** (height - 1)
    counts = np.zeros(tree.nodes, dtype=np.int64)
    counts[-leaves:] = np.where(rng.random(leaves) < 0.125, rng.geometric(0.05, leaves), 0)
    return TreeLeastSquares(tree, tree.sums(counts) + np.rint(rng.laplace(0.0, height, tree.nodes)))


def nonnegative(problem: TreeLeastSquares) -> TreeLeastSquares:
    """Return the same problem with all nodes at least 0."""
    return TreeLeastSquares(problem.tree, problem.y, lower=0.0)


def name_of(fan_out: int, height: int) -> str:
    """Return how the table calls a complete tree."""
    return f"{fan_out}-ary, {fan_out ** (height - 1):,} leaves"


def passes(problem: TreeLeastSquares) -> Callable[[], Any]:
    """Return the two passes as a call."""
    return lambda: tree_passes.fit(problem.tree.first_child, problem.y, problem.variance)


def merging(problem: TreeLeastSquares) -> Callable[[], Any]:
    """Return the exact nonnegative kernel as a call for the values and the sides they are held at."""
    tree, w, lower, upper = problem.tree, problem.weights, problem.lower, problem.upper
    return lambda: tree_bounded_l2.fit(tree.parent, tree.first_child, problem.y, w, lower, upper)


def opendp_call(problem: TreeLeastSquares, fan_out: int) -> Callable[[], Any] | None:
    """Return OpenDP's post-processor as a call for the leaves, None where OpenDP is not installed.

    It takes and returns lists of Python numbers; the list it reads is made outside the clock.
    """
    if find_spec("opendp") is None:
        return None
    from opendp import mod
    from opendp.transformations import make_consistent_b_ary_tree

    mod.enable_features("contrib")
    consistent = make_consistent_b_ary_tree(fan_out)
    noisy = [int(value) for value in problem.y]
    return lambda: consistent(noisy)


def against_opendp(bench: Bench, fan_out: int, height: int) -> None:
    """Time least squares without bounds; leaves that differ by more than 1e-9 of the data's scale are wrong."""
    problem, name = instance(fan_out, height), name_of(fan_out, height)
    calls = {FIT: passes(problem), SOLVE: lambda: solving.solve(problem, TreePasses())}
    peer = opendp_call(problem, fan_out)
    timings = take_turns(calls if peer is None else {**calls, OPENDP: peer}, bench.repeats)
    bench.against(name, problem.tree.nodes, {FIT: OPENDP_TARGET, SOLVE: None}, timings)
    leaves = problem.tree.is_leaf
    answers = {SOLVE: timings[SOLVE].value.value[leaves]}
    if peer is not None:
        answers[OPENDP] = np.array(timings[OPENDP].value)
    for what, answer in answers.items():
        difference = float(np.abs(answer - timings[FIT].value[leaves]).max())
        if not difference <= TOLERANCE * problem.scale:
            bench.wrong.append(f"{name}: {what} differs from the kernel by {difference:.2g}")


def against_clarabel(bench: Bench, fan_out: int, height: int) -> None:
    """Time nonnegative least squares, and note the answers.

    Clarabel solves the quadratic program built by this package; building and certifying are not counted against it.
    """
    problem, name = nonnegative(instance(fan_out, height)), name_of(fan_out, height)
    calls = {
        POSITIVE: merging(problem),
        POSITIVE_SOLVE: lambda: solving.solve(problem, TreePasses()),
        CLARABEL: lambda: solving.solve(problem, Clarabel(), check=False),
    }
    timings = take_turns(calls, bench.repeats)
    theirs: Solution[Any] = timings[CLARABEL].value
    ours: Solution[Any] = timings[POSITIVE_SOLVE].value
    n, kernel = problem.tree.nodes, {POSITIVE: timings[POSITIVE], CLARABEL: timings[CLARABEL].alone}
    bench.against(name, n, {POSITIVE: CLARABEL_TARGET}, kernel)
    bench.row(name, POSITIVE_SOLVE, n, timings[POSITIVE_SOLVE].median, limit=CLARABEL_LIMIT)
    zeros, least = int((ours.value == 0).sum()), float(ours.value.min())
    bench.notes.append(
        f"{name}, nonnegative: {zeros:,} exact zeros, least value {least:g}, relative gap "
        f"{ours.relative_gap:.1g}; Clarabel: {int((theirs.value == 0).sum()):,} zeros, relative gap "
        f"{theirs.relative_gap:.1g}, objective {theirs.objective - ours.objective:+.2g}"
    )
    bench.wrong += _nonnegative_faults(name, ours)
    if theirs.objective < ours.objective - TOLERANCE * max(1.0, ours.objective):
        bench.wrong.append(f"{name}: Clarabel's objective is better")


def _nonnegative_faults(name: str, ours: Solution[Any]) -> list[str]:
    wrong = []
    if ours.relative_gap > TOLERANCE:
        wrong.append(f"{name}: the certified gap is {ours.relative_gap:.2g}")
    if float(ours.value.min()) != 0.0:
        wrong.append(f"{name}: the least value {float(ours.value.min()):.2g} is no exact zero")
    return wrong


def million(bench: Bench, fan_out: int, height: int) -> None:
    """Time a large nonnegative fit once: the kernel and the certified solve."""
    problem, name = nonnegative(instance(fan_out, height)), name_of(fan_out, height)
    calls = {POSITIVE: merging(problem), POSITIVE_SOLVE: lambda: solving.solve(problem, TreePasses())}
    timings = take_turns(calls, 1)
    for what in calls:
        bench.row(name, what, problem.tree.nodes, timings[what].median, limit=MILLION_LIMIT)
    bench.wrong += _nonnegative_faults(name, timings[POSITIVE_SOLVE].value)


def doubling(bench: Bench, heights: tuple[int, ...]) -> None:
    """Time each of the two kernels by size."""
    leaves = f"binary, {2 ** (heights[0] - 1):,} to {2 ** (heights[-1] - 1):,} leaves"
    for what, make in ((FIT, passes), (POSITIVE, merging)):
        calls = {}
        for height in heights:
            problem = instance(2, height) if what == FIT else nonnegative(instance(2, height))
            calls[f"doubling, {name_of(2, height)}"] = problem.tree.nodes, make(problem)
        bench.doubling(what, calls, leaves)


def measure(bench: Bench) -> str:
    """Time trees of 65,536, 16,384 and 10^6 leaves and how time grows (small: some hundred leaves)."""
    sizes = SMALL if bench.small else FULL
    parts = ((against_opendp, sizes.free), (million, sizes.million), (against_clarabel, (sizes.clarabel,)))
    jobs = [partial(part, bench, *tree) for part, trees in parts for tree in trees]
    for job in bench.over([*jobs, partial(doubling, bench, sizes.doubling)]):
        job()
    if find_spec("opendp") is None:
        bench.notes.append("OpenDP is not installed (pip install 'coco-opt[opendp]'): the passes have no peer here")
    bench.notes += bench.worst(FIT, SOLVE)
    return f"Least squares on trees: median of {bench.repeats} runs"


NOTES = (
    "OpenDP reads and returns lists of Python numbers, whose conversion is in its time",
    f"{CLARABEL_LIMIT:g} s is a tenth of what hierarchicalforecast's Clarabel path once took; it is not run here",
    PAIRED,
)
TREE = Benchmark("bench/tree", measure, NOTES, (9, 2))
