"""The whole tables of finished levels in a run's scratch folder, so that a long estimation goes on where it stopped.

They are post-processing of the measurement: losing them costs time, never privacy.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.choices import Certificate, Fallback, SolverChoices
from coco_opt.errors import CocoOptError, InputError
from coco_opt.privacy.private_files import make_private_folder, write_private
from coco_opt.topdown.estimated.failsafe import Relaxation
from coco_opt.topdown.estimated.recursion import Checkpoint
from coco_opt.topdown.estimated.sparse_tables import SparseTables
from coco_opt.topdown.estimated.unproved import Unproved
from coco_opt.topdown.facts.cuts import Cut

_STEM = "levels-"
_ARRAYS = ("offsets", "cells", "counts")


class LevelFiles:
    """One file for each finished level, holding all levels so far, in a folder that is made.

    The certificates of ``solvers`` go with them, so that a resumed run states what an uninterrupted one would.
    """

    def __init__(self, folder: Path, solvers: SolverChoices) -> None:
        self._folder, self._solvers = folder, solvers
        make_private_folder(folder)

    def keep(self, done: Checkpoint) -> None:
        """Write what is done, durably, and remove the file before it; what cannot be written is done without."""
        with suppress(InputError, OSError):
            self._keep(done)

    def _keep(self, done: Checkpoint) -> None:
        path = self._path(done.level)
        path.unlink(missing_ok=True)
        header = {
            "size": done.tables[0].size,
            "unproved": asdict(done.unproved),
            "relaxed": [asdict(one) for one in done.relaxed],
            "certificates": [asdict(row) for row in self._solvers.certificates],
        }
        arrays = {f"{name} {k}": getattr(table, name) for k, table in enumerate(done.tables) for name in _ARRAYS}
        if done.core is not None:
            arrays["core"] = done.core
        if done.cuts:
            arrays["cut regions"] = np.array([region for region, _ in done.cuts], np.int64)
            arrays["cut weights"] = np.stack([cut.weights for _, cut in done.cuts])
            arrays["cut uppers"] = np.array([cut.upper for _, cut in done.cuts], np.int64)
        content = io.BytesIO()
        np.savez(content, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
        write_private(path, [content.getbuffer()])
        self._path(done.level - 1).unlink(missing_ok=True)

    def last(self) -> Checkpoint | None:
        """Return the last checkpoint that can be read, its certificates counted in; None without one."""
        for path in sorted(self._folder.glob(f"{_STEM}*"), reverse=True):
            try:
                header, done = _read(path)
            except (CocoOptError, OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
                continue  # half written or damaged: the levels are made again
            self._solvers.resume(_certificate(row) for row in header["certificates"])
            return done
        return None

    def _path(self, level: int) -> Path:
        return self._folder / f"{_STEM}{level:03d}"


def _read(path: Path) -> tuple[dict[str, Any], Checkpoint]:
    with np.load(path, allow_pickle=False) as content:
        header = json.loads(content["header"].tobytes())
        levels = sum(name.startswith(_ARRAYS[0]) for name in content.files)
        tables = tuple(
            SparseTables(content[f"offsets {k}"], content[f"cells {k}"], content[f"counts {k}"], header["size"])
            for k in range(levels)
        )
        core = content["core"] if "core" in content.files else None
        cuts = tuple(_cuts(content)) if "cut regions" in content.files else ()
    relaxed = tuple(
        Relaxation(**{**one, "changes": tuple((cell, change) for cell, change in one["changes"])})
        for one in header["relaxed"]
    )
    return header, Checkpoint(tables, relaxed, Unproved(**header["unproved"]), core, cuts)


def _cuts(content: Any) -> Iterator[tuple[int, Cut]]:
    regions, weights, uppers = (content[f"cut {name}"] for name in ("regions", "weights", "uppers"))
    for region, row, upper in zip(regions.tolist(), weights, uppers.tolist(), strict=True):
        yield region, Cut(row, upper)


def _certificate(row: dict[str, Any]) -> Certificate:
    return Certificate(**{**row, "fallbacks": tuple(Fallback(**one) for one in row["fallbacks"])})
