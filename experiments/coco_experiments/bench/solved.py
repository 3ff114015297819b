"""Problems solved by this package and by its peers: seconds from the bare problem, gaps, and who is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from coco_experiments.bench.rows import Bench, take_turns
from coco_opt.problem import Problem
from coco_opt.solution import Solution
from coco_opt.solver import Solver
from coco_opt.solving import solve

SOLVE = "solve with certificate"
NOTE = "ours is timed from the bare problem to the certified answer, peers by their own seconds alone"

Make = Callable[[], Problem[Any, Any]]
"""Returns a problem without anything computed yet."""


def compare(
    bench: Bench, name: str, make: Make, ours: Solver, peers: Mapping[str, Solver], target: float | None = None
) -> Solution[Any]:
    """Add rows of one problem solved by ``ours`` and by peers, who are not charged for building or certifying.

    Return our answer. What is wrong is an answer of ours that is not certified, or a peer's that is better.
    """
    problem = make()
    calls: dict[str, Callable[[], Solution[Any]]] = {
        SOLVE: lambda: solve(make(), ours, check=False),
        **{f"{peer}, its own seconds": partial(solve, problem, solver, check=False) for peer, solver in peers.items()},
    }
    timings = take_turns(calls, bench.repeats)
    theirs = {peer: timings[peer].alone for peer in calls if peer != SOLVE}
    bench.against(name, problem.variables, {SOLVE: target}, {SOLVE: timings[SOLVE], **theirs})
    bench.row(name, f"{ours.name}, its own seconds", problem.variables, timings[SOLVE].alone.median)
    answer: Solution[Any] = timings[SOLVE].value
    others = {peer: timing.value for peer, timing in theirs.items()}
    bench.wrong += faults(name, answer, others, ours.tolerance)
    gaps = {ours.name: answer.relative_gap, **{peer.partition(",")[0]: o.relative_gap for peer, o in others.items()}}
    bench.notes.append(f"{name}: relative gaps {', '.join(f'{solver} {gap:.1g}' for solver, gap in gaps.items())}")
    return answer


def faults(name: str, ours: Solution[Any], peers: Mapping[str, Solution[Any]], tolerance: float) -> list[str]:
    """Return a line if our answer is not certified, and one for each peer whose objective is better."""
    wrong = [] if ours.ok else [f"{name}: {ours.status.name}, the certified relative gap is {ours.relative_gap:.2g}"]
    return wrong + [
        f"{name}: the objective of {peer.partition(',')[0]} is better"
        for peer, theirs in peers.items()
        if theirs.violation <= ours.violation
        and theirs.objective < ours.objective - tolerance * max(1.0, ours.objective)
    ]


def many(
    bench: Bench, name: str, make: Callable[[int], Problem[Any, Any]], count: int, solver: Solver, limit: float
) -> None:
    """Add a row of one of many tiny problems, built, solved and certified."""
    problems = [partial(make, k) for k in range(count)]

    def all_of_them() -> Sequence[Solution[Any]]:
        return [solve(problem(), solver, check=False) for problem in problems]

    timing = take_turns({name: all_of_them}, bench.repeats)[name]
    unknowns = problems[0]().variables
    bench.row(name, "tiny ones: build, solve and certify one", unknowns, timing.median / count, limit=limit)
    if failed := sum(not solution.ok for solution in timing.value):
        bench.wrong.append(f"{name}: {failed} of {count} are not certified")
