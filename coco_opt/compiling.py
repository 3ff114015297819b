"""Compile kernels before they are needed: ``python -m coco_opt.compiling [WHAT ...]``; default: every problem.

Kernels are compiled when they are first called and kept on disk, so a process that solves small public examples
compiles them for all later processes, and for the process that started it. Where two processes need a kernel at the
same time, one of them compiles it (``coco_opt.kernels.compile_lock``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from coco_opt.errors import CocoOptError
from coco_opt.plugins import loaded

LAST = {
    "expected_distance": "expected_distance_rows:row_gaps",
    "group_matching": "matching:_match",
    "group_posterior": "posterior_moves:advance",
    "group_records": "posterior_record:quantile",
    "joint_l1": "joint_leaves:tighten_absolute",
    "joint_l2": "joint_leaves:tighten_squares",
    "table_rounding": "table_rounding_flow:solve",
    "table_rounding/level": "round_level:solve",
    "topdown_split/level": "split_level:judge",
}
"""What is worth compiling in another process: kinds of problems, whole levels and ``EXAMPLES``, by its last kernel."""

EXAMPLES = {
    "group_posterior": "coco_opt.groups.estimating.posterior.example:move_groups",
    "group_records": "coco_opt.groups.estimating.posterior.example:record_draws",
}
"""Functions that compute an example of what is not a problem. They are found by name, because they lie above."""

_under_way: set[str] = set()


def compile_kernels(names: Sequence[str] | None = None) -> None:
    """Compile kernels by solving every example of some kinds of problems (default: all) with the fastest exact solver.

    ``KIND/level`` stands for a whole level of problems of a kind; a name of ``EXAMPLES`` for that example. Raises
    KeyError for an unknown name.
    """
    from coco_opt.problems import PROBLEMS

    for name in PROBLEMS if names is None else names:
        kind, _, level = name.partition("/")
        if name in EXAMPLES:
            loaded(EXAMPLES[name])()
        elif level:
            _compile_level(kind)
        else:
            _compile_problem(kind)


def _compile_problem(kind: str) -> None:
    from coco_opt.problems import PROBLEMS
    from coco_opt.solving import solve

    for example in PROBLEMS[kind].examples().values():
        with suppress(CocoOptError):  # an example may be there to be refused
            solve(example, check=False)


def _compile_level(kind: str) -> None:
    from coco_opt.problems import PROBLEMS
    from coco_opt.problems.table_rounding.level import LevelRounder, RoundingLevel
    from coco_opt.problems.topdown_split.level import LevelSplitter, SplitLevel
    from coco_opt.registry import resolve

    solver = resolve("auto", PROBLEMS[kind])
    if isinstance(solver, LevelRounder):
        solver.round_level(RoundingLevel.example())
    if isinstance(solver, LevelSplitter):
        level = SplitLevel.example()
        level.judge(solver.split_level(level)[0])


def missing(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of ``LAST`` whose kernels are not cached on disk."""
    from coco_opt.kernels.compile import cached_on_disk

    return tuple(name for name in names if not cached_on_disk(loaded(f"coco_opt.kernels.{LAST[name]}")))


@contextmanager
def compiling(*names: str) -> Iterator[subprocess.Popen[bytes] | None]:
    """Compile the missing of some names of ``LAST`` in another process while the body runs, in this order.

    Names that an outer call compiles already are left to it. The process is stopped when the body ends. Yields None
    where nothing is missing or there is no second core. A failure costs nothing: a missing kernel is compiled where it
    is called.
    """
    left = [name for name in names if name not in _under_way]
    uncompiled = missing(left) if (os.cpu_count() or 1) > 1 else ()
    process = _start_process(uncompiled) if uncompiled else None
    _under_way.update(uncompiled)
    try:
        yield process
    finally:
        _under_way.difference_update(uncompiled)
        if process is not None:
            process.kill()
            process.wait()


def _start_process(names: Sequence[str]) -> subprocess.Popen[bytes] | None:
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", __name__, *names]
    with suppress(OSError):
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    return None


if __name__ == "__main__":
    compile_kernels(sys.argv[1:] or None)
