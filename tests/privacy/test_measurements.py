"""Sealed measurements: right shapes and scales, exact values, own noise in each region, nothing private."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import coco_opt.privacy
from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import QUERIES, Loss, Measurement, Measurements, OpenDPNoise, SeededNoise, measure
from coco_opt.privacy.budget import Query
from coco_opt.privacy.measurement import rank_chunks
from coco_opt.privacy.measurements import measure_hierarchy
from coco_opt.privacy.noise import NoiseSource, NoiseStream

Int64 = NDArray[np.int64]
ONE = Fraction(1)
HISTOGRAM = CountOfCounts.from_runs([0, 1, 3, 9], [2, 4, 1, 3])  # 10 groups, one in three above K = 5
SETTINGS: dict[str, Any] = {"region": "us/ny", "groups": 10, "max_size": 5, "neighbours": "add_remove"}


class SilentNoise:
    """Adds nothing and records what was asked: shows what a measurement does around the noise."""

    name: ClassVar[str] = "silent"
    private: ClassVar[bool] = False

    def __init__(self) -> None:
        self.asked: list[tuple[Fraction, str, str]] = []

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        self.asked.append((scale, measurement, region))
        return self

    def add_to(self, values: Int64) -> Int64:
        assert values.dtype == np.int64
        return values.copy()

    def draw(self, n: int) -> Int64:
        return np.zeros(n, dtype=np.int64)


def one(query: Query, source: NoiseSource, epsilon: Fraction = ONE, loss: Loss = "l1", **more: Any) -> Measurement:
    histogram = more.pop("histogram", HISTOGRAM)
    return measure(histogram, query, epsilon=epsilon, source=source, loss=loss, **{**SETTINGS, **more})


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("naive", [2, 4, 0, 1, 0, 3]),
        ("cumulative", [2, 6, 6, 7, 7]),
        ("rank", [0, 0, 1, 1, 1, 1, 3, 5, 5, 5]),
    ],
)
def test_without_noise_the_values_are_the_clamped_query(query: Query, values: list[int]) -> None:
    measurement = one(query, SilentNoise())
    assert measurement.values.tolist() == values
    assert measurement.values.dtype == np.int64
    assert not measurement.pooled


@pytest.mark.parametrize(("neighbours", "factor"), [("add_remove", 1), ("replace", 2)])
def test_scales_follow_sensitivity_and_budget(neighbours: str, factor: int) -> None:
    source = SilentNoise()
    for query in QUERIES:
        measurement = one(query, source, Fraction(1, 3), neighbours=neighbours)
        assert measurement.scale == factor * (6 if query == "naive" else 3)
    assert source.asked == [
        (factor * Fraction(6), "naive", "us/ny"),
        (factor * Fraction(3), "cumulative", "us/ny"),
        (factor * Fraction(3), "rank", "us/ny"),
    ]


@pytest.mark.parametrize("query", QUERIES)
def test_values_are_the_query_plus_the_stream_of_that_region(query: Query) -> None:
    measurement = one(query, SeededNoise(4), Fraction(1, 10))
    truth = one(query, SilentNoise()).values
    noise = SeededNoise(4).stream(measurement.scale, measurement=query, region="us/ny").draw(len(truth))
    np.testing.assert_array_equal(measurement.values, truth + noise)
    assert np.any(noise != 0)


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 70))
def test_rank_chunks_are_the_ranks(sizes: list[int], chunk: int) -> None:
    chunks = list(rank_chunks(CountOfCounts.from_ranks(sizes), chunk))
    assert [size for ranks in chunks for size in ranks.tolist()] == sorted(sizes)
    assert all(len(ranks) == chunk for ranks in chunks[:-1])


def exact_blocks(values: Sequence[int]) -> list[tuple[int, int]]:
    """Pool adjacent violators, equal means included, on exact (sum, length) blocks."""
    blocks: list[tuple[int, int]] = []
    for value in values:
        total, length = int(value), 1
        while blocks and blocks[-1][0] * length >= total * blocks[-1][1]:
            total, length = total + blocks[-1][0], length + blocks[-1][1]
            blocks.pop()
        blocks.append((total, length))
    return blocks


@pytest.mark.parametrize("chunk", [1, 7, 1000, 1 << 20])
def test_pooling_while_drawing_equals_pooling_the_raw_answer(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coco_opt.privacy.measurement._CHUNK", chunk)
    histogram = CountOfCounts.from_runs([0, 1, 2, 3, 7, 50], [200, 700, 500, 90, 30, 3])
    settings: dict[str, Any] = {"histogram": histogram, "groups": 1523, "max_size": 20, "loss": "l2"}
    raw = one("rank", SeededNoise(8), Fraction(1, 5), raw_limit=1523, **settings)
    pooled = one("rank", SeededNoise(8), Fraction(1, 5), raw_limit=1522, **settings)
    assert len(raw.values) == 1523
    assert pooled.lengths is not None
    blocks = list(zip(pooled.values.tolist(), pooled.lengths.tolist(), strict=True))
    assert blocks == exact_blocks(raw.values.tolist())
    assert 1 < len(blocks) < 200


def test_only_squared_loss_is_pooled() -> None:
    assert one("rank", SeededNoise(1), loss="l2", raw_limit=9).pooled
    assert not one("rank", SeededNoise(1), loss="l1", raw_limit=9).pooled
    assert not one("cumulative", SeededNoise(1), loss="l2", raw_limit=9).pooled


@pytest.mark.parametrize("query", QUERIES)
def test_a_region_without_groups_is_measured_like_any_other(query: Query) -> None:
    measurement = one(query, SeededNoise(1), histogram=CountOfCounts.empty(), groups=0, raw_limit=0, loss="l2")
    assert len(measurement.values) == {"naive": 6, "cumulative": 5, "rank": 0}[query]


def test_a_wrong_number_of_groups_is_refused_without_the_true_one() -> None:
    source = SilentNoise()
    with pytest.raises(InputError, match="us/ny") as caught:
        one("naive", source, groups=7)
    assert caught.value.code == "group-count-mismatch"
    assert "10" not in str(caught.value)
    assert source.asked == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_size": 0},
        {"groups": -1},
        {"epsilon": Fraction(0)},
        {"epsilon": Fraction(1, 2**50)},
        {"loss": "l3"},
        {"query": "Hc"},
        {"neighbours": "swap"},
        {"query": "rank", "max_size": 2**60},
        {"query": "naive", "groups": 2**62 + 1},
    ],
)
def test_parameters_out_of_range_are_refused_before_any_noise(wrong: dict[str, Any]) -> None:
    source = SilentNoise()
    with pytest.raises(ProblemError):
        one(**{"query": "cumulative", "source": source, **wrong})
    assert source.asked == []


def test_measuring_twice_from_one_source_is_refused() -> None:
    source = SeededNoise(1)
    one("naive", source)
    one("cumulative", source)
    with pytest.raises(ProblemError, match="already drawn"):
        one("naive", source, Fraction(2))


def test_a_measurement_cannot_be_changed_even_after_pickling() -> None:
    measurement = one("naive", SeededNoise(1))
    copy = pickle.loads(pickle.dumps(measurement))
    np.testing.assert_array_equal(copy.values, measurement.values)
    assert (copy.scale, copy.region, copy.private) == (measurement.scale, "us/ny", False)
    for sealed in (measurement, copy):
        with pytest.raises(ValueError, match="read-only"):
            sealed.values[0] = 1


@pytest.mark.parametrize(
    ("query", "values", "lengths"),
    [
        ("naive", [1] * 5, None),
        ("cumulative", [1] * 6, None),
        ("rank", [1] * 9, None),
        ("rank", [1, 2], [4, 5]),
        ("rank", [1, 2], [10, 0]),
        ("naive", [1] * 6, [1] * 6),
    ],
)
def test_arrays_of_the_wrong_shape_are_refused(query: Query, values: list[int], lengths: list[int] | None) -> None:
    facts = ("us", 10, 5, ONE, ONE, "add_remove", "seeded")
    arrays = {"values": np.array(values), "lengths": None if lengths is None else np.array(lengths)}
    with pytest.raises(ProblemError, match="shape"):
        Measurement(query, *facts, private=False, **arrays)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="int64"):
        Measurement(query, *facts, private=False, values=np.zeros(6))  # type: ignore[arg-type]


def test_repr_shows_public_facts_only() -> None:
    secret = CountOfCounts.from_runs([31337], [10])
    shown = repr(one("naive", SilentNoise(), histogram=secret, max_size=40_000))
    assert "31337" not in shown
    assert "values" not in shown
    assert "NOT PRIVATE" in shown
    assert "NOT PRIVATE" not in repr(one("naive", OpenDPNoise()))


# --- a hierarchy ----------------------------------------------------------------------------------------

HIERARCHY = Hierarchy.from_paths([("us", "ny", "a"), ("us", "ny", "b"), ("us", "pa", "c"), ("us", "pa", "d")])


def sample() -> tuple[list[CountOfCounts], Int64]:
    """Four equal leaves and their sums: equal regions must still get different noise."""
    leaf = CountOfCounts.from_runs([1, 2, 4], [30, 10, 2])
    leaves = [leaf] * 4
    middle = [CountOfCounts.total([leaf, leaf])] * 2
    histograms = [CountOfCounts.total(leaves), *middle, *leaves]
    return histograms, np.array([histogram.groups for histogram in histograms])


def whole(source: NoiseSource, **more: Any) -> Measurements:
    histograms, counts = sample()
    settings: dict[str, Any] = {
        "queries": ("cumulative",) * 3,
        "losses": ("l1",) * 3,
        "epsilons": (Fraction(1, 3),) * 3,
        "max_size": 200,
        "neighbours": "add_remove",
        "source": source,
    }
    return measure_hierarchy(histograms, HIERARCHY, counts, **{**settings, **more})


def test_every_region_is_measured_in_order_with_its_levels_budget() -> None:
    done: list[tuple[int, int]] = []
    epsilons = (Fraction(1, 2), Fraction(1, 3), Fraction(1, 6))
    queries = ("rank", "cumulative", "naive")
    sealed = whole(SeededNoise(1), epsilons=epsilons, queries=queries, progress=lambda *step: done.append(step))
    assert [answer.region for answer in sealed if answer is not None] == list(HIERARCHY.paths)
    assert [sealed[region].query for region in (0, 1, 6)] == list(queries)
    assert [sealed[region].epsilon for region in (0, 1, 6)] == list(epsilons)
    assert [len(sealed.level(level)) for level in range(3)] == [1, 2, 4]
    assert sealed.epsilon_spent == 1
    assert done == [(step, 7) for step in range(1, 8)]


@pytest.mark.parametrize("query", QUERIES)
def test_no_two_regions_get_equal_noise(query: Query) -> None:
    for source in (SeededNoise(0), OpenDPNoise()):
        sealed = whole(source, queries=(query,) * 3, epsilons=(Fraction(1, 100),) * 3)
        truth = whole(SilentNoise(), queries=(query,) * 3)
        noises = [sealed[region].values - truth[region].values for region in range(7)]
        shortest = min(map(len, noises))
        assert len({noise[:shortest].tobytes() for noise in noises}) == 7


def test_one_seed_gives_one_release_and_another_seed_another() -> None:
    first, again, other = (whole(SeededNoise(seed)) for seed in (1, 1, 2))
    same = [np.array_equal(first[region].values, again[region].values) for region in range(7)]
    differ = [np.array_equal(first[region].values, other[region].values) for region in range(7)]
    assert all(same)
    assert not any(differ)


@pytest.mark.parametrize("none", [None, Fraction(0)])
def test_a_level_without_budget_is_not_measured(none: Fraction | None) -> None:
    source = SilentNoise()
    sealed = whole(source, epsilons=(none, none, ONE))
    assert sealed.measured_levels == (2,)
    assert sealed.epsilon_spent == 1
    assert list(sealed)[:3] == [None] * 3
    assert [region for _, _, region in source.asked] == list(HIERARCHY.paths[3:])
    with pytest.raises(ProblemError, match="not measured"):
        sealed[0]
    assert "not measured" in repr(sealed)


def test_all_is_checked_before_the_first_noise() -> None:
    histograms, counts = sample()
    lying = counts.copy()
    lying[6] += 1
    source = SilentNoise()
    settings: dict[str, Any] = {
        "queries": ("naive",) * 3,
        "losses": ("l1",) * 3,
        "epsilons": (ONE,) * 3,
        "max_size": 5,
        "neighbours": "add_remove",
        "source": source,
    }
    with pytest.raises(InputError, match="us/pa/d"):
        measure_hierarchy(histograms, HIERARCHY, lying, **settings)
    with pytest.raises(ProblemError, match="7 regions"):
        measure_hierarchy(histograms[:6], HIERARCHY, counts, **settings)
    wrong: list[dict[str, Any]] = [
        {"queries": ("naive",) * 2},
        {"losses": ("l1", "l1", "l0")},
        {"epsilons": (ONE, ONE, Fraction(-1))},
        {"epsilons": (None,) * 3},
        {"epsilons": (ONE, ONE, Fraction(1, 2**50))},
        {"max_size": 0},
        {"neighbours": "swap"},
    ]
    for change in wrong:
        with pytest.raises(ProblemError):
            measure_hierarchy(histograms, HIERARCHY, counts, **{**settings, **change})
    assert source.asked == []


def test_answers_that_belong_elsewhere_are_refused() -> None:
    sealed = whole(SeededNoise(1))
    names = ("hierarchy", "group_counts", "max_size", "amounts", "queries", "losses", "neighbours", "noise")
    facts = {name: getattr(sealed, name) for name in names}
    swapped = (sealed[0], sealed[2], sealed[1], *sealed.answers[3:])
    for answers in (swapped, sealed.answers[:6], (None, *sealed.answers[1:])):
        with pytest.raises(ProblemError):
            Measurements(**facts, private=False, answers=answers)


def test_the_sealed_hierarchy_says_whether_it_is_private() -> None:
    seeded, private = whole(SeededNoise(1)), whole(OpenDPNoise())
    assert (seeded.private, private.private) == (False, True)
    assert "NOT PRIVATE" in repr(seeded)
    assert "NOT PRIVATE" not in repr(private)


def test_nothing_in_the_sealed_hierarchy_but_noisy_values_depends_on_private_data() -> None:
    # Two different databases with the same public facts, one of them measured with frozen values.
    histograms, counts = sample()
    others = [CountOfCounts.from_runs([0, 150], [histogram.groups - 1, 1]) for histogram in histograms]
    settings: dict[str, Any] = {
        "queries": ("naive", "cumulative", "rank"),
        "losses": ("l1",) * 3,
        "epsilons": (ONE,) * 3,
        "max_size": 200,
        "neighbours": "replace",
    }
    left = measure_hierarchy(histograms, HIERARCHY, counts, source=SeededNoise(1), **settings)
    right = measure_hierarchy(others, HIERARCHY, counts, source=SeededNoise(1), **settings)
    assert repr(left) == repr(right)
    for a, b in zip(left.answers, right.answers, strict=True):
        assert a is not None
        assert b is not None
        assert repr(a) == repr(b)
        assert a.values.shape == b.values.shape
        assert a.lengths is None
        assert b.lengths is None


def test_no_float_stands_between_counts_and_sealed_values() -> None:
    folder = Path(coco_opt.privacy.__file__).parent
    for name in ("measurement.py", "measurements.py", "mechanism.py", "budget.py"):
        tree = ast.parse((folder / name).read_text(encoding="utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        numbers = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, float)]
        divisions = [node for node in ast.walk(tree) if isinstance(node, ast.Div)]
        assert "float" not in names
        assert not numbers
        assert name == "budget.py" or not divisions


def test_importing_privacy_loads_no_heavy_package() -> None:
    heavy = ["numba", "scipy", "pandas", "opendp", "duckdb", "pyarrow", "cvxpy", "pydantic"]
    code = f"import sys, coco_opt.privacy; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
