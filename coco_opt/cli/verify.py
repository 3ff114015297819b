"""``coco-opt verify``: does a release folder hold what its manifest promises."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import write_json, write_table
from coco_opt.cli.options import Json, Version
from coco_opt.errors import InputError, Place, VerificationError

if TYPE_CHECKING:
    from coco_opt.tables import Check


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A release folder.")],
    json: Json = False,
    version: Version = False,
) -> int:
    """Check a release folder against its manifest; exit 0 if all holds, 1 if not."""
    from coco_opt.tables import verify_release

    if not folder.is_dir():
        raise InputError("file-not-found", "no such release folder", Place(str(folder)))
    checks = verify_release(folder)
    if json:
        write_json({"passed": all(check.passed for check in checks), "checks": [asdict(c) for c in checks]})
    else:
        write_checks(checks)
    failed = [check.name for check in checks if not check.passed]
    if failed:
        raise VerificationError(f"{folder}: {len(failed)} of {len(checks)} checks failed: {', '.join(failed)}")
    return 0


def write_checks(checks: list[Check]) -> None:
    """Print checks as a table."""
    rows = [(check.name, "holds" if check.passed else "FAILS", check.detail) for check in checks]
    write_table("Checks", ("property", "result", "seen"), rows, numeric=3)
