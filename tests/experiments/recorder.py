"""A reporter that remembers what it was told."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from coco_experiments.outcome import Outcome, Table


class Recorder:
    """Keep tables, notes and progress reports in order."""

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self.notes: list[str] = []
        self.steps: list[tuple[str, int, int]] = []

    def progress(self, label: str, done: int, total: int) -> None:
        self.steps.append((label, done, total))

    def table(self, table: Table) -> None:
        self.tables.append(table)

    def note(self, text: str) -> None:
        self.notes.append(text)


def small_run(experiment: ModuleType, out: Path) -> Outcome:
    """Run an experiment's small form and return its outcome, in which every check must hold."""
    outcome: Outcome = experiment.run(small=True, out=out, reporter=Recorder())
    assert outcome.ok, outcome.failures
    return outcome
