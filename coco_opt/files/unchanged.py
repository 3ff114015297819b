"""Whether a folder still holds what was written: every file by the digest that its index states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, Place, VerificationError
from coco_opt.files.folder import MANIFEST, file_digest, is_as_sealed, read_manifest
from coco_opt.files.in_threads import in_threads
from coco_opt.files.measurement import is_measurement, read_index

TABLE = ".parquet"


def changed_files(folder: Path, stated: Mapping[str, str]) -> list[str]:
    """Return the files that do not have the digest that is stated for them, by name; all must be there."""
    names = sorted(stated)
    digests = in_threads(lambda name: file_digest(folder / name), names)
    return [name for name, digest in zip(names, digests, strict=True) if digest != stated[name]]


def check_unchanged(folder: Path) -> None:
    """Raise VerificationError where a file of a release or of a published measurement is not what was written."""
    if is_measurement(folder):
        index = read_index(folder)
        _refuse(folder, _changed(folder, index), _foreign(folder, index))
    else:
        unchanged_manifest(folder, every=True)


def unchanged_manifest(folder: Path, *, every: bool = False, kind: str | None = None) -> dict[str, Any]:
    """Return the manifest of a release; VerificationError where it or a table is not what was written.

    A manifest without a seal, and tables that it does not state, are not what was written either. ``every`` checks the
    other files, such as the page, too. Files that are not there are left to whoever reads them. Raises InputError
    (other-release) where the release is of another ``kind``.
    """
    manifest = read_manifest(folder)
    if not is_as_sealed((folder / MANIFEST).read_bytes(), manifest):
        _refuse(folder, [MANIFEST])
    _refuse(folder, _changed(folder, manifest, "" if every else TABLE), _foreign(folder, manifest))
    if kind is not None and manifest.get("kind") != kind:
        message = f"is a release of {manifest.get('kind')!r}, not of {kind!r}"
        raise InputError("other-release", message, Place(folder.name))
    return manifest


def _changed(folder: Path, index: Mapping[str, Any], ending: str = "") -> list[str]:
    stated = stated_files(index)
    there = {name: digest for name, digest in stated.items() if name.endswith(ending) and (folder / name).exists()}
    return changed_files(folder, there)


def _foreign(folder: Path, index: Mapping[str, Any]) -> list[str]:
    """Return the tables in a folder that its index does not state."""
    return sorted({path.name for path in folder.glob(f"*{TABLE}")} - set(stated_files(index)))


def stated_files(index: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the digests that an index states, by file name; none where it states no such thing."""
    stated = index.get("files")
    return stated if isinstance(stated, dict) else {}


def _refuse(folder: Path, changed: Sequence[str], foreign: Sequence[str] = ()) -> None:
    name = folder.resolve().name
    if changed:
        raise VerificationError(
            f"{name}: changed since it was written: {', '.join(changed)}. Its numbers are not those that were "
            "released: estimate the measurement again, which is free, or restore the folder. coco-opt verify checks it"
        )
    if foreign:
        raise VerificationError(
            f"{name}: its index states no digest of {', '.join(foreign)}, so this is not what was written: move "
            "it to another folder. coco-opt verify checks the folder"
        )
