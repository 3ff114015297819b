"""The private folder of one run: its lock, its noise key until the seal, its sealed measurement from then on."""

from __future__ import annotations

import hmac
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, Place
from coco_opt.privacy.private_files import (
    FREE,
    FileLock,
    erase_private,
    make_private_folder,
    read_record,
    read_values,
    remove_leftovers,
    write_record,
    write_values,
)
from coco_opt.privacy.run_key import RunKey

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
        """Take the folder, made if need be; False where another process has it. Leftovers are removed.

        Raises InputError (foreign-file) where anything in it is a link.
        """
        make_private_folder(self.path)
        if not self._lock.acquire():
            return False
        remove_leftovers(self.path)
        try:
            self._refuse_links(self.path.rglob("*"))
        except InputError:
            self.release()
            raise
        return True

    def _refuse_links(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if path.is_symlink():
                place = Place(f"{self.name}/{path.name}")
                raise InputError("foreign-file", f"is a link: put the file or folder itself there. {FREE}", place)

    def release(self) -> None:
        """Let others take the folder."""
        self._lock.release()

    @property
    def has_key(self) -> bool:
        """Return whether the noise key is there: from before the payment until the measurements are sealed."""
        return os.path.lexists(self.path / _KEY)

    @property
    def measurement(self) -> Path:
        """Return where the sealed measurement lies, or will."""
        folder = self.path / MEASUREMENT
        self._refuse_links([self.path, folder, *folder.glob("*")])
        return folder

    @property
    def is_sealed(self) -> bool:
        """Return whether the measurement is sealed."""
        return self.measurement.exists()

    @classmethod
    def of_measurement(cls, folder: Path) -> RunFolder:
        """Return the run's folder that a sealed measurement lies in."""
        return cls(folder.resolve().parent.parent, folder.resolve().parent.name)

    @property
    def is_bound(self) -> bool:
        """Return whether the run was bound to its input: from then on noise may have been drawn."""
        return os.path.lexists(self.path / _BINDING)

    def key(self) -> RunKey:
        """Return the run's noise key, drawn and stored durably at the first call.

        Raises InputError where others could have read it, or it is damaged (see ``read_record``).
        """
        path = self.path / _KEY
        if self.has_key:
            return RunKey(read_record(path))
        key = RunKey.generate()
        write_record(path, key.to_bytes())
        return key

    def stored_key(self) -> RunKey:
        """Return the run's noise key from its file; InputError (lost-key) where it is gone, as it is after the seal."""
        if not self.has_key:
            raise InputError("lost-key", f"the noise key of run {self.name} is gone: its measurement was sealed")
        return RunKey(read_record(self.path / _KEY))

    def bind(self, fingerprint: bytes) -> None:
        """Keep the keyed fingerprint of the input durably; InputError (input-changed) where it is another.

        The same noise on two inputs would show their difference, so a run measures one input only.
        """
        if not self.is_bound:
            write_record(self.path / _BINDING, fingerprint)
        elif not self.holds(fingerprint):
            raise InputError("input-changed", f"the private table is not the one that run {self.name} measures")

    def holds(self, fingerprint: bytes) -> bool:
        """Return whether the run is bound to the input of this fingerprint; ``is_bound`` must hold."""
        return hmac.compare_digest(read_record(self.path / _BINDING), fingerprint)

    @property
    def has_secrets(self) -> bool:
        """Return whether the noise key is there, or the fingerprint of the input: nothing else has to be erased."""
        try:
            return self.has_key or (self.is_bound and any((self.path / _BINDING).read_bytes()))
        except OSError:  # who erases it says what is wrong
            return True

    def erase_secrets(self) -> None:
        """Erase what a run that measured or was given up needs no longer: its noise key and its input's fingerprint.

        The file of the fingerprint stays, filled with zeros: next to an older ledger it proves that the run measured.
        """
        erase_private(self.path / _KEY)
        if self.has_secrets:
            erase_private(self.path / _BINDING, keep_name=True)

    def keep(self, name: str, values: Mapping[str, Any]) -> None:
        """Store private values of the run durably under a name; later calls do not replace them."""
        if not (self.path / f"{name}.json").exists():
            write_values(self.path / f"{name}.json", values)

    def stored_values(self, name: str) -> dict[str, Any]:
        """Return the values stored under a name, {} where there are none; InputError (damaged-file) where they changed.

        Values that cannot be read are not taken for values that were never stored.
        """
        path = self.path / f"{name}.json"
        return read_values(path) if os.path.lexists(path) else {}

    def forget(self) -> None:
        """Delete the sealed measurement, and what was made of it here."""
        self.erase_secrets()
        shutil.rmtree(self.measurement)
        for path in (*self.path.glob("method-*"), *self.path.glob("released-*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def discard(self) -> None:
        """Remove the folder of a run that was never paid for, its key first."""
        self.erase_secrets()
        shutil.rmtree(self.path)
        self.release()


def noise_key(key: RunKey, digest: str, fingerprint: str) -> RunKey:
    """Return the key of a run's noise on one input: other queries or another input have other noise."""
    return RunKey(key.derive("coco-opt noise", digest, fingerprint))
