"""Every kind of problem that a configuration can choose a solver for has a tiny one to rehearse it on."""

from __future__ import annotations

import pytest

from coco_opt.config import PROBLEM_KINDS
from coco_opt.problems import PROBLEMS
from coco_opt.runs.settings import TINY
from coco_opt.solver import solve


def test_every_kind_that_can_be_configured_can_be_rehearsed() -> None:
    assert set(TINY) == set(PROBLEM_KINDS)
    assert set(TINY) <= set(PROBLEMS)


@pytest.mark.parametrize("kind", PROBLEM_KINDS)
def test_a_tiny_problem_is_of_its_kind_and_can_be_solved(kind: str) -> None:
    problem = TINY[kind]()
    assert problem.kind == kind
    assert solve(problem).ok
