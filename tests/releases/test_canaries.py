"""A thousand strings planted in the private table of every kind: found nowhere after success, error and kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import ArrowInvalid

from tests.cli.helpers import KINDS, ROOT, SECURE, environment_of
from tests.releases.towns import STAGES

PLANTED = 1000
MARK = "canary"
PRIVATE = {"groups": "entities", "tables": "records", "ranges": "values"}
OTHERS = ("tables", "ranges")
SEX, AGE = ("female", "male"), ("child", "adult", "old")

RUN = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from coco_opt.config import load_config
from coco_opt.errors import CocoOptError
from coco_opt.releases import release, render_report
from coco_opt.releases.reporter import Silent

class Stops(Silent):
    @contextmanager
    def stage(self, label):
        if label == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGKILL)
        with super().stage(label) as progress:
            yield progress

try:
    release(load_config(Path(sys.argv[1])), page=render_report, reporter=Stops())
except CocoOptError as error:
    sys.exit(f"error: {error}")
"""


def canaries() -> list[str]:
    """Return the planted strings; no two begin with the same five characters after the mark."""
    return [f"{MARK}{7919 * (number + 1) % 100_003:05d}x{number}" for number in range(PLANTED)]


def planted(folder: Path, kind: str = "groups", *, wrong: str = "") -> Path:
    """Write a private table with a canary in every row, the last row as ``wrong``; return the configuration.

    They are the ids of entities, the ids of persons, and a column beside the values that nobody asked for.
    """
    data = KINDS[kind]
    if kind == "groups":
        head, rows = "entity_id,group_id", [f"{name},g{1 + number % 5}" for number, name in enumerate(canaries())]
    elif kind == "tables":
        cells = [f"r{1 + number % 2},{SEX[number % 2]},{AGE[number % 3]}" for number in range(PLANTED)]
        head, rows = "region_id,sex,age,person_id", [f"{a},{b}" for a, b in zip(cells, canaries(), strict=True)]
    else:
        head, rows = "value,remark", [f"{number % 9},{name}" for number, name in enumerate(canaries())]
    more = "rows_a_person = 1" if kind == "tables" else ""
    table = "\n".join([head, *rows, *([wrong] if wrong else [])]) + "\n"
    return data.write(folder, privacy=SECURE, more=more, **{PRIVATE[kind]: table})


def released(config: Path, stop: str = "") -> subprocess.CompletedProcess[str]:
    """Release in a process of its own, whose working and temporary folders lie beside the tables."""
    folder = config.parent
    for name in ("cwd", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", RUN, str(config), stop],
        cwd=folder / "cwd",
        env={**environment_of(ROOT), "TMPDIR": str(folder / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )


def texts(path: Path) -> Iterator[str]:
    """Yield what a file says: its bytes, and the columns of a Parquet file, which lie there compressed."""
    yield path.read_bytes().decode("latin-1")
    if path.suffix == ".parquet":
        with suppress(ArrowInvalid):  # half-written: its bytes are all there is
            yield from (str(column.to_pylist()) for column in pq.read_table(path).columns)


def found(folder: Path, said: str = "") -> list[str]:
    """Return where a canary is, but in the private table itself."""
    private = {f"{name}.csv" for name in PRIVATE.values()}
    places = [path for path in folder.rglob("*") if path.is_file() and path.name not in private]
    assert places
    return [str(path) for path in places if any(MARK in text for text in texts(path))] + ["output"] * (MARK in said)


def test_canaries_are_seen_where_they_are(tmp_path: Path) -> None:
    config = planted(tmp_path)
    assert found(tmp_path) == []
    assert len({name[:11] for name in canaries()}) == PLANTED
    (tmp_path / "leak.txt").write_text(canaries()[123])
    assert found(tmp_path, f"row of {canaries()[5]}") == [str(tmp_path / "leak.txt"), "output"]
    assert config.exists()


@pytest.mark.parametrize("kind", ["groups", *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)])
def test_none_is_found_after_success(kind: str, tmp_path: Path) -> None:
    done = released(planted(tmp_path, kind))
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("manifest.json"))
    assert found(tmp_path, done.stdout + done.stderr) == []


FIRST = f"{MARK}99999,{MARK}00001"
WRONG = {
    "unknown group": ("groups", FIRST),
    "open quote": ("groups", f'{MARK}99999,"g1'),
    "an entity twice": ("groups", f"{canaries()[0]},g1"),
    "control": ("groups", f"{MARK}\x0799999,g1"),
    "unknown region": ("tables", f"{MARK}1,male,old,{MARK}2"),
    "unknown value": ("tables", f"r1,{MARK}1,old,{MARK}2"),
    "too many fields": ("tables", f"r1,male,old,{MARK}2,{MARK}3"),
    "a person twice": ("tables", f"r1,male,old,{canaries()[0]}"),
    "no number": ("ranges", FIRST),
    "an odd quote": ("ranges", f'3,"{MARK}"99999'),
    "too few fields": ("ranges", f"{MARK}99999"),
}


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [pytest.param(*row, marks=pytest.mark.slow if n else (), id=name) for n, (name, row) in enumerate(WRONG.items())],
)
def test_none_is_found_after_an_error(kind: str, wrong: str, tmp_path: Path) -> None:
    done = released(planted(tmp_path, kind, wrong=wrong))
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert found(tmp_path, done.stdout + done.stderr) == []


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
@pytest.mark.parametrize(
    ("kind", "stage"),
    [
        ("groups", STAGES[1]),
        *(pytest.param("groups", stage, marks=pytest.mark.slow) for stage in STAGES[2:]),
        *(pytest.param(kind, stage, marks=pytest.mark.slow) for kind in OTHERS for stage in STAGES[1:]),
    ],
)
def test_none_is_found_after_kill_9(kind: str, stage: str, tmp_path: Path) -> None:
    done = released(planted(tmp_path, kind), stage)
    assert done.returncode == -signal.SIGKILL
    assert found(tmp_path, done.stdout + done.stderr) == []
