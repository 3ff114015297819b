"""The private folder of one run: its lock, its noise key until the seal, its sealed measurement from then on."""

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
from coco_opt.privacy.run_key import KEY_BYTES, RunKey

_KEY = "key"
_BINDING = "input"
MEASUREMENT = "measurement"


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
    def measurement(self) -> Path:
        """Return where the sealed measurement lies, or will."""
        return self.path / MEASUREMENT

    @property
    def is_sealed(self) -> bool:
        """Tell whether the measurement is sealed."""
        return self.measurement.exists()

    @property
    def is_bound(self) -> bool:
        """Tell whether the run was bound to its input: from then on noise may have been drawn."""
        return (self.path / _BINDING).exists()

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
        secret = path.read_bytes()
        if len(secret) != KEY_BYTES:
            raise InputError("lost-key", f"the noise key of run {self.name} is damaged: restore the private folder")
        return RunKey.from_bytes(secret)

    def bind(self, fingerprint: bytes) -> None:
        """Keep the keyed fingerprint of the input durably; InputError (input-changed) where it is another one.

        The same noise on two inputs would show their difference, so a run measures one input only.
        """
        if not self.is_bound:
            write_private(self.path / _BINDING, [fingerprint])
        elif not self.holds(fingerprint):
            raise InputError("input-changed", f"the private table is not the one that run {self.name} measures")

    def holds(self, fingerprint: bytes) -> bool:
        """Tell whether the run is bound to the input of this fingerprint; ``is_bound`` must hold."""
        return hmac.compare_digest((self.path / _BINDING).read_bytes(), fingerprint)

    def erase_key(self) -> None:
        """Overwrite and remove the noise key; nothing happens where it is gone."""
        erase_private(self.path / _KEY)

    def keep(self, name: str, facts: Mapping[str, Any]) -> None:
        """Keep private facts of the run durably under a name; later calls leave the first ones."""
        if not (self.path / f"{name}.json").exists():
            write_private(self.path / f"{name}.json", [json.dumps(dict(facts), indent=2).encode()])

    def kept(self, name: str) -> dict[str, Any]:
        """Return the facts kept under a name; {} without any, or where they cannot be read: none is needed to go on."""
        path = self.path / f"{name}.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
        except (ValueError, TypeError):
            return {}

    def forget(self) -> None:
        """Delete the sealed measurement."""
        shutil.rmtree(self.measurement)

    def discard(self) -> None:
        """Remove the folder of a run that was never paid for, its key first."""
        self.erase_key()
        shutil.rmtree(self.path)
        self.release()
