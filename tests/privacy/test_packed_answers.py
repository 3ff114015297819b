"""Packed answers: what comes back is what was packed, in a byte each where differences are small."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import ProblemError
from coco_opt.privacy.packed_answers import Packed, PackedAnswers

whole = st.one_of(st.integers(-3, 3), st.integers(-200, 200), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(whole, max_size=40), st.integers(0, 60), st.integers(0, 2**30))
def test_what_is_packed_comes_back(values: list[int], flat: int, seed: int) -> None:
    noise = np.random.default_rng(seed).integers(-5, 6, flat)
    given_values = np.array([*values, *noise.tolist()], np.int64)
    packed = Packed.of(given_values)
    np.testing.assert_array_equal(packed.values(), given_values)
    assert packed.count == given_values.size


@pytest.mark.parametrize("spread", [5, 1_000, 10**6, 10**12])
def test_a_difference_takes_the_least_width_that_pays(spread: int) -> None:
    values = np.random.default_rng(1).integers(-spread, spread, 1_000)
    packed = Packed.of(values)
    assert packed.width == {5: 1, 1_000: 2, 10**6: 4, 10**12: 8}[spread]
    np.testing.assert_array_equal(packed.values(), values)
    # A few that do not fit lie aside, and the width stays.
    values[::100] += 10**6 * spread
    assert Packed.of(values).width == packed.width
    np.testing.assert_array_equal(Packed.of(values).values(), values)


def test_the_least_byte_is_no_difference() -> None:
    values = np.cumsum(np.array([-128, 0, 127, -128, -127] * 5))
    np.testing.assert_array_equal(Packed.of(values).values(), values)


def test_parts_that_do_not_fit_together_are_refused() -> None:
    packed = Packed.of(np.array([1, 1000, 2, *[2] * 40]))
    assert len(packed.wide) == 16
    for wrong in ({"count": 42}, {"width": 2}, {"width": 3}, {"wide": packed.wide[:8]}):
        with pytest.raises(ProblemError, match="packed answers"):
            replace(packed, **wrong).values()  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 2**30))
def test_any_range_is_read_across_pieces(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *sizes])
    values = rng.integers(-300, 300, int(starts[-1]))
    pieces = [Packed.of(values[a:b]) for a, b in pairwise(starts.tolist())]
    answers = PackedAnswers(starts, pieces.__getitem__)
    assert answers.size == values.size
    for _ in range(6):
        begin, end = np.sort(rng.integers(0, values.size + 1, 2)).tolist()
        found = answers.read(begin, end)
        np.testing.assert_array_equal(found, values[begin:end])
        assert not found.flags.writeable
