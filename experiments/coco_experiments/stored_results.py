"""What a study found so far, in a file: seeds take minutes, and a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coco_solvers

import coco_opt

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
