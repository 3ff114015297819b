"""A thousand strings planted in the private table: found nowhere after success, error and kill -9."""

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

from tests.releases.towns import STAGES, write

ROOT = Path(__file__).resolve().parents[2]
PLANTED = 1000
MARK = "canary"

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


def planted(folder: Path, *, wrong: str = "") -> Path:
    """Write tables whose entities are all canaries, the last row as ``wrong``."""
    config = write(folder)
    rows = [f"{name},g{number % 7}" for number, name in enumerate(canaries())]
    (folder / "entities.csv").write_text("\n".join(["entity_id,group_id", *rows, *([wrong] if wrong else [])]) + "\n")
    return config


def released(config: Path, stop: str = "") -> subprocess.CompletedProcess[str]:
    """Release in a process of its own, whose working and temporary folders lie beside the tables."""
    folder = config.parent
    for name in ("cwd", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    paths = os.pathsep.join(str(ROOT / part) for part in (".", "solvers", "experiments"))
    places = {"TMPDIR": str(folder / "tmp"), "PYTHONPATH": paths}
    return subprocess.run(
        [sys.executable, "-c", RUN, str(config), stop],
        cwd=folder / "cwd",
        env={**os.environ, **places},
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
    places = [path for path in folder.rglob("*") if path.is_file() and path.name != "entities.csv"]
    assert places
    return [str(path) for path in places if any(MARK in text for text in texts(path))] + ["output"] * (MARK in said)


def test_canaries_are_seen_where_they_are(tmp_path: Path) -> None:
    config = planted(tmp_path)
    assert found(tmp_path) == []
    assert len({name[:11] for name in canaries()}) == PLANTED
    (tmp_path / "leak.txt").write_text(canaries()[123])
    assert found(tmp_path, f"row of {canaries()[5]}") == [str(tmp_path / "leak.txt"), "output"]
    assert config.exists()


def test_none_is_found_after_success(tmp_path: Path) -> None:
    done = released(planted(tmp_path))
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("histograms.parquet"))
    assert found(tmp_path, done.stdout + done.stderr) == []


@pytest.mark.parametrize(
    "wrong",
    [
        f"{MARK}99999,{MARK}00001",
        pytest.param(f'{MARK}99999,"g1', marks=pytest.mark.slow),
        pytest.param(f"{canaries()[0]},g1", marks=pytest.mark.slow),
        pytest.param(f"{MARK}\x0799999,g1", marks=pytest.mark.slow),
    ],
    ids=["unknown group", "open quote", "twice", "control"],
)
def test_none_is_found_after_an_error(wrong: str, tmp_path: Path) -> None:
    done = released(planted(tmp_path, wrong=wrong))
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert found(tmp_path, done.stdout + done.stderr) == []


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
@pytest.mark.parametrize("stage", [STAGES[1], *(pytest.param(stage, marks=pytest.mark.slow) for stage in STAGES[2:])])
def test_none_is_found_after_kill_9(stage: str, tmp_path: Path) -> None:
    done = released(planted(tmp_path), stage)
    assert done.returncode == -signal.SIGKILL
    assert found(tmp_path, done.stdout + done.stderr) == []
