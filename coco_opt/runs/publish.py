"""Put a release folder where it belongs, once, also when an interrupted run already did."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from coco_opt.errors import InputError, Place


def folder_digest(folder: Path) -> str:
    """Return the hexadecimal SHA-256 of a folder's file names and contents."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        content = hashlib.sha256(path.read_bytes()).digest()
        digest.update(len(path.name.encode()).to_bytes(8, "little") + path.name.encode() + content)
    return digest.hexdigest()


def publish(folder: Path, write: Callable[[Path], object], *, resumed: bool) -> str:
    """Write a release with ``write(folder)`` and return its digest.

    A resumed run removes what an interrupted one left half-written, and accepts a folder that already holds the same
    bytes. Raises InputError (folder-exists) where it holds anything else.
    """
    if resumed:
        for leftover in folder.parent.glob(f".{_literal(folder.name)}.*.partial"):
            shutil.rmtree(leftover, ignore_errors=True)
    if not resumed or not os.path.lexists(folder):
        write(folder)
        return folder_digest(folder)
    again = folder.parent / f".{folder.name}.{secrets.token_hex(8)}.partial"
    try:
        write(again)
        digest = folder_digest(again)
    finally:
        shutil.rmtree(again, ignore_errors=True)
    if not folder.is_dir() or folder_digest(folder) != digest:
        message = "exists already, and is not this run's release: move it away"
        raise InputError("folder-exists", message, Place(folder.name))
    return digest


def refuse_existing(folder: Path) -> None:
    """Raise InputError (folder-exists) where there is something at a path."""
    if os.path.lexists(folder):
        message = "exists already: a release is never overwritten, give another --out"
        raise InputError("folder-exists", message, Place(folder.name))


def check_parent(folder: Path) -> None:
    """Make the folder a release goes to, so that a wrong path is found before the budget is spent."""
    reason = ""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(folder.parent, os.W_OK):
            reason = "permission denied"
    except OSError as error:
        reason = error.strerror or "unknown reason"
    if reason:
        raise InputError("cannot-write", f"cannot write into {folder.parent}: {reason}", Place(folder.name))


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
