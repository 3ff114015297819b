"""Intervals of the posterior of tables where few regions have a kind of person: they hold what they state."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from coco_experiments.statistics import inside_by_ranks
from numpy.typing import NDArray

from coco_opt import Hierarchy, Schema, SolverChoices, TableCounts, TopdownMethod, estimate_tables, measure_tables
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.topdown import Strategy, TablePlan, parse_queries

SCHEMA = Schema({"sex": ["f", "m"], "age": list("abcdef"), "home": ["household", "nursing", "prison"]})
PROVINCES, PLACES = 8, 12
AGES = np.array([0.2, 0.17, 0.2, 0.23, 0.14, 0.06])
OLD = np.array([0.0, 0.0, 0.0, 0.0, 0.3, 0.7])
YOUNG = np.array([0.0, 0.25, 0.45, 0.25, 0.05, 0.0])


def people(seed: int) -> NDArray[np.int64]:
    """Return places of some 250 persons; a third of them have a nursing home, and one in twenty a prison."""
    rng = np.random.default_rng(seed)
    tables = np.zeros((PROVINCES * PLACES, 12, 3), np.int64)
    for place in tables:
        size = 10 + int(200 * rng.lognormal(0.0, 1.0) / np.exp(0.5))
        place[:, 0] = rng.multinomial(size, np.outer([0.5, 0.5], AGES).reshape(-1))
        if rng.random() < 0.35:
            place[:, 1] = rng.multinomial(rng.integers(10, 120), np.outer([0.6, 0.4], OLD).reshape(-1))
        if rng.random() < 0.05:
            place[:, 2] = rng.multinomial(rng.integers(80, 400), np.outer([0.1, 0.9], YOUNG).reshape(-1))
    return tables.reshape(len(tables), -1)


TOWNS = Schema({"home": ["household", "prison", "nursing"], "age": ["young", "grown", "old"]})


def towns(seed: int) -> NDArray[np.int64]:
    """Return other places, on which no rule was chosen: few have a prison of grown persons or a nursing home."""
    rng = np.random.default_rng(seed)
    tables = np.zeros((PROVINCES * PLACES, 3, 3), np.int64)
    for place in tables:
        place[0] = rng.multinomial(rng.integers(150, 900), [0.3, 0.5, 0.2])
        place[1, 1] = rng.integers(30, 150) * (rng.random() < 0.12)
        place[2, 2] = rng.integers(20, 90) * (rng.random() < 0.15)
    return tables.reshape(len(tables), -1)


COUNTRIES = {
    "few large places": (SCHEMA, people, ["home", "detail"], ["total", "home", "sex * age", "detail"]),
    "towns": (TOWNS, towns, ["total", "home", "age", "detail"], ["total", "home", "age", "detail"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("country", list(COUNTRIES))
def test_intervals_hold_where_few_regions_have_a_kind_of_person(country: str) -> None:
    schema, made, measured, asked = COUNTRIES[country]
    paths = [("n", f"p{province}", f"m{place}") for province in range(PROVINCES) for place in range(PLACES)]
    tree = Hierarchy.from_paths(paths)
    plan = TablePlan.product(Strategy.uniform(parse_queries(measured, schema)), Epsilon(Fraction(1)), 3)
    workload = parse_queries(asked, schema)
    inside: dict[str, list[float]] = {name: [] for name in (*asked, "institutions")}
    for seed in range(4):
        counts = TableCounts.from_counts(tree, schema, made(seed))
        measurement = measure_tables(counts, plan, source=SeededNoise(seed))
        result = estimate_tables(measurement, TopdownMethod("posterior", workload=workload), SolverChoices())
        posterior = result.posterior
        assert posterior is not None
        assert posterior.sampled is not None
        # All prisoners are grown persons in the towns, so ages are clustered too.
        assert posterior.sampled.classes in {"home", "age"}
        regions = tree.level_range(2)
        for query in workload:
            true = counts.answers_to(query.operator, regions).reshape(-1, 1)
            held = inside_by_ranks(posterior.sorted_answers(query, 2, regions), true, 0.9)
            inside[query.text].append(held.mean())
            if query.text == "home":
                inside["institutions"].append(held.reshape(-1, 3)[:, 1:].mean())
    means = {text: float(np.mean(each)) for text, each in inside.items()}
    # Of the 384 totals the standard error is 1.8 %; other queries have more answers.
    assert means["total"] > 0.85, means
    assert all(0.87 < mean < 0.95 for text, mean in means.items() if text != "total"), means
