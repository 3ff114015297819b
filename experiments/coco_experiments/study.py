"""The engine of the experiments: a declared study measures its cases under their seeds, and a report is made of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any, Generic, TypeVar

from coco_experiments.outcome import Outcome, Reporter, Statement, Table, publish
from coco_experiments.stored_results import StoredResults

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
