"""What does not fit in memory lies in the private folder meanwhile, and nowhere afterwards, however a run ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as pq
import pytest

from coco_opt import configure
from coco_opt.errors import InputError
from coco_opt.files import batches, scratch, source
from coco_opt.files.batches import batches_of
from coco_opt.files.columns import ENTITIES
from coco_opt.files.inputs import Input
from coco_opt.files.scratch import remove_spilled, spilling
from coco_opt.groups.measuring import entities as reader
from coco_opt.groups.measuring.entities import read_private, read_public, read_tables
from coco_opt.releases import check
from tests.files.helpers import CANARY, HIERARCHY, Write, at, refused
from tests.files.helpers import ENTITIES as POSTER
from tests.files.helpers import GROUPS as LISTED

ROWS, GROUPS, LEAVES = 400_000, 60_000, 7
LITTLE = "20MB"


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give DuckDB too little memory for the tables here, which it holds, whatever their size."""
    monkeypatch.setattr(reader, "batches_of", lambda *_: None)
    monkeypatch.setattr(scratch, "LARGE", 0)
    monkeypatch.setattr(source, "_MEMORY", LITTLE)


class Town(NamedTuple):
    """Three tables of texts as files, the entities in memory, and the truth: each entity's group, each group's leaf."""

    paths: tuple[Path, Path, Path]
    entities: pa.Table
    owner: np.ndarray
    leaf: np.ndarray


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("town")
    owner, leaf = rng.integers(0, GROUPS, ROWS), rng.integers(0, LEAVES, GROUPS)
    entities = pa.table({"entity_id": texts(f"{CANARY}-", rng.permutation(ROWS)), "group_id": texts("g", owner)})
    paths = folder / "e.parquet", folder / "g.parquet", folder / "h.csv"
    pq.write_table(entities, paths[0])
    pq.write_table(pa.table({"group_id": texts("g", np.arange(GROUPS)), "region_id": leaf}), paths[1])
    paths[2].write_text("region_id,a,b\n" + "".join(f"{k},n,l{k}\n" for k in range(LEAVES)))
    return Town(paths, entities, owner, leaf)


def texts(begin: str, numbers: np.ndarray) -> pa.Array:
    """Return ids too long to lie in 12 bytes."""
    padded = compute.utf8_lpad(pa.array(numbers).cast(pa.string()), 40, "0")
    return compute.binary_join_element_wise(begin, padded, "")


def spilled(private: Path) -> list[Path]:
    return list(private.glob(".spill-*"))


@pytest.mark.usefixtures("little")
def test_texts_that_do_not_fit_are_counted_all_the_same(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, seen = tmp_path / "private", []

    def spying(con: Any, filled: str, count: Any = reader._sizes_of) -> Any:
        (folder,) = spilled(private)
        seen.append(con.execute("SELECT sum(size) FROM duckdb_temporary_files()").fetchall()[0][0])
        assert [stat.S_IMODE(path.stat().st_mode) for path in (private, folder)] == [0o700, 0o700]
        return count(con, filled)

    monkeypatch.setattr(reader, "_sizes_of", spying)
    monkeypatch.chdir(tmp_path)
    counts = read_tables(*town.paths, private)
    sizes = np.bincount(town.owner, minlength=GROUPS)
    for place in range(LEAVES):
        assert counts.leaf(place).ranks().tolist() == sorted(sizes[town.leaf == place].tolist())
    assert counts.rows_read == ROWS
    assert seen[0] > 1 << 20
    assert spilled(private) == []
    there = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in there if CANARY.encode() in path.read_bytes()] == []


WRONG = [
    ("unknown-group", "group_id", {ROWS - 1: f"{CANARY}-unknown"}),
    ("duplicate-entity", "entity_id", {0: f"{CANARY}-twice", ROWS - 1: f"{CANARY}-twice"}),
    ("control-in-id", "entity_id", {ROWS - 1: f"{CANARY}\u200b"}),
]


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(
    ("code", "column", "wrong"),
    [pytest.param(*row, marks=pytest.mark.slow if n else ()) for n, row in enumerate(WRONG)],
)
def test_refusals_name_the_row_and_leave_nothing(
    code: str, column: str, wrong: dict[int, str], town: Town, tmp_path: Path
) -> None:
    values = town.entities.column(column).to_pylist()
    for row, value in wrong.items():
        values[row] = value
    place = town.entities.column_names.index(column)
    pq.write_table(town.entities.set_column(place, column, pa.array(values)), tmp_path / "e.parquet")
    public = read_public(*town.paths[1:], tmp_path / "private")
    error = refused(lambda: read_private(public, tmp_path / "e.parquet", tmp_path / "private"))
    assert at(error) == (code, "e.parquet", ROWS, column)
    assert spilled(tmp_path / "private") == []


@pytest.mark.usefixtures("little")
def test_a_full_disk_is_said(town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_SETTINGS", (*source._SETTINGS, "SET max_temp_directory_size = '1MB'"))
    error = refused(lambda: read_tables(*town.paths, tmp_path / "private"))
    assert error.code == "out-of-memory"
    assert "private folder" in str(error)
    assert spilled(tmp_path / "private") == []


KILLED = """
import os, signal, sys
from pathlib import Path
from coco_opt.files import source, scratch
from coco_opt.groups.measuring import entities
scratch.LARGE, source._MEMORY = 0, sys.argv[5]
entities.batches_of = lambda *_: None
entities._sizes_of = lambda con, filled: os.kill(os.getpid(), signal.SIGKILL)
entities.read_tables(*map(Path, sys.argv[1:4]), Path(sys.argv[4]))
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
def test_what_a_killed_process_left_is_removed_by_the_next(town: Town, tmp_path: Path) -> None:
    private = tmp_path / "private"
    killed = [sys.executable, "-c", KILLED, *map(str, town.paths), str(private), LITTLE]
    assert subprocess.run(killed, check=False).returncode == -signal.SIGKILL
    (left,) = spilled(private)
    assert any(CANARY.encode() in path.read_bytes() for path in left.iterdir())
    with spilling(private, [Input(town.paths[2])]) as folder:  # a small table needs no folder of its own
        assert folder is None
    assert spilled(private) == []


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


@pytest.mark.usefixtures("little")
def test_a_check_spills_into_the_folder_of_the_configuration(write: Write, tmp_path: Path) -> None:
    write("e.csv", POSTER)
    write("g.csv", LISTED)
    write("h.csv", HIERARCHY)
    config = configure(
        folder=tmp_path,
        data={"entities": "e.csv", "groups": "g.csv", "hierarchy": "h.csv"},
        privacy={"epsilon": "1", "dataset": "poster"},
        groups={"max_size": 5},
        output={"private": "kept"},
    )
    check(config)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [".spill.lock"]


def test_a_groups_table_changed_between_its_readings_is_refused(write: Write) -> None:
    groups, hierarchy, entities = write("g.csv", LISTED), write("h.csv", HIERARCHY), write("e.csv", POSTER)
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
