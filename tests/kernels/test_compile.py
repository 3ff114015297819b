"""The compile decorator: caching where it can, a word and no failure where it cannot.

One compiler for several processes: a kernel that one of them compiles the others wait for, and none for ever.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import logging
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pytest
from numba import TypingError
from numba.core import caching, config
from numba.core.event import Listener, install_listener
from numpy.typing import NDArray

import coco_opt.kernels.compile as module
from coco_opt.array_types import Ints
from coco_opt.kernels import compile_lock
from coco_opt.kernels.compile import compiled, compiled_in_place
from coco_opt.kernels.compile_lock import claimed, share_compiling


def _double(value: int) -> int:
    return 2 * value


def _raise_row(pair: tuple[Ints, Ints], row: int) -> int:
    values = pair[0][row]
    for n in range(values.size):
        values[n] += pair[1][n]
    return int(values[0])


def _new(values: Ints) -> int:
    return int(np.zeros(values.size, np.int64).size)


@pytest.fixture(autouse=True)
def _fresh_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_warned", False)


def test_compiles_in_memory_with_one_word_when_no_cache_folder_is_writable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with caplog.at_level(logging.WARNING, logger="coco_opt"):
        assert compiled(_double)(21) == 42
        assert compiled(_double)(4) == 8
    assert len(caplog.records) == 1
    assert "NUMBA_CACHE_DIR" in caplog.text


def test_a_cache_that_fails_at_write_time_does_not_stop_the_kernel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", full_disk)
    monkeypatch.setattr(caching.IndexDataCacheFile, "load", full_disk)
    with caplog.at_level(logging.WARNING, logger="coco_opt"):
        assert compiled(_double)(21) == 42
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


@pytest.mark.parametrize("index", [b"cmodule_of_a_former_version\nState\n.", b"\x80", b""])
def test_an_index_that_this_version_cannot_read_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: bytes
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    kernel = compiled(_double)
    assert kernel(21) == 42
    (path,) = tmp_path.rglob("*.nbi")
    version = pickle.dumps(kernel._cache._cache_file._version)  # type: ignore[attr-defined]
    path.write_bytes(version + index)
    again = compiled(_double)
    assert again(21) == 42
    assert again.stats.cache_hits == {}  # type: ignore[attr-defined]
    third = compiled(_double)
    assert third(21) == 42
    assert sum(third.stats.cache_hits.values()) == 1  # type: ignore[attr-defined]


def test_other_errors_of_the_decorator_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(module.numba, "njit", broken)
    with pytest.raises(RuntimeError, match="something else"):
        compiled(_double)


def test_kernels_in_place_count_no_references_and_make_no_arrays() -> None:
    pair = np.arange(6).reshape(2, 3), np.array([10, 20, 30])
    counted, plain = compiled(_raise_row), compiled_in_place(_raise_row)
    assert counted(pair, 1) == 13
    assert plain(pair, 1) == 23
    assert pair[0].tolist() == [[0, 1, 2], [23, 44, 65]]
    with pytest.raises(TypingError):
        compiled_in_place(_new)(pair[1])


@compiled
def _successor(value: int) -> int:
    return value + 1


@compiled
def _sum_of_successors(values: NDArray[np.int32], flags: NDArray[np.int16]) -> int:
    return _successor(values[0]) + _successor(flags[0]) + _successor(7)


@pytest.mark.skipif(module._drafts() is None, reason="numba is of another version")
def test_what_kernels_call_is_compiled_once_for_all_integers_and_has_code_of_its_own_where_python_calls_it() -> None:
    compiling: list[str] = []

    class Names(Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            compiling.append(event.data["dispatcher"].py_func.__name__)

        def on_end(self, event: Any) -> None:
            pass

    _sum_of_successors._cache.flush()  # type: ignore[attr-defined]  # an earlier run of this test stored it
    with install_listener("numba:compile", Names()):
        assert _sum_of_successors(np.array([1], np.int32), np.array([2], np.int16)) == 13
    assert compiling == ["_sum_of_successors", "_successor"]
    assert not _successor.overloads  # type: ignore[attr-defined]
    assert _successor(1) == 2
    assert len(_successor.overloads) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", ["0.61.2", "0.99.0", "0+unknown"])
def test_with_another_numba_kernels_are_compiled_in_the_plain_way_with_one_warning(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module.numba, "__version__", version)
    monkeypatch.setattr(module, "_drafts", cache(module._drafts.__wrapped__))
    with caplog.at_level(logging.WARNING, logger="coco_opt"):
        called = compiled(_successor.py_func)  # type: ignore[attr-defined]
        monkeypatch.setattr(sys.modules[__name__], "_successor", called)
        calling = compiled(_sum_of_successors.py_func)  # type: ignore[attr-defined]
    assert calling(np.array([1], np.int32), np.array([2], np.int16)) == 13
    assert called.overloads
    assert [record.args[0] for record in caplog.records if record.args] == [version]


@pytest.mark.skipif(module._drafts() is None, reason="numba is of another version")
def test_a_change_of_the_compiler_reaches_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coco_opt.kernels import drafts

    compiler = ("compile.py", "drafts.py")
    for name in compiler:
        shutil.copy(Path(module.__file__).with_name(name), tmp_path / name)
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "__file__", str(tmp_path / "compile.py"))
    monkeypatch.setattr(
        module, "_drafts", lambda: SimpleNamespace(**vars(drafts) | {"__file__": str(tmp_path / "drafts.py")})
    )

    def loaded() -> bool:
        monkeypatch.setattr(module, "_compiler_digest", cache(module._compiler_digest.__wrapped__))
        kernel: Any = compiled(_double)
        assert kernel(21) == 42
        return bool(kernel.stats.cache_hits)

    assert [loaded(), loaded()] == [False, True]
    for name in compiler:
        (tmp_path / name).write_text((tmp_path / name).read_text() + "# another way to compile\n")
        assert [loaded(), loaded()] == [False, True]


@pytest.mark.parametrize(
    ("imports", "call"), [("from shared_part import part", "part"), ("import shared_part as s", "s.part")]
)
def test_a_change_in_a_shared_file_reaches_the_kernels_that_import_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imports: str, call: str
) -> None:
    shared = "from coco_opt.kernels.compile import compiled\n@compiled\ndef part(x):\n    return x + {}\n"
    calling = (
        f"from coco_opt.kernels.compile import compiled\n{imports}\n"
        f"@compiled\ndef inner(x):\n    return 10 * {call}(x)\n@compiled\ndef whole(x):\n    return inner(x)\n"
    )
    monkeypatch.setattr(config, "CACHE_DIR", "")  # kept beside the source, wherever NUMBA_CACHE_DIR points
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "calling_part.py").write_text(calling)

    def result() -> int:
        for name in ("shared_part", "calling_part"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return int(importlib.import_module("calling_part").whole(1))

    for added in (1, 22, 22, 333):
        (tmp_path / "shared_part.py").write_text(shared.format(added))
        assert result() == 10 * (1 + added)
    assert len(list((tmp_path / "__pycache__").glob("calling_part.whole*.nbc"))) == 1


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
