"""The exact, cryptographic noise source: noise is a function of key, distribution, measurement, region and cell."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy.noise import OpenedStreams, check_scale, check_values, check_variance
from coco_opt.privacy.run_key import RunKey

if TYPE_CHECKING:
    from coco_opt.privacy.table_sampler import Sampler


class SecureNoise:
    """Exact noise from AES-256-CTR, the distribution's own to the last bit: about 3 ns a draw at scale 10.

    A run draws one key and opens one source with it. Who restores the key draws the same noise for the same
    distribution, measurement, region and cell, whatever the chunks, threads, processes or restarts; without it nothing
    repeats. ``key.erase()`` ends all drawing once the measurements are sealed.
    """

    name: ClassVar[str] = "secure"
    private: ClassVar[bool] = True

    def __init__(self, key: RunKey | None = None) -> None:
        self.key = RunKey.generate() if key is None else key
        self._opened = OpenedStreams()

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> CellStream:
        """Open discrete Laplace noise, P(k) ~ exp(-|k| / scale).

        Raises ProblemError where the scale is out of range or the region's measurement was opened before.
        """
        check_scale(scale)
        self._opened.claim(measurement, region)
        return laplace_stream(self.key, scale, measurement, region)

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> CellStream:
        """Open discrete Gaussian noise, P(k) ~ exp(-k^2 / (2 variance)); raises as ``stream`` does."""
        check_variance(variance)
        self._opened.claim(measurement, region)
        return gaussian_stream(self.key, variance, measurement, region)

    def __repr__(self) -> str:
        return f"SecureNoise({self.key!r})"


class CellStream:
    """The noise of one (measurement, region), read in order or at any cell; safe to share between threads.

    A fork would clone the place reached and two workers would put one noise on different values, so a worker
    names its first cell; without ``start`` it is refused.
    """

    def __init__(self, key: RunKey, labels: tuple[str, ...], sampler: Callable[[], Sampler]) -> None:
        self._key = key
        self._labels = labels
        self._sampler = sampler
        self._position = 0
        self._process = os.getpid()
        self._lock = threading.Lock()

    def add_to(self, values: Ints, start: int | None = None) -> Ints:
        """Return int64 ``values`` with the next ``len(values)`` noises added, as a new array.

        With ``start``, the noises of the cells from there on, and the position stays. Raises ProblemError once
        the key is erased, and for values that are not one-dimensional int64.
        """
        check_values(values)
        noisy = np.array(values, dtype=np.int64, order="C")
        self._add(noisy, start)
        return noisy

    def draw(self, n: int, start: int | None = None) -> Ints:
        """Return the next ``n`` noises or, with ``start``, those of the cells from there on."""
        noise = np.zeros(n, dtype=np.int64)
        self._add(noise, start)
        return noise

    def _add(self, out: Ints, start: int | None) -> None:
        from coco_opt.privacy.keyed_stream import KeyedBits

        bits = KeyedBits(self._key, *self._labels)
        if start is not None and not 0 <= start < 2**56:
            raise ProblemError("the first cell must be at least 0 and below 2**56")
        self._sampler().add(out, self._advance(len(out)) if start is None else start, bits)

    def _advance(self, cells: int) -> int:
        if os.getpid() != self._process:
            raise ProblemError("a forked worker names the first cell (start): its copy of the place reached is stale")
        with self._lock:
            start = self._position
            self._position += cells
        return start


def laplace_stream(key: RunKey, scale: Fraction, measurement: str, region: str) -> CellStream:
    """Return the discrete Laplace noise of a region's measurement under a key, opened before or not."""
    from coco_opt.privacy.table_sampler import laplace_sampler

    labels = ("laplace", str(scale), measurement, region)
    return CellStream(key, labels, lambda: laplace_sampler(scale))


def gaussian_stream(key: RunKey, variance: Fraction, measurement: str, region: str) -> CellStream:
    """Return the discrete Gaussian noise of a region's measurement under a key, opened before or not."""
    from coco_opt.privacy.gaussian_sampler import gaussian_sampler

    labels = ("gaussian", str(variance), measurement, region)
    return CellStream(key, labels, lambda: gaussian_sampler(variance))
