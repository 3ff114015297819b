"""Fair bits as a function of (run key, stream labels, cell): the same in any chunks, threads, processes, restarts.

Nothing is carried from one call to the next, so a fork has nothing to clone: the counter of every cipher block
is computed from the cell it serves.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.privacy.run_key import RunKey

UInt16 = NDArray[np.uint16]
UInt64 = NDArray[np.uint64]

_BLOCK = 16  # bytes of an AES block
_ZEROS = bytes(1 << 15)  # in the innermost cache
_DOMAIN = "coco-opt noise 1"

LOTS = 255  # the symbol number under which retries find their 16-bit words


class BitSource(Protocol):
    """Independent fair bits, addressed by cell; tests put chosen bits in their place."""

    def words(self, start: int, cells: int, width: int) -> UInt16:
        """Return ``width`` 16-bit words for each of ``cells`` cells from ``start`` on, uint16[cells, width].

        The array may be overwritten by the next call.
        """
        ...

    def more(self, cells: Ints, attempt: int, symbols: range, part: int = 0) -> UInt64:
        """Return 128 further bits of each symbol of each cell, uint64[cells, symbols, 2].

        ``attempt`` counts the rejections of the cell, ``part`` the blocks of 128 bits already used.
        """
        ...


class KeyedBits:
    """AES-256-CTR under HMAC-SHA256(run key, labels): words at byte 2 width cell, further bits under a second key.

    The further bits of (cell, attempt, symbol, part) are the AES block of that 128-bit counter.
    Open a stream for a call and let it go: it holds derived keys. Not to be shared by threads.
    """

    def __init__(self, key: RunKey, *labels: str) -> None:
        self._key = key
        self._labels = labels
        self._words_key = key.derive(_DOMAIN, "words", *labels)
        self._stream: CipherContext | None = None
        self._position = -1
        self._buffer = np.empty(0, dtype=np.uint8)
        self._blocks: CipherContext | None = None

    def words(self, start: int, cells: int, width: int) -> UInt16:
        """Return ``width`` 16-bit words a cell, uint16[cells, width], from byte 2 width start of the stream."""
        first = 2 * width * start
        size = 2 * width * cells
        stream, skipped = self._open_at(first)
        if len(self._buffer) < skipped + size + _BLOCK:
            self._buffer = np.empty(skipped + size + _BLOCK, dtype=np.uint8)
        for offset in range(0, skipped + size, len(_ZEROS)):
            stream.update_into(memoryview(_ZEROS)[: skipped + size - offset], self._buffer.data[offset:])
        self._position = first + size
        return self._buffer[skipped : skipped + size].view("<u2").reshape(cells, width)

    def _open_at(self, byte: int) -> tuple[CipherContext, int]:
        """Return the word cipher and how many of its next bytes come before ``byte``."""
        if self._stream is not None and byte == self._position:
            return self._stream, 0
        counter = (byte // _BLOCK).to_bytes(_BLOCK, "big")
        self._stream = Cipher(algorithms.AES256(self._words_key), modes.CTR(counter)).encryptor()
        return self._stream, byte % _BLOCK

    def more(self, cells: Ints, attempt: int, symbols: range, part: int = 0) -> UInt64:
        """Return 128 further bits of each symbol of each cell, uint64[cells, symbols, 2]."""
        if self._blocks is None:
            # Distinct counters through the bare block cipher: counter mode at any places, one call for all.
            more_key = self._key.derive(_DOMAIN, "more", *self._labels)
            self._blocks = Cipher(algorithms.AES256(more_key), modes.ECB()).encryptor()
        counters = np.empty((len(cells), len(symbols), 2), dtype="<u8")
        counters[:, :, 0] = cells[:, None]
        counters[:, :, 1] = [(attempt << 32) + (symbol << 24) + part for symbol in symbols]
        return np.frombuffer(self._blocks.update(counters.tobytes()), dtype="<u8").reshape(counters.shape)
