"""What does not fit in memory lies in the private folder meanwhile, and nowhere afterwards, however a run ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as pq
import pytest

from coco_opt import Schema, check, configure
from coco_opt.errors import InputError
from coco_opt.files import batches, scratch, source
from coco_opt.files.batches import batches_of
from coco_opt.files.inputs import ENTITIES, Frame, Input
from coco_opt.files.regions import read_regions
from coco_opt.files.scratch import remove_spilled, spilling
from coco_opt.groups.measuring import entities as reader
from coco_opt.groups.measuring import sizes
from coco_opt.groups.measuring.entities import read_private, read_public
from coco_opt.groups.measuring.sizes import read_public_sizes, read_sizes, read_sizes_regions
from coco_opt.ranges import DomainTree
from coco_opt.ranges.measuring import values
from coco_opt.ranges.measuring.values import read_values
from coco_opt.topdown.measuring import cell_query
from coco_opt.topdown.measuring.records import read_records
from tests.files.helpers import CANARY, Write, at, refused
from tests.files.helpers import ENTITIES as POSTER
from tests.files.helpers import GROUPS as LISTED
from tests.files.helpers import HIERARCHY as TOWN

ROWS, GROUPS, LEAVES, SEXES = 300_000, 60_000, 5, ("female", "male")
LITTLE = "24MB"
FIRST = 10**17  # values of 18 digits: texts too long to lie in 12 bytes
HIERARCHY = "region_id,nation,state\n" + "".join(f"{name},all,s{k}\n" for k, name in enumerate("abcde"))


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give DuckDB too little memory for the tables here, whatever their size."""
    monkeypatch.setattr(scratch, "LARGE", 0)
    monkeypatch.setattr(source, "_MEMORY", LITTLE)


@dataclass(frozen=True)
class Case:
    """A kind of private table: its rows, how they are read, what that must give, and cells that make it wrong.

    ``counts`` is the function of its reader that is called once everything is checked.
    """

    name: str
    counts: tuple[ModuleType | type, str]
    rows: Callable[[], pa.Table]
    read: Callable[[Path, Path], list[int]]
    truth: Callable[[pa.Table], list[int]]
    wrong: Mapping[str, tuple[str, str, dict[int, Any]]]


def texts(begin: str, numbers: np.ndarray) -> pa.Array:
    """Return ids too long to lie in 12 bytes."""
    padded = compute.utf8_lpad(pa.array(numbers).cast(pa.string()), 40, "0")
    return compute.binary_join_element_wise(begin, padded, "")


def spilled(private: Path) -> list[Path]:
    return list(private.glob(".spill-*"))


def numbers(table: pa.Table, column: str) -> np.ndarray:
    return np.asarray(table.column(column).to_numpy())


def entities() -> pa.Table:
    rng = np.random.default_rng(3)
    owner = texts("g", rng.integers(0, GROUPS, ROWS))
    return pa.table({"entity_id": texts(f"{CANARY}-", rng.permutation(ROWS)), "group_id": owner})


def read_entities(table: Path, private: Path) -> list[int]:
    """Read what DuckDB holds, whatever its size: by batches it would not be held."""
    homes, hierarchy = table.parent / "groups.parquet", table.parent / "hierarchy.csv"
    numbered = np.arange(GROUPS)
    pq.write_table(pa.table({"group_id": texts("g", numbered), "region_id": numbered % LEAVES}), homes)
    hierarchy.write_text("region_id,nation,state\n" + "".join(f"{k},all,s{k}\n" for k in range(LEAVES)))
    with patch.object(reader, "batches_of", lambda *_: None):
        counts = read_private(read_public(homes, hierarchy, private), table, private)
    assert counts.rows_read == ROWS
    return [int(size) for leaf in range(LEAVES) for size in counts.leaf(leaf).ranks()]


def count_entities(table: pa.Table) -> list[int]:
    owner = np.array([int(text[1:]) for text in table.column("group_id").to_pylist()])
    sizes = np.bincount(owner, minlength=GROUPS)
    return [int(size) for leaf in range(LEAVES) for size in np.sort(sizes[leaf::LEAVES])]


def persons() -> pa.Table:
    rng = np.random.default_rng(1)
    columns = {name: np.array(drawn)[rng.integers(len(drawn), size=ROWS)] for name, drawn in DRAWN.items()}
    # Ids that are not ASCII: such a table is held.
    return pa.table({"person_id": texts(f"é-{CANARY}-", rng.permutation(ROWS)), **columns})


DRAWN = {"region_id": tuple("abcde"), "sex": SEXES}


def read_persons(table: Path, private: Path) -> list[int]:
    (table.parent / "hierarchy.csv").write_text(HIERARCHY)
    public = read_regions(table.parent / "hierarchy.csv")
    found = read_records(public, table, Schema({"sex": SEXES}), 1, private)
    return [int(count) for count in found.counts]


def count_persons(table: pa.Table) -> list[int]:
    keys = zip(*(table.column(name).to_pylist() for name in DRAWN), strict=True)
    codes = [DRAWN["region_id"].index(region) * 2 + SEXES.index(sex) for region, sex in keys]
    return [int(count) for count in np.bincount(codes)]


