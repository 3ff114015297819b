"""Compile kernels before they are needed: ``python -m coco_opt.compiling [WHAT ...]``, every problem's without a name.

Kernels are compiled when they are first called and kept on disk, so a process that solves small public examples
compiles for all that come after it, or for the one that started it and goes on with something else. What both come to
at once one of them compiles (``coco_opt.kernels.claims``).
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from coco_opt.errors import CocoOptError

LAST = {
    "cumulative_rounding": "joint_leaves:rounding_gap",
    "group_matching": "matching:_match",
    "joint_l1": "joint_leaves:tighten_absolute",
    "joint_l2": "joint_leaves:tighten_squares",
    "table_rounding": "table_rounding_flow:solve",
    "table_rounding/level": "round_level:solve",
    "topdown_split/level": "split_level:judge",
}
"""What is worth compiling beside: kinds of problems, and whole levels of them, each with the kernel that comes last."""


def compile_kernels(names: Sequence[str] | None = None) -> None:
    """Solve every example of kinds of problems, all unless stated, by the fastest exact solver: its kernels compile.

    ``KIND/level`` stands for many of a kind at once. Raises KeyError for what there is not.
    """
    from coco_opt.problems import PROBLEMS

    for name in PROBLEMS if names is None else names:
        kind, _, level = name.partition("/")
        if level:
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
    """Return those of ``LAST`` whose kernels do not lie on disk."""
    from coco_opt.kernels.compile import kept_on_disk

    def there(name: str) -> bool:
        module, _, kernel = LAST[name].partition(":")
        return kept_on_disk(getattr(importlib.import_module(f"coco_opt.kernels.{module}"), kernel))

    return tuple(name for name in names if not there(name))


@contextmanager
def compiling(*names: str) -> Iterator[subprocess.Popen[bytes] | None]:
    """Compile what is missing of some of ``LAST`` beside the body, in this order, by a process on another core.

    It is stopped when the body ends. None where nothing is missing or there is no second core. A process that fails
    costs nothing: what is missing is compiled where it is called.
    """
    wanted = missing(names) if (os.cpu_count() or 1) > 1 else ()
    process = _started(wanted) if wanted else None
    try:
        yield process
    finally:
        if process is not None:
            process.kill()
            process.wait()


def _started(names: Sequence[str]) -> subprocess.Popen[bytes] | None:
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", __name__, *names]
    with suppress(OSError):
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    return None


if __name__ == "__main__":
    compile_kernels(sys.argv[1:] or None)
