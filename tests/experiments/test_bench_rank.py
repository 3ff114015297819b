"""Ranks of a nation in the bench: the shortcut's law against noise and fit, and one that is not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.bench import rank

from coco_opt.histograms import CountOfCounts
from tests.experiments.recorder import Recorder


def test_a_made_nation_has_its_groups_and_sizes() -> None:
    made = rank.nation(rank.GROUPS)
    assert (made.groups, made.distinct) == (240_908_081, 2_352)


@pytest.mark.slow
def test_small_ranks_are_timed_and_hold_the_chi_square(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = rank.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    (read,) = json.loads((tmp_path / "bench" / "rank.json").read_text())
    assert [row["what"] for row in read["rows"]] == [rank.STREAMED, rank.SEALED, rank.SHORTCUT]
    assert "degrees of freedom" in read["notes"][0]


def test_the_chi_square_finds_another_law(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rank.chi_square(400)

    def biased(truth: CountOfCounts, rng: np.random.Generator, made: object = rank.shortcut) -> CountOfCounts:
        return rank.TINY if rng.random() < 0.2 else made(truth, rng)  # type: ignore[operator, no-any-return]

    monkeypatch.setattr(rank, "shortcut", biased)
    statistic, degrees = rank.chi_square(400)
    assert right[0] < right[1] + 5 * (2 * right[1]) ** 0.5
    assert statistic > degrees + 5 * (2 * degrees) ** 0.5
