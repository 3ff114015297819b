"""Read a release folder of any kind as a value of its own kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coco_opt.files.folder import read_manifest
from coco_opt.kinds import kind_row
from coco_opt.releases.kind import AnyKind


def read_release(folder: str | Path) -> Any:
    """Read a release folder of any kind, as ``read_groups_release`` and the like do; ``verify_release`` checks it.

    Raises InputError: file-not-found, unreadable-file, bad-manifest, unknown-kind (no such kind is installed), and what
    the kind says of its files.
    """
    folder = Path(folder)
    kind: AnyKind = kind_row(str(read_manifest(folder).get("kind"))).load()
    return kind.open(folder)
