"""Noise sources: discrete Laplace and Gaussian noise, one independent stream for each measured region.

A source gives the stream of a (measurement, region) pair once and never again, because two noisy
answers about one count are averaged into a better one, and the budget has paid for one only.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, cast, get_args

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ConfigError, MissingPackageError, ProblemError

if TYPE_CHECKING:
    from opendp.mod import Measurement as OpenDPMeasurement

Int64 = NDArray[np.int64]
NoiseName = Literal["secure", "opendp", "seeded"]
NOISE_NAMES: tuple[NoiseName, ...] = get_args(NoiseName)

# Noise beyond 64 scales has probability below 1e-27 from either sampler (and cannot occur in the seeded
# one), so that values up to 2**62 plus noise stay inside int64.
MAX_SCALE = Fraction(2**40)
MAX_VALUE = 2**62

_SEEDED_BLOCK = 1 << 14  # two buffers of this many pairs stay in a core's cache
_OPENDP_BLOCK = 100_000  # OpenDP answers with Python integers, about 60 bytes each


class NoiseStream(Protocol):
    """The noise of one (measurement, region): read in order, the same in whatever chunks it is read."""

    def add_to(self, values: Int64) -> Int64:
        """Return ``values`` with the next ``len(values)`` noises added, as a new array."""
        ...

    def draw(self, n: int) -> Int64:
        """Return the next ``n`` noises."""
        ...


class NoiseSource(Protocol):
    """Where noise comes from; whatever a source with ``private`` False touches says NOT PRIVATE."""

    name: ClassVar[str]
    private: ClassVar[bool]

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        """Open the noise of one region's measurement; raise ProblemError when it was opened before."""
        ...


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


def check_values(values: Int64) -> None:
    """Raise ProblemError unless each value is one cell and keeps its integer in int64.

    A second axis would be given one noise a row, whose differences are free of noise; a float would be cut off.
    """
    if values.ndim != 1 or not np.can_cast(values.dtype, np.int64, casting="safe"):
        raise ProblemError("noise is added to a one-dimensional array of integers that fit in int64")


class SeededNoise:
    """Reproducible noise for experiments and the demo: NOT PRIVATE, for anyone can draw it again.

    X = floor(s E1) - floor(s E2) with E1, E2 standard exponential in double precision: floor(s E) is
    geometric with ratio exp(-1/s). About 17 ns a draw. Each stream is keyed by seed, measurement and
    region together.
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
        return _SeededStream(float(scale), np.random.default_rng(_entropy(self.seed, measurement, region)))

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> NoiseStream:
        """Open discrete Gaussian noise by the exact sampler under a key that the seed determines."""
        from coco_opt.privacy.run_key import RunKey
        from coco_opt.privacy.secure import gaussian_stream

        check_variance(variance)
        self._opened.claim(measurement, region)
        key = RunKey(hashlib.sha256(f"coco-opt seeded {self.seed}".encode()).digest())
        return gaussian_stream(key, variance, measurement, region)

    def __repr__(self) -> str:
        return f"SeededNoise(seed={self.seed}) (NOT PRIVATE)"


def _entropy(seed: int, measurement: str, region: str) -> list[int]:
    """Return the words of SeedSequence; lengths go first, so that no two pairs share an encoding."""
    labels = [measurement.encode(), region.encode()]
    encoded = b"".join(len(label).to_bytes(8, "little") + label for label in labels)
    digest = hashlib.sha256(encoded).digest()
    words = [int.from_bytes(digest[at : at + 4], "little") for at in range(0, 32, 4)]
    return [*words, seed]


class _SeededStream:
    """Pairs of exponentials taken one after the other, so that chunks of any size give one sequence."""

    def __init__(self, scale: float, rng: np.random.Generator) -> None:
        self._scale = scale
        self._rng = rng

    def add_to(self, values: Int64) -> Int64:
        """Return ``values`` with the next ``len(values)`` noises added, as a new array."""
        check_values(values)
        noisy = self.draw(len(values))
        noisy += values
        return noisy

    def draw(self, n: int) -> Int64:
        """Return the next ``n`` noises."""
        noise = np.empty(n, dtype=np.int64)
        block = min(n, _SEEDED_BLOCK)
        exponentials = np.empty(2 * block)
        geometrics = np.empty(2 * block, dtype=np.int64)
        for start in range(0, n, _SEEDED_BLOCK):
            size = min(block, n - start)
            filled, whole = exponentials[: 2 * size], geometrics[: 2 * size]
            self._rng.standard_exponential(out=filled)
            filled *= self._scale
            np.copyto(whole, filled, casting="unsafe")
            np.subtract(whole[0::2], whole[1::2], out=noise[start : start + size])
        return noise


class OpenDPNoise:
    """OpenDP's vetted mechanisms on integers: exact, cryptographic, about 8 us a draw (Gaussian 13 us).

    Raises MissingPackageError when the package is absent, before any private data is opened.
    """

    name: ClassVar[str] = "opendp"
    private: ClassVar[bool] = True

    def __init__(self) -> None:
        self._build = _opendp_builder()
        self._opened = OpenedStreams()

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        """Open the noise of one region's measurement; raise ProblemError when it was opened before."""
        check_scale(scale)
        self._opened.claim(measurement, region)
        return _OpenDPStream(self._build("laplace", float_at_least(scale)))

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> NoiseStream:
        """Open discrete Gaussian noise; the deviation is rounded up to a double."""
        check_variance(variance)
        self._opened.claim(measurement, region)
        return _OpenDPStream(self._build("gaussian", float_at_least(root_at_least(variance))))

    def __repr__(self) -> str:
        return "OpenDPNoise()"


