"""The integer tables of finished levels in a run's scratch folder: a long estimation resumes where it stopped.

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

from coco_opt.choices import Certificate, Fallback, UncertifiedGap
from coco_opt.errors import CocoOptError, InputError
from coco_opt.privacy.private_files import make_private_folder, write_private
from coco_opt.topdown.estimating.implied.cuts import Cut
from coco_opt.topdown.estimating.recursion import Checkpoint
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.estimating.splitting.failsafe import Relaxation

_STEM = "levels-"
_ARRAYS = ("offsets", "cells", "counts")


class LevelFiles:
    """One file for each finished level, which holds all levels so far, in a folder that is created.

    Certificates are stored too: a resumed run states the same as an uninterrupted one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_private_folder(folder)

    def keep(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint durably and remove the previous file; a checkpoint that cannot be written is skipped."""
        with suppress(InputError, OSError):
            self._write(checkpoint)

    def _write(self, checkpoint: Checkpoint) -> None:
        path = self._path(checkpoint.level)
        path.unlink(missing_ok=True)
        header = {
            "size": checkpoint.tables[0].size,
            "relaxed": [asdict(relaxation) for relaxation in checkpoint.relaxed],
            "certificates": [asdict(row) for row in checkpoint.certificates],
        }
        arrays = {f"{name} {k}": getattr(table, name) for k, table in enumerate(checkpoint.tables) for name in _ARRAYS}
        if checkpoint.core is not None:
            arrays["core"] = checkpoint.core
        if checkpoint.cuts:
            arrays["cut regions"] = np.array([region for region, _ in checkpoint.cuts], np.int64)
            arrays["cut weights"] = np.stack([cut.weights for _, cut in checkpoint.cuts])
            arrays["cut uppers"] = np.array([cut.upper for _, cut in checkpoint.cuts], np.int64)
        content = io.BytesIO()
        np.savez(content, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
        write_private(path, [content.getbuffer()])
        self._path(checkpoint.level - 1).unlink(missing_ok=True)

    def last(self) -> Checkpoint | None:
        """Return the last readable checkpoint; None without one."""
        for path in sorted(self._folder.glob(f"{_STEM}*"), reverse=True):
            try:
                return _read(path)
            except (CocoOptError, OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
                continue  # half written or damaged: the levels are computed again
        return None

    def _path(self, level: int) -> Path:
        return self._folder / f"{_STEM}{level:03d}"


def _read(path: Path) -> Checkpoint:
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
        Relaxation(**{**relaxation, "changes": tuple((cell, change) for cell, change in relaxation["changes"])})
        for relaxation in header["relaxed"]
    )
    return Checkpoint(tables, relaxed, tuple(map(_certificate, header["certificates"])), core, cuts)


def _cuts(content: Any) -> Iterator[tuple[int, Cut]]:
    regions, weights, uppers = (content[f"cut {name}"] for name in ("regions", "weights", "uppers"))
    for region, row, upper in zip(regions.tolist(), weights, uppers.tolist(), strict=True):
        yield region, Cut(row, upper)


def _certificate(row: dict[str, Any]) -> Certificate:
    fallbacks = tuple(Fallback(**fallback) for fallback in row["fallbacks"])
    return Certificate(**{**row, "fallbacks": fallbacks, "missed": UncertifiedGap(**row["missed"])})
