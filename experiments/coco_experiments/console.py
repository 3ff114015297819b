"""The default reporter: rich tables on the terminal, progress bars only where someone watches."""

from __future__ import annotations

import sys
from typing import TextIO

from coco_experiments.outcome import Table

_MOST_ROWS = 150  # of a table that is printed


class ConsoleReporter:
    """Print tables and notes to standard output; show progress on a terminal's standard error, nowhere else."""

    def __init__(self, output: TextIO | None = None, errors: TextIO | None = None) -> None:
        from rich.console import Console

        stream = output or sys.stdout
        # A pipe has no width: without one, rich would fold the columns at 80 characters.
        width = None if stream.isatty() else 180
        self._console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
        self._errors = errors or sys.stderr

    def progress(self, label: str, done: int, total: int) -> None:
        """Redraw one line with the steps done; end it with the last step."""
        if self._errors.isatty():
            end = "\n" if done >= total else ""
            self._errors.write(f"\r\x1b[2K{label}: {done}/{total}{end}")
            self._errors.flush()

    def table(self, table: Table) -> None:
        """Print a table, numbers to the right, and its notes below."""
        from rich import box
        from rich.table import Table as RichTable

        numeric = [
            any(isinstance(row[column], int | float) for row in table.rows) for column in range(len(table.columns))
        ]
        shown = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
        for name, right in zip(table.columns, numeric, strict=True):
            shown.add_column(name, justify="right" if right else "left")
        texts = table.texts()
        for row in texts:
            shown.add_row(*row)
        # Headings fold well, rows do not.
        widths = [max(len(row[column]) for row in texts) for column in range(len(numeric))] if texts else []
        if sum(widths) + 3 * len(widths) <= self._console.width and len(texts) <= _MOST_ROWS:
            self._console.print(shown)
        else:
            self.note(f"{table.title}: {len(texts):,} rows, too large for a screen; on the page and in the CSV file")
        for note in table.notes:
            self.note(note)

    def note(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, soft_wrap=True)
