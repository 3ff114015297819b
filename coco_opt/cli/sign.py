"""``coco-opt sign``: an office's signature next to a release or a published measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coco_opt.cli.console import quoted, write_json, write_values
from coco_opt.cli.options import Json, Version
from coco_opt.errors import VerificationError


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
