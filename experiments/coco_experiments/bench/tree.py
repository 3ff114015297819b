"""Least squares on trees: two passes against OpenDP's consistent tree, exact nonnegativity against Clarabel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from coco_solvers.generic.clarabel import Clarabel
from coco_solvers.structured.tree import TreePasses

from coco_experiments.bench.rows import PAIRED, Bench, Benchmark, take_turns
from coco_experiments.bench.solved import SOLVE, compare
from coco_opt import solving
from coco_opt.kernels import tree_bounded_l2, tree_passes
from coco_opt.problems.tree import Tree, TreeLeastSquares

SEED = 2010
TOLERANCE = 1e-9

FIT, OPENDP = "kernel, two passes", "OpenDP consistent b-ary tree"
POSITIVE = "kernel, nonnegative"
OPENDP_TARGET, CLARABEL_TARGET = 50.0, 10.0
MILLION_LIMIT = 5.0


# Fan-outs and heights of the complete trees.
FREE, SMALL_FREE = ((2, 17), (16, 5)), ((2, 9), (16, 3))
POSITIVE_TREES, SMALL_POSITIVE = ((4, 8), (2, 21), (4, 11)), ((4, 5), (2, 12))  # Clarabel solves the first one too
DOUBLING, SMALL_DOUBLING = (15, 16, 17, 18, 19, 20, 21), (9, 10, 11)


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


def nonnegative_fit(bench: Bench, fan_out: int, height: int, *, peer: bool) -> None:
    """Time the kernel and the certified solve of a nonnegative fit, whose least value must be an exact zero."""
    problem, name = nonnegative(instance(fan_out, height)), f"{name_of(fan_out, height)}, nonnegative"
    timing = take_turns({POSITIVE: merging(problem)}, bench.repeats if peer else 1)[POSITIVE]
    bench.row(name, POSITIVE, problem.tree.nodes, timing.median, limit=MILLION_LIMIT)
    make, peers = partial(nonnegative, problem), {"Clarabel": Clarabel()} if peer else {}
    ours = compare(bench, name, make, TreePasses(tolerance=TOLERANCE), peers, CLARABEL_TARGET if peer else None)
    if float(ours.value.min()) != 0.0:
        bench.wrong.append(f"{name}: the least value {float(ours.value.min()):.2g} is no exact zero")


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
    small = bench.small
    free, positive, sizes = (SMALL_FREE, SMALL_POSITIVE, SMALL_DOUBLING) if small else (FREE, POSITIVE_TREES, DOUBLING)
    jobs = [partial(against_opendp, bench, *tree) for tree in free]
    jobs += [partial(nonnegative_fit, bench, *tree, peer=k == 0) for k, tree in enumerate(positive)]
    for job in bench.over([*jobs, partial(doubling, bench, sizes)]):
        job()
    if find_spec("opendp") is None:
        bench.notes.append("OpenDP is not installed (pip install 'coco-opt[opendp]'): the passes have no peer here")
    bench.notes += bench.worst(FIT, SOLVE)
    return f"Least squares on trees: median of {bench.repeats} runs"


NOTES = (
    "OpenDP reads and returns lists of Python numbers, whose conversion is in its time",
    PAIRED,
)
TREE = Benchmark("bench/tree", measure, NOTES, (9, 2))
