"""Run mutants: each in a forked process that imports the package with the fault, and runs the tests that must fail.

``python -m tests.mutation [--workers N] [--json] [NAME ...]`` runs those whose names contain a word, or all. The tree
is never written: a hook of the import system gives the one module another source. What the tests import from elsewhere
is imported once, before the forks. Exit code 1 where a mutant survives, or could not be judged.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.mutant import ROOT, Mutant
from tests.mutation.table import MUTANTS

WORKERS = 2
LIMIT = 120  # seconds of a mutant
FAILED, NEVER_LOADED = 1, 90
_SHARED = (
    "numpy",
    "numba",
    "scipy.sparse.csgraph",
    "scipy.optimize",
    "scipy.stats",
    "duckdb",
    "pyarrow.parquet",
    "pandas",
    "pydantic",
    "cryptography.hazmat.primitives.ciphers",
    "typer",
    "rich",
)
OPTIONS = ("-q", "-x", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant: "killed", or why not; processor seconds, and the last lines its tests printed."""

    name: str
    verdict: str
    seconds: float
    output: str


class Planted(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Finds one module and loads it with a fault; nothing is cached on disk."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self.loaded = False
        super().__init__(mutant.module, str(ROOT / mutant.file))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to load the module, None for all others."""
        if fullname != self._mutant.module:
            return None
        folder = [str((ROOT / self._mutant.file).parent)] if self._mutant.file.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            fullname, ROOT / self._mutant.file, loader=self, submodule_search_locations=folder
        )

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        """Compile the source with the fault."""
        self.loaded = True
        return self.source_to_code(self._mutant.source().encode(), str(ROOT / self._mutant.file))


def warm_up() -> None:
    """Import what tests need of other packages, pytest's own parts too: two seconds once, not for every mutant."""
    for name in _SHARED:
        importlib.import_module(name)
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*OPTIONS, "--noconftest", "--collect-only", __file__])
    importlib.import_module("hypothesis.strategies")  # once pytest's plugin of it is there


def judged(mutant: Mutant, folder: Path) -> int:
    """Run a mutant's tests in this process and return pytest's exit code, NEVER_LOADED where nothing imported it."""
    planted = Planted(mutant)
    sys.meta_path.insert(0, planted)
    if not mutant.compiled:
        importlib.import_module("numba").config.DISABLE_JIT = True
    code = int(pytest.main([*OPTIONS, f"--basetemp={folder / 'tmp'}", *mutant.tests]))
    return code if planted.loaded else NEVER_LOADED


def started(mutant: Mutant, folder: Path) -> int:
    """Fork a process that judges a mutant, and return its id."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        signal.alarm(LIMIT)
        folder.mkdir()
        descriptor = os.open(folder / "output", os.O_WRONLY | os.O_CREAT, 0o600)
        for standard in (1, 2):
            os.dup2(descriptor, standard)
        code = judged(mutant, folder)
        sys.stdout.flush()
    finally:
        os._exit(code)


def verdict_of(code: int) -> str:
    """Say what an exit code means."""
    words = {FAILED: "killed", 0: "survived", NEVER_LOADED: "its module was never imported", 5: "its tests are gone"}
    return words.get(code, f"not judged (exit code {code})")


def run(mutants: Sequence[Mutant], workers: int) -> Iterator[Verdict]:
    """Yield the verdicts as they come, ``workers`` mutants at a time."""
    os.chdir(ROOT)
    warm_up()
    waiting, running = list(reversed(mutants)), {}
    with tempfile.TemporaryDirectory() as base:
        while waiting or running:
            while waiting and len(running) < workers:
                mutant = waiting.pop()
                folder = Path(base) / mutant.name.replace(" ", "_")
                running[started(mutant, folder)] = mutant, folder
            child, status, used = os.wait4(-1, 0)
            mutant, folder = running.pop(child)
            code = os.waitstatus_to_exitcode(status)
            output = (folder / "output").read_text(errors="replace").splitlines()
            yield Verdict(mutant.name, verdict_of(code), used.ru_utime + used.ru_stime, "\n".join(output[-12:]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--json", action="store_true", help="one line of JSON a mutant")
    parser.add_argument("names", nargs="*")
    chosen = parser.parse_args()
    mutants = [one for one in MUTANTS if not chosen.names or any(word in one.name for word in chosen.names)]
    killed = 0
    for one in run(mutants, chosen.workers):
        killed += one.verdict == "killed"
        if chosen.json:
            line = json.dumps({name: getattr(one, name) for name in Verdict.__slots__})
        else:
            line = f"{one.seconds:5.1f} s  {one.verdict:10} {one.name}"
            line += "" if one.verdict == "killed" else f"\n{one.output}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    sys.stdout.write("" if chosen.json else f"{killed} of {len(mutants)} mutants killed\n")
    return int(killed < len(mutants))


if __name__ == "__main__":
    sys.exit(main())
