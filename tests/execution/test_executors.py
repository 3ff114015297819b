"""Executors: results in order, errors whole, killed workers survived, nothing left behind; arrays put aside."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt.errors import InputError, MissingPackageError, Place, WorkerError
from coco_opt.execution import EXECUTORS, Executor, ExecutorRow, Threads, executor_row, executor_rows, open_executor
from coco_opt.execution import temporary_storage as module
from coco_opt.execution.remote import read_value, write_value
from coco_opt.execution.temporary_storage import LEAST, forget_pages, stored_array, stored_bytes, stored_empty
from tests.execution.tasks import (
    ByFiles,
    Equals,
    KillsOnce,
    Scaled,
    always_dies,
    breaks,
    fails_at_three,
    negated,
    pid_after,
    threads_of_readers,
)

NAMES = ("threads", "by files", "processes", "dask")


@pytest.fixture(scope="module", params=NAMES)
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """Return every executor with two workers, started once."""
    made = ByFiles(2) if request.param == "by files" else open_executor(request.param, 2)
    with made as opened:
        yield opened


def test_results_come_in_order_and_each_is_told_once(executor: Executor) -> None:
    executor.start(os.getpid)
    told: list[tuple[int, int]] = []
    assert executor.map(negated, range(7), lambda *done: told.append(done)) == [-item for item in range(7)]
    assert sorted(told) == [(item, -item) for item in range(7)]
    assert executor.map(negated, [5], lambda *done: told.append(done)) == [-5]
    assert executor.map(negated, []) == []


@pytest.mark.parametrize("first", [1, 3])
def test_items_that_follow_from_others_are_mapped_too(executor: Executor, first: int) -> None:
    told: list[int] = []

    def halves(place: int, result: int) -> list[int]:
        told.append(place)
        return [-result // 2] * 2 if result <= -2 else []

    found = executor.map(negated, [8] * first, halves)
    assert sorted(told) == list(range(15 * first))
    assert sorted(found) == sorted([-8, *[-4] * 2, *[-2] * 4, *[-1] * 8] * first)


def test_what_being_told_raises_ends_the_map(executor: Executor) -> None:
    def refuse(place: int, result: int) -> None:
        raise InputError("negative-size", "is negative", Place("sizes.csv", place, "size"))

    for items in (range(1), range(4)):
        with pytest.raises(InputError, match="negative-size"):
            executor.map(negated, items, refuse)
    assert executor.map(negated, range(3)) == [0, -1, -2]


def test_shared_values_reach_every_task_unchanged(executor: Executor) -> None:
    big = np.arange(100_000.0)
    with executor.share(big) as shared:
        found = executor.map(Scaled(shared), [1, 2, 3])
    for factor, product in zip((1, 2, 3), found, strict=True):
        np.testing.assert_array_equal(product, factor * big)


def test_an_error_of_a_task_is_the_error_of_the_map_as_it_was(executor: Executor) -> None:
    with pytest.raises(InputError, match="negative-size") as caught:
        executor.map(fails_at_three, range(6))
    assert (caught.value.code, caught.value.place) == ("negative-size", Place("sizes.csv", 7, "size"))
    with pytest.raises(ZeroDivisionError, match="of the worker"):
        executor.map(breaks, range(3))
    assert executor.map(negated, range(3)) == [0, -1, -2]


@pytest.mark.parametrize("name", ["processes", "dask"])
def test_a_killed_worker_costs_its_task_a_second_run(name: str, tmp_path: Path) -> None:
    with open_executor(name, 2) as made:
        task = KillsOnce(negated, Equals(4), tmp_path / "killed")
        assert made.map(task, range(9)) == [-item for item in range(9)]
        assert (tmp_path / "killed").exists()


def test_workers_that_always_die_end_the_map() -> None:
    with open_executor("processes", 2) as made, pytest.raises(WorkerError, match="died 4 times"):
        made.map(always_dies, range(3))


@pytest.mark.parametrize("name", NAMES[1:])
def test_work_lies_in_a_folder_of_its_owner_and_goes_with_it(name: str, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    made = ByFiles(2, scratch) if name == "by files" else open_executor(name, 2, scratch=scratch)
    with made as opened, opened.share(np.arange(9)) as shared:
        (folder,) = scratch.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        opened.map(Scaled(shared), [1, 2])
    assert list(scratch.iterdir()) == []


def test_a_scratch_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with ByFiles(2, tmp_path / "file" / "scratch") as made, pytest.raises(WorkerError, match=r"engine\.scratch"):
        made.map(negated, range(3))


def test_values_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    value = {"a": np.arange(5), "empty": np.zeros((0, 3)), "text": "x", "wide": np.arange(6.0).reshape(2, 3).T}
    write_value(tmp_path / "value", value)
    read = read_value(tmp_path / "value")
    for name, array in value.items():
        np.testing.assert_array_equal(read[name], array)
    assert not read["a"].flags.writeable
    with pytest.raises(AttributeError):
        write_value(tmp_path / "other", lambda: None)
    assert [path.name for path in tmp_path.iterdir()] == ["value"]


@pytest.mark.parametrize("name", ["processes", "dask"])
def test_a_worker_keeps_to_one_core(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with open_executor(name, 2) as executor:
        assert executor.map(threads_of_readers, range(20)) == [1] * 20


def test_no_worker_outlives_its_executor() -> None:
    with open_executor("processes", 2) as made:
        pids = set(made.map(pid_after, [0.1] * 4))
    assert os.getpid() not in pids
    assert not [pid for pid in pids if alive(pid)]


@pytest.mark.parametrize("stop", ["SIGINT", "SIGKILL"])
def test_no_worker_outlives_a_stopped_program(stop: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            import os, signal, threading
            from pathlib import Path
            from coco_opt.execution import open_executor
            from tests.execution.tasks import pid_after

            if __name__ == "__main__":
                with open_executor("processes", 2, scratch=Path("scratch")) as made:
                    print(*set(made.map(pid_after, [0.3] * 4)), flush=True)
                    threading.Timer(0.5, os.kill, (os.getpid(), signal.{stop})).start()
                    made.map(pid_after, [60.0] * 4)
        """)
    )
    begun = time.monotonic()
    paths = os.pathsep.join(path for path in sys.path if path)
    found = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, env=found, timeout=60)
    assert done.returncode != 0
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids
    while any(map(alive, pids)) and time.monotonic() < begun + 50:
        time.sleep(0.05)
    assert not any(map(alive, pids))
    assert list((tmp_path / "scratch").iterdir()) == []


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_names_options_and_packages_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        [row.name for row in executor_rows()][:3] == [row.name for row in EXECUTORS] == ["threads", "processes", "dask"]
    )
    with pytest.raises(WorkerError, match="did you mean 'processes'"):
        executor_row("process")
    with pytest.raises(WorkerError, match="takes no address"):
        open_executor("processes", 2, address="tcp://somewhere:1")
    with pytest.raises(WorkerError, match="at least 1"):
        Threads(0)
    absent = ExecutorRow("far", "nowhere:Far", "", packages=("coco_nowhere",), extra="far")
    with pytest.raises(MissingPackageError, match=r"pip install 'coco-opt\[far\]'"):
        absent.open(2)


