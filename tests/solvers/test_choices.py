"""Solvers by choice: others answer what the chosen one cannot express."""

from __future__ import annotations

import pytest

from coco_opt.choices import SolverChoices
from coco_opt.errors import UnknownSolverError
from coco_opt.problems.table_rounding import TableRounding


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
