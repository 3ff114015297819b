"""Outside referees of the noise: OpenDP's matrix of sampler tests on our laws and on its own, DP Auditorium."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi2, norm

from coco_opt.array_types import Ints
from coco_opt.privacy import OpenDPNoise, RunKey, SecureNoise

Name = Literal["laplace", "gaussian"]
DISTRIBUTIONS: tuple[Name, ...] = ("laplace", "gaussian")
SCALES = [Fraction(1, 2), Fraction(1), Fraction(10), Fraction(100), Fraction(1000), Fraction(10**6)]
DRAWS = 1_000_000
LEAST = 1e-6  # a p-value below it is no chance
_EXACT = 2000  # scales up to it are summed, wider ones integrated, which differs by less than 1e-8


class Exactly:
    """The law's tail and moments, from its definition."""

    def __init__(self, distribution: Name, scale: float) -> None:
        self.distribution, self.scale = distribution, scale
        last = int((45 if distribution == "laplace" else 12) * scale) + 3 if scale <= _EXACT else 0
        k = np.arange(last, dtype=float)
        weights = np.exp(-k / scale if distribution == "laplace" else -k * k / (2 * scale * scale))
        whole = 2 * float(weights.sum()) - 1.0
        self._tail = np.append(np.cumsum(weights[::-1])[::-1], 0.0) / whole if last else np.zeros(1)
        if last:
            self.second, self.fourth = (2 * float((weights * k**p).sum()) / whole for p in (2, 4))
        else:
            self.second, self.fourth = (
                (2 * scale**2, 24 * scale**4) if distribution == "laplace" else (scale**2, 3 * scale**4)
            )

    def tail(self, x: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return P(X >= x) for x >= 1."""
        if self.scale <= _EXACT:
            return np.asarray(self._tail[np.minimum(x, self._tail.size - 1)])
        if self.distribution == "laplace":
            a = math.exp(-1 / self.scale)
            return np.asarray(a**x / (1 + a))
        return np.asarray(norm.sf((x - 0.5) / self.scale))


def wilson(seen: int, draws: int, probability: float) -> float:
    """Return the p-value at whose level a Wilson interval just holds a chance: the score test's."""
    deviation = math.sqrt(max(probability * (1 - probability) / draws, 1e-300))
    return float(2 * norm.sf(abs(seen / draws - probability) / deviation))


def matrix(noise: Ints, distribution: Name, scale: float) -> dict[str, float]:
    """Return p-values by test: how far draws are from the law of this scale."""
    n, exact = noise.size, Exactly(distribution, scale)
    width = max(1, int(scale) // 4)
    edges = 1 + width * np.arange(200)
    tails = exact.tail(edges)
    edges = edges[tails > 100 / n]
    tails = tails[tails > 100 / n]
    # Cells: the middle, what lies between edges, and what is beyond, on both sides.
    inner = np.append(tails[:-1] - tails[1:], tails[-1])
    sides = [np.histogram(sign * noise, np.append(edges, 2**62))[0] for sign in (1, -1)]
    zero = int(np.count_nonzero(noise == 0))
    seen = np.concatenate([*sides, [zero]])
    probabilities = np.concatenate([inner, inner, [1 - 2 * tails[0]]])
    found = {"chi-square": float(chi2.sf(((seen - n * probabilities) ** 2 / (n * probabilities)).sum(), seen.size - 1))}
    found["Wilson"] = min(wilson(int(a), n, float(b)) for a, b in zip(seen, probabilities, strict=True)) * seen.size
    above, below = (int(np.count_nonzero(sign * noise > 0)) for sign in (1, -1))
    found["symmetry"] = float(2 * binom.sf(max(above, below) - 1, above + below, 0.5))
    one, two = sides[0] + sides[1], 2 * inner
    ratios = np.log(one[:-1] / one[1:]) - np.log(two[:-1] / two[1:])
    spread = np.sqrt(1 / (n * two[:-1]) + 1 / (n * two[1:]))
    found["log-ratios"] = float(2 * norm.sf(np.abs(ratios / spread).max()) * ratios.size) if ratios.size else 1.0
    far = [math.ceil(times * scale) + 1 for times in (1, 3, 5, 8, 12)]
    beyond = [(int(np.count_nonzero(np.abs(noise) >= x)), 2 * float(exact.tail(np.array([x]))[0])) for x in far]
    found["tails"] = min(2 * min(binom.cdf(k, n, p), binom.sf(k - 1, n, p)) for k, p in beyond) * len(far)
    values = noise.astype(float)
    mean = float(2 * norm.sf(abs(values.mean()) / math.sqrt(exact.second / n)))
    error = math.sqrt((exact.fourth - exact.second**2) / n)
    square = float(2 * norm.sf(abs((values * values).mean() - exact.second) / error))
    found["moments"] = 2 * min(mean, square)
    largest = int(np.abs(noise).max())
    over, at = (2 * float(exact.tail(np.array([largest + one]))[0]) for one in (1, 0))
    found["extremes"] = 2 * min(math.exp(n * math.log1p(-min(over, 0.999))), -math.expm1(n * math.log1p(-at)))
    return found


def ours(distribution: Name, scale: Fraction, draws: int = DRAWS, key: int = 0) -> Ints:
    source, names = SecureNoise(RunKey(bytes([key] * 32))), {"measurement": "matrix", "region": "all"}
    stream = source.stream(scale, **names) if distribution == "laplace" else source.gaussian_stream(scale**2, **names)
    return stream.draw(draws)


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_our_samplers_pass_the_matrix(distribution: Name, scale: Fraction) -> None:
    found = matrix(ours(distribution, scale), distribution, float(scale))
    assert set(found) == {"chi-square", "Wilson", "symmetry", "log-ratios", "tails", "moments", "extremes"}
    assert min(found.values()) > LEAST, found


def double_zero(noise: Ints) -> Ints:
    """Return signs and magnitudes drawn apart: zero is twice as likely as the law says."""
    rng = np.random.default_rng(3)
    return np.where(rng.random(noise.size) < 0.05, 0, noise)


PLANTED: dict[str, tuple[Callable[[Ints], Ints], set[str]]] = {
    "one per cent too narrow": (lambda noise: ours("laplace", Fraction(99, 10)), {"moments"}),
    "shifted by one": (lambda noise: noise + 1, {"chi-square", "symmetry", "moments"}),
    "zero too often": (double_zero, {"chi-square", "Wilson"}),
    "even numbers only": (lambda noise: noise // 2 * 2, {"chi-square", "symmetry"}),
    "cut off at eight scales": (lambda noise: np.clip(noise, -80, 80), {"tails", "extremes"}),
    "one draw for all": (lambda noise: np.full_like(noise, noise[0]), {"chi-square", "extremes"}),
    "of continuous noise": (
        lambda noise: np.floor(np.random.default_rng(4).laplace(0, 10, noise.size)).astype(np.int64),
        {"symmetry", "moments"},
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_samplers_fail_the_matrix(fault: str) -> None:
    planted, noticed = PLANTED[fault]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = matrix(planted(ours("laplace", Fraction(10))), "laplace", 10.0)
    assert {name for name, p in found.items() if p < LEAST} >= noticed, found


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_matrix_takes_opendps_own_draws(distribution: Name) -> None:
    pytest.importorskip("opendp")
    names = {"measurement": "matrix", "region": "all"}
    source = OpenDPNoise()
    stream = (
        source.stream(Fraction(10), **names)
        if distribution == "laplace"
        else source.gaussian_stream(Fraction(100), **names)
    )
    # Its draws cannot be repeated: one run in some hundred thousand fails by chance.
    assert min(matrix(stream.draw(60_000), distribution, 10.0).values()) > LEAST
