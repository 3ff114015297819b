"""The benchmark of table releases: it runs small, keeps its promises, and would notice broken ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from coco_experiments.bench.topdown import SETTING, faults, release_in_memory, run
from coco_experiments.topdown.data import generated_blocks, small_tables

from coco_opt.topdown.estimating.sparse_tables import SparseTables
from tests.experiments.recorder import Recorder


def test_the_benchmark_runs_small(tmp_path: Path) -> None:
    outcome = run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.failures == ()
    assert [row["n"] for row in outcome.tables[0].records()] == [238, 475]
    assert {path.suffix for path in outcome.files} == {".csv", ".json"}


def test_a_broken_sum_is_noticed() -> None:
    tables = small_tables(generated_blocks(np.random.default_rng(3), 1, 2, 2, 4))
    result = release_in_memory(tables, SETTING)()
    assert faults("whole", tables, result) == []
    leaves = result.tables[-1].dense()
    leaves[0, 0] += 1
    broken = replace(result, tables=(*result.tables[:-1], SparseTables.of(leaves)))
    assert faults("broken", tables, broken) == ["broken: level 3 is not the sum of nonnegative parts"]
