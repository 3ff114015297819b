"""Reproducible noise for experiments and the demo: NOT PRIVATE."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import ClassVar

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy.noise import NoiseStream, OpenedStreams, check_scale, check_values, check_variance
from coco_opt.privacy.run_key import RunKey
from coco_opt.privacy.secure import gaussian_stream

_BLOCK = 1 << 14  # two buffers of this many pairs stay in a core's cache


def derived_seed(seed: int, number: int) -> int:
    """Return another seed for each number, from 0 to below 2^63: the noises of different numbers are independent."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)


class SeededNoise:
    """Reproducible noise for experiments and the demo: NOT PRIVATE, because anyone can draw it again.

    Parameters
    ----------
    seed : int
        At least 0. The same seed, measurement and region give the same noise.

    Notes
    -----
    X = floor(s E1) - floor(s E2) with E1 and E2 standard exponential in double precision: floor(s E) is geometric with
    ratio exp(-1 / s). About 17 ns a draw. Each stream is keyed by seed, measurement and region together.

    Examples
    --------
    >>> from coco_opt import SeededNoise
    >>> SeededNoise(7).private
    False
    """

    name: ClassVar[str] = "seeded"
    private: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ProblemError("a seed must be an integer of at least 0")
        self.seed = int(seed)
        self._opened = OpenedStreams()

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        """Open the noise of one region's measurement; raise ProblemError when it was opened before."""
        check_scale(scale)
        self._opened.claim(measurement, region)
        # Lengths go first, so that no two pairs share an encoding.
        encoded = b"".join(
            len(label).to_bytes(8, "little") + label for label in (measurement.encode(), region.encode())
        )
        words = np.frombuffer(hashlib.sha256(encoded).digest(), "<u4").tolist()
        return _SeededStream(float(scale), np.random.default_rng([*words, self.seed]))

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> NoiseStream:
        """Open discrete Gaussian noise by the exact sampler under a key that the seed determines."""
        check_variance(variance)
        self._opened.claim(measurement, region)
        key = RunKey(hashlib.sha256(f"coco-opt seeded {self.seed}".encode()).digest())
        return gaussian_stream(key, variance, measurement, region)

    def __repr__(self) -> str:
        return f"SeededNoise(seed={self.seed}) (NOT PRIVATE)"


class _SeededStream:
    """Pairs of exponentials taken one after the other, so that chunks of any size give one sequence."""

    def __init__(self, scale: float, rng: np.random.Generator) -> None:
        self._scale = scale
        self._rng = rng

    def add_to(self, values: Ints) -> Ints:
        """Return ``values`` with the next ``len(values)`` noises added, as a new array."""
        check_values(values)
        noisy = self.draw(len(values))
        noisy += values
        return noisy

    def draw(self, n: int) -> Ints:
        """Return the next ``n`` noises."""
        noise = np.empty(n, dtype=np.int64)
        block = min(n, _BLOCK)
        exponentials = np.empty(2 * block)
        geometrics = np.empty(2 * block, dtype=np.int64)
        for start in range(0, n, _BLOCK):
            size = min(block, n - start)
            filled, integers = exponentials[: 2 * size], geometrics[: 2 * size]
            self._rng.standard_exponential(out=filled)
            filled *= self._scale
            np.copyto(integers, filled, casting="unsafe")
            np.subtract(integers[0::2], integers[1::2], out=noise[start : start + size])
        return noise
