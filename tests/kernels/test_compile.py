"""The compile decorator: caching where it can, a word and no failure where it cannot."""

from __future__ import annotations

import logging

import pytest
from numba.core import caching

import coco_opt.kernels.compile as module
from coco_opt.kernels.compile import compiled


def _double(value: int) -> int:
    return 2 * value


@pytest.fixture(autouse=True)
def _fresh_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_told", False)


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


def test_other_errors_of_the_decorator_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(module.numba, "njit", broken)
    with pytest.raises(RuntimeError, match="something else"):
        compiled(_double)
