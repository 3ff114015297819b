"""Noise sources: discrete Laplace and Gaussian noise, one independent stream for each measured region.

A source gives the stream of a (measurement, region) pair once and never again, because two noisy
answers about one count are averaged into a better answer, and the budget has paid for a single answer.
"""

from __future__ import annotations

import math
import threading
from fractions import Fraction
from typing import ClassVar, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError

NoiseName = Literal["secure", "opendp", "seeded"]
NOISE_NAMES: tuple[NoiseName, ...] = get_args(NoiseName)

# Noise beyond 64 scales has probability below 1e-27 from either sampler (and cannot occur in the seeded
# one), so that values up to 2**62 plus noise stay inside int64.
MAX_SCALE = Fraction(2**40)
MAX_VALUE = 2**62


class NoiseStream(Protocol):
    """The noise of one (measurement, region): read in order, the same in whatever chunks it is read."""

    def add_to(self, values: Ints) -> Ints:
        """Return ``values`` with the next ``len(values)`` noises added, as a new array."""
        ...

    def draw(self, n: int) -> Ints:
        """Return the next ``n`` noises."""
        ...


class NoiseSource(Protocol):
    """Where noise comes from; whatever a source with ``private`` False touches says NOT PRIVATE."""

    name: ClassVar[str]
    private: ClassVar[bool]

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        """Open the noise of one region's measurement; raise ProblemError when it was opened before."""
        ...


@runtime_checkable
class GaussianSource(NoiseSource, Protocol):
    """A source that also gives discrete Gaussian noise."""

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> NoiseStream:
        """Open noise P(k) ~ exp(-k^2 / (2 variance)); raises as ``stream`` does."""
        ...


class OpenedStreams:
    """Remember which streams were handed out (thread-safe)."""

    def __init__(self) -> None:
        self._keys: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def claim(self, measurement: str, region: str) -> None:
        """Mark a stream as taken; raise ProblemError when it already was."""
        with self._lock:
            if (measurement, region) in self._keys:
                raise ProblemError(
                    f"the noise of {measurement!r} in region {region!r} was already drawn: a second noisy "
                    "answer would spend the budget again; keep and reuse the first measurement"
                )
            self._keys.add((measurement, region))


def check_scale(scale: Fraction) -> None:
    """Raise ProblemError unless 0 < scale <= 2**40, which keeps counts plus noise inside int64."""
    if not 0 < scale <= MAX_SCALE:
        raise ProblemError("the noise scale must be above 0 and at most 2**40: choose a larger epsilon")


def check_variance(variance: Fraction) -> None:
    """Raise ProblemError unless 0 < variance <= 2**80, the square of the largest scale."""
    if not 0 < variance <= MAX_SCALE**2:
        raise ProblemError("the noise variance must be above 0 and at most 2**80: choose a larger budget")


def check_values(values: Ints) -> None:
    """Raise ProblemError unless each value is one cell and keeps its integer in int64.

    A second axis would be given one noise a row, whose differences are free of noise; a float would be cut off.
    """
    if values.ndim != 1 or not np.can_cast(values.dtype, np.int64, casting="safe"):
        raise ProblemError("noise is added to a one-dimensional array of integers that fit in int64")


def float_at_least(scale: Fraction) -> float:
    """Return the smallest double that is not below ``scale``: rounding may add noise, never remove it."""
    nearest = float(scale)
    return nearest if Fraction(nearest) >= scale else math.nextafter(nearest, math.inf)


def root_at_least(x: Fraction) -> Fraction:
    """Return a fraction of at least the square root of x > 0, too large by less than one part in 2**59."""
    places = max(0, 60 - (x.numerator.bit_length() - x.denominator.bit_length()) // 2)
    below = math.isqrt((x.numerator << 2 * places) // x.denominator)
    return Fraction(below if below * below == x * 4**places else below + 1, 1 << places)
