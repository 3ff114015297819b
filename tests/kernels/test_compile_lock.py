"""One compiler for several processes: a kernel that one of them compiles the others wait for, and none for ever."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from coco_opt.kernels import compile_lock
from coco_opt.kernels.compile_lock import claimed, share_compiling

_HOLDS = """
import sys
from pathlib import Path
from coco_opt.kernels.compile_lock import claimed
with claimed(Path(sys.argv[1])) as waited:
    print(waited, flush=True)
    sys.stdin.readline()
"""


class _Cache:
    """A cache that finds what was put there."""

    def __init__(self, folder: Path) -> None:
        self._cache_file = type("File", (), {"_index_path": str(folder / "kernel")})
        self.kept: str | None = None

    def load_overload(self, *_: object) -> str | None:
        return self.kept


class _Kernel:
    """Compiles as numba does: looks on disk first."""

    def __init__(self, cache: _Cache, fails: bool = False) -> None:
        self.cache, self.fails, self.compiled, self.collected = cache, fails, 0, True

    def compile(self, signature: str) -> str:
        overload = self.cache.load_overload(signature, None)
        if overload is None:
            self.compiled, self.collected = self.compiled + 1, gc.isenabled()
            if self.fails:
                raise ValueError(signature)
            self.cache.kept = overload = f"code of {signature}"
        return overload


@contextmanager
def _holder(path: Path) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    command = [sys.executable, "-c", _HOLDS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "False\n"
        yield process, process.stdin


def test_a_kernel_on_disk_is_not_compiled_and_one_that_is_not_is(tmp_path: Path) -> None:
    cache = _Cache(tmp_path)
    kernel = _Kernel(cache)
    share_compiling(kernel, cache)
    assert kernel.compile("int") == "code of int"
    assert kernel.compile("int") == "code of int"
    assert kernel.compiled == 1
    assert not kernel.collected
    assert gc.isenabled()
    assert not list(tmp_path.iterdir())


def test_a_claim_is_given_back_by_a_kernel_that_does_not_compile(tmp_path: Path) -> None:
    cache = _Cache(tmp_path)
    kernel = _Kernel(cache, fails=True)
    share_compiling(kernel, cache)
    for _ in range(2):
        with pytest.raises(ValueError, match="int"):
            kernel.compile("int")
    assert gc.isenabled()
    assert not list(tmp_path.iterdir())


def test_what_another_process_compiles_meanwhile_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = _Cache(tmp_path)
    kernel = _Kernel(cache)
    share_compiling(kernel, cache)
    with _holder(tmp_path / "kernel.claim") as (process, end):

        def done(_: float) -> None:
            cache.kept = "code of the other"
            end.write("\n")
            end.flush()
            process.wait()

        monkeypatch.setattr(compile_lock, "sleep", done)
        assert kernel.compile("int") == "code of the other"
    assert kernel.compiled == 0


def test_a_claim_ends_with_the_process_that_held_it_and_with_patience(tmp_path: Path) -> None:
    path = tmp_path / "kernel.claim"
    with _holder(path) as (process, _):
        with claimed(path, patience=0.0) as waited:
            assert not waited  # it gave up at once
        process.kill()
    with claimed(path) as waited:
        assert not waited


def test_folders_and_files_without_locks_hold_no_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with claimed(tmp_path / "file" / "kernel.claim") as waited:
        assert not waited

    def no_locks(*_: object) -> None:
        raise OSError(os.strerror(95))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with claimed(tmp_path / "kernel.claim") as waited:
        assert not waited
