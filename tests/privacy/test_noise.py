"""Noise has the declared law, each region its own stream, and no stream is handed out twice."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.array_types import Ints
from coco_opt.errors import ConfigError, MissingPackageError, ProblemError
from coco_opt.privacy import OpenDPNoise, SecureNoise, SeededNoise, resolve_noise
from coco_opt.privacy.noise import MAX_SCALE, GaussianSource, NoiseSource, float_at_least, root_at_least
from tests.privacy.test_referees import LEAST, matrix


def draws(source: NoiseSource, scale: Fraction, n: int, region: str = "r") -> Ints:
    return source.stream(scale, measurement="m", region=region).draw(n)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(10), Fraction(100)])
def test_seeded_noise_is_double_geometric(scale: Fraction) -> None:
    assert min(matrix(draws(SeededNoise(1), scale, 400_000), "laplace", float(scale)).values()) > LEAST


@given(st.integers(0, 2**70), st.lists(st.integers(0, 40_000), max_size=5))
def test_seeded_chunks_give_the_noise_of_one_draw(seed: int, chunks: list[int]) -> None:
    stream = SeededNoise(seed).stream(Fraction(5), measurement="m", region="r")
    pieces = [stream.draw(size) for size in chunks]
    whole = draws(SeededNoise(seed), Fraction(5), sum(chunks))
    np.testing.assert_array_equal(np.concatenate([np.empty(0, np.int64), *pieces]), whole)


def test_adding_and_drawing_use_the_same_noise_and_leave_the_values_alone() -> None:
    values = np.arange(1000)
    noisy = SeededNoise(3).stream(Fraction(5), measurement="m", region="r").add_to(values)
    np.testing.assert_array_equal(noisy - values, draws(SeededNoise(3), Fraction(5), 1000))
    np.testing.assert_array_equal(values, np.arange(1000))
    assert noisy.dtype == np.int64


def test_no_two_streams_are_equal_or_correlated() -> None:
    # Labels that a careless concatenation would confuse are among them.
    labels = [("m", f"us/{i}") for i in range(40)] + [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")]
    labels += [("cumulative", "us"), ("rank", "us")]
    noises = [
        SeededNoise(seed).stream(Fraction(10), measurement=measurement, region=region).draw(2000)
        for seed in (0, 1, 2**32, 2**32 + 1)
        for measurement, region in labels
    ]
    assert len({noise.tobytes() for noise in noises}) == len(noises)
    correlation = np.corrcoef(np.array(noises))
    assert np.abs(correlation - np.eye(len(noises))).max() < 6 / math.sqrt(2000)


@pytest.mark.parametrize("make", [lambda: SeededNoise(1), OpenDPNoise, SecureNoise], ids=["seeded", "opendp", "secure"])
def test_a_stream_is_handed_out_once(make: Callable[[], GaussianSource]) -> None:
    source = make()
    source.stream(Fraction(1), measurement="m", region="r")
    source.stream(Fraction(1), measurement="m", region="s")
    source.stream(Fraction(1), measurement="n", region="r")
    with pytest.raises(ProblemError, match="already drawn"):
        source.stream(Fraction(2), measurement="m", region="r")
    with pytest.raises(ProblemError, match="already drawn"):
        source.gaussian_stream(Fraction(2), measurement="m", region="r")


@pytest.mark.parametrize("make", [lambda: SeededNoise(1), OpenDPNoise, SecureNoise], ids=["seeded", "opendp", "secure"])
@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), MAX_SCALE + 1])
def test_scales_out_of_range_are_refused(make: Callable[[], GaussianSource], scale: Fraction) -> None:
    with pytest.raises(ProblemError, match="noise scale"):
        make().stream(scale, measurement="m", region="r")
    variance = scale * abs(scale) if scale else scale
    with pytest.raises(ProblemError, match="noise variance"):
        make().gaussian_stream(variance, measurement="m", region="r")


def test_opendp_noise_is_double_geometric_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coco_opt.privacy.opendp._BLOCK", 3000)
    noise = draws(OpenDPNoise(), Fraction(7, 2), 20_000)
    assert noise.dtype == np.int64
    assert min(matrix(noise, "laplace", 3.5).values()) > LEAST


def test_opendp_never_repeats_itself() -> None:
    first, second = (draws(OpenDPNoise(), Fraction(10), 500) for _ in range(2))
    assert not np.array_equal(first, second)


def test_opendp_adds_to_the_values_it_is_given() -> None:
    values = np.array([-(10**12), 0, 5, 2**61], dtype=np.int64)
    noisy = OpenDPNoise().stream(Fraction(2), measurement="m", region="r").add_to(values)
    assert np.abs(noisy - values).max() < 200
    assert len(draws(OpenDPNoise(), Fraction(2), 0)) == 0


@pytest.mark.parametrize("make", [lambda: SeededNoise(1), OpenDPNoise, SecureNoise], ids=["seeded", "opendp", "secure"])
@pytest.mark.parametrize(
    "values", [np.ones((2, 2), np.int64), np.ones(2), np.ones(2, np.uint64), np.array(1)], ids=["2d", "f8", "u8", "0d"]
)
def test_only_integers_one_a_cell_are_given_noise(make: Callable[[], NoiseSource], values: Ints) -> None:
    stream = make().stream(Fraction(10), measurement="m", region="r")
    with pytest.raises(ProblemError, match="one-dimensional"):
        stream.add_to(values)
    assert len(stream.add_to(np.arange(3, dtype=np.int32))) == 3


def test_opendp_feature_flags_stay_as_they_were() -> None:
    from opendp.mod import GLOBAL_FEATURES, disable_features, enable_features

    before = set(GLOBAL_FEATURES)
    try:
        disable_features("contrib")
        draws(OpenDPNoise(), Fraction(1), 1)
        assert "contrib" not in GLOBAL_FEATURES
        enable_features("contrib")
        draws(OpenDPNoise(), Fraction(1), 1)
        assert "contrib" in GLOBAL_FEATURES
    finally:
        GLOBAL_FEATURES.clear()
        GLOBAL_FEATURES.update(before)


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=MAX_SCALE))
def test_a_scale_is_rounded_up_only_and_by_one_step_at_most(scale: Fraction) -> None:
    rounded = float_at_least(scale)
    assert Fraction(math.nextafter(rounded, 0.0)) < scale <= Fraction(rounded)


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=MAX_SCALE**2))
def test_a_root_is_rounded_up_only(variance: Fraction) -> None:
    root = root_at_least(variance)
    assert variance <= root**2 < variance * (1 + Fraction(1, 2**57))
    assert root_at_least(variance**2) == variance or variance.denominator > 1


def test_seeded_and_opendp_gaussian_noise_is_that_of_the_variance_asked_for() -> None:
    for source, n in ((SeededNoise(5), 400_000), (OpenDPNoise(), 4_000)):
        noise = source.gaussian_stream(Fraction(100), measurement="m", region="g").draw(n)
        assert noise.dtype == np.int64
        assert min(matrix(noise, "gaussian", 10.0).values()) > LEAST
    again = [SeededNoise(6).gaussian_stream(Fraction(9), measurement="m", region="r").draw(50) for _ in range(2)]
    np.testing.assert_array_equal(again[0], again[1])


def test_opendp_promises_at_most_the_epsilon_of_the_scale() -> None:
    stream = OpenDPNoise().stream(Fraction(10, 3), measurement="m", region="r")
    promised = stream._mechanism.map(1)  # type: ignore[attr-defined]
    assert Fraction(promised) <= Fraction(3, 10) * (1 + Fraction(1, 2**52))


@pytest.mark.parametrize("amount", [Fraction(10, 3), Fraction(1, 3), Fraction(7, 3), Fraction(1, 10)])
def test_opendp_is_asked_for_no_less_noise_than_is_stated(amount: Fraction) -> None:
    """Where the nearest float lies below, too."""
    requested: dict[str, float] = {}
    source = OpenDPNoise()
    build = source._build
    source._build = lambda distribution, scale: build(distribution, requested.setdefault(distribution, scale))
    source.stream(amount, measurement="m", region="laplace")
    source.gaussian_stream(amount, measurement="m", region="gaussian")
    assert Fraction(requested["laplace"]) >= amount
    assert Fraction(requested["gaussian"]) ** 2 >= amount
    assert Fraction(float(Fraction(1, 3))) < Fraction(1, 3)


def test_names_resolve_to_sources() -> None:
    assert isinstance(resolve_noise("secure"), SecureNoise)
    assert isinstance(resolve_noise("opendp"), OpenDPNoise)
    seeded = resolve_noise("seeded", 0)
    assert isinstance(seeded, SeededNoise)
    assert (seeded.private, resolve_noise("secure").private) == (False, True)
    assert "NOT PRIVATE" in repr(seeded)


@pytest.mark.parametrize(("name", "seed"), [("secure", 1), ("opendp", 0), ("seeded", None), ("sceure", None)])
def test_wrong_names_and_seeds_are_refused(name: str, seed: int | None) -> None:
    with pytest.raises(ConfigError):
        resolve_noise(name, seed)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "1"])
def test_seeds_are_integers(seed: int) -> None:
    with pytest.raises(ProblemError, match="seed"):
        SeededNoise(seed)


def test_without_opendp_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp", None)
    monkeypatch.setitem(sys.modules, "opendp.domains", None)
    with pytest.raises(MissingPackageError, match=r"coco-opt\[opendp\]"):
        resolve_noise("opendp")
    assert resolve_noise("secure").private
