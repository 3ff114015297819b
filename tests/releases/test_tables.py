"""A paid release of tables: bound to what it asked, gone on with level by level, and nothing private anywhere else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coco_opt import Config, read_tables_release, release
from coco_opt.errors import BudgetError, InputError
from coco_opt.releases.kind import kind_of
from tests.releases.towns import ALL, entries
from tests.topdown.persons import HIERARCHY, SECURE, TOPDOWN, bounds, failing, records, write

REPLACE = 'epsilon = "2"\nneighbours = "replace"\ndataset = "persons"\n'
INVARIANT = '[[topdown.invariants]]\nquery = "total"\nlevel = "state"\n'


def digest(config: Config) -> str:
    """Return the identity of what a configuration asks."""
    return kind_of(config).plan(config).measurement_plan.digest


ASKED: dict[str, Callable[[Path], Config]] = {
    "order of values": lambda folder: write(folder, SECURE, TOPDOWN.replace('"female", "male"', '"male", "female"')),
    "zeros": lambda folder: write(folder, SECURE, TOPDOWN + 'structural_zeros = ["sex = male & age = old"]\n'),
    "strategy": lambda folder: write(folder, SECURE, TOPDOWN + 'strategy = "identity"\n'),
    "bounds": lambda folder: write(folder, SECURE, data=bounds(folder, "land,sex,sex = male,,900")),
    "amount": lambda folder: write(folder, SECURE.replace("2", "3")),
    "neighbours": lambda folder: write(folder, REPLACE),
    "invariants": lambda folder: write(folder, REPLACE, more=INVARIANT),
}
FREE = ('estimation = "classic"', 'estimation = "bottom_up"', "microdata = true", 'rounding = "nearest"')


def test_what_is_asked_is_the_identity_and_what_is_estimated_is_not(tmp_path: Path) -> None:
    first = digest(write(tmp_path, SECURE))
    assert digest(write(tmp_path, SECURE)) == first
    assert {digest(write(tmp_path, SECURE, f"{TOPDOWN}{line}\n")) for line in FREE} == {first}
    digests = {what: digest(change(tmp_path)) for what, change in ASKED.items()}
    assert len({first, *digests.values()}) == len(ASKED) + 1


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("land,sex,sex = male,,900", "land,sex,sex = female,,900"),
        ("land/s0,total,total,,900", "land/s1,total,total,,900"),
        ("land/s0/c0,total,total,,900", "land/s0/c0,total,total,,901"),
    ],
)
def test_bounds_that_differ_in_anything_ask_something_else(tmp_path: Path, one: str, two: str) -> None:
    assert len({digest(write(tmp_path, SECURE, data=bounds(tmp_path, row))) for row in (one, two)}) == 2


def test_one_measurement_gives_every_estimation(tmp_path: Path) -> None:
    for line in ("", *FREE):
        assert failing(release(write(tmp_path, SECURE, f"{TOPDOWN}{line}\n")).folder) == []
    assert entries(tmp_path) == [*ALL, *["RELEASED"] * len(FREE)]
    crippled = '[solvers]\ntopdown_split = { name = "osqp", max_iter = 10 }\n'
    outcome = release(write(tmp_path, SECURE, more=crippled))
    assert outcome.manifest["solvers"]["topdown_split"]["fallbacks"][0]["solver"] == "osqp"
    assert entries(tmp_path).count("RESERVED") == 1


def test_groups_of_values_keep_their_order_through_the_seal(tmp_path: Path) -> None:
    grouped = TOPDOWN.replace('"sex"', '"voting * sex"') + (
        'groupings = { voting = { of = "age", groups = { voter = ["adult", "old"], minor = ["child"] } } }\n'
        'strategy = ["voting * sex", "detail"]\n'
    )
    outcome = release(write(tmp_path, SECURE.replace("2", "300"), grouped), tmp_path / "out")
    lines = records().splitlines()[1:]
    read = read_tables_release(outcome.folder)
    table = read["land"]
    assert table.tolist() == read.table("land").tolist() == read.to_pandas(region="land")["persons"].tolist()
    assert table[3:].sum() == sum(",male," in line for line in lines)
    assert table[[0, 3]].sum() == sum(line.endswith("child") for line in lines)


def test_no_count_of_the_private_table_is_public(tmp_path: Path) -> None:
    lines, canary = records(400).splitlines(), "7391"
    weighted = "\n".join([f"{lines[0]},count", *(f"{line},{canary}" for line in lines[1:])]) + "\n"
    outcome = release(write(tmp_path, SECURE, persons=weighted), tmp_path / "out")
    manifest, total = (outcome.folder / "manifest.json").read_text(), str(400 * int(canary))
    assert canary not in manifest
    assert total not in manifest
    assert outcome.record is not None
    identity = json.loads(outcome.record.read_text())["identity"]
    assert (identity["persons"], identity["rows_read"], identity["rows_rejected"]) == (int(total), 400, 0)


def test_contradictory_public_facts_are_refused_before_the_payment(tmp_path: Path) -> None:
    rows = ("land/s0,total,total,900,", "land,total,total,,10")
    with pytest.raises(InputError, match="inconsistent-bounds"):
        release(write(tmp_path, SECURE, data=bounds(tmp_path, *rows)), tmp_path / "out")
    assert entries(tmp_path) == []


def test_labels_change_no_question(tmp_path: Path) -> None:
    config = write(tmp_path, SECURE)
    first = release(config)
    (tmp_path / "hierarchy.csv").write_text(HIERARCHY.replace("nation,state", "country,province", 1))
    assert not release(config).paid
    (tmp_path / "hierarchy.csv").write_text(HIERARCHY.replace("s1,c2", "s1,c9", 1))
    with pytest.raises(BudgetError):
        release(config)
    assert first.paid
