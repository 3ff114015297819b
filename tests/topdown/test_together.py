"""Several measurements of the same tables in one estimate: dense least squares, a simulation, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coco_opt as co
from coco_opt.errors import ConfigError, InputError
from coco_opt.files.folder import as_json, sealed
from coco_opt.privacy import Cost, Epsilon, Measurement, Rho, SeededNoise
from coco_opt.privacy.combined_measurements import together
from coco_opt.releases.verify import verify_paid
from coco_opt.topdown import FullInformation, Invariant, TableCounts, TableMeasurements, TablePlan, measure_tables
from coco_opt.topdown.estimating.estimate import estimate_tables, linear_estimates
from coco_opt.topdown.queries import parse_queries, parse_query
from coco_opt.topdown.schema import Schema, ValueGroups
from tests.topdown.estimation import DenseSolution, check_estimates
from tests.topdown.persons import SECURE, TOPDOWN, failing, write

SCHEMA = Schema({"sex": ("f", "m"), "age": ("child", "adult", "old")}, ("sex = m & age = old",))
TREE = co.Hierarchy.from_paths([("land", f"s{k // 3}", f"c{k}") for k in range(7)])
TRUTH = np.random.default_rng(3).integers(0, 30, (7, SCHEMA.size))
COUNTS = TableCounts.from_counts(TREE, SCHEMA, TRUTH)


OPERATORS = [query.operator for query in parse_queries(("total", "sex", "detail"), SCHEMA)]


def measured(
    queries: Sequence[str],
    costs: Sequence[Sequence[Cost]],
    seed: int,
    *,
    counts: TableCounts = COUNTS,
    invariants: Sequence[Invariant] = (),
    **plan: Any,
) -> Measurement:
    """Return a seeded measurement of queries at costs [levels][queries]."""
    measurement_plan = TablePlan(parse_queries(tuple(queries), counts.schema), tuple(map(tuple, costs)), **plan)
    return measure_tables(counts, measurement_plan, source=SeededNoise(seed), invariants=tuple(invariants))


def even(cost: Cost, queries: int) -> list[list[Cost]]:
    """Return the same part of a cost for every query of the three levels."""
    return [[cost * Fraction(1, 3 * queries)] * queries] * 3


def dense(listed: Sequence[Measurement]) -> DenseSolution:
    """Return the least squares estimate from all answers one by one."""
    return DenseSolution(*map(TableMeasurements.of, listed))


def differing(seed: int) -> list[Measurement]:
    """Return measurements of other queries, shares and laws at every level, some of them the same."""
    rng = np.random.default_rng(seed)
    measurement_plan = (("total", "sex * age"), ("sex", "sex * age", "total"), ("cumulative(age)", "detail"))
    units: tuple[type[Cost], ...] = (Epsilon, Rho, Epsilon)
    names = []
    for number, (queries, unit) in enumerate(zip(measurement_plan, units, strict=True)):
        costs = [[unit(Fraction(int(rng.integers(1, 9)), 8)) for _ in queries] for _ in range(3)]
        costs[int(rng.integers(2))] = [unit(Fraction(0))] * len(queries)
        names.append(measured(queries, costs, 10 * seed + number))
    return names


@pytest.mark.parametrize("seed", range(6))
def test_estimates_and_covariances_are_those_of_all_answers_at_once(seed: int) -> None:
    listed = differing(seed)
    estimates = linear_estimates(together(listed), full=True)
    assert isinstance(estimates, FullInformation)
    check_estimates(estimates, dense(listed), OPERATORS)


def test_trees_take_all_answers_where_proportions_agree() -> None:
    listed = [measured(("sex", "detail"), even(Rho(Fraction(amount)), 2), amount) for amount in (1, 2, 5)]
    estimates = linear_estimates(together(listed), full=False)
    check_estimates(estimates, dense(listed), OPERATORS)


def test_whole_tables_are_those_of_the_pooled_answers() -> None:
    """Measurements so precise that the tables are the truth but for rounding, and only together say all of it."""
    much = Rho(Fraction(10**6))
    nothing = much * 0
    leaves = measured(("age", "sex"), [[nothing] * 2, [nothing] * 2, [much] * 2], 1)
    cells = measured(("detail",), [[nothing], [nothing], [much]], 2)
    tables = estimate_tables(together([leaves, cells]))
    np.testing.assert_array_equal(tables.level(2), TRUTH)
    assert len(tables.tables) == 3


ONE = measured(("total", "detail"), even(Rho(Fraction(1)), 2), 1, neighbours="replace")
EXACT = Invariant(parse_query("total", SCHEMA), 1)
OTHER_SCHEMA = Schema({"sex": ("m", "f"), "age": ("child", "adult", "old")}, ("sex = m & age = old",))
OTHER_TREE = co.Hierarchy.from_paths([("land", f"s{k // 4}", f"c{k}") for k in range(7)])


def another(**changes: Any) -> Measurement:
    return measured(("total", "detail"), even(Rho(Fraction(1)), 2), 2, **{"neighbours": "replace", **changes})


REFUSED: dict[str, tuple[Callable[[], Measurement], str]] = {
    "copy": (lambda: replace(ONE), "measurement 2 is measurement 1 once more"),
    "attributes": (
        lambda: another(counts=TableCounts.from_counts(TREE, OTHER_SCHEMA, TRUTH)),
        "other attributes, values or orders",
    ),
    "zeros": (
        lambda: another(counts=TableCounts.from_counts(TREE, Schema(SCHEMA.attributes), np.ones((7, 6), np.int64))),
        "other structural zeros",
    ),
    "regions": (lambda: another(counts=TableCounts.from_counts(OTHER_TREE, SCHEMA, TRUTH)), "other regions"),
    "neighbours": (lambda: another(neighbours="add_remove"), "neighbours = 'add_remove', the first of 'replace'"),
    "rows": (lambda: another(rows=2), "protects a person with 2 rows"),
    "invariants": (lambda: another(invariants=[EXACT]), "do not both hold 'total' exact at level 1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_belong_together_is_refused(what: str) -> None:
    make, words = REFUSED[what]
    with pytest.raises(InputError, match=words) as refused:
        TableMeasurements.of(together([ONE, make()]))
    assert refused.value.code == ("measurement-twice" if what == "copy" else "measurements-differ")


def test_other_exact_answers_are_refused() -> None:
    first, second = (
        another(invariants=[EXACT], counts=TableCounts.from_counts(TREE, SCHEMA, TRUTH + more)) for more in (0, 1)
    )
    with pytest.raises(InputError, match="other exact answers"):
        TableMeasurements.of(together([first, second]))
    assert (
        TableMeasurements.of(together([first, replace(first, receipt="a"), replace(first, receipt="b")][1:])).rows == 1
    )


def test_groups_of_values_must_mean_the_same() -> None:
    listed = []
    for seed, adults in ((1, ("adult",)), (2, ("adult", "old"))):
        groups = {"ages": ValueGroups("age", {"child": ("child",), "grown": adults})}
        schema = Schema(SCHEMA.attributes, SCHEMA.structural_zeros, groups)
        counts = TableCounts.from_counts(TREE, schema, TRUTH)
        listed.append(measured(("ages", "detail"), even(Rho(Fraction(1)), 2), seed, counts=counts))
    with pytest.raises(InputError, match="calls other groups 'ages'"):
        TableMeasurements.of(together(listed))


HALF = SECURE.replace('"2"', '"1"')


def test_two_runs_of_a_ledger_make_one_release(tmp_path: Path) -> None:
    config = write(tmp_path, HALF + 'total = "4"\n')
    first = co.measure(config, publish=tmp_path / "one")
    other = write(tmp_path, HALF + 'total = "4"\n', TOPDOWN.replace('"sex", ', '"age", '))
    second, third = co.measure(other, publish=tmp_path / "two"), co.measure(config, again=True)
    assert len({first.run, second.run, third.run}) == 3
    release = co.estimate([first.run, tmp_path / "two", third], config)
    folder = release.save(tmp_path / "out", page=co.render_report)
    assert failing(folder) == []
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["budget"]["epsilon"] == "3"
    assert [one["epsilon"] for one in manifest["measurements"]] == ["1", "1", "1"]
    assert [one["measurement"] for one in manifest["measurements"]] == [
        one.measurement.measurement_plan.digest for one in (first, second, third)
    ]
    assert len({one["answers"] for one in manifest["measurements"]}) == 3
    assert "3 measurements: epsilon = 1" in release.spent
    assert [check.detail for check in verify_paid(folder, config) if not check.passed] == []
    assert "measurement 3" in (folder / "report.html").read_text()
    single = json.loads((co.estimate(first, config).save(tmp_path / "alone") / "manifest.json").read_text())
    assert "measurements" not in single

    with pytest.raises(InputError, match="once more"):
        co.estimate([tmp_path / "one", first.run], config)
    changes: dict[str, Callable[[Any], Any]] = {
        "counts a measurement twice": lambda m: m["measurements"][1].update(answers=m["measurements"][0]["answers"]),
        "measurement 2 says epsilon = 1/2": lambda m: m["measurements"][1].update(epsilon="1/2"),
        "the digest of its measurements": lambda m: m["measurements"].insert(0, m["measurements"].pop()),
        "not those of its measurements": lambda m: m["measurements"].pop(),
        "other noise": lambda m: m["measurements"][0].update(noise="opendp"),
    }
    for words, change in changes.items():
        edited = json.loads((folder / "manifest.json").read_text())
        change(edited)
        (folder / "manifest.json").write_bytes(as_json(sealed(edited)))
        assert any(words in line for line in failing(folder)), (words, failing(folder))
        (folder / "manifest.json").write_bytes(as_json(sealed(manifest)))
    forged = json.loads((folder / "manifest.json").read_text())
    forged["measurements"][1]["receipt"] = "0" * 64
    (folder / "manifest.json").write_bytes(as_json(sealed(forged)))
    assert any("receipt" in check.detail for check in verify_paid(folder, config) if not check.passed)


def test_costs_of_two_laws_add_up_in_rho(tmp_path: Path) -> None:
    pure = co.measure(write(tmp_path, 'epsilon = "1"\nnoise = "seeded"\nseed = 1\n')).measurement
    seeded = 'mechanism = "discrete_gaussian"\nrho = "1/2"\nnoise = "seeded"\nseed = 2\n'
    config = write(tmp_path, seeded)
    release = co.estimate([co.measure(config), pure])
    # Nine questions of epsilon 1/9 each.
    assert Fraction(release.manifest["budget"]["rho"]) == Fraction(1, 2) + 9 * Fraction(1, 81) / 2
    folder = release.save(tmp_path / "out", page=co.render_report)
    assert failing(folder) == []
    assert release.manifest["status"] == "NOT PRIVATE"


def test_seeded_and_secure_noise_together_are_not_private(tmp_path: Path) -> None:
    secure = co.measure(write(tmp_path, HALF))
    seeded = co.measure(write(tmp_path, 'epsilon = "3"\nnoise = "seeded"\nseed = 1\n'))
    release = co.estimate([secure, seeded])
    assert (release.manifest["status"], release.manifest["private"]) == ("NOT PRIVATE", False)
    folder = release.save(tmp_path / "out")
    assert failing(folder) == []
    assert all(check.passed for check in verify_paid(folder, write(tmp_path, HALF)))


def test_other_kinds_say_what_they_take(tmp_path: Path) -> None:
    ranges = [
        co.measure(
            co.configure(
                folder=tmp_path,
                data={"values": records_of_values(tmp_path)},
                privacy={"epsilon": "1", "noise": "seeded", "seed": seed},
                ranges={"cells": 4},
            )
        )
        for seed in (1, 2)
    ]
    with pytest.raises(InputError, match="one measurement at a time") as refused:
        co.estimate(ranges)
    assert refused.value.code == "one-measurement"
    with pytest.raises(InputError, match="of the kind 'ranges'"):
        co.estimate([co.measure(write(tmp_path)), ranges[0]])


def records_of_values(folder: Path) -> str:
    (folder / "values.csv").write_text("value\n1\n2\n2\n3\n")
    return "values.csv"


def test_groups_are_estimated_together_by_their_posterior(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text("nation,part,size,groups\nall,north,1,50\nall,north,3,9\nall,south,1,30\n")
    base = co.configure(
        folder=tmp_path,
        data={"sizes": "counts.csv"},
        privacy={"epsilon": "1/2", "noise": "seeded", "seed": 7},
        groups={"max_size": 8, "consistency": "posterior"},
    )
    two = [co.measure(base), co.measure(co.configure(base, privacy={"seed": 8}))]
    release = co.estimate(two, base)
    assert release.manifest["budget"]["epsilon"] == "1"
    folder = release.save(tmp_path / "out", page=co.render_report)
    assert failing(folder) == []
    with pytest.raises(ConfigError, match='only "posterior" estimates several together'):
        co.estimate(two, co.configure(base, groups={"consistency": "joint"}))
