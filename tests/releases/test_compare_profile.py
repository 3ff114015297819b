"""The performance profile of a comparison, by hand."""

from __future__ import annotations

import pytest

from coco_opt.releases.compare import AUTO, Comparison, Row, profiles

ROWS = (
    Row("isotonic_l1", "divide-and-conquer", 100, "OPTIMAL", 5.0, 0.0, 0.0, 0.0, 0.0, 0.001),
    Row("isotonic_l1", "highs", 100, "OPTIMAL", 5.0, 0.0, 0.0, 1e-7, 0.0, 0.05),
    Row("isotonic_l1", "brute-force", 10, "OPTIMAL", 1.0, 0.0, 0.0, 0.0, 0.0, 1e-5, note="cut from 100 to its cap"),
    Row("isotonic_l1", "corrupted", 100, "GAP_TOO_LARGE", 9.0, 0.8, 0.4, 0.0, 0.0, 1e-4, planted=True),
    Row("joint_l1", "alternating", 100, "OPTIMAL", 5.0, 0.0, 0.0, 1e-4, 0.0, 0.4),
    Row("joint_l1", "highs", 100, "OPTIMAL", 5.0, 0.0, 0.0, 1e-7, 0.0, 0.1),
    Row("joint_l1", "<b>", 100, "GAP_TOO_LARGE", 5.0, 0.0, 0.2, 1e-7, 0.0, 0.01),
)
MADE = Comparison("made <data>", ROWS)


def test_profiles_count_problems_certified_at_full_size() -> None:
    found = profiles(MADE)
    assert set(found) == {AUTO, "highs"}
    assert found["highs"] == [(1.0, 0.5), (pytest.approx(50.0), 1.0), (pytest.approx(50.0), 1.0)]
    assert found[AUTO][0] == (1.0, 0.5)
    assert found[AUTO][1] == (pytest.approx(4.0), 1.0)
