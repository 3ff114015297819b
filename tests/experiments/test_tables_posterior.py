"""The study of the posterior of tables on simulated data: what it writes, that it resumes, and what it judges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coco_experiments.beyond import tables_posterior
from coco_experiments.beyond.tables_posterior import BOTTOM_UP, FULL, METHODS, POSTERIOR, SETTINGS, Finding, failures

from coco_opt.topdown.estimating.posterior import sampler
from tests.experiments.recorder import Recorder


def test_a_small_run_writes_what_it_shows_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler.SamplerOptions, "affordable", lambda options, moves: (2, 120))
    recorder = Recorder()
    outcome = tables_posterior.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    assert recorder.tables == list(outcome.tables)
    assert all(file.exists() for file in outcome.files)
    errors, bias, coverage = (table.records() for table in outcome.tables)
    assert len(errors) == len(SETTINGS) * 5 * 3
    blocks = [row for row in errors if (row["level"], row["query"]) == (4, "detail")]
    assert all(float(row[POSTERIOR]) < float(row[FULL]) for row in blocks)  # type: ignore[arg-type]
    assert {row["true size"] for row in bias} == {"0", "1 to 2", "3 to 9", "10 to 29", "30 and more"}
    inside = [float(row["% inside, ties split"]) for row in coverage if row["level"] == 4]  # type: ignore[arg-type]
    assert 60.0 < np.mean(inside) < 100.0
    monkeypatch.setattr(tables_posterior, "found", None)
    assert tables_posterior.run(small=True, out=tmp_path, reporter=Recorder()).tables == outcome.tables


def test_a_posterior_that_errs_more_is_told() -> None:
    def finding(blocks: float) -> list[Finding]:
        return [Finding([[9.0]] * 4 + [[blocks]], [], 1.0, converged=True, inside=[], width=[])]

    errors = {FULL: 3.0, POSTERIOR: 2.0, BOTTOM_UP: 2.5}
    findings = {(split, method): finding(errors[method]) for split in SETTINGS for method in METHODS}
    assert len(failures(findings)) == 4  # equal at two levels, against two rivals
    even = next(iter(SETTINGS))
    findings[even, POSTERIOR] = finding(3.5)
    assert any(line.startswith("split even") for line in failures(findings))
