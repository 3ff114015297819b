"""``coco-opt verify`` and ``sign``: check what is published, and vouch for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import quoted, write_json, write_table, write_values
from coco_opt.cli.options import Json, Version
from coco_opt.errors import InputError, Place, VerificationError

if TYPE_CHECKING:
    from coco_opt.files.release_checks import Check


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A release, or a published measurement.")],
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", metavar="CONFIG", help="Also compare what was paid, in this configuration's ledger."),
    ] = None,
    signed_by: Annotated[
        Path | None,
        typer.Option("--signed-by", metavar="PUBLIC", help="Also require a signature with this Ed25519 key (PEM)."),
    ] = None,
    earlier: Annotated[
        list[Path] | None,
        typer.Option(
            "--earlier", metavar="DIR", help="Where a release lies that this release agrees with, if not next to it."
        ),
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Check a release folder against its manifest; exit 0 if all holds, 1 if not."""
    from coco_opt.config import load_config
    from coco_opt.releases.verify import verify_folder, verify_paid

    if not os.path.isdir(folder):  # noqa: PTH112 - False too for a name that no file system takes
        raise InputError("file-not-found", "no such release folder", Place(str(folder)))
    paid = [] if ledger is None else verify_paid(folder, load_config(ledger))
    checks = [*verify_folder(folder, signed_by, earlier or ()), *paid]
    failed = [check.name for check in checks if not check.passed]
    if json:
        write_json({"passed": not failed, "checks": [asdict(check) for check in checks]})
    else:
        write_checks(checks)
    if failed:
        raise VerificationError(f"{folder}: {len(failed)} of {len(checks)} checks failed: {', '.join(failed)}")
    return 0


def write_checks(checks: Sequence[Check]) -> None:
    """Print checks as a table."""
    rows = [(check.name, "holds" if check.passed else "FAILS", check.detail) for check in checks]
    write_table("Checks", ("property", "result", "seen"), rows, numeric=3)


def sign(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A release, or a published measurement.")],
    key: Annotated[Path, typer.Option("--key", metavar="KEY", help="The signer's private Ed25519 key (PEM).")],
    json: Json = False,
    version: Version = False,
) -> int:
    """Check a folder, and sign its index, which holds the digest of every file; exit 1 where a check fails."""
    from coco_opt.releases import signing
    from coco_opt.releases.verify import verify_folder

    failed = [check for check in verify_folder(folder) if not check.passed]
    if failed:
        names = ", ".join(check.name for check in failed)
        raise VerificationError(f"{folder}: nothing was signed, for checks failed: {names}")
    signature = signing.sign(folder, key)
    if json:
        write_json({"signature": str(signature)})
        return 0
    check = f"coco-opt verify {quoted(folder)} --signed-by PUBLIC"
    write_values([("Signature", signature), ("Check it with", check)])
    return 0
