"""Whether a folder still holds what was written: every file by the digest that its index states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coco_opt.errors import VerificationError
from coco_opt.files.folder import MANIFEST, SEAL, file_digest, is_as_sealed, read_manifest
from coco_opt.files.in_threads import in_threads
from coco_opt.files.measurement import is_measurement, read_index


def changed_files(folder: Path, stated: Mapping[str, str]) -> list[str]:
    """Return the files that do not have the digest that is stated for them, by name; all must be there."""
    names = sorted(stated)
    digests = in_threads(lambda name: file_digest(folder / name), names)
    return [name for name, digest in zip(names, digests, strict=True) if digest != stated[name]]


def check_unchanged(folder: Path) -> None:
    """Raise VerificationError where a file of a release or of a published measurement is not what was written."""
    if is_measurement(folder):
        _refuse(folder, _changed(folder, read_index(folder)))
    else:
        unchanged_manifest(folder, every=True)


def unchanged_manifest(folder: Path, *, every: bool = False) -> dict[str, Any]:
    """Return the manifest of a release; VerificationError where it or a table is not what was written.

    ``every`` checks the other files, such as the page, too. Files that are not there are left to whoever reads them.
    """
    manifest = read_manifest(folder)
    unsealed = SEAL in manifest and not is_as_sealed((folder / MANIFEST).read_bytes(), manifest)
    changed = [MANIFEST] if unsealed else _changed(folder, manifest, "" if every else ".parquet")
    _refuse(folder, changed)
    return manifest


def _changed(folder: Path, index: Mapping[str, Any], ending: str = "") -> list[str]:
    stated = index.get("files")
    names = stated if isinstance(stated, dict) else {}
    there = {name: digest for name, digest in names.items() if name.endswith(ending) and (folder / name).exists()}
    return changed_files(folder, there)


def _refuse(folder: Path, changed: Sequence[str]) -> None:
    if changed:
        raise VerificationError(
            f"{folder.name}: changed since it was written: {', '.join(changed)}. Its numbers are not those that were "
            "released: estimate the measurement again, which is free, or restore the folder. coco-opt verify checks it"
        )
