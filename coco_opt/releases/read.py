"""Read a release folder of any kind as a value of its own kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coco_opt.files.folder import read_manifest
from coco_opt.releases.kind import kind_named


def read_release(folder: str | Path) -> Any:
    """Read a release folder of any kind.

    Parameters
    ----------
    folder : str or Path
        The release folder.

    Returns
    -------
    Release, TablesRelease or UniversalHistogram
        As ``read_groups_release``, ``read_tables_release`` or ``read_ranges_release`` return it.

    Raises
    ------
    InputError
        file-not-found, unreadable-file, bad-manifest, unknown-kind (no such kind is installed), and what the kind says
        of its files.
    VerificationError
        The manifest or a table is not what was written.

    Notes
    -----
    Use ``verify_release`` to judge the content.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> from coco_opt import configure, read_release, release
    >>> visits = pd.DataFrame({"value": [3, 1, 4, 1, 5]})
    >>> privacy = {"epsilon": "1", "noise": "seeded", "seed": 7}
    >>> with TemporaryDirectory() as folder:
    ...     config = configure(folder=folder, data={"values": visits}, privacy=privacy, ranges={"cells": 8})
    ...     read_release(release(config).folder).cells.size
    8
    """
    folder = Path(folder)
    return kind_named(str(read_manifest(folder).get("kind"))).open(folder)
