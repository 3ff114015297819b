"""What a paid release of tables is bound to, what it leaves behind, and that nothing private shows anywhere else."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt.config import TablesConfig
from coco_opt.errors import BudgetError, CocoOptError, ConfigError, InputError
from coco_opt.privacy import RunKey
from coco_opt.privacy.ledger import Ledger
from coco_opt.runs.publish import folder_digest
from coco_opt.runs.tables import release as module
from coco_opt.runs.tables.plan import plan_tables, read_private_tables
from coco_opt.runs.tables.release import run_tables
from coco_opt.tables.persons import read_tables_release
from coco_opt.topdown.measure import measure_tables
from coco_opt.topdown.measurements import TableMeasurements
from tests.runs.test_tables import HIERARCHY, SECURE, SEEDED, TOPDOWN, failing, interrupted, ledger, records, write

REPLACE = 'epsilon = "2"\nneighbours = "replace"\n'
GROUPED = TOPDOWN.replace('"sex"', '"voting * sex"') + (
    'groupings = { voting = { of = "age", groups = { voter = ["adult", "old"], minor = ["child"] } } }\n'
)


def digest(config: TablesConfig) -> str:
    return plan_tables(config).charge.digest


def bounds(folder: Path, row: str) -> str:
    (folder / "bounds.csv").write_text(f"region,query,answer,lower,upper\n{row}\n")
    return 'bounds = "bounds.csv"\n'


CHANGES: list[tuple[str, Callable[[Path], TablesConfig]]] = [
    (
        "order of attributes",
        lambda folder: write(
            folder,
            SECURE,
            TOPDOWN.replace('sex = ["female", "male"], age =', "age =").replace(
                '"old"] }', '"old"], sex = ["female", "male"] }'
            ),
        ),
    ),
    ("order of values", lambda folder: write(folder, SECURE, TOPDOWN.replace('"female", "male"', '"male", "female"'))),
    (
        "structural zeros",
        lambda folder: write(folder, SECURE, TOPDOWN + 'structural_zeros = ["sex = male & age = old"]\n'),
    ),
    ("workload", lambda folder: write(folder, SECURE, TOPDOWN.replace('"sex", ', ""))),
    ("estimation", lambda folder: write(folder, SECURE, TOPDOWN + 'estimation = "classic"\n')),
    ("bounds", lambda folder: write(folder, SECURE, data=bounds(folder, "land,sex,sex = male,,900"))),
    ("amount", lambda folder: write(folder, SECURE.replace("2", "3"))),
]


def test_a_run_is_bound_to_all_that_shapes_its_answer(tmp_path: Path) -> None:
    first = digest(write(tmp_path, SECURE))
    assert digest(write(tmp_path, SECURE)) == first
    found = {what: digest(change(tmp_path)) for what, change in CHANGES}
    assert len({first, *found.values()}) == len(found) + 1


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("land,sex,sex = male,,900", "land,sex,sex = female,,900"),
        ("land,sex,sex = male,,900", 'land,"sex[female, male]","sex[female, male] = male",,900'),
        ("land/s0,total,total,,900", "land/s1,total,total,,900"),
        ("land/s0/c0,total,total,,900", "land/s0/c0,total,total,,901"),
    ],
)
def test_bounds_that_differ_in_anything_make_another_run(tmp_path: Path, one: str, two: str) -> None:
    first, second = (digest(write(tmp_path, SECURE, data=bounds(tmp_path, row))) for row in (one, two))
    assert first != second


def test_a_run_is_bound_to_invariants_names_of_levels_and_regions(tmp_path: Path) -> None:
    def config(**more: Any) -> str:
        return digest(
            write(tmp_path, REPLACE, more='[[topdown.invariants]]\nquery = "total"\nlevel = "state"\n', **more)
        )

    first = config()
    plain = digest(write(tmp_path, REPLACE))
    settings = write(tmp_path, REPLACE, more='[[topdown.invariants]]\nquery = "total"\nlevel = "state"\n')
    changed = []
    for old, new in (("nation,state", "state,nation"), ("r00,", "q00,"), ("r00,land,s0,c0", "r00,land,s1,c9")):
        (tmp_path / "hierarchy.csv").write_text(HIERARCHY.replace(old, new, 1))
        changed.append(digest(settings))
    assert len({first, plain, *changed}) == 5


def test_swapped_attributes_pay_for_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupted(monkeypatch, "estimate_tables"):
        run_tables(write(tmp_path, SECURE), tmp_path / "out")
    with pytest.raises(BudgetError):
        run_tables(CHANGES[0][1](tmp_path), tmp_path / "out")
    run_tables(write(tmp_path, SECURE), tmp_path / "out")
    assert ledger(tmp_path) == ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]


def test_groups_keep_their_order_through_the_seal(tmp_path: Path) -> None:
    config = write(tmp_path, SECURE.replace("2", "300"), GROUPED + 'strategy = ["voting * sex", "detail"]\n')
    outcome = run_tables(config, tmp_path / "out")
    lines = records().splitlines()[1:]
    found = read_tables_release(outcome.folder).table("land")
    assert found[3:].sum() == sum(",male," in line for line in lines)
    assert found[[0, 3]].sum() == sum(line.endswith("child") for line in lines)
    assert failing(outcome.folder) == []


def test_a_resumed_run_draws_the_same_noise_and_releases_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(tmp_path, SECURE)
    seen: list[TableMeasurements] = []
    real = measure_tables

    def measured(*given: Any, **more: Any) -> TableMeasurements:
        seen.append(real(*given, **more))
        return seen[-1]

    monkeypatch.setattr(module, "measure_tables", measured)
    with monkeypatch.context() as patch:
        patch.setattr(module, "TABLES_SEALING", None)
        with pytest.raises(AttributeError):
            run_tables(config, tmp_path / "out")
    with interrupted(monkeypatch, "publish"):
        run_tables(config, tmp_path / "out")
    first = run_tables(config, tmp_path / "out")
    assert len(seen) == 2
    for one, two in zip(seen[0].answers, seen[1].answers, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True) if a is not None and b is not None)
    assert ledger(tmp_path) == ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]
    entries = Ledger(tmp_path / "private" / "ledger.sqlite").entries()
    assert entries[-1].digest == folder_digest(first.folder)


def test_a_run_stopped_at_any_file_ends_in_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class StoppedError(BaseException):
        pass

    real, calls, stop = os.rename, 0, 0

    def rename(*given: Any, **more: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == stop:
            raise StoppedError
        real(*given, **more)

    monkeypatch.setattr(RunKey, "generate", classmethod(lambda cls: cls(bytes(range(32)))))
    monkeypatch.setattr("os.rename", rename)
    digests, steps = set(), 0
    while calls >= stop:
        stop, calls = stop + 1, 0
        folder = tmp_path / str(stop)
        folder.mkdir()
        config = write(folder, SECURE, TOPDOWN + "microdata = true\n", more='[output]\nprivate = "private"\n')
        try:
            outcome = run_tables(config, folder / "out")
        except StoppedError:
            outcome = run_tables(config, folder / "out")
            steps += 1
        digests.add(folder_digest(outcome.folder))
        assert ledger(folder) == ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]
        assert not list(folder.rglob("*.partial"))
        assert not list(folder.glob("private/runs/*/levels-*"))
        assert not list(folder.glob("private/runs/*/key"))
        calls = calls if stop < 100 else 0
    assert len(digests) == 1
    # The key, the target, the input, the identity, the seal, three levels, the release and its record.
    assert steps == 10


def test_nothing_private_is_read_before_the_payment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, states = read_private_tables, []

    def read(plan: Any) -> Any:
        states.append(ledger(tmp_path))
        return real(plan)

    monkeypatch.setattr(module, "read_private_tables", read)
    run_tables(write(tmp_path, SECURE), tmp_path / "out")
    assert states == [["GRANTED", "RESERVED"]]


def test_records_that_were_mended_are_paid_for_once(tmp_path: Path) -> None:
    bad = records().replace("female", "zebra7391", 1)
    with pytest.raises(InputError, match="unknown-value") as caught:
        run_tables(write(tmp_path, SECURE, persons=bad), tmp_path / "out")
    assert "zebra7391" not in repr(caught.value) + str(caught.value.__context__)
    outcome = run_tables(write(tmp_path, SECURE), tmp_path / "out")
    assert ledger(tmp_path) == ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]
    assert failing(outcome.folder) == []


def test_records_changed_after_they_were_counted_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupted(monkeypatch, "measure_tables"):
        run_tables(write(tmp_path, SECURE), tmp_path / "out")
    with pytest.raises(InputError, match="input-changed"):
        run_tables(write(tmp_path, SECURE, persons=records(301)), tmp_path / "out")
    run_tables(write(tmp_path, SECURE), tmp_path / "out")


def test_private_files_are_their_owners_and_checkpoints_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(tmp_path, SECURE)
    with interrupted(monkeypatch, "publish"):
        run_tables(config, tmp_path / "out")
    (run,) = (path for path in (tmp_path / "private" / "runs").iterdir() if path.is_dir())
    assert {path.name for path in run.iterdir()} >= {"sealed", "levels-002", "identity.json"}
    assert not (run / "key").exists()
    assert not list(run.glob("levels-00[01]"))
    for path in run.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (run / "levels-002").write_bytes(b"damaged")
    outcome = run_tables(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    assert not list(run.glob("levels-*"))


def test_no_count_of_the_private_table_is_public(tmp_path: Path) -> None:
    lines = records(400).splitlines()
    canary = "7391"
    weighted = "\n".join([f"{lines[0]},count", *(f"{line},{canary}" for line in lines[1:])]) + "\n"
    outcome = run_tables(write(tmp_path, SECURE, persons=weighted), tmp_path / "out")
    manifest = (outcome.folder / "manifest.json").read_text()
    total = str(400 * int(canary))
    assert canary not in manifest
    assert total not in manifest
    identity = json.loads(outcome.record.read_text())["identity"]
    assert (identity["persons"], identity["rows_read"], identity["rows_rejected"]) == (int(total), 400, 0)


@pytest.mark.parametrize("estimation", ["full", "classic", "bottom_up"])
def test_nobody_at_all_can_be_released(tmp_path: Path, estimation: str) -> None:
    topdown = f'{TOPDOWN}estimation = "{estimation}"\nmicrodata = true\n'
    config = write(tmp_path, SEEDED.replace('"2"', '"300"'), topdown, persons="region_id,sex,age\n")
    outcome = run_tables(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    assert read_tables_release(outcome.folder).table("land").tolist() == [0] * 6


@pytest.mark.parametrize("estimation", ["full", "bottom_up"])
def test_one_region_alone_can_be_released(tmp_path: Path, estimation: str) -> None:
    topdown = f'{TOPDOWN}estimation = "{estimation}"\nmicrodata = true\n'
    persons = "region_id,sex,age,count\nr,male,old,1000000\nr,female,child,2\nr,female,old,0\n"
    config = write(tmp_path, SEEDED.replace('"2"', '"300"'), topdown, persons=persons)
    (tmp_path / "hierarchy.csv").write_text("region_id,nation\nr,land\n")
    outcome = run_tables(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    assert read_tables_release(outcome.folder).table("land").tolist() == [2, 0, 0, 0, 0, 1_000_000]


@pytest.mark.parametrize("name", ["lower", "estimate", "persons2", "parent", "query", 'o\'Neil \\"x\\"', "größe ≥ 1"])
def test_any_other_name_of_an_attribute_is_a_column(tmp_path: Path, name: str) -> None:
    plain = name.replace("\\", "")
    quoted = '"' + plain.replace('"', '""') + '"'
    topdown = f'attributes = {{ "{name}" = ["1", "2"] }}\nworkload = ["detail"]\nmicrodata = true\n'
    persons = f"region_id,{quoted}\n" + "r00,1\nr01,2\n" * 20
    outcome = run_tables(write(tmp_path, topdown=topdown, persons=persons), tmp_path / "out")
    assert failing(outcome.folder) == []
    assert plain in read_tables_release(outcome.folder).to_pandas().columns


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ('Region = ["a", "b"]', "is a column of the release, 'region'"),
        ('COUNT = ["a", "b"]', "another name"),
        ('sex = ["a", "b"], Sex = ["c", "d"]', "'sex' and 'Sex' differ in case only"),
    ],
)
def test_names_that_many_programs_would_confuse_are_refused(tmp_path: Path, attributes: str, words: str) -> None:
    config = write(tmp_path, SECURE, f'attributes = {{ {attributes} }}\nworkload = ["total"]\n')
    with pytest.raises(ConfigError, match=words):
        run_tables(config, tmp_path / "out")
    assert ledger(tmp_path) == []


def test_a_bound_read_twice_spends_nothing(tmp_path: Path) -> None:
    row = "land/s0,total,total,1,900\nland/s0,total,total,2,900"
    with pytest.raises(CocoOptError, match="duplicate-bound"):
        run_tables(write(tmp_path, SECURE, data=bounds(tmp_path, row)), tmp_path / "out")
    assert ledger(tmp_path) == []
