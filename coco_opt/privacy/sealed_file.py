"""A sealed file: public parameters and noisy values, private to its owner, and checked byte by byte when read again.

Layout: a line naming the format, the length of a JSON header (8 bytes, little-endian), the header, int64 arrays
(little-endian), and the SHA-256 of all that. The same content gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import InputError, Place
from coco_opt.privacy.private_files import Chunk, write_private

Int64 = NDArray[np.int64]
SealedT = TypeVar("SealedT")

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Sealing(Generic[SealedT]):
    """How measurements of one kind are written to a sealed file, which returns its digest, and read back with it."""

    seal: Callable[[SealedT, Path], str]
    unseal: Callable[[Path, str | None], tuple[SealedT, str]]


class Reader:
    """Integers taken one array after the other; copies, for the header leaves them unaligned in the file's bytes."""

    def __init__(self, body: memoryview, at: int) -> None:
        self._body, self._at = body, at

    def take(self, count: int) -> Int64:
        """Return the next ``count`` integers."""
        taken = np.frombuffer(self._body, dtype="<i8", count=count, offset=self._at)
        self._at += taken.nbytes
        return taken.astype(np.int64)


def write_sealed(path: Path, name: str, header: Mapping[str, Any], arrays: Iterable[Int64]) -> str:
    """Write a new file of mode 0600, durably, and return its digest (hexadecimal SHA-256).

    ``name`` is the format's, on one line. O(values) time; memory of the header beside them. Raises InputError
    (file-exists, cannot-write).
    """
    digest = hashlib.sha256()

    def hashed() -> Iterator[Chunk]:
        for chunk in _content(name, header, arrays):
            digest.update(chunk)
            yield chunk
        yield digest.digest()

    write_private(path, hashed())
    return digest.hexdigest()


def read_sealed(path: Path, name: str, digest: str | None = None) -> tuple[dict[str, Any], Reader, str]:
    """Return the header, the arrays and the digest of a sealed file; the file is closed again.

    Raises InputError: file-not-found, unreadable-file, damaged-seal (its bytes are not those that were written, or
    not those of ``digest``).
    """
    content = _read(path)
    body, stored = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    found = hashlib.sha256(body).hexdigest()
    magic = _magic(name)
    sound = found == stored.hex() and body[: len(magic)] == magic
    if not sound or (digest is not None and digest != found):
        raise InputError("damaged-seal", "is not the sealed file that was written: restore it", Place(path.name))
    start = len(magic) + 8
    stop = start + int.from_bytes(body[len(magic) : start], "little")
    return json.loads(bytes(body[start:stop])), Reader(body, stop), found


def _content(name: str, header: Mapping[str, Any], arrays: Iterable[Int64]) -> Iterator[Chunk]:
    text = json.dumps(dict(header), sort_keys=True).encode()
    yield _magic(name)
    yield len(text).to_bytes(8, "little")
    yield text
    for array in arrays:
        yield array.astype("<i8", copy=False).tobytes()


def _magic(name: str) -> bytes:
    return f"{name}\n".encode()


def _read(path: Path) -> memoryview:
    reason = ""
    try:
        return memoryview(path.read_bytes())
    except FileNotFoundError:
        raise InputError("file-not-found", "the sealed measurements are missing", Place(path.name)) from None
    except OSError as error:
        reason = error.strerror or "unknown reason"
    raise InputError("unreadable-file", f"cannot be read: {reason}", Place(path.name))
