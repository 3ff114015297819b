"""Saving a figure as PNG and PDF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(figure: Figure, path: Path) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, creating the folder; return the files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "pdf")]
    for file in files:
        # Without dates the same numbers give the same file.
        metadata = {"Software": None} if file.suffix == ".png" else {"CreationDate": None}
        figure.savefig(file, dpi=130, metadata=metadata)
        # The layout found for the first file is the second one's: finding it takes a third of the drawing.
        figure.set_layout_engine("none")
    return files
