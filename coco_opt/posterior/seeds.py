"""Seeds of chains, from noisy answers alone and independent of the noise's key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def answers_seed(label: str, pieces: Iterable[bytes]) -> int:
    """Return a seed of 128 bits from noisy answers and their plans; ``label`` names the kind."""
    code = hashlib.sha256(label.encode())
    for piece in pieces:
        code.update(piece)
    return int.from_bytes(code.digest()[:16], "big")


def chain_words(seed: int, chains: int, *kind: int) -> list[np.uint64]:
    """Return the first word of each chain's generator; kinds that share a seed state numbers of their own."""
    return [np.random.SeedSequence([seed, *kind, n]).generate_state(1, np.uint64)[0] for n in range(chains)]
