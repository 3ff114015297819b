"""A reporter that remembers what it was told, and which texts of a figure leave the canvas or lie over another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

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


_SLACK = 1.5  # pixels of an empty margin that a text's box has


@contextmanager
def misplaced_texts() -> Iterator[list[str]]:
    """Fill a list with a sentence for each fault in the figures that are written as PNG inside."""
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    faults, drawn = list[str](), dict[Text, Any]()
    draw, savefig = Text.draw, Figure.savefig

    def noting(text: Text, renderer: Any, *rest: Any, **options: Any) -> None:
        if text.get_visible() and text.get_text().strip():
            drawn[text] = text.get_window_extent(renderer)  # a layout draws them before the figure does
        draw(text, renderer, *rest, **options)

    def judged(figure: Figure, file: Any, **options: Any) -> None:
        drawn.clear()
        savefig(figure, file, **options)
        if Path(file).suffix == ".png":
            shown = [(text.get_text(), box) for text, box in drawn.items()]
            scale = options["dpi"] / figure.dpi
            faults.extend(_faults(shown, figure.bbox.width * scale, figure.bbox.height * scale))

    with patch.object(Text, "draw", noting), patch.object(Figure, "savefig", judged):
        yield faults


def _faults(drawn: list[tuple[str, Any]], width: float, height: float) -> Iterator[str]:
    for text, box in drawn:
        if min(box.x0, box.y0, width - box.x1, height - box.y1) < -_SLACK:
            yield f"{text!r} leaves the canvas"
    for (text, box), (other, its) in combinations(drawn, 2):
        wide, high = min(box.x1, its.x1) - max(box.x0, its.x0), min(box.y1, its.y1) - max(box.y0, its.y0)
        if wide > _SLACK and high > _SLACK:
            yield f"{text!r} lies over {other!r}"
