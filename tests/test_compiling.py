"""Kernels compiled ahead: another process finds them on disk, and none is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coco_opt.compiling import compiling

_KEPT = """
from coco_opt.kernels.compile import kept_on_disk
from coco_opt.kernels.simplex import _candidates as kernel
print(kept_on_disk(kernel))
"""


def _kept(folder: Path) -> str:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    return subprocess.run([sys.executable, "-c", _KEPT], env=environment, capture_output=True, text=True).stdout.strip()


def test_what_one_process_compiles_the_next_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _kept(tmp_path) == "False"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with compiling("simplex_projection") as process:
        assert process.wait() == 0
    assert _kept(tmp_path) == "True"


def test_it_is_stopped_with_the_body() -> None:
    with compiling() as process:
        assert process.poll() is None
    assert process.returncode != 0
