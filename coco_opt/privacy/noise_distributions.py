"""Noise distributions as values: how wide the noise is, how likely an error is, and how a source draws it.

``Geometric``: P(k) ~ exp(-|k| / scale), charged in pure epsilon. ``DiscreteGaussian``: P(k) ~ exp(-k^2 / (2 variance)),
charged in rho (zCDP), described by a variance because its deviation need not be a fraction.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.errors import InputError, ProblemError
from coco_opt.privacy.budget import stated_fraction, with_decimal
from coco_opt.privacy.noise import GaussianSource, NoiseSource, NoiseStream, check_scale, check_variance, root_at_least

LEAST_VARIANCE = 1e-12  # a weight 1 / variance stays finite however large the budget
_CONTINUOUS = 10.0  # above it, integer and continuous Gaussian variances differ by less than 1e-80


class NoiseDistribution(ABC):
    """The distribution of integer noise, symmetric about 0; immutable.

    ``name`` and ``parameter_name`` are how files spell it; ``parameter`` is exact. Raises ProblemError for noise so
    wide that counts plus noise may leave int64.
    """

    name: ClassVar[str]
    parameter_name: ClassVar[str]

    @property
    @abstractmethod
    def parameter(self) -> Fraction:
        """Return the one number that describes the distribution."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Return the exact variance of the integer noise, at least 1e-12: what least squares weighs by."""

    @property
    @abstractmethod
    def nominal_variance(self) -> float:
        """Return the variance of the continuous distribution of the same parameter, which the paper's formulas use."""

    @property
    @abstractmethod
    def mean_absolute(self) -> float:
        """Return the mean absolute value of the continuous distribution of the same parameter."""

    @property
    @abstractmethod
    def absolute_weight(self) -> float:
        """Return the weight of |x - y| next to other answers: 1 / scale, maximum likelihood for geometric noise."""

    @property
    @abstractmethod
    def spread(self) -> Fraction:
        """Return a width such that noise beyond 64 of them has probability below 1e-27."""

    @abstractmethod
    def log_weight(self, noise: NDArray[Any]) -> Floats:
        """Return log P(noise) up to a constant, elementwise."""

    @abstractmethod
    def opened(self, source: NoiseSource, *, measurement: str, region: str) -> NoiseStream:
        """Open this noise of a source for one region's measurement; ProblemError when it was opened before."""

    def available_from(self, source: NoiseSource) -> bool:
        """Return whether a source can draw this noise."""
        return True

    @property
    def square_weight(self) -> float:
        """Return the weight of (x - y)^2 next to other answers, 1 / variance."""
        return 1.0 / self.variance

    def as_dict(self) -> dict[str, str]:
        """Return plain values for files, read back by ``distribution_of``."""
        return {"law": self.name, self.parameter_name: str(self.parameter)}

    def __str__(self) -> str:
        return f"{self.name.replace('_', ' ')} noise of {self.parameter_name} {with_decimal(self.parameter)}"


@dataclass(frozen=True)
class Geometric(NoiseDistribution):
    """Double-geometric (discrete Laplace) noise P(k) ~ exp(-|k| / scale).

    Parameters
    ----------
    scale : Fraction
        The width in entities, or in the unit of the count; sensitivity / epsilon.

    Raises
    ------
    ProblemError
        The noise is so wide that counts plus noise may leave 64 bits.

    Notes
    -----
    Charged in pure epsilon. ``variance`` is exact for integer noise; ``nominal_variance`` is 2 scale^2, as in Kuo et
    al. 2018, section 5.1.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import Geometric
    >>> round(Geometric(Fraction(2)).variance, 2)
    7.84
    """

    scale: Fraction

    name = "geometric"
    parameter_name = "scale"

    def __post_init__(self) -> None:
        check_scale(self.scale)

    @property
    def parameter(self) -> Fraction:
        """Return the scale."""
        return self.scale

    @cached_property
    def variance(self) -> float:
        """Return 2 a / (1 - a)^2 with a = exp(-1 / scale), as 1 / (2 sinh(1 / (2 scale))^2)."""
        return max(LEAST_VARIANCE, geometric_variance(float(self.scale)))

    @property
    def nominal_variance(self) -> float:
        """Return 2 scale^2, that of Laplace noise (Kuo et al. 2018, section 5.1)."""
        # Rounded in this order, not once at the end: estimates of equal data stay equal to the last bit.
        return 2.0 * float(self.scale) ** 2

    @property
    def mean_absolute(self) -> float:
        """Return the scale."""
        return float(self.scale)

    @property
    def absolute_weight(self) -> float:
        """Return 1 / scale: the likelihood is exp(-|x - y| / scale)."""
        return float(1 / self.scale)

    @property
    def spread(self) -> Fraction:
        """Return the scale."""
        return self.scale

    def log_weight(self, noise: NDArray[Any]) -> Floats:
        """Return -|noise| / scale."""
        return np.asarray(-np.abs(noise) / float(self.scale), dtype=np.float64)

    def opened(self, source: NoiseSource, *, measurement: str, region: str) -> NoiseStream:
        """Open discrete Laplace noise."""
        return source.stream(self.scale, measurement=measurement, region=region)


