"""The experiments on the slides about TopDown: published variances, and small runs of the others."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.bench import constraints as bench_constraints
from coco_experiments.kifer2019 import (
    census,
    constraint_times,
    constraints,
    dorm,
    facilities,
    households,
    implied,
    integrality,
    noise,
    redistricting,
    rounding,
    stages,
    zcdp,
)

from tests.experiments.recorder import Recorder, small_run


def test_every_published_variance_follows_from_its_formula(tmp_path: Path) -> None:
    outcome = small_run(zcdp, tmp_path)
    rows = outcome.tables[0].records()
    assert len(rows) == 20
    for row in rows:
        assert row["formula"] == pytest.approx(row["published"], abs=0.05001)
        if row["noise"] == "Gaussian":
            assert row["tight conversion"] < row["formula"]
            assert row["drawn here"] == pytest.approx(row["formula"], rel=1e-6)
        else:
            assert row["drawn here"] < row["formula"]


def test_both_laws_give_the_same_guarantee_and_keep_exact_totals(tmp_path: Path) -> None:
    costs = noise.distribution_costs(1)
    assert costs["geometric"].guarantee() == (1, 0)
    epsilon, delta = costs["discrete Gaussian"].guarantee(noise.DELTA)
    assert delta == noise.DELTA
    assert 0.999 < epsilon <= 1
    outcome = small_run(noise, tmp_path)
    exact = [row for row in outcome.tables[0].records() if row["exact"] == "block totals"]
    assert all(row["total"] == 0.0 for row in exact)
    assert any(row["total"] > 0.0 for row in outcome.tables[0].records() if row["exact"] == "none")


def test_networks_round_to_the_relaxations_optimum(tmp_path: Path) -> None:
    outcome = small_run(integrality, tmp_path)
    rows = {row["kept exact"]: row for row in outcome.tables[0].records()}
    assert [rows[name]["network"] for name in rows] == [True, True, False]
    assert rows["totals"]["fractional vertices %"] == rows["one marginal"]["fractional vertices %"] == 0.0
    whole, x = integrality.blurred(np.random.default_rng(1), 3, 3, 3)
    np.testing.assert_allclose(x.sum(axis=0), whole.sum(axis=0), atol=1e-9)
    for operator in integrality.exact_rows(3, 3).values():
        np.testing.assert_allclose(operator.apply(x), operator.apply(whole), atol=1e-9)


def test_shares_of_the_redistricting_data_are_whole() -> None:
    assert [sum(level) for level in redistricting.SHARES] == [4097, 4097, 4102, 4099, 4097]
    assert {len(level) for level in redistricting.SHARES} == {len(redistricting.QUERIES)}
    assert sum(redistricting.LEVEL_SHARES) == 4099 - 104
    assert Fraction(256, 100) == redistricting.RHO


def test_stages_agree_exactly_and_an_edited_one_is_found(tmp_path: Path) -> None:
    outcome = small_run(stages, tmp_path)
    seen = dict(outcome.tables[-1].rows)
    assert seen["spent in all"] == "epsilon = 1"
    assert "stage-1" in str(seen["an edited first stage"])
    assert len(outcome.tables[0].rows) == 2 * 3 * 6
    assert stages.worse(np.ones((2, 3, 5, 3))) == []
    ratios = np.ones((2, 3, 5, 3))
    ratios[1, 2, :, 0] = 1.2
    assert stages.worse(ratios) == ["3 stages, county totals exact: race has 1.20 times the error of one stage"]


def test_a_small_redistricting_release_is_verified(tmp_path: Path) -> None:
    outcome = small_run(redistricting, tmp_path)
    rows = outcome.tables[0].records()
    assert [row["level"] for row in rows] == list(redistricting.LEVELS)
    assert rows[0]["error of total"] == 0.0  # exact
    assert rows[-1]["error of detail"] > 0.0


def test_every_method_gives_the_dorms_published_constraints(tmp_path: Path) -> None:
    outcome = small_run(dorm, tmp_path)
    rows = outcome.tables[0].records()
    assert rows[0]["method"] == "published"
    assert all(row["implies all published"] and row["implied by them"] for row in rows)
    # F + C from 101 to 199 and F from 1 to 99, by hand
    assert {row["towns accepted"] for row in rows} == {99 * 99}
    weaker = [row for row in dorm.PUBLISHED if row.weights != (1, 1, 0)]
    assert dorm.accepted(weaker) > 99 * 99
    assert dorm.meets(dorm.REJECTED, weaker)


def test_methods_agree_with_enumeration_on_small_instances(tmp_path: Path) -> None:
    outcome = small_run(implied, tmp_path)
    rows = outcome.tables[0].records()
    assert {row["class"] for row in rows} == set(implied.CLASSES)
    assert all(0 < row["accepted"] < row["towns"] for row in rows)  # type: ignore[operator]


def test_facilities_scale_without_failsafes(tmp_path: Path) -> None:
    outcome = small_run(facilities, tmp_path)
    assert {row["method"]: row["failsafes"] for row in outcome.tables[0].records()}["minimal_schema"] == 0


def test_there_are_48_census_like_configurations_and_small_ones_are_released(tmp_path: Path) -> None:
    configs = census.configs()
    assert len(set(configs)) == 48
    assert {types for types, *_ in configs} == {7, 14, 28}
    assert {min(one[1] for one in configs), max(one[1] for one in configs)} == {100, 1_000}
    outcome = small_run(census, tmp_path)
    assert {row["method"] for row in outcome.tables[0].records()} == {"auto", "cuts"}


def test_no_estimation_takes_twice_its_stated_time(tmp_path: Path) -> None:
    names = [case.name for case in constraint_times.cases()]
    assert len(set(names)) == 172
    outcome = small_run(constraint_times, tmp_path)
    assert [row["configuration"] for row in outcome.tables[0].records()] == [names[0], names[48], names[-1]]
    row, wrong = constraint_times.compared(("stated too little", 1, 1, 1, "cuts"), 1.0, 2.1)
    assert row[-1] == 2.1
    assert wrong == "stated too little: 2.1 s, stated 1.0"


def test_declared_householders_are_enough_for_couples_and_others_are_not(tmp_path: Path) -> None:
    table = households.people(np.random.default_rng(0), 50).reshape(50, 5, 2).sum(axis=2)
    assert (table[:, 0] >= table[:, 1] + table[:, 2]).all()
    outcome = small_run(households, tmp_path)
    broken = {(row["epsilon"], row["declared"]): row["broken"] for row in outcome.tables[0].records()}
    assert all(bool(found) != declared for (_, declared), found in broken.items())


def test_roundings_are_compared_on_the_same_noise(tmp_path: Path) -> None:
    outcome = small_run(rounding, tmp_path)
    children, counties = outcome.tables
    assert [row["child"] for row in children.records()] == [f"child {k}" for k in range(5)]
    assert len(counties.records()) == len(rounding.EPSILONS) * len(rounding.WORKLOAD)


def test_the_benchmark_of_facts_gives_every_verdict(tmp_path: Path) -> None:
    outcome = small_run(bench_constraints, tmp_path)
    assert len(outcome.tables[0].rows) == 9


def test_facts_of_every_class_end_as_they_must(tmp_path: Path) -> None:
    outcome = small_run(constraints, tmp_path)
    for row in outcome.tables[0].records():
        assert row["released"] == row["refused"] == 2
        assert not row["wrong"]


@pytest.mark.slow
def test_hundreds_of_facts_end_as_they_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "INSTANCES", 300)  # of 5,000
    outcome = constraints.run(small=False, out=tmp_path, reporter=Recorder())
    assert outcome.ok, outcome.failures
