"""Kernels compiled ahead: another process finds them on disk, and none is left behind."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coco_opt.compiling as module
from coco_opt.compiling import EXAMPLES, LAST, compile_kernels, compiling
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.observations import Answers, Survey
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions, sample_posterior
from coco_opt.kernels.arrays import read_only
from coco_opt.privacy import Geometric
from coco_opt.problems import PROBLEMS

_MISSING = """
from coco_opt.compiling import missing
print(*missing(["group_matching", "expected_distance"]))
"""


def _missing(folder: Path) -> list[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", _MISSING], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_what_one_process_compiles_the_next_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _missing(tmp_path) == ["group_matching", "expected_distance"]
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module, "missing", tuple)
    with compiling("group_matching") as process:
        assert process is not None
        assert process.wait() == 0
    assert _missing(tmp_path) == ["expected_distance"]


def test_it_is_stopped_with_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "missing", tuple)
    with compiling("joint_l1") as process:
        assert process is not None
        assert process.poll() is None
    assert process.returncode != 0


def test_nothing_is_started_where_nothing_is_missing_or_no_core_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "missing", lambda names: ())
    with compiling("joint_l1") as process:
        assert process is None
    monkeypatch.setattr(module, "missing", tuple)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with compiling("joint_l1") as process:
        assert process is None


def test_everything_worth_compiling_beside_is_there() -> None:
    for name, last in LAST.items():
        file, _, kernel = last.partition(":")
        assert callable(getattr(importlib.import_module(f"coco_opt.kernels.{file}"), kernel))
        assert name.removesuffix("/level") in PROBLEMS or name in EXAMPLES


def test_the_examples_of_the_posterior_compile_what_an_estimation_calls() -> None:
    record, moves = (importlib.import_module(f"coco_opt.kernels.posterior_{each}") for each in ("record", "moves"))
    records: list[Any] = [record.cumulate, record.count, record.summarise, record.quantile]
    kernels: list[Any] = [moves.advance, *records]
    compile_kernels(["group_records"])
    recorded = [set(kernel.signatures) for kernel in records]
    compile_kernels(["group_posterior"])
    compiled = [set(kernel.signatures) for kernel in kernels]
    assert recorded == compiled[1:]
    cells = Buckets.cells(40)
    answers = [Answers(region, cells, np.full(40, 3), Geometric(Fraction(1))) for region in range(4)]
    survey = Survey(read_only(np.array([-1, 0, 0, 1])), read_only(np.array([7, 4, 3, 4])), 40, answers)
    few = SamplerOptions(burn_in=1, most_burn_in=1, draws=4, most_rounds=1)
    sample_posterior(survey, 1, options=few, sizes=True).cumulative.quantile(1, 2)
    assert [set(kernel.signatures) for kernel in kernels] == compiled


def test_what_an_outer_call_compiles_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "missing", tuple)
    with compiling("joint_l1") as process, compiling("joint_l1") as another:
        assert process is not None
        assert another is None
