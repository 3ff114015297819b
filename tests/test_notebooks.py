"""Every notebook runs from top to bottom, and is stored with the results of such a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.util import run_sync

BEGIN = "%reset -f\nimport os\nos.chdir({folder!r})"
NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


def test_there_is_a_quick_start() -> None:
    assert "quickstart.ipynb" in {path.name for path in NOTEBOOKS}


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """Serve all notebooks by one process, which imports packages once; each notebook begins without names."""
    manager = NotebookClient(nbformat.v4.new_notebook(), kernel_name="python3").create_kernel_manager()
    yield manager
    run_sync(manager.shutdown_kernel)(now=True)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore")  # the kernel's own packages warn about themselves
def test_runs_and_is_stored_executed(path: Path, tmp_path: Path, kernel: Any) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    stored = [_texts(cell) for cell in cells]
    assert all(cell.execution_count for cell in cells), "run 'make notebooks' and commit the result"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(BEGIN.format(folder=str(tmp_path))))
    client = NotebookClient(notebook, kernel, timeout=300)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    for cell, before in zip(cells, stored, strict=True):
        assert [text.split("\n")[0] for text in _texts(cell)] == [text.split("\n")[0] for text in before]


def _texts(cell: nbformat.NotebookNode) -> list[str]:
    """Return the texts of a cell's results; a line of progress, which stays empty, is only there after a slow stage."""
    results = [output["data"] for output in cell.outputs if "data" in output]
    return [data.get("text/plain", "") for data in results if data.get("text/html") != ""]
