"""Laws and costs as values, and the one place where noise is drawn."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import (
    Answers,
    DiscreteGaussian,
    Epsilon,
    Exact,
    Geometric,
    LevelQuery,
    Measurement,
    MeasurementPlan,
    NoiseDistribution,
    NoiseSource,
    NoiseStream,
    OpenDPNoise,
    Rho,
    SeededNoise,
    Sensitivity,
)
from coco_opt.privacy.cost import cost_of, total
from coco_opt.privacy.measurement import query_dict
from coco_opt.privacy.noise_distributions import distribution_of
from coco_opt.privacy.packed_answers import Packed, PackedAnswers
from coco_opt.privacy.queries import gathered, noisy_parts

TREE = Hierarchy.from_paths([("land", "north"), ("land", "south"), ("land", "west")])
GROUPS = {"groups": np.array([5, 2, 0, 3])}
ONE = Sensitivity(1, 1)
QUESTIONS = (
    LevelQuery(0, "cumulative", "groups up to each size", 4, ONE, Epsilon(Fraction(1, 3))),
    LevelQuery(1, "ranks", "sizes in order", "groups", ONE, Epsilon(Fraction(2, 3))),
    LevelQuery(1, "total", "declared", 1, None, None),
)
PARTS = (
    Exact(QUESTIONS[0], "land", np.array([1, 2, 3, 4])),
    Exact(QUESTIONS[1], "land/north", np.array([1, 2])),
    Exact(QUESTIONS[1], "land/south", np.zeros(0, np.int64)),
    Exact(QUESTIONS[1], "land/west", np.array([0, 0, 7])),
    Exact(QUESTIONS[2], "all", np.array([2, 0, 3])),
)


def brute_force_variance(distribution: NoiseDistribution) -> float:
    """Return the variance from the law's own weights, summed far into the tails."""
    k = np.arange(-4000, 4001)
    weights = np.exp(distribution.log_weight(k))
    return float((weights * k.astype(float) ** 2).sum() / weights.sum())


@pytest.mark.parametrize(
    "distribution",
    [
        *(Geometric(Fraction(scale)) for scale in ("1/10", "1/2", "1", "7/3", "40")),
        *(DiscreteGaussian(Fraction(variance)) for variance in ("1/50", "1/3", "2", "9", "400")),
    ],
)
def test_the_variance_is_that_of_the_integer_law(distribution: NoiseDistribution) -> None:
    assert distribution.variance == pytest.approx(max(brute_force_variance(distribution), 1e-12), rel=1e-9)
    assert distribution.square_weight * distribution.variance == pytest.approx(1)
    assert distribution_of(distribution.as_dict()) == distribution
    assert distribution.variance <= distribution.nominal_variance * (1 + 1e-12)


def test_likelihood_weights_are_one_over_the_scale() -> None:
    assert Geometric(Fraction(5, 2)).absolute_weight == pytest.approx(0.4)
    # That of the geometric noise of the same nominal variance, 2 scale^2.
    gaussian = DiscreteGaussian(2 * Fraction(5, 2) ** 2)
    assert gaussian.absolute_weight == pytest.approx(0.4)


@given(st.fractions(Fraction(1, 100), 100), st.integers(1, 9), st.integers(1, 9))
def test_a_cost_buys_the_noise_of_its_mechanism(amount: Fraction, l1: int, squared: int) -> None:
    sensitivity = Sensitivity(l1, squared)
    assert Epsilon(amount).distribution(sensitivity) == Geometric(l1 / amount)
    assert Rho(amount).distribution(sensitivity) == DiscreteGaussian(squared / (2 * amount))
    for cost in (Epsilon(amount), Rho(amount)):
        assert cost_of(cost.as_dict()) == cost
        assert total([cost, cost]) == cost * 2
        assert total(cost.shared(["1/3", "1/6", "1/2"])) == cost
        assert cost.epsilon(Fraction(1, 1000)) > 0


def test_costs_of_two_units_do_not_add_up_and_nothing_is_free() -> None:
    with pytest.raises(ProblemError, match="do not add up"):
        Epsilon(Fraction(1)) + Rho(Fraction(1))
    with pytest.raises(ProblemError, match="negative"):
        Epsilon(Fraction(-1))
    with pytest.raises(ProblemError):
        Epsilon(Fraction(0)).distribution(ONE)
    with pytest.raises(ProblemError, match="costs nothing"):
        LevelQuery(0, "cumulative", "", 4, ONE, Epsilon(Fraction(0)))
    with pytest.raises(InputError, match="unknown-cost"):
        cost_of({"epsilon": 1.0})
    with pytest.raises(InputError, match="unknown-law"):
        distribution_of({"law": "uniform", "scale": "1"})


