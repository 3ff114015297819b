"""Top-down splits: our solver, certificate included, against PIQP and Clarabel; thousands of tiny splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from coco_solvers.generic.clarabel import Clarabel
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured.split import SplitNewton

from coco_experiments.bench.rows import PAIRED, Bench, Benchmark, take_turns
from coco_opt import solving
from coco_opt.operators import Grouping, Operator, total
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit
from coco_opt.solution import Solution

SEED = 2020
TOLERANCE = 1e-6

LEVELS = (2, 63, 2, 8)  # ethnicity, race, voting age, kind of residence: 2,016 cells
MARGINALS = ((0, 1, 2, 3), (), (0,), (1,), (2, 3), (0, 1, 2))
SPREAD = 3.0  # standard deviation of the noise of every answer, in people

SOLVE = "solve with certificate"
NEWTON, PEER, CLARABEL = "split-newton, its own seconds", "PIQP, its own seconds", "Clarabel, its own seconds"
TINY = "tiny splits: build, solve and certify one"
TARGET = 10.0
TINY_LIMIT = 0.002


@dataclass(frozen=True, slots=True)
class Sizes:
    """Children and filled cells of the splits, how many of them Clarabel solves too, and how many tiny splits."""

    splits: tuple[tuple[int, int], ...]
    clarabel: int
    tiny: int


FULL = Sizes(((20, 781), (20, 1_873)), 1, 1_000)
SMALL = Sizes(((4, 60),), 1, 20)


def marginal(levels: tuple[int, ...], axes: tuple[int, ...]) -> Grouping:
    """Return the sums of a table of these levels over all attributes but ``axes``."""
    index = np.indices(levels).reshape(len(levels), -1)
    labels = np.zeros(index.shape[1], dtype=np.int64)
    answers = 1
    for axis in axes:
        labels, answers = labels * levels[axis] + index[axis], answers * levels[axis]
    return Grouping(labels, answers)


def drawn(seed: int, children: int, filled: int, operators: list[Operator], *, totals: bool = False) -> TopdownSplit:
    """Return a parent with ``filled`` cells split over children of unequal size, and noisy answers to the queries."""
    rng = np.random.default_rng([SEED, seed, children, filled])
    cells = operators[0].cells
    parent = np.zeros(cells, dtype=np.int64)
    parent[rng.choice(cells, filled, replace=False)] = rng.geometric(0.02, filled)
    shares = rng.dirichlet(np.full(children, 0.7), cells)
    table = np.array([rng.multinomial(count, share) for count, share in zip(parent, shares, strict=True)]).T
    terms = []
    for operator in operators:
        answers = operator.apply(table)
        noise = np.rint(rng.normal(0.0, SPREAD, answers.shape))
        terms.append(SplitTerm(operator, answers + noise, np.full(children, SPREAD**-2)))
    exact = table.sum(axis=1, keepdims=True).astype(np.float64)
    return TopdownSplit(terms, parent, LinearRows(total(cells), exact, exact) if totals else None)


def instance(children: int, filled: int, *, totals: bool) -> TopdownSplit:
    """Return a split of the schema of 2,016 cells."""
    return drawn(0, children, filled, [marginal(LEVELS, axes) for axes in MARGINALS], totals=totals)


def fresh(problem: TopdownSplit) -> TopdownSplit:
    """Return the same problem without anything computed yet."""
    return TopdownSplit(problem.terms, problem.parent, problem.constraints)


def against_peers(bench: Bench, children: int, filled: int, *, totals: bool, clarabel: bool) -> None:
    """Time one split against its peers; no peer is charged for building or certifying."""
    problem = instance(children, filled, totals=totals)
    name = f"{children} x {filled:,}{', totals fixed' if totals else ''}"
    peers = {PEER: PIQP()} if not clarabel else {PEER: PIQP(), CLARABEL: Clarabel()}
    calls: dict[str, Callable[[], Solution[Any]]] = {
        SOLVE: lambda: solving.solve(fresh(problem), SplitNewton(tolerance=TOLERANCE), check=False),
        **{peer: partial(solving.solve, problem, chosen, check=False) for peer, chosen in peers.items()},
    }
    timings = take_turns(calls, bench.repeats)
    theirs = {peer: timings[peer].alone for peer in peers}
    bench.against(name, problem.variables, {SOLVE: TARGET}, {SOLVE: timings[SOLVE], **theirs})
    bench.row(name, NEWTON, problem.variables, timings[SOLVE].alone.median)
    answers = {NEWTON: timings[SOLVE].value, **{peer: timing.value for peer, timing in theirs.items()}}
    bench.wrong += faults(name, answers)
    bench.notes += [share(name, answers), gaps(name, answers)]


def faults(name: str, answers: dict[str, Solution[Any]]) -> list[str]:
    """Return one line for each answer of ours that is not certified, or worse than a peer's."""
    ours = answers[NEWTON]
    wrong = []
    if not ours.relative_gap <= TOLERANCE:
        wrong.append(f"{name}: the certified relative gap is {ours.relative_gap:.2g}")
    for peer, theirs in answers.items():
        if theirs.objective < ours.objective - TOLERANCE * max(1.0, ours.objective):
            wrong.append(f"{name}: the objective of {peer.partition(',')[0]} is better")
    return wrong


