"""The study of the posterior of ranges on simulated data: what it writes, that it resumes, and what it judges."""

from __future__ import annotations

from pathlib import Path

import pytest
from coco_experiments.beyond import ranges_posterior
from coco_experiments.beyond.ranges_posterior import EPSILONS, ESTIMATORS, Finding, failures, lengths_of

from coco_opt.ranges.estimating.posterior import sampler
from tests.experiments.recorder import Recorder


def test_a_small_run_writes_what_it_shows_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler.SamplerOptions, "first", lambda options, cells: (6, 16))
    recorder = Recorder()
    outcome = ranges_posterior.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    assert recorder.tables == list(outcome.tables)
    assert all(file.exists() for file in outcome.files)
    absolute, squared, coverage = (table.records() for table in outcome.tables)
    lengths = len(lengths_of(256))
    assert len(absolute) == len(coverage) == len(EPSILONS) * lengths
    assert len(squared) == len(EPSILONS) * (lengths + 1)
    everything = [row for row in squared if row["cells of a range"] == "all"]
    assert all(float(row["times the best of the others"]) < 1.0 for row in everything)  # type: ignore[arg-type]
    assert all(50.0 < float(row["% inside, ties split"]) <= 100.0 for row in coverage)  # type: ignore[arg-type]
    monkeypatch.setattr(ranges_posterior, "found", None)
    assert ranges_posterior.run(small=True, out=tmp_path, reporter=Recorder()).tables == outcome.tables


def test_a_posterior_that_errs_more_is_told() -> None:
    def finding(own: float) -> list[Finding]:
        squared = [[9.0, own**2], *[[9.0, 4.0]] * (len(ESTIMATORS) - 1)]
        return [Finding(squared, squared, [], [], [], [], converged=True)]

    assert failures({("made", "1"): finding(1.5)}) == ()
    assert failures({("made", "1"): finding(2.5)}) == ("made, epsilon 1: the posterior errs by 2.5, another by 2",)
