"""Bookkeeping files of the private folder: small records with a checksum, read and written through one typed layer.

Any fault in a record raises one error, which names the file, says what to restore, and that resuming costs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, Place
from coco_opt.privacy.private_files import FREE, foreign, replace_private, write_private

_MARK = b"coco-opt record 1 "


def write_record(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Write a record durably, for its owner's eyes only; an older record stays, and is an error, unless ``replace``.

    Raises InputError (file-exists, cannot-write).
    """
    chunks = [_MARK, hashlib.sha256(content).hexdigest().encode(), b"\n", content]
    (replace_private if replace else write_private)(path, chunks)


def read_record(path: Path) -> bytes:
    """Return the content of a record; raise InputError: foreign-file, cannot-read, damaged-file."""
    code, reason = "foreign-file", ""
    try:
        reason = foreign(path)
        if not reason:
            head, _, content = path.read_bytes().partition(b"\n")
            if head == _MARK + hashlib.sha256(content).hexdigest().encode():
                return content
            code, reason = "damaged-file", "is not what was written: restore it from a copy of the private folder"
    except OSError as error:
        code, reason = "cannot-read", f"cannot be read: {error.strerror}"
    raise InputError(code, f"{reason}. {FREE}", Place(f"{path.parent.name}/{path.name}"))


def write_values(path: Path, values: Mapping[str, Any], *, replace: bool = False) -> None:
    """Write a record of JSON-able values; raises as ``write_record`` does."""
    write_record(path, json.dumps(dict(values), indent=2, sort_keys=True).encode(), replace=replace)


def read_values(path: Path) -> dict[str, Any]:
    """Return the values of a record; raises as ``read_record`` does."""
    return dict(json.loads(read_record(path)))
