"""Neighbours under the same noisy answers: no public byte differs, and the noise loses what was paid for, exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt import forecast, load_config
from coco_opt.privacy import DiscreteGaussian, Geometric, Neighbours
from coco_opt.privacy.loss_distributions import one_answer
from tests.loss_meter.cases import CASES, DISTRIBUTIONS, PAIR, STAGES, Case, Files
from tests.loss_meter.faults import FAULTS
from tests.loss_meter.hockey_stick import deltas
from tests.loss_meter.meter import FINGERPRINT, Execute, Ran, Reading, in_a_process, in_this_process, prepare, read, run

ALL = [
    pytest.param(name, distribution, neighbours, id=f"{name}, {distribution}, {neighbours}")
    for name, case in CASES.items()
    for distribution in DISTRIBUTIONS
    for neighbours in case.pairs
]
FAST: Sequence[tuple[str, str, Neighbours, str]] = (
    ("cumulative", "geometric", "add_remove", "joint"),
    ("buckets by edges", "gaussian", "add_remove", "posterior"),
    ("private counts", "geometric", "add_remove", "none"),
    ("look", "geometric", "add_remove", "posterior"),
    ("workload", "geometric", "add_remove", "full"),
    ("rows a person", "gaussian", "add_remove", "classic"),
    ("tree", "gaussian", "replace", "nonnegative"),
    ("cells", "geometric", "replace", "zeroed"),
)


def readings(
    folder: Path,
    case: Case,
    privacy: str,
    neighbours: Neighbours,
    methods: Sequence[str],
    pairs: int | None = None,
    execute: Execute = in_this_process,
) -> Iterator[Any]:
    """Yield what was released of the table, then what the meter reads of each neighbour, of the first ``pairs``.

    The first neighbour is measured and released by every method, the others are measured.
    """
    configs, commands = case.configs(privacy, neighbours, methods), case.commands(methods)
    first = run(folder, {**case.files, **configs}, commands, execute=execute)
    assert set(first.codes) == {b"0"}, first.public
    yield first
    for number, files in enumerate(list(case.pairs[neighbours].values())[:pairs]):
        wanted = commands[:1] if number else commands
        yield read(first, run(folder, {**case.files, **configs, **files}, wanted, first.noise.given, execute))


def check(first: Ran, found: Reading, method: str) -> Fraction:
    """Check a pair against the budget and the curve that were published; return the part of the budget it loses."""
    assert found.differing == ()
    budget = json.loads(first.file(f"out-{method}/manifest.json"))["budget"]
    unit = "epsilon" if "epsilon" in budget else "rho"
    lost, paid = getattr(found, unit), Fraction(budget[unit])
    assert lost <= paid
    assert abs(found.realised) <= found.epsilon
    claims = list(budget["implied"]["curve"].items())
    if measurement_plan := budget.get("asked"):
        claims.append((measurement_plan["delta"], measurement_plan["epsilon"]))
    for delta, epsilon in claims:
        low, high = deltas([(one.distribution, one.amount) for one in found.changes], Fraction(epsilon))
        # Where unlike parts are many the meter's own bound is up to a thousandth above the lower one, else none.
        assert low <= Fraction(delta)
        assert high <= Fraction(delta) * Fraction(1001, 1000)
    share: Fraction = lost / paid
    return share


def metered(
    folder: Path, name: str, distribution: str, neighbours: Neighbours, methods: Sequence[str], **how: Any
) -> None:
    """Meter the pairs of a case; some must lose all of the budget where that can be."""
    case = CASES[name]
    first, *found = readings(folder, case, DISTRIBUTIONS[distribution], neighbours, methods, **how)
    assert FINGERPRINT.encode() not in b"".join(content for made in first.public for content in made.values())
    shares = [check(first, one, methods[-1]) for one in found]
    assert max(shares) == 1 if neighbours in case.reached else max(shares) > Fraction(1, 2)


@pytest.mark.parametrize(("name", "distribution", "neighbours", "method"), FAST, ids=lambda value: str(value))
def test_no_byte_differs_and_the_loss_is_what_was_paid(
    name: str, distribution: str, neighbours: Neighbours, method: str, tmp_path: Path
) -> None:
    metered(tmp_path / "work", name, distribution, neighbours, [method], pairs=2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "distribution", "neighbours"), ALL)
def test_no_byte_differs_by_any_question_and_method(
    name: str, distribution: str, neighbours: Neighbours, tmp_path: Path
) -> None:
    # Every method after one law and rule of neighbours, and one in turn after the others.
    methods, rules = list(CASES[name].methods), list(CASES[name].pairs)
    place = 2 * list(DISTRIBUTIONS).index(distribution) + rules.index(neighbours)
    metered(
        tmp_path / "work", name, distribution, neighbours, methods if not place else [methods[place % len(methods)]]
    )


@pytest.mark.parametrize(("name", "method"), [("look", "posterior"), ("chosen tables", "full")])
def test_a_plan_is_the_same_for_neighbours_before_and_after_the_payment(name: str, method: str, tmp_path: Path) -> None:
    def plans(folder: Path, files: Files, given: Any = None) -> tuple[list[dict[str, Any]], Any]:
        everything = {**case.files, **case.configs(DISTRIBUTIONS["geometric"], "add_remove", [method]), **files}
        prepare(folder, everything)
        before = forecast(load_config(folder / f"{method}.toml")).as_dict()
        ran = run(folder, everything, case.commands([method])[:1], given)
        after = forecast(load_config(folder / f"{method}.toml")).as_dict()
        timed = ("seconds", "stages")
        return [{key: value for key, value in one.items() if key not in timed} for one in (before, after)], ran

    case = CASES[name]
    first, ran = plans(tmp_path / "work", {})
    for files in list(case.pairs["add_remove"].values())[:1]:
        assert plans(tmp_path / "work", files, ran.noise.given)[0] == first
    if name == "look":
        assert first[0] != first[1]  # the look's noisy answers narrow the ranges


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"), [("cumulative", "posterior"), ("workload", "full"), ("tree", "consistent")]
)
def test_no_byte_differs_between_processes_either(name: str, method: str, tmp_path: Path) -> None:
    metered(tmp_path / "work", name, "geometric", "add_remove", [method], pairs=1, execute=in_a_process)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cumulative", "mixed buckets", "workload", "tree"])
def test_an_epsilon_and_delta_are_kept_and_nearly_reached(name: str, tmp_path: Path) -> None:
    method = next(iter(CASES[name].methods))
    first, *found = readings(tmp_path / "work", CASES[name], PAIR, "add_remove", [method])
    assert max(check(first, one, method) for one in found) == 1
    lowest = [
        deltas(((one.distribution, one.amount) for one in pair.changes), Fraction(2))[0]
        for pair in found
        if pair.changes
    ]
    assert 0.99e-6 < max(lowest) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("pair", CASES["workload"].pairs["add_remove"])
def test_no_byte_of_two_releases_that_agree_differs(pair: str, tmp_path: Path) -> None:
    case, commands = CASES["workload"], [["release", f"{name}.toml", "--out", name] for name in ("ages", "sexes")]
    first = run(tmp_path / "work", {**case.files, **STAGES}, commands)
    assert set(first.codes) == {b"0"}, first.public
    changed = case.pairs["add_remove"][pair]
    found = read(first, run(tmp_path / "work", {**case.files, **STAGES, **changed}, commands, first.noise.given))
    assert found.differing == ()
    assert found.epsilon == 2


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_seen(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = FAULTS[fault]
    case, folder = CASES[planted.case], tmp_path / "work"
    commands = case.commands([planted.method])
    if not planted.seen.endswith((".json", ".parquet")):
        commands = commands[:1]
    planted.plant(monkeypatch)
    files = {**case.files, **case.configs(DISTRIBUTIONS[planted.distribution], planted.neighbours, [planted.method])}
    first = run(folder, files, commands)
    second = run(folder, {**files, **case.pairs[planted.neighbours][planted.pair]}, commands, first.noise.given)
    found = read(first, second)
    if planted.seen in ("epsilon", "rho"):
        budget = {"epsilon": Fraction(1), "rho": Fraction(1, 2)}[planted.seen]
        assert getattr(found, planted.seen) > budget
        assert found.differing == ()
    else:
        assert any(planted.seen in name for name in found.differing)


def test_the_hockey_stick_equals_enumeration() -> None:
    changes, epsilon, noise = (
        [(Fraction(2), 1), (Fraction(2), -2), (Fraction(3, 2), 1)],
        Fraction(3, 2),
        np.arange(-60, 61),
    )
    first = second = np.ones(1)
    for scale, amount in changes:
        ratio = math.exp(-1 / scale)
        first, second = (
            np.outer(before, (1 - ratio) / (1 + ratio) * ratio ** np.abs(noise - moved)).ravel()
            for before, moved in ((first, 0), (second, amount))
        )
    delta = np.maximum(first - math.exp(epsilon) * second, 0).sum()
    assert deltas([(Geometric(scale), amount) for scale, amount in changes], epsilon) == pytest.approx((delta, delta))


def test_the_hockey_stick_of_gaussian_noise_lies_below_its_distribution() -> None:
    one, two = DiscreteGaussian(Fraction(5)), DiscreteGaussian(Fraction(3))
    above = one_answer(one, 1, 2.0**-10).times(2) + one_answer(two, 2, 2.0**-10)
    for epsilon in (Fraction(1), Fraction(3), Fraction(5)):
        low, high = deltas([(one, 1), (one, 1), (two, 2)], epsilon)
        assert 0.999 * above.delta(epsilon) < low <= high <= above.delta(epsilon)
        assert high < low * (1 + 1e-8)