class _OpenDPStream:
    """Values passed through the mechanism in blocks, for its answers are lists of Python integers."""

    def __init__(self, mechanism: OpenDPMeasurement) -> None:
        self._mechanism = mechanism

    def add_to(self, values: Int64) -> Int64:
        """Return ``values`` with the next ``len(values)`` noises added, as a new array."""
        check_values(values)
        noisy = np.empty(len(values), dtype=np.int64)
        for start in range(0, len(values), _OPENDP_BLOCK):
            block = values[start : start + _OPENDP_BLOCK].tolist()
            noisy[start : start + len(block)] = cast("Sequence[int]", self._mechanism(block))
        return noisy

    def draw(self, n: int) -> Int64:
        """Return the next ``n`` noises."""
        return self.add_to(np.zeros(n, dtype=np.int64))


def float_at_least(scale: Fraction) -> float:
    """Return the smallest double that is not below ``scale``: rounding may add noise, never remove it."""
    nearest = float(scale)
    return nearest if Fraction(nearest) >= scale else math.nextafter(nearest, math.inf)


def root_at_least(x: Fraction) -> Fraction:
    """Return a fraction of at least the square root of x > 0, too large by less than one part in 2**59."""
    places = max(0, 60 - (x.numerator.bit_length() - x.denominator.bit_length()) // 2)
    below = math.isqrt((x.numerator << 2 * places) // x.denominator)
    return Fraction(below if below * below == x * 4**places else below + 1, 1 << places)


_FEATURES = threading.Lock()


def _opendp_builder() -> Callable[[Literal["laplace", "gaussian"], float], OpenDPMeasurement]:
    """Import OpenDP and return a builder of its vector mechanisms on integers."""
    try:
        from opendp import mod
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_gaussian, make_laplace
        from opendp.metrics import l1_distance, l2_distance
    except ImportError:
        raise MissingPackageError("opendp", "private noise", "opendp") from None

    def build(law: Literal["laplace", "gaussian"], scale: float) -> OpenDPMeasurement:
        # The feature flags are global to the process: leave them as the caller had them.
        with _FEATURES:
            enabled = "contrib" in mod.GLOBAL_FEATURES
            mod.enable_features("contrib")
            try:
                domain = vector_domain(atom_domain(T="i64"))
                if law == "gaussian":
                    return make_gaussian(domain, l2_distance(T="i64"), scale)
                return make_laplace(domain, l1_distance(T="i64"), scale)
            finally:
                if not enabled:
                    mod.disable_features("contrib")

    return build


def resolve_noise(name: str, seed: int | None = None) -> NoiseSource:
    """Return the source a config names: "secure", "opendp" or "seeded".

    Raises ConfigError for an unknown name, a seed where noise must not be repeatable, or "seeded"
    without one; MissingPackageError when the source's package is absent.
    """
    if name == "seeded":
        if seed is None:
            raise ConfigError("privacy.seed", 'noise = "seeded" needs a seed, an integer of at least 0')
        return SeededNoise(seed)
    if name not in NOISE_NAMES:
        raise ConfigError("privacy.noise", f"unknown noise {name!r}: use one of {', '.join(NOISE_NAMES)}")
    if seed is not None:
        raise ConfigError("privacy.seed", f'noise = "{name}" takes no seed: repeatable noise is not private')
    if name == "opendp":
        return OpenDPNoise()
    from coco_opt.privacy.secure import SecureNoise

    return SecureNoise()
