"""Questions: buckets by rule and by edges, and their sensitivity by brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from coco_opt.errors import ProblemError
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.observations import (
    Answers,
    Ranks,
    Survey,
    code_of,
    compiled_queries,
    residuals,
)
from coco_opt.privacy import DiscreteGaussian, Geometric, NoiseDistribution
from tests.posterior import tiny

NOISE = Geometric(Fraction(1))


@pytest.mark.parametrize("growth", [0.0, 0.05, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("max_size", [1, 2, 17, 900])
def test_growth_covers_every_cell_once(max_size: int, growth: float) -> None:
    buckets = Buckets.by_growth(max_size, growth)
    width = buckets.end - buckets.begin
    assert buckets.begin[0] == 0
    assert buckets.end[-1] == max_size
    assert (buckets.begin[1:] == buckets.end[:-1]).all()
    assert (width[:-1] == np.maximum(1, (growth * buckets.begin[:-1]).astype(np.int64))).all()
    assert buckets.of_cells(max_size) == (width.max() == 1)


def test_sums_are_sums() -> None:
    buckets = Buckets.from_edges([1, 2, 5])
    assert buckets.sums([[1, 2, 3, 4, 5, 6]]).tolist() == [[2, 12]]


@pytest.mark.parametrize(
    ("begin", "end"), [([0, 1], [2, 3]), ([0], [0]), ([-1], [2]), ([], []), ([2, 0], [3, 1]), ([0, 1], [1])]
)
def test_buckets_that_share_cells_are_refused(begin: list[int], end: list[int]) -> None:
    with pytest.raises(ProblemError):
        Buckets(np.array(begin, np.int64), np.array(end, np.int64))


@pytest.mark.parametrize("level_query", [Buckets.cells(3), Buckets.from_edges([0, 2, 3]), Ranks(), Ranks(2)])
def test_residuals_equal_first_principles(level_query: Buckets | Ranks) -> None:
    groups = np.array([3])
    values = np.array([1, -2, 5])[: 3 if isinstance(level_query, Ranks) else level_query.begin.size]
    survey = Survey(np.array([-1]), groups, 3, [Answers(0, level_query, values, NOISE)])
    for state in tiny.states(survey):
        table = tiny.table_of(survey, state)
        residual, _ = residuals(survey, table.__getitem__)
        np.testing.assert_array_equal(residual, tiny.truth(survey.answers[0], table[0], 3) - values)


@pytest.mark.parametrize("distribution", [Geometric(Fraction(7, 3)), DiscreteGaussian(Fraction(7, 3))], ids=str)
def test_the_steepness_of_a_law_is_that_of_its_likelihood(distribution: NoiseDistribution) -> None:
    code, steepness = code_of(distribution)
    noise = np.arange(-9, 10)
    growth = np.abs(noise) if code == 0 else noise * noise
    np.testing.assert_allclose(-steepness * growth, distribution.log_weight(noise), rtol=1e-14)


def test_paths_list_the_answers_of_a_leaf_and_its_ancestors() -> None:
    parent, groups = np.array([-1, 0, 0, 1]), np.array([4, 3, 1, 3])
    cells = Buckets.cells(2)
    values = np.zeros(2, np.int64)
    found = [Answers(region, cells, values, NOISE) for region in (0, 3, 1, 0)]
    queries = compiled_queries(Survey(parent, groups, 2, found))
    starts, path = queries.path_start.tolist(), queries.path.tolist()
    assert [sorted(path[a:b]) for a, b in pairwise(starts)] == [[0, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize(
    "change",
    [
        {"parent": np.array([0, 0])},
        {"parent": np.array([-1, 1])},
        {"groups": np.array([3, 2])},
        {"groups": np.array([3])},
        {"max_size": 0},
        {"answers": [Answers(2, Ranks(), np.zeros(3, np.int64), NOISE)]},
        {"answers": [Answers(1, Ranks(), np.zeros(2, np.int64), NOISE)]},
        {"answers": [Answers(1, Buckets.cells(3), np.zeros(3, np.int64), NOISE)]},
        {"answers": [Answers(1, Buckets.cells(2), np.zeros(2), NOISE)]},
    ],
)
def test_surveys_that_cannot_be_are_refused(change: dict[str, object]) -> None:
    right: dict[str, object] = {
        "parent": np.array([-1, 0]),
        "groups": np.array([3, 3]),
        "max_size": 2,
        "answers": [Answers(1, Ranks(), np.zeros(3, np.int64), NOISE)],
    }
    Survey(**right)  # type: ignore[arg-type]
    with pytest.raises(ProblemError):
        Survey(**(right | change))  # type: ignore[arg-type]
