"""Noisy answers of tables: exact integers plus the declared noise, only what was asked, once, sealed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest

from coco_opt import Hierarchy, Strategy, TablePlan
from coco_opt.array_types import Ints
from coco_opt.errors import InputError, ProblemError
from coco_opt.privacy import Cost, Epsilon, Measurement, NoiseStream, Rho, SecureNoise, SeededNoise
from coco_opt.topdown import Invariant, RegionBounds, Schema, TableCounts, TableMeasurements
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import parse_queries, parse_query

SCHEMA = Schema({"h": ("no", "yes"), "race": ("w", "b", "o"), "age": ("0", "1", "2")}, ("age = 0 & race = b",))
HIERARCHY = Hierarchy.from_paths([("r", f"p{leaf // 4}", f"l{leaf}") for leaf in range(20)])
TABLES = np.random.default_rng(5).integers(0, 9, (20, SCHEMA.size))
COUNTS = TableCounts.from_counts(HIERARCHY, SCHEMA, TABLES)
QUERIES = parse_queries(("total", "h * race", "cumulative(age)", "detail"), SCHEMA)
AMOUNTS = (
    (Fraction(1, 10), Fraction(0), Fraction(1, 5), Fraction(0)),
    (Fraction(0), Fraction(1, 4), Fraction(0), Fraction(1, 8)),
    (Fraction(1, 3), Fraction(0), Fraction(1), Fraction(2)),
)
COSTS = tuple(tuple(Epsilon(amount) for amount in level) for level in AMOUNTS)
PLAN = TablePlan(QUERIES, COSTS)


class SilentNoise:
    """Adds nothing and records what was asked and how many cells it noised."""

    name: ClassVar[str] = "silent"
    private: ClassVar[bool] = False

    def __init__(self) -> None:
        self.measurement_plan: list[tuple[Fraction, str, str]] = []
        self.cells: list[int] = []

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        self.measurement_plan.append((scale, measurement, region))
        return self

    def add_to(self, values: Ints) -> Ints:
        assert values.dtype == np.int64
        self.cells.append(len(values))
        return values.copy()

    def draw(self, n: int) -> Ints:
        return np.zeros(n, dtype=np.int64)


def truth(level: int, query: int) -> Ints:
    here = HIERARCHY.level_range(level)
    return QUERIES[query].operator.apply(HIERARCHY.aggregate(TABLES)[here.start : here.stop])


def same(left: Measurement, right: Measurement) -> bool:
    pairs = zip(left.answers, right.answers, strict=True)
    return all(np.array_equal(one.values, other.values) for one, other in pairs)


def test_answers_are_exact_but_for_the_noise_and_nothing_unasked_is_answered() -> None:
    noise = SilentNoise()
    reported: list[tuple[int, int]] = []
    measured = TableMeasurements.of(
        measure_tables(COUNTS, PLAN, source=noise, progress=lambda done, of: reported.append((done, of)))
    )
    for level in range(3):
        for query in range(4):
            answer = measured.answers[level][query]
            if AMOUNTS[level][query]:
                assert answer is not None
                assert answer.dtype == np.int64
                assert not answer.flags.writeable
                assert np.array_equal(answer, truth(level, query))
            else:
                assert answer is None
    assert len(reported) == 7
    assert reported[-1] == (sum(noise.cells),) * 2
    assert sum(noise.cells) == sum(truth(level, query).size for level, query in PLAN.measured_queries)


def test_each_asked_query_of_each_level_has_its_own_stream_of_the_right_scale() -> None:
    noise = SilentNoise()
    measure_tables(COUNTS, PLAN, source=noise)
    scales = [
        (PLAN.distribution(level, query).parameter, QUERIES[query].name) for level, query in PLAN.measured_queries
    ]
    assert [(scale, name.removeprefix("table ")) for scale, name, _ in noise.measurement_plan] == scales
    assert len({(name, region) for _, name, region in noise.measurement_plan}) == len(noise.measurement_plan)
    assert scales[1] == (Fraction(3) / Fraction(1, 5), "cumulative(age)")  # L1 sensitivity 3
    assert measure_tables(COUNTS, PLAN, source=SilentNoise()).cost == Epsilon(sum(map(sum, AMOUNTS))) == PLAN.cost


@pytest.mark.parametrize("unit", [Epsilon, Rho])
def test_no_two_queries_share_noise_whatever_they_are_called(unit: type[Cost]) -> None:
    names = ("a", "a, level 1", "table a", "a\0", "\u00e9", "e\u0301", " a", "level 1")
    queries = tuple(parse_query("detail", SCHEMA, name) for name in names)
    plan = TablePlan(queries, ((unit(Fraction(1, 50)),) * len(names),) * 3)
    measured = TableMeasurements.of(measure_tables(COUNTS, plan, source=SecureNoise()))
    noise = [
        measured.answers[level][query][0] - COUNTS.level_tables(level)[0] for level, query in plan.measured_queries
    ]  # type: ignore[index]
    assert len({draws.tobytes() for draws in noise}) == len(names) * 3


def test_measurements_say_whether_they_are_private_and_nothing_else_of_the_data() -> None:
    seeded = measure_tables(COUNTS, PLAN, source=SeededNoise(0))
    assert "NOT PRIVATE" in repr(seeded)
    secure = measure_tables(COUNTS, PLAN, source=SecureNoise())
    assert repr(secure).endswith("secure noise: private)")
    assert secure.private
    assert (secure.cost.unit, secure.measurement_plan.neighbours) == ("epsilon", "add_remove")


def test_invariants_become_exact_public_answers() -> None:
    plan = TablePlan(QUERIES, COSTS, neighbours="replace")
    noise = SilentNoise()
    measurement = measure_tables(COUNTS, plan, source=noise, invariants=[Invariant(QUERIES[0], 1)] * 2)
    (exact,) = (answers for answers in measurement.answers if answers.query.exact)
    assert (exact.query.name, exact.query.level) == ("invariant: total", 1)
    assert np.array_equal(exact.table(), truth(1, 0))
    assert len(noise.measurement_plan) == len(plan.measured_queries)
    measured = TableMeasurements.of(measurement)
    for level in (0, 1):
        constraints = measured.constraints_of(HIERARCHY.level_range(level))
        assert constraints is not None
        assert np.array_equal(constraints.lower, truth(level, 0))
        assert np.array_equal(constraints.upper, truth(level, 0))
    assert measured.constraints_of(HIERARCHY.level_range(2)) is None


def test_invariants_need_neighbours_with_the_same_counts() -> None:
    with pytest.raises(ProblemError, match='neighbours = "replace"'):
        measure_tables(COUNTS, PLAN, source=SilentNoise(), invariants=[Invariant(QUERIES[0], 0)])


def test_nothing_is_drawn_where_public_facts_do_not_fit() -> None:
    noise = SilentNoise()
    plan = TablePlan(QUERIES, COSTS, neighbours="replace")
    other = Schema({"h": ("no", "yes")})
    cases: list[tuple[type[Exception], dict[str, Any]]] = [
        (ProblemError, {"invariants": [Invariant(QUERIES[0], 3)]}),
        (ProblemError, {"invariants": [Invariant(parse_query("h", other), 0)]}),
        (ProblemError, {"bounds": [RegionBounds.exact(parse_query("h", other), 0, [[1, 1]])]}),
        (
            InputError,
            {"invariants": [Invariant(QUERIES[0], 0)], "bounds": [RegionBounds.exact(QUERIES[0], 2, [[0]] * 20)]},
        ),
    ]
    for error, more in cases:
        with pytest.raises(error):
            measure_tables(COUNTS, plan, source=noise, **more)
    with pytest.raises(ProblemError, match="draws no discrete Gaussian"):
        measure_tables(COUNTS, TablePlan.product(Strategy.uniform(QUERIES), Rho(Fraction(1)), 3), source=noise)
    with pytest.raises(ProblemError, match="the plan is for 1 levels"):
        measure_tables(COUNTS, TablePlan(QUERIES, COSTS[:1]), source=noise)
    with pytest.raises(ProblemError, match="another schema"):
        measure_tables(COUNTS, TablePlan.product(Strategy.identity(other), Epsilon(Fraction(1)), 3), source=noise)
    many = TableCounts.from_microdata(HIERARCHY, SCHEMA, [0], [0], [2**40])
    with pytest.raises(InputError, match="too-large"):
        measure_tables(many, plan, source=noise, invariants=[Invariant(QUERIES[0], 1)])
    assert noise.measurement_plan == []


def test_another_kinds_measurement_is_refused() -> None:
    measurement = measure_tables(COUNTS, PLAN, source=SilentNoise())
    other = replace(measurement, measurement_plan=replace(measurement.measurement_plan, kind="groups"))
    with pytest.raises(ProblemError, match="a measurement of groups, not of tables"):
        TableMeasurements.of(other)
