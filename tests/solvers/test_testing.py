"""The conformance check that authors of solvers are given; solvers by choice, where others answer what one cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pytest

from coco_opt import IsotonicL1, IsotonicL2, Problem, SolverChoices, TableRounding, make_solver
from coco_opt.errors import UnknownSolverError
from coco_opt.solution import Answer, Status
from coco_opt.testing import check_solver, conformance

SMALL = ("simplex_projection", "isotonic_l2", "isotonic_l1", "controlled_rounding", "tree_l2")


@dataclass(frozen=True)
class Wrong:
    """Answers isotonic regression by the exact solver, and then spoils it in one way."""

    how: str
    name: str = "mine"
    tolerance: float = 1e-9
    calls: Any = field(default_factory=count, compare=False)

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        if not isinstance(problem, (IsotonicL1, IsotonicL2)) or self.how == "nothing":
            raise UnknownSolverError("mine solves isotonic regression")
        exact = make_solver("pav" if isinstance(problem, IsotonicL2) else "divide-and-conquer").solve(problem)
        value = np.array(exact.value, dtype=np.float64)
        if self.how == "raises" and len(problem.y) == 1:
            raise ValueError("too short")
        if self.how == "bare":
            return value  # type: ignore[return-value]
        if self.how == "worse":
            value = np.full(value.shape, np.clip(0.0, problem.lower, problem.upper))
        if self.how == "random":
            value = value + 1e-13 * next(self.calls)
        return Answer(value, Status.OPTIMAL)


def test_a_good_solver_passes_and_says_what_it_was_tried_on() -> None:
    seen = check_solver(Wrong("not"))
    assert {trial.problem for trial in seen} == {"isotonic_l1", "isotonic_l2"}
    assert all(trial.objective == pytest.approx(trial.best) for trial in seen)


@pytest.mark.parametrize("name", ["highs", "piqp", "clarabel"])
def test_the_solvers_of_the_table_conform(name: str) -> None:
    seen = check_solver(make_solver(name), [kind for kind in SMALL if name == "highs" or kind.endswith("l2")])
    assert len(seen) >= 4


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        (Wrong("worse"), "isotonic_l2, .*: GAP_TOO_LARGE"),
        (Wrong("nothing"), "can express no problem"),
        (Wrong("raises"), "fails on 2 of 26 examples\nisotonic_l2, one-entry: raises ValueError: too short\n"),
        (Wrong("bare"), "isotonic_l2, tiny: mine on isotonic_l2 returned a ndarray: a solver returns .*Answer"),
        (Wrong("random", tolerance=1e-6), "another answer the second time"),
        (Wrong("not", name="My Solver"), "not words in lower case"),
        (Wrong("not", tolerance=0.0), "not between 0 and 1"),
        (object(), "a solver has a name"),
    ],
)
def test_what_is_wrong_is_named(solver: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_solver(solver)


def test_a_named_problem_must_be_answered_and_must_exist() -> None:
    with pytest.raises(AssertionError, match="mine solves isotonic regression"):
        check_solver(Wrong("not"), ["tree_l2"])
    with pytest.raises(UnknownSolverError, match="there is no problem 'isotonic'"):
        list(conformance(Wrong("not"), ["isotonic"]))


def crossing() -> TableRounding:
    """Return an example that is an integer program, and no linear program."""
    for example in TableRounding.examples().values():
        try:
            SolverChoices({"table_rounding": "osqp"}, fallback=False).solve(example)
        except UnknownSolverError:
            return example
    raise AssertionError("every example can be expressed")


@pytest.mark.parametrize("fallback", [True, False])
def test_what_a_solver_cannot_express_is_answered_by_another(fallback: bool) -> None:
    problem, choices = crossing(), SolverChoices({"table_rounding": "osqp"}, fallback=True)
    assert problem.violation(choices.solve(problem, fallback=fallback)) == 0.0
    (certificate,) = choices.certificates
    assert certificate.fallbacks[0].reason == "cannot express it"
    with pytest.raises(UnknownSolverError):
        SolverChoices({"table_rounding": "osqp"}, fallback=False).solve(problem)
