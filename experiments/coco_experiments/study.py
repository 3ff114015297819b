"""The engine of the experiments: a declared study measures its cases under their seeds, and a report is made of all.

What a study found so far is stored in a file: seeds take minutes, and a run that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any, Generic, TypeVar

import coco_solvers

import coco_opt
from coco_experiments.outcome import Outcome, Reporter, Statement, Table, publish

_FOLDERS = "groups/estimating", "ranges/estimating", "topdown/estimating", "histograms", "kernels", "problems"


class StoredResults:
    """Findings by name, as JSON: numbers, texts and lists of them; what other code found is left out.

    ``file`` none keeps them in memory alone.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file, self._code = file, _digest_of_code()
        self._results: dict[str, Any] = {}
        if file is not None and file.exists():
            read = json.loads(file.read_text(encoding="utf-8"))
            if read["code"] == self._code:
                self._results = read["found"]

    def __contains__(self, name: str) -> bool:
        return name in self._results

    def __getitem__(self, name: str) -> Any:
        return self._results[name]

    def __setitem__(self, name: str, result: Any) -> None:
        """Keep one finding; the file is replaced as a whole, so that a run stopped meanwhile leaves the file before."""
        self._results[name] = result
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            half = self._file.with_suffix(".half")
            half.write_text(json.dumps({"code": self._code, "found": self._results}), encoding="utf-8")
            half.replace(self._file)


def _digest_of_code() -> str:
    """Return a digest of what measures and estimates; what was chosen to be measured is part of a finding's name."""
    code = hashlib.sha256()
    for file in _estimating_files():
        code.update(file.read_bytes())
    return code.hexdigest()


def _estimating_files() -> Iterator[Path]:
    """Yield the source files that findings depend on: groups without their choice, ranges, tables and solvers."""
    assert coco_opt.__file__ is not None
    assert coco_solvers.__file__ is not None
    package = Path(coco_opt.__file__).parent
    yield from sorted((package / "groups").glob("*.py"))
    for folder in _FOLDERS:
        yield from sorted((package / folder).rglob("*.py"))
    yield from sorted(Path(coco_solvers.__file__).parent.rglob("*.py"))


CaseT = TypeVar("CaseT")
FoundT = TypeVar("FoundT")


@dataclass(frozen=True, eq=False, slots=True)
class Runs(Generic[CaseT, FoundT]):
    """A case, the seeds it is measured under, and what was found under each of them, in their order."""

    case: CaseT
    seeds: tuple[int, ...]
    found: list[FoundT] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Report:
    """What is made of all runs: tables by the ending of their file, figures, failed checks, a paper's statements.

    ``notes`` are lines to show that belong to no table.
    """

    tables: Mapping[str, Table]
    figures: Sequence[Path] = ()
    failures: Iterable[str] = ()
    statements: Iterable[Statement] = ()
    notes: Iterable[str] = ()


@dataclass(frozen=True, slots=True)
class Study(Generic[CaseT, FoundT]):
    """A declared experiment: which cases under which seeds, what is measured of each, and what is told of all.

    ``plan`` returns the cases with their seeds, of real data from a folder or, small, of simulated ones; ``measure``
    one case under one seed; ``report`` tells what was found, and draws figures under the path without an ending.
    Checks of small runs fail only where ``fails_small``: a few runs prove little.

    With a ``key``, which names a case under a seed, findings are stored, and must be JSON: a run that was stopped, or
    that ended after ``minutes`` of processor time, goes on where it was. All cases get a first seed before any gets a
    second. Studies with the same ``store``, a file's name, share their findings.
    """

    name: str
    plan: Callable[[Path | None, bool], Iterable[tuple[CaseT, Sequence[int]]]]
    measure: Callable[[CaseT, int], FoundT]
    report: Callable[[Sequence[Runs[CaseT, FoundT]], Path], Report]
    fails_small: bool = True
    key: Callable[[CaseT, int], str] | None = None
    store: str = ""
    minutes: float = float("inf")

    def run(self, *, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
        """Measure, show and write the tables as CSV and the figures below ``out``."""
        results: list[Runs[CaseT, FoundT]] = [Runs(case, tuple(seeds)) for case, seeds in self.plan(data, small)]
        jobs = [(seed, runs) for runs in results for seed in runs.seeds]
        if self.key is not None:
            jobs.sort(key=lambda job: job[0])
        stored = None if self.key is None else StoredResults(out / f"{self.store or self.name}_seeds.json")
        end = process_time() + 60.0 * self.minutes
        for done, (seed, runs) in enumerate(jobs, 1):
            if process_time() > end:
                reporter.note(f"stopped after {self.minutes:g} minutes of processor time: the same command goes on")
                break
            runs.found.append(self._found(runs.case, seed, stored))
            reporter.progress(self.name, done, len(jobs))
        report = self.report([runs for runs in results if runs.found], out / self.name)
        for note in report.notes:
            reporter.note(note)
        failures = report.failures if self.fails_small or not small else ()
        told: dict[str, Any] = {"files": report.figures, "failures": failures, "statements": report.statements}
        return publish(self.name, report.tables, out, reporter, **told)

    def _found(self, case: CaseT, seed: int, stored: StoredResults | None) -> FoundT:
        if self.key is None or stored is None:
            return self.measure(case, seed)
        key = self.key(case, seed)
        if key not in stored:
            stored[key] = self.measure(case, seed)
        found: FoundT = stored[key]
        return found


def seeded(cases: Iterable[CaseT], seeds: Sequence[int] = (0,)) -> list[tuple[CaseT, Sequence[int]]]:
    """Return cases that all have the same seeds; of what is not random one run is enough."""
    return [(case, seeds) for case in cases]


def not_converged(results: Sequence[Runs[CaseT, dict[str, Any]]], words: Callable[[CaseT], str]) -> Iterator[str]:
    """Yield a line for every case and seed whose chains, as found, did not converge."""
    for runs in results:
        for seed, found in zip(runs.seeds, runs.found, strict=False):  # of a run that was stopped
            if not found["converged"]:
                yield f"{words(runs.case)}, {seed}: the chains did not converge"
