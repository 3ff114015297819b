"""OpenDP's vetted mechanisms as a noise source, for those who want that library's noise, and as a referee in tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal, cast

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import MissingPackageError
from coco_opt.privacy.noise import (
    NoiseStream,
    OpenedStreams,
    check_scale,
    check_values,
    check_variance,
    float_at_least,
    root_at_least,
)

if TYPE_CHECKING:
    from opendp.mod import Measurement as OpenDPMeasurement


_BLOCK = 100_000  # OpenDP answers with Python integers, about 60 bytes each


class OpenDPNoise:
    """OpenDP's vetted mechanisms on integers: exact and cryptographic, about 8 us a draw (Gaussian 13 us).

    Raises
    ------
    MissingPackageError
        The package ``opendp`` is not installed; raised before any private data are opened.
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

    def add_to(self, values: Ints) -> Ints:
        """Return ``values`` with the next ``len(values)`` noises added, as a new array."""
        check_values(values)
        noisy = np.empty(len(values), dtype=np.int64)
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK].tolist()
            noisy[start : start + len(block)] = cast("Sequence[int]", self._mechanism(block))
        return noisy

    def draw(self, n: int) -> Ints:
        """Return the next ``n`` noises."""
        return self.add_to(np.zeros(n, dtype=np.int64))


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

    def build(distribution: Literal["laplace", "gaussian"], scale: float) -> OpenDPMeasurement:
        # The feature flags are global to the process: leave them as the caller had them.
        with _FEATURES:
            enabled = "contrib" in mod.GLOBAL_FEATURES
            mod.enable_features("contrib")
            try:
                domain = vector_domain(atom_domain(T="i64"))
                if distribution == "gaussian":
                    return make_gaussian(domain, l2_distance(T="i64"), scale)
                return make_laplace(domain, l1_distance(T="i64"), scale)
            finally:
                if not enabled:
                    mod.disable_features("contrib")

    return build
