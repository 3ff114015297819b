"""Group matching on sorted runs: Algorithm 2 of Kuo et al. 2018."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coco_opt.problems import Flow, GroupMatching
from coco_solvers.structured.kernel_solver import KernelSolver


@dataclass(frozen=True)
class SortedRuns(KernelSolver):
    """Match smallest with smallest, children in proportion to their groups; O(R log R) in runs.

    30 children of 60 runs take 1 CPU ms, HiGHS 8.4 CPU seconds for the linear program of 360,000 flows.
    """

    tolerance: float = 0.0

    name: ClassVar[str] = "sorted-runs"
    problem = GroupMatching

    def fit(self, problem: GroupMatching) -> Flow:
        """Return the matching as a sparse flow."""
        from coco_opt.kernels import matching

        return Flow(
            *matching.match_runs(
                problem.parent_sizes,
                problem.parent_counts,
                problem.child_sizes,
                problem.child_counts,
                problem.child_offsets,
            )
        )