def test_an_address_where_nobody_answers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coco_opt.execution.cluster.SECONDS", 1)
    with (
        open_executor("dask", 2, address="tcp://127.0.0.1:9") as made,
        pytest.raises(WorkerError, match="no Dask scheduler"),
    ):
        made.map(negated, range(3))


def test_a_running_cluster_is_used_and_left_running() -> None:
    from dask.distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        for _ in range(2):
            with open_executor("dask", 7, address=cluster.scheduler_address) as made:
                assert made.map(negated, range(3)) == [0, -1, -2]
                assert made.workers == 1


def test_a_lost_scheduler_is_said_to_be_lost() -> None:
    from dask.distributed import LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        open_executor("dask", 1, address=cluster.scheduler_address) as made,
        pytest.raises(WorkerError, match="the connection to the Dask scheduler was lost"),
    ):
        made.map(pid_after, [0.05] * 100, lambda *_: cluster.close())


LARGE = 1 << 16


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def lies_in_a_file(array: np.ndarray[Any, Any]) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.int8])
@pytest.mark.parametrize("sizes", [(LARGE,), (0, 3, LARGE), (LARGE, LARGE, 0)])
def test_arrays_come_back_as_they_were(kind: type, sizes: tuple[int, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    parts: list[np.ndarray[Any, Any]] = [rng.integers(-100, 100, (size, 2)).astype(kind) for size in sizes]
    parts.append(rng.integers(-100, 100, (8, 2 * LARGE)).astype(kind)[:, ::LARGE])  # not contiguous
    whole = stored_array(parts)
    assert lies_in_a_file(whole) is (whole.nbytes >= module.LEAST)
    assert whole.dtype == kind
    assert not whole.flags.writeable
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert list(tmp_path.iterdir()) == []


def test_small_ones_and_those_without_room_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not lies_in_a_file(stored_array([np.arange(5)]))
    assert stored_array([np.empty(0)]).size == 0
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    large = np.arange(LARGE)
    found = stored_array([large])
    assert not lies_in_a_file(found)
    assert not found.flags.writeable
    assert large.flags.writeable
    np.testing.assert_array_equal(found, large)


@pytest.mark.parametrize("rows", [3, LEAST])
def test_an_array_is_filled_in_its_file(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    array = stored_empty((rows, 2), np.dtype(np.float64))
    for start in range(0, rows, 1 << 17):
        stop = min(rows, start + (1 << 17))
        array[start:stop] = np.arange(start, stop)[:, None]
    np.testing.assert_array_equal(array, np.arange(rows)[:, None] * np.ones(2))

    def full(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("os.posix_fallocate", full)
    assert stored_empty((rows, 2), np.dtype(np.int64)).shape == (rows, 2)


def test_pages_that_were_forgotten_are_read_again() -> None:
    size = 1 << 20
    stored, filled = stored_array([np.arange(size)]), stored_empty((size,), np.dtype(np.int64))
    filled[:] = stored + 1
    before = _mapped_kilobytes()
    forget_pages()
    assert before - _mapped_kilobytes() >= stored.nbytes / 1024  # half of what both take
    np.testing.assert_array_equal(stored, np.arange(size))
    np.testing.assert_array_equal(filled, np.arange(size) + 1)


def _mapped_kilobytes() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("only Linux says how many pages of files are in memory")
    lines = status.read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssFile", "RssShmem")))


@pytest.mark.parametrize("sizes", [(), (0, 3), (LEAST, 5), (7, LEAST, LEAST)])
def test_bytes_come_back_wherever_they_lie(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [np.random.default_rng(size).bytes(size) for size in sizes]
    stored = stored_bytes(iter(parts))
    assert isinstance(stored, mmap.mmap) is (sum(sizes) >= LEAST)
    assert stored[:] == b"".join(parts)
    assert stored_bytes([stored, b"more"])[:] == b"".join([*parts, b"more"])
    written: list[int] = []

    def full_later(file: Any, left: memoryview) -> None:
        written.append(len(left))
        if len(written) > 1:
            raise OSError
        file.write(left)

    monkeypatch.setattr(module, "_write", full_later)
    assert stored_bytes(iter(parts))[:] == b"".join(parts)
