"""Ranks of very many groups are asked, kept and fitted piece by piece: the same bits as all at once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import coco_opt.groups.noisy_measurements
import coco_opt.groups.queries
import coco_opt.privacy.queries
from coco_opt import CountOfCounts, Epsilon, SeededNoise, SolverChoices
from coco_opt.groups import RegionMeasurement
from coco_opt.groups.estimating.estimators import FitOptions, estimate
from coco_opt.groups.queries import exact_answers, rank_pieces
from tests.groups.helpers import answer

TOWN = CountOfCounts(np.array([0, 1, 2, 9, 40]), np.array([3, 400, 120, 77, 1]))
LARGEST = 30


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat a hundred answers as very many."""
    monkeypatch.setattr(coco_opt.groups.noisy_measurements, "DENSE", 100)
    monkeypatch.setattr(coco_opt.groups.noisy_measurements, "_PIECE", 7)
    monkeypatch.setattr(coco_opt.groups.queries, "_PIECE", 11)
    monkeypatch.setattr(coco_opt.privacy.queries, "DENSE", 100)
    monkeypatch.setattr(coco_opt.privacy.queries, "_LARGEST_PIECE", 64)


def measured() -> RegionMeasurement:
    return answer(TOWN, "ranks", SeededNoise(3), Epsilon(Fraction(1, 2)), max_size=LARGEST)


@pytest.mark.parametrize("histogram", [TOWN, CountOfCounts.empty(), CountOfCounts(np.array([5]), np.array([22]))])
def test_pieces_are_the_ranks_in_order(histogram: CountOfCounts, in_pieces: None) -> None:
    pieces = list(rank_pieces(histogram, LARGEST))
    assert np.concatenate(pieces).tolist() == exact_answers(histogram, "ranks", LARGEST).tolist()
    assert all(piece.size == 11 for piece in pieces[:-1])


def test_streamed_ranks_have_the_same_bits(request: pytest.FixtureRequest) -> None:
    in_memory = measured()
    assert not in_memory.large
    fits = {loss: estimate(in_memory, FitOptions(loss=loss), SolverChoices()) for loss in ("l1", "l2")}  # type: ignore[arg-type]
    request.getfixturevalue("in_pieces")
    streamed = measured()
    assert streamed.large
    assert not isinstance(streamed.stored, np.ndarray)
    assert max(piece.size for _, piece in streamed.pieces()) == 7
    assert streamed.values.tolist() == in_memory.values.tolist()
    for loss, expected in fits.items():
        result = estimate(streamed, FitOptions(loss=loss), SolverChoices())  # type: ignore[arg-type]
        for name in ("sizes", "counts", "variances"):
            assert getattr(result, name).tolist() == getattr(expected, name).tolist()