def visits() -> pa.Table:
    rng = np.random.default_rng(2)
    # Counts of a row take room too.
    return pa.table({"value": FIRST + rng.integers(0, 9, 3 * ROWS), "count": rng.integers(1, 3, 3 * ROWS)})


def read_visits(table: Path, private: Path) -> list[int]:
    edges = [FIRST + k for k in range(10)]
    return [int(count) for count in read_values(table, DomainTree(9, None, edges), "refuse", private).cells]


def count_visits(table: pa.Table) -> list[int]:
    return [int(count) for count in np.bincount(numbers(table, "value") - FIRST, numbers(table, "count"))]


def groups() -> pa.Table:
    rows = np.arange(ROWS)
    leaf, size, nation = rows % LEAVES, rows // LEAVES, texts(f"{CANARY}-", 0 * rows)
    return pa.table({"nation": nation, "state": leaf, "size": size, "groups": rows % 7 // 6})


def read_groups(table: Path, private: Path) -> list[int]:
    assert read_sizes_regions(table, None, private).hierarchy.regions == LEAVES + 1
    public, found = read_public_sizes(table, None, private), read_sizes(table, None, private)
    assert public.group_counts.tolist() == found.group_counts.tolist()
    return [found.leaf(leaf).entities for leaf in range(LEAVES)]


def count_groups(table: pa.Table) -> list[int]:
    entities = numbers(table, "size") * numbers(table, "groups")
    return [int(entities[leaf::LEAVES].sum()) for leaf in range(LEAVES)]


LAST = ROWS - 1
CASES = (
    Case(
        "entities",
        (reader, "_sizes_of"),
        entities,
        read_entities,
        count_entities,
        {
            "unknown-group": ("group_id", "group_id", {LAST: f"{CANARY}-unknown"}),
            "duplicate-entity": ("entity_id", "entity_id", {0: f"{CANARY}-twice", LAST: f"{CANARY}-twice"}),
            "control-in-id": ("entity_id", "entity_id", {LAST: f"{CANARY}\u200b"}),
        },
    ),
    Case(
        "records",
        (cell_query.CellQuery, "counts"),
        persons,
        read_persons,
        count_persons,
        {
            "unknown-value": ("sex", "sex", {LAST: f"{CANARY}-sex"}),
            "unknown-region": ("region_id", "region_id", {LAST: f"{CANARY}-region"}),
            "duplicate-entity": ("person_id", "person_id", {0: f"{CANARY}-twice", LAST: f"{CANARY}-twice"}),
        },
    ),
    Case(
        "values",
        (values, "_counts_by_entry"),
        visits,
        read_visits,
        count_visits,
        {"outside-domain": ("value", "value", {LAST: 918273})},
    ),
    Case(
        "sizes",
        (sizes, "fetch_runs"),
        groups,
        read_groups,
        count_groups,
        {"duplicate-row": ("size", "", {LAST: LAST // LEAVES - 1})},
    ),
)
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
FIRST_FAST = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if n else (), id=case.name) for n, case in enumerate(CASES)]
)


@EACH
@pytest.mark.usefixtures("little")
def test_what_does_not_fit_is_counted_all_the_same(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, seen, table, count = tmp_path / "private", [], case.rows(), getattr(*case.counts)
    pq.write_table(table, tmp_path / "t.parquet")

    def spying(*given: Any, **named: Any) -> Any:
        (folder,) = spilled(private)
        seen.append(sum(path.stat().st_size for path in folder.iterdir()))
        assert [stat.S_IMODE(path.stat().st_mode) for path in (private, folder)] == [0o700, 0o700]
        return count(*given, **named)

    monkeypatch.setattr(*case.counts, spying)
    monkeypatch.chdir(tmp_path)
    assert case.read(tmp_path / "t.parquet", private) == case.truth(table)
    assert seen[0] > 1 << 20
    assert [path.name for path in private.iterdir()] == [".spill.lock"]
    with_canary = [path.name for path in tmp_path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert set(with_canary) <= {"t.parquet"}


@EACH
@pytest.mark.usefixtures("little")
def test_refusals_name_the_row_and_leave_nothing(case: Case, tmp_path: Path) -> None:
    table, private = case.rows(), tmp_path / "private"
    for code, (column, blamed, wrong) in case.wrong.items():
        cells = table.column(column).to_pylist()
        for row, value in wrong.items():
            cells[row] = value
        bad = table.set_column(table.column_names.index(column), column, pa.array(cells))
        pq.write_table(bad, tmp_path / "t.parquet")
        error = refused(partial(case.read, tmp_path / "t.parquet", private))
        assert at(error) == (code, "t.parquet", ROWS, blamed or None)
        assert spilled(private) == []


@FIRST_FAST
@pytest.mark.usefixtures("little")
def test_a_full_disk_is_said(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_SETTINGS", (*source._SETTINGS, "SET max_temp_directory_size = '1MB'"))
    pq.write_table(case.rows(), tmp_path / "t.parquet")
    error = refused(lambda: case.read(tmp_path / "t.parquet", tmp_path / "private"))
    assert error.code == "out-of-memory"
    assert "private folder" in str(error)
    assert spilled(tmp_path / "private") == []


KILLED = """
import os, signal, sys
from pathlib import Path
from coco_opt.files import source, scratch
from tests.files import test_spill
scratch.LARGE, source._MEMORY = 0, sys.argv[4]
(case,) = [case for case in test_spill.CASES if case.name == sys.argv[1]]
setattr(*case.counts, lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL))
case.read(Path(sys.argv[2]), Path(sys.argv[3]))
"""


@FIRST_FAST
@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
def test_what_a_killed_process_left_is_removed_by_the_next(case: Case, tmp_path: Path) -> None:
    private, table = tmp_path / "private", tmp_path / "t.parquet"
    pq.write_table(case.rows(), table)
    killed = [sys.executable, "-c", KILLED, case.name, str(table), str(private), LITTLE]
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run(killed, check=False, cwd=root).returncode == -signal.SIGKILL
    (left,) = spilled(private)
    assert sum(path.stat().st_size for path in left.iterdir()) > 1 << 20
    pq.write_table(case.rows().slice(0, 0), table)
    with pytest.raises(InputError, match="no row"):  # whatever is read next, of that folder
        case.read(table, private)
    assert spilled(private) == []


CONFIGURED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "entities": {
        "data": {"entities": "t.csv", "groups": "g.csv", "hierarchy": "h.csv"},
        "groups": {"max_size": 5},
    },
    "records": {
        "data": {"records": "t.csv", "hierarchy": "h.csv"},
        "topdown": {"attributes": {"sex": ["female", "male"]}, "workload": ["total"]},
    },
    "values": {"data": {"values": "t.csv"}, "ranges": {"cells": 9}},
    "sizes": {"data": {"sizes": "t.csv"}, "groups": {"max_size": 5}},
}
GIVEN = {
    "entities": "entity_id,group_id\nx,g\n",
    "records": "region_id,sex\na,male\n",
    "values": "value\n3\n",
    "sizes": "nation,state,size,groups\nall,s0,1,2\n",
}


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("kind", CONFIGURED)
def test_a_check_spills_into_the_folder_of_the_configuration(kind: str, tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text(HIERARCHY)
    (tmp_path / "g.csv").write_text("group_id,region_id\ng,a\n")
    (tmp_path / "t.csv").write_text(GIVEN[kind])
    privacy = {"epsilon": "1", "dataset": "town"}
    check(configure(folder=tmp_path, privacy=privacy, output={"private": "kept"}, **CONFIGURED[kind]))
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [".spill.lock"]


def test_codes_and_compression_hide_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"value": pa.array(["the same"] * 10_000).dictionary_encode()})
    pq.write_table(table, tmp_path / "t.parquet")
    monkeypatch.setattr(scratch, "LARGE", 160_000)
    assert max((tmp_path / "t.parquet").stat().st_size, table.nbytes) < scratch.LARGE
    for where in (tmp_path / "t.parquet", Frame("the frame", table)):
        with spilling(tmp_path / "private", [Input(where)]) as folder:
            assert folder is not None


@pytest.mark.usefixtures("little")
def test_who_is_at_work_keeps_their_folder(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(POSTER)
    given = [Input(tmp_path / "e.csv")]
    with spilling(tmp_path / "private", given) as one, spilling(tmp_path / "private", given) as other:
        remove_spilled(tmp_path / "private")
        assert one is not None
        assert other is not None
        assert one != other
        assert sorted(spilled(tmp_path / "private")) == sorted([one, other])
    assert spilled(tmp_path / "private") == []


@pytest.mark.usefixtures("little")
def test_an_open_private_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private").chmod(0o755)
    (tmp_path / "e.csv").write_text(POSTER)
    with (
        pytest.raises(InputError, match="others can read it"),
        spilling(tmp_path / "private", [Input(tmp_path / "e.csv")]),
    ):
        pass


def test_a_groups_table_changed_between_its_readings_is_refused(write: Write) -> None:
    groups, hierarchy, entities = write("g.csv", LISTED), write("h.csv", TOWN), write("e.csv", POSTER)
    public = read_public(groups, hierarchy)
    for changed in (LISTED + "5,r1\n", LISTED.replace("4,r2", "3,r2"), LISTED.replace("4,r2", "4,r1")):
        write("g.csv", changed)
        error = refused(lambda: read_private(public, entities))
        assert error.code == "unreadable-file"
        assert "changed" in str(error)


def test_batches_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    columns = {name: rng.integers(0, 2**60, 400_000) for name in ("entity_id", "group_id")}
    pq.write_table(pa.table(columns), tmp_path / "e.parquet", row_group_size=10_000)
    monkeypatch.setattr(batches, "_BATCH", 10_000)
    opened = batches_of(Input(tmp_path / "e.parquet"), ENTITIES)
    assert opened is not None
    before, most = pa.total_allocated_bytes(), 0
    for _ in opened:
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < (tmp_path / "e.parquet").stat().st_size / 4
