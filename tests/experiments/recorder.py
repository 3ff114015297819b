"""A reporter that remembers what it was told."""

from __future__ import annotations

from coco_experiments.outcome import Table


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
