"""The folders and records of a run: names, the private record for its owner's eyes only, and what there is space for.

Whether a folder can be written is asked before anything is paid.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.config.model import Config
from coco_opt.errors import ConfigError, InputError, Place, system_errors_as
from coco_opt.files.scratch import remove_spilled
from coco_opt.privacy.private_files import foreign, lies_in, temporary_name, write_private
from coco_opt.privacy.queries import DENSE
from coco_opt.releases.kind import Plan


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


_BYTES = 8
_PACKED = 1  # bytes of an answer in its file, at usual budgets at most


def check_storage(plan: Plan) -> None:
    """Raise InputError (out-of-memory) where the answers fit neither in memory nor on disk, before anything is paid.

    In memory are all of them where they are few, and else those of one region to one query; the others are packed into
    the private folder as they are drawn.
    """
    answers, measurement_plan = plan.measurement_plan.answers, plan.measurement_plan
    most = max(measurement_plan.answers_to(query)[1] for query in measurement_plan.queries)
    at_once = max(min(answers, DENSE), most)
    short = False
    try:
        np.empty(2 * at_once, np.int64)
    except MemoryError:
        short = True
    if short:
        size = 2 * at_once * _BYTES / 1e9
        raise InputError("out-of-memory", f"{at_once:,} answers need about {size:.1f} GB: lower the domain's bound")
    private = plan.config.output.private.absolute()  # which may not exist yet
    free = shutil.disk_usage(next(place for place in (private, *private.parents) if place.exists())).free
    size = _PACKED * max(0, answers - DENSE)
    if size > free:
        message = f"{answers:,} answers need about {size / 1e9:.1f} GB on the disk of the private folder, which has"
        raise InputError("out-of-memory", f"{message} {free / 1e9:.1f}: free some, or move the folder (output.private)")


def check_folders(config: Config) -> None:
    """Raise ConfigError where no file can be made in a folder that a release writes to, or where it would be made."""
    ledger = config.privacy.ledger
    folders = {"output.directory": config.output.directory, "output.private": config.output.private}
    for key, folder in (folders if ledger is None else {**folders, "privacy.ledger": ledger.parent}).items():
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
        with system_errors_as(partial(_no_file, key, there)):
            tempfile.TemporaryFile(dir=there).close()


def _no_file(key: str, folder: Path, reason: str) -> ConfigError:
    return ConfigError(key, f"no file can be made in the folder {str(folder)!r}: {reason}")


def check_target(folder: Path, advice: str = "give another name", private: Path | None = None) -> None:
    """Raise InputError where a folder cannot be made: it exists, its name is too long or its parent is not writable.

    A published folder neither holds the ``private`` folder nor lies in it.
    """
    if private is not None and (lies_in(folder, private) or lies_in(private, folder)):
        raise InputError("cannot-write", f"must be apart from the private folder: {advice}", Place(folder.name))
    if os.path.lexists(folder):
        message = f"exists already and is never overwritten: {advice}"
        raise InputError("folder-exists", message, Place(folder.name))

    def refusal(reason: str) -> InputError:
        return InputError("cannot-write", f"cannot be made in {folder.parent}: {reason}", Place(folder.name))

    with system_errors_as(refusal):
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(folder.parent, os.W_OK):
            raise refusal("permission denied")
        probe = temporary_name(folder)
        probe.mkdir()
        probe.rmdir()
