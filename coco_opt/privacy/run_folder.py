"""The private folder of one run: its lock, its noise key until the seal, its sealed measurements from then on."""

from __future__ import annotations

import hmac
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, Place
from coco_opt.privacy.private_files import (
    FileLock,
    erase_private,
    make_private_folder,
    readable_by_others,
    remove_partial,
    write_private,
)
from coco_opt.privacy.run_key import RunKey
from coco_opt.privacy.sealed_file import SealedT, Sealing

_KEY = "key"
_SEALED = "sealed"


class RunFolder:
    """What a run needs to be taken up where it stopped; open it with ``claim`` and close it with ``release``.

    Only the holder of its lock may use it. ``name`` is the run's id, unique in ``root``.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.path = root / name
        self._lock = FileLock(self.path / "lock")

    def claim(self) -> bool:
        """Take the folder, made if need be; False where another process has it. Leftovers are removed."""
        make_private_folder(self.path)
        if not self._lock.acquire():
            return False
        remove_partial(self.path)
        return True

    def release(self) -> None:
        """Let others take the folder."""
        self._lock.release()

    @property
    def has_key(self) -> bool:
        """Tell whether the noise key is there: from before the payment until the measurements are sealed."""
        return (self.path / _KEY).exists()

    @property
    def is_sealed(self) -> bool:
        """Tell whether the measurements are sealed."""
        return (self.path / _SEALED).exists()

    def key(self) -> RunKey:
        """Return the run's noise key, drawn and kept durably at the first call.

        Raises InputError where others could have read it, or it is damaged.
        """
        path = self.path / _KEY
        if not path.exists():
            key = RunKey.generate()
            write_private(path, [key.to_bytes()])
            return key
        if readable_by_others(path):
            raise InputError("open-key", "others can read the noise key: this run cannot be finished", Place(_KEY))
        return RunKey.from_bytes(path.read_bytes())

    def bind(self, what: str, digest: bytes) -> None:
        """Keep a keyed digest of ``what`` durably; InputError (input-changed) where it is not the one kept before.

        The same noise on two inputs would show their difference, so a run measures one input only.
        """
        path = self.path / what
        if not path.exists():
            write_private(path, [digest])
        elif not hmac.compare_digest(path.read_bytes(), digest):
            raise InputError(
                "input-changed",
                f"the {what} is not the one this run began with: restore it, or give the run up with "
                f"'coco-opt ledger CONFIG --abandon {self.name}' (what it paid stays spent)",
            )

    def seal(self, measurements: SealedT, sealing: Sealing[SealedT]) -> str:
        """Seal the measurements durably and return their digest."""
        return sealing.seal(measurements, self.path / _SEALED)

    def unseal(self, sealing: Sealing[SealedT], digest: str | None = None) -> tuple[SealedT, str]:
        """Return the sealed measurements and their digest, which must be ``digest``."""
        return sealing.unseal(self.path / _SEALED, digest)

    def erase_key(self) -> None:
        """Overwrite and remove the noise key; nothing happens where it is gone."""
        erase_private(self.path / _KEY)

    def keep(self, name: str, facts: Mapping[str, Any]) -> None:
        """Keep private facts of the run durably under a name; later calls leave the first ones."""
        if not (self.path / f"{name}.json").exists():
            write_private(self.path / f"{name}.json", [json.dumps(dict(facts), indent=2).encode()])

    def kept(self, name: str) -> dict[str, Any]:
        """Return the facts kept under a name, {} without any."""
        path = self.path / f"{name}.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    def discard(self) -> None:
        """Remove the folder of a run that was never paid for, its key first."""
        self.erase_key()
        shutil.rmtree(self.path)
        self.release()