@pytest.mark.parametrize("text", ["1e400000000", "1E-400000000", "1/0", "one", ""])
def test_a_number_that_no_file_of_ours_states_is_refused_at_once(text: str) -> None:
    with pytest.raises(InputError, match="unknown-cost"):
        cost_of({"epsilon": text})
    with pytest.raises(InputError, match="unknown-law"):
        distribution_of({"law": "geometric", "scale": text})


def test_epsilon_at_a_delta_is_stated_in_the_safe_direction() -> None:
    epsilon = Rho(Fraction(1, 2)).epsilon(Fraction(1, 10**6))
    assert 5.22 < epsilon < 5.222
    assert "5.2215" in Rho(Fraction(1, 2)).meaning()
    assert Epsilon(Fraction(3)).epsilon() == 3


def add_noise(queries: Sequence[LevelQuery], parts: Iterable[Exact], source: NoiseSource) -> tuple[Answers, ...]:
    return gathered(queries, noisy_parts(queries, parts, TREE, GROUPS, source), TREE, GROUPS)


def test_noise_goes_on_every_answer_but_those_declared_exact() -> None:
    answers = add_noise(QUESTIONS, PARTS, SeededNoise(3))
    again = add_noise(QUESTIONS, PARTS, SeededNoise(3))
    assert [row.offsets.tolist() for row in answers] == [[0, 4], [0, 2, 2, 5], [0, 1, 2, 3]]
    for row, other in zip(answers, again, strict=True):
        np.testing.assert_array_equal(row.values, other.values)
    assert answers[2].values.tolist() == [2, 0, 3]
    assert answers[2].table().shape == (3, 1)
    for part, scale, found in (
        (PARTS[0], Fraction(3), answers[0].region(0)),
        (PARTS[1], Fraction(3, 2), answers[1].region(0)),
        (PARTS[3], Fraction(3, 2), answers[1].region(2)),
    ):
        stream = SeededNoise(3).stream(scale, measurement=part.query.name, region=part.label)
        np.testing.assert_array_equal(found, stream.add_to(part.values))


def test_a_stream_is_drawn_once() -> None:
    level_query = LevelQuery(0, "cumulative", "groups up to each size", 8, ONE, Epsilon(Fraction(1, 3)))
    one, other = (Exact(level_query, label, np.array([1, 2])) for label in ("land", "sea"))
    with pytest.raises(ProblemError, match="already drawn"):
        add_noise([level_query], [one, other, one], SeededNoise(3))


@pytest.mark.parametrize("parts", [PARTS[:1], PARTS[1:], (*PARTS[:4], Exact(QUESTIONS[2], "all", np.array([2, 0])))])
def test_other_than_the_public_number_of_answers_is_refused(parts: tuple[Exact, ...]) -> None:
    with pytest.raises(ProblemError, match="than are public"):
        add_noise(QUESTIONS, parts, SeededNoise(3))


def test_floats_never_reach_the_noise() -> None:
    with pytest.raises(ProblemError, match="int64"):
        add_noise(QUESTIONS[:1], [Exact(QUESTIONS[0], "land", np.zeros(4))], SeededNoise(3))  # type: ignore[arg-type]


def measurement_plan(**changes: object) -> MeasurementPlan:
    constraints: dict[str, object] = {
        "kind": "groups",
        "hierarchy": TREE,
        "levels": ("nation", "state"),
        "queries": QUESTIONS,
        "neighbours": "replace",
        "parameters": {"max_size": 4},
        "per_region": GROUPS,
        "tables": {"bounds": np.arange(3)},
    }
    return MeasurementPlan(**{**constraints, **changes})  # type: ignore[arg-type]


def test_the_digest_tells_questions_apart_and_leaves_labels_out() -> None:
    same = measurement_plan(levels=("country", "region"), region_ids=("a", "b", "c", "d"))
    assert same.digest == measurement_plan().digest
    others = [
        measurement_plan(kind="tables"),
        measurement_plan(neighbours="add_remove"),
        measurement_plan(parameters={"max_size": 5}),
        measurement_plan(per_region={"groups": np.array([6, 3, 0, 3])}),
        measurement_plan(tables={"bounds": np.arange(4)}),
        measurement_plan(queries=QUESTIONS[:2]),
        measurement_plan(hierarchy=Hierarchy.from_paths([("land", "north"), ("land", "south"), ("land", "east")])),
    ]
    assert len({measurement_plan().digest, *(other.digest for other in others)}) == len(others) + 1
    assert measurement_plan().cost == Epsilon(Fraction(1))