@dataclass(frozen=True)
class DiscreteGaussian(NoiseDistribution):
    """Discrete Gaussian noise P(k) ~ exp(-k^2 / (2 squared_deviation)).

    Parameters
    ----------
    squared_deviation : Fraction
        The parameter sigma^2, in squared units of the count; squared L2 sensitivity / (2 rho). The variance of the
        integer noise is a little below it where it is small.

    Raises
    ------
    ProblemError
        The noise is so wide that counts plus noise may leave 64 bits.

    Notes
    -----
    Charged in rho. Source: Canonne, Kamath and Steinke 2020.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import DiscreteGaussian
    >>> round(DiscreteGaussian(Fraction(4)).variance, 3)
    4.0
    """

    squared_deviation: Fraction

    name = "discrete_gaussian"
    parameter_name = "variance"

    def __post_init__(self) -> None:
        check_variance(self.squared_deviation)

    @property
    def parameter(self) -> Fraction:
        """Return sigma^2."""
        return self.squared_deviation

    @cached_property
    def variance(self) -> float:
        """Return the exact variance: a little below sigma^2, by less than one part in 1e80 from 10 on."""
        squared = float(self.squared_deviation)
        if squared >= _CONTINUOUS:
            return squared
        outcomes = range(1, 2 + int(40 * math.sqrt(squared)))
        masses = [(k * k, math.exp(-k * k / (2 * squared))) for k in outcomes]
        moment = math.fsum(2 * square * mass for square, mass in masses)
        return max(LEAST_VARIANCE, moment / (1.0 + math.fsum(2 * mass for _, mass in masses)))

    @property
    def nominal_variance(self) -> float:
        """Return sigma^2."""
        return float(self.squared_deviation)

    @property
    def mean_absolute(self) -> float:
        """Return sigma sqrt(2 / pi)."""
        return math.sqrt(2.0 / math.pi * float(self.squared_deviation))

    @property
    def absolute_weight(self) -> float:
        """Return 1 / scale of the geometric noise of the same variance, sqrt(2 / sigma^2)."""
        return math.sqrt(2.0 / float(self.squared_deviation))

    @property
    def spread(self) -> Fraction:
        """Return an upper bound on sigma."""
        return root_at_least(self.squared_deviation)

    def log_weight(self, noise: NDArray[Any]) -> Floats:
        """Return -noise^2 / (2 sigma^2)."""
        values = np.asarray(noise, dtype=np.float64)
        return np.asarray(-values * values / (2.0 * float(self.squared_deviation)), dtype=np.float64)

    def available_from(self, source: NoiseSource) -> bool:
        """Return whether the source has discrete Gaussian noise."""
        return isinstance(source, GaussianSource)

    def opened(self, source: NoiseSource, *, measurement: str, region: str) -> NoiseStream:
        """Open discrete Gaussian noise; ProblemError where the source draws none."""
        if not isinstance(source, GaussianSource):
            raise ProblemError(f"noise {source.name!r} draws no discrete Gaussian: use another source")
        return source.gaussian_stream(self.squared_deviation, measurement=measurement, region=region)


DISTRIBUTIONS: Mapping[str, type[Geometric] | type[DiscreteGaussian]] = {
    distribution.name: distribution for distribution in (Geometric, DiscreteGaussian)
}


def distribution_of(plain: Mapping[str, Any]) -> NoiseDistribution:
    """Return the distribution that ``as_dict`` wrote; raise InputError (unknown-law) for anything else."""
    kind = DISTRIBUTIONS.get(str(plain.get("law")))
    if kind is None:
        raise InputError("unknown-law", f"the noise distribution {plain.get('law')!r} is not known to this version")
    parameter = stated_fraction(plain.get(kind.parameter_name))
    if parameter is None:
        raise InputError("unknown-law", f"{kind.name} noise needs its {kind.parameter_name} as a fraction in a string")
    return kind(parameter)


def geometric_variance(scale: float) -> float:
    """Return the variance of integer noise P(k) ~ exp(-|k| / scale): 1 / (2 sinh(1 / (2 scale))^2)."""
    half = 0.5 / scale
    return 0.0 if half > 350 else 0.5 / math.sinh(half) ** 2
