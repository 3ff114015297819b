"""The cost of a look belongs to whatever is released of the measurement it chose, whatever is lost or damaged."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from coco_opt import estimate, measure, read_measurement, release
from coco_opt.errors import InputError
from coco_opt.files.folder import as_json, sealed
from coco_opt.privacy import Epsilon, Ledger
from coco_opt.privacy.combined_measurements import together
from coco_opt.releases.stored_runs import forget_run
from coco_opt.releases.verify import verify_folder, verify_paid
from tests.groups.test_automatic import config_of

BOTH, READERS = Epsilon(Fraction(1)), ({}, {"consistency": "matching"})


def by_payment(folder: Path) -> tuple[Path, Path]:
    """Return the folders of the look and of the main measurement."""
    runs = {path.name: path for path in (folder / "private" / "runs").glob("2*")}
    index = {name: json.loads((path / "measurement" / "measurement.json").read_text()) for name, path in runs.items()}
    look, main = sorted(runs, key=lambda name: Fraction(index[name]["cost"]["epsilon"]))
    return runs[look], runs[main]


def stated(manifest: Any) -> tuple[str, list[bool]]:
    """Return the epsilon of a manifest, and which of its measurements were read."""
    return manifest["budget"]["epsilon"], [entry.get("read", True) for entry in manifest["measurements"]]


@pytest.mark.parametrize("groups", READERS)
def test_a_published_measurement_states_its_look_which_is_read_where_it_is_given(
    groups: dict[str, Any], tmp_path: Path
) -> None:
    config = config_of(tmp_path, groups=groups)
    measured = measure(config, publish=tmp_path / "noisy")
    alone, look = (read_measurement(tmp_path / name)[0] for name in ("noisy", "noisy-look"))
    assert alone.cost == measured.measurement.cost == BOTH
    assert alone.measurement_plan.cost != BOTH
    for measurements, read in ([alone], [True, False]), ([alone, look], [True, True]):
        estimated = estimate(measurements, config)
        assert stated(estimated.manifest) == ("1", read)
        assert "epsilon = 1 spent" in estimated.spent
        assert estimated.manifest["measurement"] == measured.measurement.identity
        written = estimated.save(tmp_path / f"estimate-{len(measurements)}")
        assert all(check.passed for check in verify_folder(written))
        assert [check.passed for check in verify_paid(written, config)] == [True, True, False]  # estimated elsewhere


def test_a_look_of_other_answers_is_another_measurement_whose_cost_adds(tmp_path: Path) -> None:
    config = config_of(tmp_path, total="2")
    first, second = measure(config).measurement, measure(config, again=True).measurement
    assert together([first.every[0], second.every[1]]).cost == Epsilon(Fraction(1) + Fraction(1, 50))
    assert together([first, second]).cost == Epsilon(Fraction(2))


def test_a_look_and_its_release_are_paid_from_the_ledger_of_an_earlier_year(tmp_path: Path) -> None:
    first = config_of(tmp_path / "2025", total="2")
    release(first)
    second = config_of(tmp_path / "2026", epsilon="1/2", ledger="../2025/private/ledger.sqlite")
    outcome = release(replace(second, name="second"))
    entries = Ledger(tmp_path / "2025" / "private" / "ledger.sqlite").entries()
    assert [entry.kind for entry in entries].count("RELEASED") == 4
    assert all(check.passed for check in verify_paid(outcome.folder, second))


@pytest.mark.parametrize("how", ["forgotten", "gone"])
def test_a_run_without_its_look_states_the_cost_of_both(how: str, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    whole = release(config, tmp_path / "out").manifest
    look, main = by_payment(tmp_path)
    if how == "forgotten":
        forget_run(config, look.name)
    else:
        shutil.rmtree(look)
    estimated = estimate(main.name, config)
    assert stated(estimated.manifest) == ("1", [True, False])
    assert stated(whole) == ("1", [True, True])
    written = estimated.save(tmp_path / "estimate")
    assert all(check.passed for check in (*verify_folder(written), *verify_paid(written, config)))


@pytest.mark.parametrize("place", ["look", "main"])
def test_a_damaged_measurement_of_either_is_refused_by_name(place: str, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    measure(config)
    look, main = by_payment(tmp_path)
    path = (look if place == "look" else main) / "measurement" / "packed.parquet"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"packed\.parquet.*restore it"):
        estimate(main.name, config)


def test_what_a_look_chose_is_not_chosen_anew_from_a_damaged_record(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    measure(config)
    (record,) = (tmp_path / "private" / "runs").glob("*/chosen-*.json")
    record.write_bytes(record.read_bytes().replace(b"1", b"2", 1))
    for verb in (release, measure):
        with pytest.raises(InputError, match=r"chosen-.*restore it.*for free"):
            verb(config)


def test_a_look_that_is_cut_out_of_a_published_measurement_shows_by_the_ledger(tmp_path: Path) -> None:
    """Whoever writes the file can seal it again; its queries are then none that the ledger knows."""
    config = config_of(tmp_path)
    measured = measure(config, publish=tmp_path / "noisy")
    path = tmp_path / "noisy" / "measurement.json"
    index = {name: entry for name, entry in json.loads(path.read_text()).items() if name not in ("seal", "look")}
    path.write_bytes(as_json(sealed(index)))
    with pytest.raises(InputError, match="digest is not that of its queries"):
        read_measurement(tmp_path / "noisy")
    plan = replace(measured.measurement.measurement_plan, look=None)
    path.write_bytes(as_json(sealed({**index, "digest": plan.digest})))
    written = estimate(tmp_path / "noisy", config).save(tmp_path / "estimate")
    paid = next(check for check in verify_paid(written, config) if check.name == "paid")
    assert not paid.passed
    assert "no run of this ledger measured these queries" in paid.detail


def test_without_a_look_nothing_is_added(tmp_path: Path) -> None:
    stated_keys = {"groups": {"bucket_growth": 0.0}, "split": "uniform"}
    measure(config_of(tmp_path, total="3"))
    config = config_of(tmp_path, total="3", **stated_keys)
    run = measure(config).run
    assert "measurements" not in estimate(run, config).manifest


def test_a_measurement_that_no_look_chose_keeps_its_own_cost(tmp_path: Path) -> None:
    open_keys = config_of(tmp_path, total="3")
    looked = measure(open_keys)
    method, split = looked.config.method, map(str, looked.config.privacy.split)
    keys = {"bucket_growth": list(method.bucket_growth)}
    config = config_of(tmp_path, total="3", epsilon="49/50", groups=keys, split=list(split))
    alone = measure(config)
    assert looked.measurement.every[0].measurement_plan.queries == alone.measurement.measurement_plan.queries
    assert not measure(open_keys).paid
    assert estimate(alone.run, config).manifest["budget"]["epsilon"] == "49/50"
