"""One account, one promise: mixtures are refused before they are paid, and every sum names what is exact."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from coco_opt import Config, check, configure, forecast, measure, release
from coco_opt.errors import BudgetError
from coco_opt.privacy import Charge, Ledger
from coco_opt.releases.planning import planned
from coco_opt.releases.reporter import Silent
from coco_opt.releases.runs import charge_for, ledger_of
from coco_opt.releases.verify import verify_paid
from tests.releases.drawn import restate
from tests.releases.towns import Watch

REGIONS = pd.DataFrame({"region_id": ["x", "y"], "nation": "land", "county": ["x", "y"]})
GROUPS = pd.DataFrame({"group_id": [*"abcdefgh"], "region_id": [*"xxxxyyyy"]})
ENTITIES = pd.DataFrame({"entity_id": range(14), "group_id": [*"aabbbccdeefggg"]})
RECORDS = pd.DataFrame({"region_id": [*"xxxyyy"] * 4, "sex": [*"fmffmm"] * 4})
PERSONS = RECORDS.assign(person_id=range(24))
BOUNDS = pd.DataFrame({"region": ["land/x"], "query": ["sex"], "answer": ["sex = f"], "lower": [0], "upper": [900]})
FACILITIES = pd.DataFrame({"region_id": ["x", "y"], "m": [1, 2]})
HOMES = {"attribute": "sex", "types": {"m": {"least": 1, "most": 900}}}
PRIVACY = {"dataset": "made", "epsilon": "1", "total": "9", "split": "uniform"}
GROUP_KEYS = {"max_size": 6, "bucket_growth": 0, "consistency": "matching"}
TABLE_KEYS = {"attributes": {"sex": ["f", "m"]}, "workload": ["sex"]}
INVARIANT = {"query": "total", "level": "county"}
BAND = {"of": "sex", "groups": {"a": ["f"], "b": ["m"]}}
EXACT = {"invariants": [INVARIANT]}
CONSTRAINT = {"holds": "[sex = f] >= 0", "source": "data"}
Keys = Mapping[str, Any]


def groups(neighbours: str = "add_remove", epsilon: str = "1", **keys: Any) -> Config:
    data = {"entities": ENTITIES, "groups": GROUPS, "hierarchy": REGIONS}
    privacy = {**PRIVACY, "neighbours": neighbours, "epsilon": epsilon}
    return configure(data=data, privacy=privacy, groups={**GROUP_KEYS, **keys}, auto={"look": "0"})


def tables(
    neighbours: str = "replace",
    bounds: pd.DataFrame | None = None,
    regions: pd.DataFrame = REGIONS,
    places: pd.DataFrame = FACILITIES,
    **keys: Any,
) -> Config:
    data = {"records": PERSONS if "rows_a_person" in keys else RECORDS, "hierarchy": regions}
    data |= {} if bounds is None else {"bounds": bounds}
    data |= {"facilities": places} if "facilities" in keys else {}
    return configure(data=data, privacy={**PRIVACY, "neighbours": neighbours}, topdown={**TABLE_KEYS, **keys})


def ranges(neighbours: str = "add_remove", epsilon: str = "1", **keys: Any) -> Config:
    values = pd.DataFrame({"value": [k * k % 8 for k in range(30)]})
    privacy = {**PRIVACY, "neighbours": neighbours, "epsilon": epsilon}
    return configure(data={"values": values}, privacy=privacy, ranges={"cells": 8, "fan_out": 2, **keys})


# By kind: the keys that say what is promised, then the keys that do not. The first of each list changes nothing.
KINDS: dict[str, tuple[Callable[..., Config], list[Keys], list[Keys]]] = {
    "groups": (
        groups,
        [{}, {"neighbours": "replace"}, {"group_counts": "private"}],
        [{}, {"max_size": 7}, {"query": "sizes"}, {"bucket_growth": 1.0}, {"epsilon": "1/2"}, {"consistency": "none"}],
    ),
    "tables": (
        tables,
        [
            {},
            {"neighbours": "add_remove"},
            {"rows_a_person": 2},
            {"rows_a_person": 3},
            {"invariants": [INVARIANT]},
            {"invariants": [{**INVARIANT, "level": "nation"}]},
            {"invariants": [{**INVARIANT, "query": "sex"}]},
            {"invariants": [INVARIANT, {**INVARIANT, "query": "sex"}]},
            {"constraints": [CONSTRAINT]},
            {"constraints": [{**CONSTRAINT, "holds": "[sex = m] >= 0"}]},
            {"constraints": [{**CONSTRAINT, "level": "nation"}]},
            {"bounds": BOUNDS, "bounds_source": "data"},
            {"facilities": {**HOMES, "source": "data"}},
        ],
        [
            {},
            {"rows_a_person": 1},
            {"workload": ["total", "sex"]},
            {"attributes": {"sex": ["f", "m", "x"]}},
            {"constraints": [{**CONSTRAINT, "source": "public"}]},
            {"constraints": [{**CONSTRAINT, "source": "structural"}]},
            {"bounds": BOUNDS},
            {"facilities": HOMES},
            {"estimation": "classic"},
        ],
    ),
    "exact counts": (  # equal words, and other regions, values or sides
        tables,
        [
            EXACT,
            {**EXACT, "regions": REGIONS.assign(county=["y", "x"])},
            {**EXACT, "regions": REGIONS.assign(county="x", tract=["x", "y"])},
            {"invariants": [{**INVARIANT, "query": "sex"}]},
            {"invariants": [{**INVARIANT, "query": "sex"}], "attributes": {"sex": ["f", "m", "x"]}},
            {"invariants": [{**INVARIANT, "query": "band"}], "groupings": {"band": BAND}},
            {
                "invariants": [{**INVARIANT, "query": "band"}],
                "groupings": {"band": {**BAND, "groups": {"a": ["m"], "b": ["f"]}}},
            },
            {"bounds": BOUNDS, "bounds_source": "data"},
            {"bounds": BOUNDS.assign(upper=800), "bounds_source": "data"},
            {"facilities": {**HOMES, "source": "data"}},
            {"facilities": {**HOMES, "source": "data"}, "places": FACILITIES.assign(m=[2, 1])},
            {"constraints": [CONSTRAINT]},
            {"constraints": [CONSTRAINT], "regions": REGIONS.assign(county=["y", "x"])},
        ],
        [
            EXACT,
            {**EXACT, "workload": ["total", "sex"]},
            {**EXACT, "attributes": {"sex": ["f", "m", "x"]}},
            {**EXACT, "workload": ["band"], "groupings": {"band": BAND}},
            {**EXACT, "rows_a_person": 1},
        ],
    ),
    "ranges": (
        ranges,
        [{}, {"neighbours": "replace"}],
        [{}, {"cells": 9}, {"fan_out": 3}, {"epsilon": "1/3"}, {"estimator": "consistent"}],
    ),
}


def charge_of(kind: str, number: int, of: int) -> Charge:
    return _charges(kind, of)[number]


@cache
def _charges(kind: str, of: int) -> tuple[Charge, ...]:
    make, listed = KINDS[kind][0], KINDS[kind][of]
    configs = [make(**keys) for keys in listed]
    return tuple(charge_for(config, planned(config, Silent()).measurement_plan, "") for config in configs)


def paid_together(tmp_path: Path, kind: str, of: int) -> dict[tuple[int, int], str]:
    """Reserve every ordered pair of configurations in an account of its own; return the refusals."""
    ledger, refusals = Ledger(tmp_path / "ledger.sqlite"), {}
    for pair in permutations(range(len(KINDS[kind][of])), 2):
        name = f"{pair[0]}, {pair[1]}"
        for at in pair:
            charge = charge_of(kind, at, of)
            try:
                ledger.reserve(f"{name}: {at}", replace(charge, dataset=name), Fraction(9))
            except BudgetError as error:
                refusals[pair] = str(error)
        spent = ledger.books().accounts[name].spent
        costs = sum(charge_of(kind, at, of).amount for at in pair[: 1 if pair in refusals else 2])
        assert spent == costs, "a refusal is before the payment"
    return refusals


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_promises_the_second_is_refused_before_it_is_paid(tmp_path: Path, kind: str) -> None:
    refusals, listed = paid_together(tmp_path, kind, 1), KINDS[kind][1]
    assert set(refusals) == set(permutations(range(len(listed)), 2))
    for (first, second), message in refusals.items():
        mixed = {"neighbours"} & {*listed[first], *listed[second]}
        for at in (first, second):
            promise = charge_of(kind, at, 1).promise
            assert mixed or (promise is not None and promise.words in message)
        assert "privacy.dataset" in message
        assert mixed or "privacy.weaker_promise = true" in message


@pytest.mark.parametrize("kind", KINDS)
def test_what_changes_no_promise_is_paid_from_one_account(tmp_path: Path, kind: str) -> None:
    assert paid_together(tmp_path, kind, 2) == {}


MIXTURES = {
    "private, then public numbers of groups": (
        groups(group_counts="private"),
        groups(),
        "the number of groups of every region",
    ),
    "three rows a person, then rows": (tables(rows_a_person=3), tables(), "which is one row of a table"),
    "nothing exact, then invariants": (tables(), tables(invariants=[INVARIANT]), "total by county"),
    "invariants, then nothing exact": (tables(invariants=[INVARIANT]), tables(), "total by county"),
    "invariants, then others": (
        tables(invariants=[INVARIANT]),
        tables(invariants=[{**INVARIANT, "query": "sex"}]),
        "sex by county, total by county",
    ),
    "invariants, then of other counties": (
        tables(**EXACT),
        tables(**EXACT, regions=REGIONS.assign(county=["y", "x"])),
        "total by county (2 times, of other regions or values)",
    ),
    "groups, then invariants": (
        groups("replace"),
        tables(invariants=[INVARIANT]),
        "the number of groups of every region, total by county",
    ),
}


def within(folder: Path, config: Config, **privacy: Any) -> Config:
    output = {"private": str(folder / "private"), "directory": str(folder / "releases")}
    return configure(config, privacy=privacy, output=output)


@pytest.mark.parametrize("mixture", MIXTURES)
def test_the_weaker_promise_is_accepted_by_a_key_and_stated_with_every_sum(tmp_path: Path, mixture: str) -> None:
    first, second, weaker = MIXTURES[mixture]
    first, second = within(tmp_path, first), within(tmp_path, second)
    release(first, reporter=Silent())
    entries = ledger_of(first).entries()
    for refusing in (check(second, reporter=Silent()).payment_status, forecast(second, reporter=Silent()).payment):
        assert not refusing.fits
        assert weaker in refusing.words
    with pytest.raises(BudgetError, match=r"One sum cannot state both.*weaker_promise = true"):
        measure(second, reporter=Silent())
    assert ledger_of(first).entries() == entries
    accepted = within(tmp_path, second, weaker_promise=True)
    assert check(accepted, reporter=Silent()).payment_status.fits
    assert weaker in check(accepted, reporter=Silent()).payment_status.promise
    assert weaker in forecast(accepted, reporter=Silent()).payment.promise
    assert measure(accepted, reporter=Silent()).paid
    assert weaker in ledger_of(first).books().promise_words("made")
    # Both go on for free, though neither promises what the account does now.
    assert not measure(first, reporter=Silent()).paid
    assert not measure(second, reporter=Silent()).paid


def test_groups_tables_and_ranges_of_the_same_persons_share_an_account(tmp_path: Path) -> None:
    for config in (groups(), tables("add_remove"), ranges(), groups(max_size=5)):
        assert measure(within(tmp_path, config), reporter=Silent()).paid
    words = ledger_of(within(tmp_path, groups())).books().promise_words("made")
    assert words == (
        "neighbours differ by one person added or removed, which is one row of a table; published exactly, without "
        "noise: the number of groups of every region"
    )
    with pytest.raises(BudgetError, match="One sum cannot state both"):
        measure(within(tmp_path, groups(group_counts="private")), reporter=Silent())


def test_a_look_and_what_it_chooses_make_one_promise(tmp_path: Path) -> None:
    config = configure(within(tmp_path, groups()), auto={"look": "1/50"}, groups={"bucket_growth": "auto"})
    paid = release(config, reporter=Silent())
    promises = ledger_of(config).books().promises("made")
    assert len(promises) == 2
    assert len(set(promises)) == 1
    assert paid.manifest["budget"]["promise"] == promises[0].as_dict()  # type: ignore[union-attr]
    assert all(each.passed for each in verify_paid(paid.folder, config))


def test_a_voided_payment_promises_nothing(tmp_path: Path) -> None:
    ledger, (public, _, private) = Ledger(tmp_path / "ledger.sqlite"), _charges("groups", 1)
    ledger.reserve("a", public, Fraction(9))
    with pytest.raises(BudgetError, match="One sum"):
        ledger.reserve("b", private)
    ledger.void("a")
    ledger.reserve("b", private)
    assert ledger.books().promises("made") == [private.promise]
    ledger.abandon("b")
    with pytest.raises(BudgetError, match="One sum"):
        ledger.reserve("c", public)


def test_a_release_states_its_promise_and_another_was_not_paid(tmp_path: Path) -> None:
    config = within(tmp_path, tables(invariants=[INVARIANT]))
    watch = Watch()
    folder = release(config, reporter=watch).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    assert any("published exactly, without noise: total by county" in line for line in watch.lines)
    assert all(each.passed for each in verify_paid(folder, config))
    for change in ({"exact": []}, {"contributions": 2}, {"unit": "household"}, None):
        budget = {key: value for key, value in manifest["budget"].items() if key != "promise"}
        if change is not None:
            budget["promise"] = {**manifest["budget"]["promise"], **change}
        restate(folder, budget=budget)
        paid = next(each for each in verify_paid(folder, config) if each.name == "paid")
        assert not paid.passed
        assert ("does not say what was measured" if change is None else "was paid for another promise") in paid.detail
