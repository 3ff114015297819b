"""Measurements of groups: right shapes and scales, own noise in each region, very many ranks piece by piece."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import coco_opt.groups.measuring.measure
import coco_opt.groups.noisy_measurements
import coco_opt.groups.queries
import coco_opt.privacy.queries
from coco_opt import CountOfCounts, Epsilon, Hierarchy, SeededNoise, SolverChoices
from coco_opt.array_types import Ints
from coco_opt.errors import InputError, ProblemError
from coco_opt.groups import QUERIES, GroupsMeasurements, Query, RegionMeasurement, measure_hierarchy
from coco_opt.groups.estimating.estimators import FitOptions, estimate
from coco_opt.groups.queries import exact_answers, rank_pieces
from coco_opt.privacy import Cost, Measurement, OpenDPNoise, Rho
from tests.groups.helpers import NoNoise, answer, costs, measured

HISTOGRAM = CountOfCounts.from_runs([0, 1, 3, 9], [2, 4, 1, 3])  # 10 groups, one in three above K = 5


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("sizes", [2, 4, 0, 1, 0, 3]),
        ("cumulative", [2, 6, 6, 7, 7]),
        ("ranks", [0, 0, 1, 1, 1, 1, 3, 5, 5, 5]),
    ],
)
def test_without_noise_the_values_are_the_clamped_query(query: Query, values: list[int]) -> None:
    result = answer(HISTOGRAM, query, NoNoise(), max_size=5)
    assert result.values.tolist() == values
    assert (result.groups, result.max_size, result.region) == (10, 5, "n")


@pytest.mark.parametrize(("neighbours", "factor"), [("add_remove", 1), ("replace", 2)])
def test_scales_follow_sensitivity_and_budget(neighbours: str, factor: int) -> None:
    source = NoNoise()
    for query in QUERIES:
        result = answer(HISTOGRAM, query, source, Epsilon(Fraction(1, 3)), neighbours=neighbours, max_size=5)
        assert result.distribution.parameter == factor * (6 if query == "sizes" else 3)
    assert [opened[1:] for opened in source.opened] == [(query, "n") for query in QUERIES]
    rho = answer(HISTOGRAM, "sizes", NoNoise(), Rho(Fraction(1, 6)), neighbours=neighbours, max_size=5)
    assert rho.distribution.parameter == (6 if factor == 1 else 18)


@pytest.mark.parametrize("query", QUERIES)
def test_values_are_the_query_plus_the_stream_of_that_region(query: Query) -> None:
    result = answer(HISTOGRAM, query, SeededNoise(4), Epsilon(Fraction(1, 10)), max_size=5)
    truth = answer(HISTOGRAM, query, NoNoise(), max_size=5).values
    noise = SeededNoise(4).stream(result.distribution.parameter, measurement=query, region="n").draw(len(truth))
    np.testing.assert_array_equal(result.values, truth + noise)
    assert np.any(noise != 0)


# --- a hierarchy ----------------------------------------------------------------------------------------

HIERARCHY = Hierarchy.from_paths([("us", "ny", "a"), ("us", "ny", "b"), ("us", "pa", "c"), ("us", "pa", "d")])


def sample() -> tuple[list[CountOfCounts], Ints]:
    """Four equal leaves and their sums: equal regions must still get different noise."""
    leaf = CountOfCounts.from_runs([1, 2, 4], [30, 10, 2])
    leaves = [leaf] * 4
    middle = [CountOfCounts.total([leaf, leaf])] * 2
    histograms = [CountOfCounts.total(leaves), *middle, *leaves]
    return histograms, np.array([histogram.groups for histogram in histograms])


def whole(source: Any, queries: str | Sequence[str] = "cumulative", **more: Any) -> Measurement:
    return measured(HIERARCHY, sample()[0], queries, max_size=200, source=source, **more)


def test_every_region_is_measured_in_order_with_its_levels_budget() -> None:
    done: list[tuple[int, int]] = []
    epsilons: list[Cost] = costs([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)])
    queries = ("ranks", "cumulative", "sizes")
    noisy = whole(SeededNoise(1), costs=epsilons, queries=queries, progress=lambda *step: done.append(step))
    answers = GroupsMeasurements(noisy)
    assert [answer.region for answer in answers if answer is not None] == list(HIERARCHY.paths)
    assert [answers[region].query for region in (0, 1, 6)] == list(queries)
    assert [level_query.cost for level_query in noisy.measurement_plan.queries] == epsilons
    assert answers.table(1).shape == (2, 200)
    assert noisy.cost == Epsilon(Fraction(1))
    assert len(done) == 7
    assert done[-1] == (168 + 2 * 200 + 4 * 201,) * 2


@pytest.mark.parametrize("query", QUERIES)
def test_no_two_regions_get_equal_noise(query: Query) -> None:
    for source in (SeededNoise(0), OpenDPNoise()):
        noisy = GroupsMeasurements(whole(source, queries=(query,) * 3, costs=costs([Fraction(1, 100)] * 3)))
        truth = GroupsMeasurements(whole(NoNoise(), queries=(query,) * 3))
        noises = [noisy[region].values - truth[region].values for region in range(7)]
        shortest = min(map(len, noises))
        assert len({noise[:shortest].tobytes() for noise in noises}) == 7


def test_a_level_without_budget_is_not_measured() -> None:
    source = NoNoise()
    noisy = whole(source, costs=costs([None, 0, 1]))
    answers = GroupsMeasurements(noisy)
    assert answers.measured_levels == (2,)
    assert noisy.cost == Epsilon(Fraction(1))
    assert list(answers)[:3] == [None] * 3
    assert [region for _, _, region in source.opened] == list(HIERARCHY.paths[3:])
    for read in (lambda: answers[0], lambda: answers.table(1), lambda: answers.distribution(0)):
        with pytest.raises(ProblemError, match="not measured"):
            read()
    assert answers.weights("l2").tolist() == [0.0] * 3 + [answers.distribution(2).square_weight] * 4


def test_all_is_checked_before_the_first_noise() -> None:
    histograms, counts = sample()
    lying = counts.copy()
    lying[6] += 1
    source = NoNoise()
    settings: dict[str, Any] = {
        "queries": ("sizes",) * 3,
        "costs": costs([1, 1, 1]),
        "max_size": 5,
        "neighbours": "add_remove",
        "source": source,
    }
    with pytest.raises(InputError, match="us/pa/d") as caught:
        measure_hierarchy(histograms, HIERARCHY, lying, **settings)
    assert caught.value.code == "group-count-mismatch"
    assert "42" not in str(caught.value)
    with pytest.raises(ProblemError, match="7 regions"):
        measure_hierarchy(histograms[:6], HIERARCHY, counts, **settings)
    wrong: list[dict[str, Any]] = [
        {"queries": ("sizes",) * 2},
        {"queries": ("sizes", "sizes", "Hc")},
        {"costs": costs([1, 1])},
        {"costs": costs([None] * 3)},
        {"costs": [*costs([1, 1]), Rho(Fraction(1))]},
        {"costs": costs([1, 1, Fraction(1, 2**50)])},
        {"max_size": 0},
        {"neighbours": "swap"},
        {"queries": ("ranks",) * 3, "max_size": 2**60},
    ]
    for change in wrong:
        with pytest.raises(ProblemError):
            measure_hierarchy(histograms, HIERARCHY, counts, **{**settings, **change})
    with pytest.raises(ProblemError, match="none negative"):
        measure_hierarchy(histograms, HIERARCHY, -counts, **settings)
    with pytest.raises(ProblemError, match="64 bits"):
        measure_hierarchy(histograms, HIERARCHY, counts + 2**62, **settings)
    assert source.opened == []


def test_reprs_show_public_facts_only() -> None:
    secret = CountOfCounts.from_runs([31337], [10])
    result = answer(secret, "sizes", NoNoise(), max_size=40_000)
    noisy = whole(SeededNoise(1))
    for shown in (repr(result), repr(noisy), repr(GroupsMeasurements(noisy))):
        assert "31337" not in shown
        assert "values" not in shown
    assert "NOT PRIVATE" in repr(noisy)
    assert "NOT PRIVATE" not in repr(whole(OpenDPNoise()))


def test_nothing_but_noisy_values_depends_on_private_data() -> None:
    """Two different databases with the same public facts."""
    histograms, counts = sample()
    neighbours = [CountOfCounts.from_runs([0, 150], [histogram.groups - 1, 1]) for histogram in histograms]
    settings: dict[str, Any] = {
        "queries": ("sizes", "cumulative", "ranks"),
        "costs": costs([1, 1, 1]),
        "max_size": 200,
        "neighbours": "replace",
    }
    left = measure_hierarchy(histograms, HIERARCHY, counts, source=SeededNoise(1), **settings)
    right = measure_hierarchy(neighbours, HIERARCHY, counts, source=SeededNoise(1), **settings)
    assert repr(left) == repr(right)
    assert left.measurement_plan.digest == right.measurement_plan.digest
    assert all(a.values.shape == b.values.shape for a, b in zip(left.answers, right.answers, strict=True))


def test_a_measurement_of_another_kind_is_refused() -> None:
    noisy = whole(SeededNoise(1))
    other = replace(noisy, measurement_plan=replace(noisy.measurement_plan, kind="tables"))
    with pytest.raises(ProblemError, match="not of groups"):
        GroupsMeasurements(other)


def test_no_float_stands_between_counts_and_noisy_values() -> None:
    for module in (coco_opt.groups.measuring.measure, coco_opt.groups.queries, coco_opt.privacy.queries):
        tree = ast.parse(inspect.getsource(module))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        numbers = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, float)]
        divisions = [node for node in ast.walk(tree) if isinstance(node, ast.Div)]
        assert "float" not in names
        assert not numbers
        assert not divisions


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


def ranks_of_town() -> RegionMeasurement:
    return answer(TOWN, "ranks", SeededNoise(3), Epsilon(Fraction(1, 2)), max_size=LARGEST)


@pytest.mark.parametrize("histogram", [TOWN, CountOfCounts.empty(), CountOfCounts(np.array([5]), np.array([22]))])
def test_pieces_are_the_ranks_in_order(histogram: CountOfCounts, in_pieces: None) -> None:
    pieces = list(rank_pieces(histogram, LARGEST))
    assert np.concatenate(pieces).tolist() == exact_answers(histogram, "ranks", LARGEST).tolist()
    assert all(piece.size == 11 for piece in pieces[:-1])


def test_streamed_ranks_have_the_same_bits(request: pytest.FixtureRequest) -> None:
    in_memory = ranks_of_town()
    assert not in_memory.large
    fits = {loss: estimate(in_memory, FitOptions(loss=loss), SolverChoices()) for loss in ("l1", "l2")}  # type: ignore[arg-type]
    request.getfixturevalue("in_pieces")
    streamed = ranks_of_town()
    assert streamed.large
    assert not isinstance(streamed.stored, np.ndarray)
    assert max(piece.size for _, piece in streamed.pieces()) == 7
    assert streamed.values.tolist() == in_memory.values.tolist()
    for loss, expected in fits.items():
        result = estimate(streamed, FitOptions(loss=loss), SolverChoices())  # type: ignore[arg-type]
        for name in ("sizes", "counts", "variances"):
            assert getattr(result, name).tolist() == getattr(expected, name).tolist()
