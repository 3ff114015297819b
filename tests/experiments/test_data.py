"""Where real data are looked for, the data made in their place, and the statistics of seeded runs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.data import VARIABLE, data_file, find_data_file, generated_counts, group_sizes, hawaiian, taxi
from coco_experiments.statistics import Mean, Reference

from coco_opt.errors import ConfigError

FILE = "kuo2018/taxi_neighbourhoods.csv"


def _place(folder: Path) -> Path:
    (folder / "kuo2018").mkdir(parents=True)
    (folder / FILE).write_text("level0,size,groups\nall,1,2\nall,3,1\n")
    return folder


def test_given_folder_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, named = _place(tmp_path / "given"), _place(tmp_path / "named")
    monkeypatch.setenv(VARIABLE, str(named))
    assert data_file(FILE, given) == given / FILE
    assert data_file(FILE) == named / FILE
    assert taxi(given).region(0).entities == 5


def test_default_lies_beside_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _place(tmp_path / "shared" / "data")
    (tmp_path / "work").mkdir()
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path / "work")
    assert data_file(FILE).resolve() == (tmp_path / "shared" / "data" / FILE).resolve()


def test_absent_data_say_where_to_put_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        data_file(FILE, tmp_path)
    for part in (FILE, str(tmp_path), VARIABLE, "--small"):
        assert part in str(caught.value)
    assert find_data_file(FILE, tmp_path) is None


def test_taxi_and_hawaiian_are_the_papers(shared_data: Path) -> None:
    read, one = taxi(shared_data), hawaiian(shared_data)
    root, blocks = read.region(0), one.region(0)
    assert (root.groups, root.entities, root.distinct) == (360_872, 130_962_398, 3_128)
    assert (read.hierarchy.levels, len(read.hierarchy.leaves)) == (3, 28)
    assert (blocks.groups, blocks.entities, blocks.distinct) == (11_155_486, 540_383, 224)


def test_made_sizes_repeat_and_stay_in_range() -> None:
    first, second = (group_sizes(2_000, 50, np.random.default_rng(1)) for _ in range(2))
    assert np.array_equal(first, second)
    assert first.min() == 1
    assert 40 < first.max() <= 50


def test_made_counts_form_three_consistent_levels() -> None:
    made = generated_counts(2, 3, 100, 40, np.random.default_rng(2))
    assert made.hierarchy.levels == 3
    assert made.group_counts.tolist() == [600, 300, 300] + [100] * 6
    assert made.region(0).groups == 600


def test_mean_and_its_standard_error() -> None:
    mean = Mean.of([1.0, 2.0, 3.0, 6.0])
    assert mean.value == 3.0
    assert mean.standard_error == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3 / 4))
    assert Mean.of([4.0]).standard_error is None


def test_distance_in_combined_standard_errors() -> None:
    # sqrt(10^2/100 + 10^2/25) = sqrt(5); an own spread, however wide, does not enter.
    apart = Reference(50.0, 10.0, 100).standard_errors_from(Mean(60.0, 1e6, 25))
    assert apart == pytest.approx(10.0 / math.sqrt(5.0))
