"""Simulated data meet the published totals exactly; loaders accept one integer a line and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coco_experiments.hay2010 import data
from coco_experiments.hay2010.simulated_data import Totals, _support, counts_with, place
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import InputError, ProblemError

SOURCES = (data.NET_TRACE_SOURCE, data.SOCIAL_NETWORK_SOURCE, data.SEARCH_LOGS_SOURCE)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_look_alikes_have_the_published_totals(source: data._Source) -> None:
    counts = data.simulated_data(source)
    assert source.totals.agrees(Totals.of(counts.values))
    assert np.array_equal(counts.values, data.simulated_data(source).values)
    assert counts.label == f"{source.name} (simulated)"
    assert np.array_equal(counts.ranks, np.sort(counts.values))


def test_published_totals_are_those_of_the_data_notes() -> None:
    assert Totals(65_536, 2_218, 25_714, 1_423, 107) == data.NET_TRACE_SOURCE.totals
    assert Totals(11_342, 11_342, 674_708, 1_678, 304) == data.SOCIAL_NETWORK_SOURCE.totals
    assert Totals(32_768, 15_686, 335_889, 496) == data.SEARCH_LOGS_SOURCE.totals


@given(st.integers(0, 2**32), st.integers(10, 40), st.integers(50, 200), st.integers(0, 3))
def test_totals_of_a_plausible_shape_are_met(seed: int, distinct: int, repeats: int, mean: int) -> None:
    nonzero = distinct + repeats
    support = _support(Totals(nonzero, nonzero, 0, 3 * distinct, distinct))
    assert support[0] == 1
    total = int(support.sum()) + repeats * (1 + mean)
    wanted = Totals(nonzero + 5, nonzero, total, 3 * distinct, distinct + 1)
    assert Totals.of(counts_with(wanted, _rng(seed))) == wanted


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("totals", [Totals(10, 5, 4, 3, 3), Totals(10, 5, 5_000, 9, 4), Totals(10, 8, 60, 5, 8)])
def test_impossible_totals_are_refused(totals: Totals) -> None:
    with pytest.raises(ProblemError):
        counts_with(totals, _rng(1))


@pytest.mark.parametrize("placement", ["clustered", "rising"])
def test_placement_moves_counts_and_changes_none(placement: str) -> None:
    counts = counts_with(Totals(256, 40, 400, 50, 11), _rng(2))
    placed = place(counts, placement, _rng(3))  # type: ignore[arg-type]
    assert np.array_equal(np.sort(placed), counts)
    assert not np.array_equal(placed, counts)
    if placement == "rising":
        assert placed[128:].sum() > 2 * placed[:128].sum()


def test_clustered_placement_needs_a_power_of_two() -> None:
    with pytest.raises(ProblemError, match="power of 2"):
        place(np.ones(12, np.int64), "clustered", _rng(1))


def test_own_copies_are_read(tmp_path: Path) -> None:
    (tmp_path / "hay2010").mkdir()
    (tmp_path / data.NET_TRACE_SOURCE.file).write_text("3\n0\n12\r\n7\n\n")
    own = data.original_or_simulated(data.NET_TRACE_SOURCE, tmp_path)
    assert own.values.tolist() == [3, 0, 12, 7]
    assert own.values.dtype == np.int64
    assert own.label == "NetTrace (original)"
    (tmp_path / data.KEYWORDS_FILE).write_text("5\n6")
    names = [counts.label for counts in data.unattributed(tmp_path)]
    assert names == ["NetTrace (original)", "Social Network (simulated)", "Search Logs keywords (original)"]


@pytest.mark.parametrize("line", ["-777", "77.5", "7e77", " ", "seven", "7,7", "7" * 19])
def test_other_lines_are_refused_without_showing_them(tmp_path: Path, line: str) -> None:
    path = tmp_path / "counts.txt"
    path.write_text(f"1\n{line}\n2\n")
    with pytest.raises(InputError) as caught:
        data.read_counts(path)
    assert caught.value.code == "not-a-count"
    assert "row 2" in str(caught.value)
    assert "77" not in str(caught.value)
    assert "seven" not in str(caught.value)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "counts.txt").write_text("\n\n")
    with pytest.raises(InputError, match="empty-file"):
        data.read_counts(tmp_path / "counts.txt")


def test_degree_sequences_are_the_published_ones(shared_data: Path) -> None:
    found = {counts.name: Totals.of(counts.values) for counts in data.degree_sequences(shared_data)}
    assert {name: (totals.values, totals.distinct) for name, totals in found.items()} == {
        "ca-HepTh": (9_875, 55),
        "email-Enron": (36_692, 334),
        "as-oregon1": (10_670, 112),
    }


def test_absent_degree_sequences_are_left_out(tmp_path: Path) -> None:
    assert data.degree_sequences(tmp_path) == []
