"""The secret of one run, from which all of its noise follows: as private as the data, and gone after the seal."""

from __future__ import annotations

import contextlib
import hmac
import os
from typing import NoReturn, SupportsIndex

from coco_opt.errors import ProblemError

KEY_BYTES = 32


class RunKey:
    """A 256-bit key drawn from the operating system; whoever has it can take the noise off every answer.

    It is never shown and not pickled or copied by accident: ``to_bytes`` is the only way out, for the private
    file a run resumes from and for spawned workers. A forked worker has the key and computes the same noise
    for the same cell, as any other process that was given it.
    """

    __slots__ = ("_bytes",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ProblemError(f"a run key has {KEY_BYTES} bytes")
        self._bytes = bytearray(secret)

    @classmethod
    def generate(cls) -> RunKey:
        """Draw a new key from the operating system."""
        return cls(os.urandom(KEY_BYTES))

    def to_bytes(self) -> bytes:
        """Return the secret itself; raise ProblemError after ``erase``."""
        secret = bytes(self._bytes)
        self._check()
        return secret

    def erase(self) -> None:
        """Overwrite the key: nothing can be derived from it afterwards (copies made before are not reached)."""
        # First out of reach, then overwritten: a thread that derives meanwhile sees that it came too late.
        secret, self._bytes = self._bytes, bytearray()
        for place in range(len(secret)):
            secret[place] = 0
        with contextlib.suppress(BufferError):  # another thread reads the zeros
            secret.clear()

    @property
    def erased(self) -> bool:
        """Return whether the key is gone."""
        return not self._bytes

    def derive(self, *labels: str) -> bytes:
        """Return HMAC-SHA256(key, labels), 32 bytes; raise ProblemError after ``erase``.

        Every label goes behind its length, so that no two tuples of labels share an encoding.
        """
        secret = self._bytes
        encoded = (label.encode("utf-8", "surrogatepass") for label in labels)
        message = b"".join(len(label).to_bytes(8, "little") + label for label in encoded)
        derived = hmac.digest(secret, message, "sha256")
        self._check()  # afterwards, or the key of another thread's erasure, all zeros, could have been used
        return derived

    def _check(self) -> None:
        if self.erased:
            raise ProblemError("the noise key was erased when the measurements were sealed: no more noise can be drawn")

    def __repr__(self) -> str:
        return "RunKey(erased)" if self.erased else "RunKey(hidden)"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise ProblemError(
            "a run key is not pickled or copied: pass to_bytes() to the worker that needs it, over a private channel"
        )