def gaps(name: str, answers: dict[str, Solution[Any]]) -> str:
    """Return the certified relative gaps in one line."""
    each = ", ".join(f"{peer.partition(',')[0]} {answer.relative_gap:.1g}" for peer, answer in answers.items())
    return f"{name}: relative gaps {each}"


def share(name: str, answers: dict[str, Solution[Any]]) -> str:
    """Return what building and certifying take, relative to the solver's own seconds."""
    each = ", ".join(
        f"{peer.partition(',')[0]} {100 * answer.build_seconds / answer.seconds:.0f} % and "
        f"{100 * answer.judge_seconds / answer.seconds:.0f} %"
        for peer, answer in answers.items()
    )
    return f"{name}: building and certifying, of the solver's own time: {each} (target: building below 20 %)"


def tiny(bench: Bench, count: int) -> None:
    """Time many splits of 28 children x 7 cells."""
    operators: list[Operator] = [marginal((7,), (0,)), total(7)]
    for totals in (False, True):
        problems = [drawn(1 + k, 28, 6, operators, totals=totals) for k in range(count)]

        def all_of_them(problems: list[TopdownSplit] = problems) -> list[Solution[Any]]:
            return [solving.solve(fresh(problem), SplitNewton(), check=False) for problem in problems]

        timing = take_turns({TINY: all_of_them}, bench.repeats)[TINY]
        name = f"28 x 7{', totals fixed' if totals else ''}"
        bench.row(name, TINY, 28 * 7, timing.median / count, limit=TINY_LIMIT)
        failed = sum(not solution.ok for solution in timing.value)
        if failed:
            bench.wrong.append(f"{name}: {failed} of {count} splits are not certified")


def measure(bench: Bench) -> str:
    """Time splits of 20 children x 781 and 1,873 cells and a thousand tiny ones (small: some sixty cells)."""
    sizes = SMALL if bench.small else FULL
    jobs = [partial(tiny, bench, sizes.tiny)]
    for k, size in enumerate(sizes.splits):
        for totals in (False, True):
            clarabel = k < sizes.clarabel and not totals
            jobs.append(partial(against_peers, bench, *size, totals=totals, clarabel=clarabel))
    for job in bench.over(jobs):
        job()
    bench.notes += bench.worst(SOLVE)
    return f"Top-down splits: median of {bench.repeats} runs"


NOTES = (
    "peers solve the lifted program (residuals of all answers to more than one cell as variables)",
    "ours is timed from the bare problem to the certified answer, peers by their own seconds alone",
    PAIRED,
)
SPLIT = Benchmark("bench/split", measure, NOTES, (3, 1))
