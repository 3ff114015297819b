"""Compile kernels before they are needed: ``python -m coco_opt.compiling [KIND OF PROBLEM ...]``, all without a name.

Kernels are compiled when they are first called and kept on disk, so a process that solves small public examples
compiles for all that come after it, or for the one that started it and goes on with something else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from coco_opt.errors import CocoOptError
from coco_opt.problems import PROBLEMS
from coco_opt.solving import solve


def compile_kernels(kinds: Sequence[str] = ()) -> None:
    """Solve every example of the kinds of problems by the fastest exact solver, which compiles its kernels.

    Raises KeyError for a kind that is not in the table of problems.
    """
    for kind in kinds or PROBLEMS:
        for example in PROBLEMS[kind].examples().values():
            try:
                solve(example, check=False)
            except CocoOptError:
                continue  # an example may be there to be refused


@contextmanager
def compiling(*kinds: str) -> Iterator[subprocess.Popen[bytes]]:
    """Compile the kernels of kinds of problems beside the body; wait for the process to have them all.

    It is stopped when the body ends. One that fails costs nothing: what is missing is compiled where it is called.
    """
    command = [sys.executable, "-m", __name__, *kinds]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    compile_kernels(sys.argv[1:])