@pytest.mark.parametrize("odd", [None, Hierarchy.from_paths([("land", name) for name in ("é", 'a"b', "c\\d", "e f")])])
def test_the_digest_is_that_of_one_text_and_of_each_array_behind_their_lengths(
    odd: Hierarchy | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledgers hold it, so it never changes, however little of the text is in memory at a time."""
    plan = measurement_plan(hierarchy=odd, per_region={"groups": np.arange(5)}) if odd else measurement_plan()
    plain = {
        "kind": plan.kind,
        "questions": [
            {name: value for name, value in query_dict(query).items() if name != "words"} for query in plan.queries
        ],
        "neighbours": plan.neighbours,
        "facts": plan.parameters,
        "names": list(plan.hierarchy.names),
    }
    arrays = {
        "parent": plan.hierarchy.parent,
        "region groups": plan.per_region["groups"],
        "table bounds": np.arange(3),
    }
    parts = [json.dumps(plain, sort_keys=True).encode()]
    parts += [part for name in sorted(arrays) for part in (name.encode(), arrays[name].astype("<i8").tobytes())]
    expected = hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).hexdigest()
    for at_once in (1, 3, 4096):
        monkeypatch.setattr("coco_opt.privacy.measurement._TEXTS", at_once)
        assert plan.digest == expected


def test_a_measurement_holds_the_answers_to_its_questions_only() -> None:
    answers = add_noise(QUESTIONS, PARTS, SeededNoise(3))
    measurement = Measurement(measurement_plan(), answers, "seeded", private=False)
    assert measurement.status == "NOT PRIVATE"
    with pytest.raises(ProblemError, match="in their order"):
        Measurement(measurement_plan(), answers[::-1], "seeded", private=False)
    moved = Answers(QUESTIONS[1], np.array([0, 3, 3, 5]), answers[1].values)
    with pytest.raises(ProblemError, match="public number"):
        Measurement(measurement_plan(), (answers[0], moved, answers[2]), "seeded", private=False)
    copied = pickle.loads(pickle.dumps(measurement))
    assert copied.measurement_plan.digest == measurement.measurement_plan.digest
    with pytest.raises(ValueError, match="read-only"):
        copied.answers[0].values[0] = 1


def test_sources_say_which_laws_they_draw() -> None:
    class Laplace:
        name, private = "laplace", False

    assert Geometric(Fraction(1)).available_from(Laplace())  # type: ignore[arg-type]
    assert not DiscreteGaussian(Fraction(1)).available_from(Laplace())  # type: ignore[arg-type]
    pytest.importorskip("opendp")
    assert DiscreteGaussian(Fraction(1)).available_from(OpenDPNoise())


def test_weights_stay_finite_however_large_the_budget() -> None:
    assert math.isfinite(Epsilon(Fraction(10**6)).distribution(ONE).square_weight)
    assert math.isfinite(Rho(Fraction(10**6)).distribution(ONE).square_weight)


class _Counting:
    """Seeded noise that keeps which streams were opened, and how many numbers of each were drawn."""

    name: ClassVar[str] = "seeded"
    private: ClassVar[bool] = False

    def __init__(self) -> None:
        self.source = SeededNoise(5)
        self.drawn: dict[tuple[str, str], int] = {}

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        stream, name = self.source.stream(scale, measurement=measurement, region=region), (measurement, region)
        self.drawn[name] = 0

        class Counted:
            def add_to(_, values: np.ndarray) -> np.ndarray:  # noqa: N805
                self.drawn[name] += values.size
                return stream.add_to(values)

            def draw(_, n: int) -> np.ndarray:  # noqa: N805
                self.drawn[name] += n
                return stream.draw(n)

        return Counted()


@given(cuts=st.lists(st.integers(0, 4), max_size=12), order=st.permutations(range(len(QUESTIONS))))
def test_no_partition_order_or_retry_draws_a_stream_twice(cuts: list[int], order: list[int]) -> None:
    """However the answers are cut, and whatever query comes first, each number of a stream is drawn once.

    Parts of one stream that do not follow each other would open it again: they are refused, and so is a second try on
    one source. A new source with the same key draws the same numbers: no second noisy answer to anything.
    """
    queries = [QUESTIONS[place] for place in order]
    parts = [piece for query in queries for part in PARTS if part.query is query for piece in _cut(part, cuts)]
    noise, again = _Counting(), _Counting()
    answers = add_noise(queries, parts, noise)
    sizes = {(part.query.name, part.label): part.values.size for part in PARTS if not part.query.exact}
    assert noise.drawn == sizes
    whole = {each.query: each.values for each in add_noise(QUESTIONS, PARTS, SeededNoise(5))}
    assert all(np.array_equal(each.values, whole[each.query]) for each in answers)
    with pytest.raises(ProblemError, match="already drawn"):
        add_noise(queries, parts, noise)
    first, last = _cut(PARTS[0], [2])
    with pytest.raises(ProblemError, match="already drawn"):
        add_noise(QUESTIONS, [first, *PARTS[1:], last], again)
    assert again.drawn == {**sizes, ("cumulative", "land"): 2}


def _cut(part: Exact, cuts: list[int]) -> list[Exact]:
    """Return a part in pieces that follow each other, some of them without any answer."""
    ends = [0, *sorted(min(cut, part.values.size) for cut in cuts), part.values.size]
    return [Exact(part.query, part.label, part.values[begin:end]) for begin, end in pairwise(ends)]


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
