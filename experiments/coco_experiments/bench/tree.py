"""Least squares on trees: two passes against OpenDP's consistent tree, exact nonnegativity against Clarabel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from coco_solvers.generic.clarabel import Clarabel
from coco_solvers.structured.tree import TreePasses

from coco_experiments.bench.rows import Row, finish, worst
from coco_experiments.bench.timing import Timing, take_turns
from coco_experiments.outcome import Outcome, Reporter
from coco_opt import solving
from coco_opt.kernels import tree_bounded_l2, tree_passes
from coco_opt.problems.tree import Tree, TreeLeastSquares
from coco_opt.solution import Solution

NAME = "bench/tree"
REPEATS, SMALL_REPEATS = 9, 2
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


def against_opendp(fan_out: int, height: int, repeats: int) -> tuple[list[Row], list[str]]:
    """Return rows and disagreements of least squares without bounds."""
    problem, instance_name = instance(fan_out, height), name_of(fan_out, height)
    calls = {FIT: passes(problem), SOLVE: lambda: solving.solve(problem, TreePasses())}
    peer = opendp_call(problem, fan_out)
    timings = take_turns(calls if peer is None else {**calls, OPENDP: peer}, repeats)
    n = problem.tree.nodes
    if peer is None:
        return [Row(instance_name, what, n, timings[what].median) for what in calls], []
    targets = {FIT: OPENDP_TARGET, SOLVE: None}
    rows = [
        Row(instance_name, what, n, timings[what].median, OPENDP, timings[what].ratio(timings[OPENDP]), target)
        for what, target in targets.items()
    ]
    rows.append(Row(instance_name, OPENDP, n, timings[OPENDP].median))
    return rows, opendp_disagreements(instance_name, problem, timings)


def opendp_disagreements(instance_name: str, problem: TreeLeastSquares, timings: dict[str, Timing]) -> list[str]:
    """Return one line for each answer whose leaves differ from the kernel's by more than 1e-9 of the data's scale."""
    leaves = problem.tree.is_leaf
    fit = timings[FIT].value[leaves]
    answers = {SOLVE: timings[SOLVE].value.value[leaves], OPENDP: np.array(timings[OPENDP].value)}
    return [
        f"{instance_name}: {name} differs from the kernel by {difference:.2g}"
        for name, answer in answers.items()
        if not (difference := float(np.abs(answer - fit).max())) <= TOLERANCE * problem.scale
    ]


def against_clarabel(fan_out: int, height: int, repeats: int) -> tuple[list[Row], list[str], str]:
    """Return rows, disagreements and a line on the answers of nonnegative least squares.

    Clarabel solves the quadratic program built by this package; building and certifying are not counted against it.
    """
    problem, instance_name = nonnegative(instance(fan_out, height)), name_of(fan_out, height)
    own_seconds: list[float] = []

    def clarabel() -> Solution[Any]:
        solution = solving.solve(problem, Clarabel(), check=False)
        own_seconds.append(solution.seconds)
        return solution

    calls = {
        POSITIVE: merging(problem),
        POSITIVE_SOLVE: lambda: solving.solve(problem, TreePasses()),
        CLARABEL: clarabel,
    }
    timings = take_turns(calls, repeats)
    theirs: Solution[Any] = timings[CLARABEL].value
    ours: Solution[Any] = timings[POSITIVE_SOLVE].value
    peer = Timing(tuple(own_seconds[-repeats:]), theirs)
    n = problem.tree.nodes
    ratio = timings[POSITIVE].ratio(peer)
    rows = [
        Row(instance_name, POSITIVE, n, timings[POSITIVE].median, CLARABEL, ratio, CLARABEL_TARGET),
        Row(instance_name, POSITIVE_SOLVE, n, timings[POSITIVE_SOLVE].median, limit=CLARABEL_LIMIT),
        Row(instance_name, CLARABEL, n, peer.median),
    ]
    zeros, least = int((ours.value == 0).sum()), float(ours.value.min())
    note = (
        f"{instance_name}, nonnegative: {zeros:,} exact zeros, least value {least:g}, relative gap "
        f"{ours.relative_gap:.1g}; Clarabel: {int((theirs.value == 0).sum()):,} zeros, relative gap "
        f"{theirs.relative_gap:.1g}, objective {theirs.objective - ours.objective:+.2g}"
    )
    wrong = _nonnegative_faults(instance_name, ours)
    if theirs.objective < ours.objective - TOLERANCE * max(1.0, ours.objective):
        wrong.append(f"{instance_name}: Clarabel's objective is better")
    return rows, wrong, note


def _nonnegative_faults(instance_name: str, ours: Solution[Any]) -> list[str]:
    wrong = []
    if ours.relative_gap > TOLERANCE:
        wrong.append(f"{instance_name}: the certified gap is {ours.relative_gap:.2g}")
    if float(ours.value.min()) != 0.0:
        wrong.append(f"{instance_name}: the least value {float(ours.value.min()):.2g} is no exact zero")
    return wrong


def million(fan_out: int, height: int) -> tuple[list[Row], list[str]]:
    """Return the rows of a large nonnegative fit: the kernel and the certified solve."""
    problem, instance_name = nonnegative(instance(fan_out, height)), name_of(fan_out, height)
    calls = {POSITIVE: merging(problem), POSITIVE_SOLVE: lambda: solving.solve(problem, TreePasses())}
    timings = take_turns(calls, 1)
    rows = [Row(instance_name, what, problem.tree.nodes, timings[what].median, limit=MILLION_LIMIT) for what in calls]
    return rows, _nonnegative_faults(instance_name, timings[POSITIVE_SOLVE].value)


def doubling(heights: tuple[int, ...], repeats: int) -> tuple[list[Row], list[str]]:
    """Return rows by size and, for each of the two kernels, a line of how much longer twice the leaves take."""
    rows: list[Row] = []
    notes = []
    for what in (FIT, POSITIVE):
        problems = {height: instance(2, height) for height in heights}
        if what == POSITIVE:
            problems = {height: nonnegative(problem) for height, problem in problems.items()}
        make = passes if what == FIT else merging
        timings = take_turns({str(height): make(problem) for height, problem in problems.items()}, repeats)
        growth = [timings[str(a)].ratio(timings[str(b)]) for a, b in pairwise(heights)]
        leaves = f"{2 ** (heights[0] - 1):,} to {2 ** (heights[-1] - 1):,}"
        notes.append(f"{what}, binary, {leaves} leaves: each doubling takes {_times(growth)} times as long")
        rows += [
            Row(f"doubling, {name_of(2, height)}", what, problem.tree.nodes, timings[str(height)].median)
            for height, problem in problems.items()
        ]
    return rows, notes


def _times(growth: list[float]) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in growth)


def measure(sizes: Sizes, repeats: int, reporter: Reporter) -> tuple[list[Row], list[str], list[str]]:
    """Return all rows, all disagreements and the notes."""
    rows: list[Row] = []
    wrong: list[str] = []
    parts: list[Callable[[], tuple[list[Row], list[str]]]] = [
        *(partial(against_opendp, *tree, repeats) for tree in sizes.free),
        *(partial(million, *tree) for tree in sizes.million),
    ]
    for done, part in enumerate(parts, 1):
        more, faults = part()
        rows, wrong = rows + more, wrong + faults
        reporter.progress(NAME, done, len(parts) + 2)
    more, faults, note = against_clarabel(*sizes.clarabel, repeats)
    rows, wrong = rows + more, wrong + faults
    more, notes = doubling(sizes.doubling, repeats)
    reporter.progress(NAME, len(parts) + 2, len(parts) + 2)
    return rows + more, wrong, [note, *notes]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Time trees of 65,536, 16,384 and 10^6 leaves and how time grows (small: some hundred leaves)."""
    sizes, repeats = (SMALL, SMALL_REPEATS) if small else (FULL, REPEATS)
    rows, wrong, notes = measure(sizes, repeats, reporter)
    if find_spec("opendp") is None:
        notes.append("OpenDP is not installed (pip install 'coco-opt[opendp]'): the passes have no peer here")
    notes += [
        worst(rows, FIT),
        worst(rows, SOLVE),
        "OpenDP reads and returns lists of Python numbers, whose conversion is in its time",
        f"{CLARABEL_LIMIT:g} s is a tenth of what hierarchicalforecast's Clarabel path once took; it is not run here",
        "times faster: median over pairs of runs taken in turns; only wrong answers fail this run",
    ]
    return finish(NAME, f"Least squares on trees: median of {repeats} runs", rows, notes, wrong, out, reporter)
