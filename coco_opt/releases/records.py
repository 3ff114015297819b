"""Names of runs, and the private record of each: timings, row counts and scales, for its owner's eyes only."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coco_opt.errors import ConfigError, InputError
from coco_opt.files.scratch import remove_spilled
from coco_opt.privacy.private_files import foreign, write_private


def new_run_id() -> str:
    """Return a name that no other run has: the time in UTC and four random bytes."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def open_private_folder(folder: Path) -> Path:
    """Create a folder that only its owner can enter (0700), or check it and remove what killed processes left there.

    Raises ConfigError where it cannot be made, is a link or another user's, or others can enter it.
    """
    failure = ""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := foreign(folder):
            failure = f"the folder {folder.name!r}: {reason}"
        elif not os.access(folder, os.W_OK):
            failure = f"the folder {folder.name!r} cannot be written"
    except OSError as error:
        failure = f"the folder {folder.name!r} cannot be made: {error.strerror}"
    if failure:
        raise ConfigError("output.private", failure)
    remove_spilled(folder)
    return folder


def write_private_record(folder: Path, name: str, record: Mapping[str, Any]) -> Path:
    """Write a JSON record that only its owner can read (0600), durably; keep an existing record of the same release."""
    path = folder / f"{name}.json"
    if not path.exists():
        try:
            write_private(path, [(json.dumps(record, indent=2) + "\n").encode()])
        except InputError as error:
            if error.code != "file-exists":  # what another process wrote in the meantime says the same
                raise
    return path
