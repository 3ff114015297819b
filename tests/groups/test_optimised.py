"""Predicted errors of questions against dense Gaussian algebra, and the choice of buckets that is never worse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt.groups.asked.optimised import best_growths, even_law, mean_logarithm, steep_law
from coco_opt.groups.asked.predicted import Predictor, Regions
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.look_alike import read_look_alike
from coco_opt.releases.kind import Wanted
from coco_opt.releases.reporter import Silent
from tests.groups.towns import config_of

Floats = NDArray[np.float64]


def matrix(buckets: Buckets, cells: int) -> Floats:
    """Return the buckets' sums as rows (buckets, cells)."""
    at = np.arange(cells)
    return ((at >= buckets.begin[:, None]) & (at < buckets.end[:, None])).astype(np.float64)


def by_hand(
    leaves: int, groups: float, chances: Floats, asked: Sequence[tuple[int, Buckets, float]], region: Sequence[int]
) -> Floats:
    """Return the posterior variance of the sum over some leaves, from the dense law of all leaves.

    ``asked``: the number of regions of a level, its buckets and its noise; a leaf has ``groups``.
    """
    cells, reached = chances.size - 1, np.cumsum(chances)[:-1]
    one = groups * (np.minimum.outer(reached, reached) - np.outer(reached, reached))
    prior = np.kron(np.eye(leaves), one)
    rows, noise = [], []
    for regions, buckets, variance in asked:
        if np.isfinite(variance):
            member = np.kron(np.eye(regions), np.ones((1, leaves // regions)))
            rows.append(np.kron(member, matrix(buckets, cells)))
            noise += [variance] * len(rows[-1])
    a = np.concatenate(rows)
    left = prior - prior @ a.T @ np.linalg.solve(a @ prior @ a.T + np.diag(noise), a @ prior)
    wanted = np.kron(np.isin(np.arange(leaves), region).astype(np.float64)[None], np.eye(cells))
    return np.asarray(np.diag(wanted @ left @ wanted.T))


def distance(variance: Floats) -> float:
    return float(np.minimum(np.sqrt(2.0 / np.pi * variance), variance).sum())


@pytest.mark.parametrize("variances", [(3.0, 5.0, 2.0), (4.0, np.inf, 1.0), (0.5, 8.0, np.inf)])
def test_predictions_equal_dense_algebra(variances: tuple[float, ...]) -> None:
    chances = np.array([0.1, 0.3, 0.2, 0.15, 0.1, 0.05, 0.05, 0.03, 0.02])
    cells = chances.size - 1
    buckets = [Buckets.cells(cells), Buckets.from_edges([0, 1, 2, 4, 8]), Buckets.from_edges([0, 3, 6, 8])]
    regions = Regions(np.array([1.0, 2.0, 6.0]), np.array([24.0, 12.0, 4.0]))
    found = Predictor(regions, chances, growth=0.0).errors(buckets, np.array(variances))
    asked = list(zip((1, 2, 6), buckets, variances, strict=True))
    expected = [distance(by_hand(6, 4.0, chances, asked, range(count))) for count in (6, 3, 1)]
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("groups", "growth"), [(30.0, 0.0), (30.0, 0.3), (3_000.0, 0.0), (3_000.0, 0.1)])
def test_a_coarse_grid_tells_what_cells_do(groups: float, growth: float) -> None:
    regions = Regions(np.array([1.0, 4.0]), np.array([groups, groups / 4]))
    chances, asked = even_law(400), [Buckets.by_growth(400, growth)] * 2
    fine, coarse = (
        Predictor(regions, chances, growth=step).errors(asked, np.array([17.0, 17.0])) for step in (0.0, 0.03)
    )
    assert coarse == pytest.approx(fine, rel=0.2)


def test_wide_buckets_gain_where_groups_are_sparse_and_lose_where_they_are_dense() -> None:
    variances, able = np.array([17.0, 17.0]), [True, True]
    sparse = Regions(np.array([1.0, 30.0]), np.array([300.0, 10.0]))
    dense = Regions(np.array([1.0, 30.0]), np.array([300_000.0, 10_000.0]))
    for law in (steep_law, even_law):
        cells, best = best_growths([Predictor(sparse, law(120))], 120, variances, able)
        assert best.growths[1] >= 0.1
        assert best.errors[0, 1] < 0.6 * cells.errors[0, 1]
    cells, best = best_growths([Predictor(dense, even_law(120))], 120, variances, able)
    assert best.growths == (0.0, 0.0)
    wide = Predictor(dense, even_law(120)).errors([Buckets.by_growth(120, 0.2)] * 2, variances)
    assert (wide > 2 * cells.errors[0]).all()


def test_no_choice_is_worse_than_cells_under_any_law() -> None:
    regions = Regions(np.array([1.0, 5.0, 50.0]), np.array([20_000.0, 4_000.0, 400.0]))
    laws = [Predictor(regions, law(100)) for law in (steep_law, even_law)]
    told: list[tuple[int, int]] = []
    cells, best = best_growths(laws, 100, np.array([17.0] * 3), [True, True, False], lambda *one: told.append(one))
    assert (best.errors <= cells.errors).all()
    assert best.growths[2] == 0.0
    assert mean_logarithm(best.errors) <= mean_logarithm(cells.errors)
    assert told[-1][0] <= told[-1][1]


def test_an_optimised_plan_says_what_to_write(tmp_path: Path) -> None:
    config = config_of(tmp_path, max_size=40)
    plan = GROUPS.plan(config)
    shown = GROUPS.forecast(plan, Wanted(public=tmp_path / "sizes.csv", optimise=True), Silent())
    rehearsed = shown.plain["optimised"]["rehearsed"]
    assert {"matching", "posterior", "joint", "bottom_up"} <= set(rehearsed)
    assert dict(shown.notes)["Laws"] == "supposed sizes: the look-alike sizes.csv"
    best = shown.plain["optimised"]["best_method"]
    if best is None:
        assert "as configured" in dict(shown.notes)["Best method"]
    else:
        text = "\n".join(shown.lines)
        again = config_of(tmp_path, max_size=40, consistency=best.partition(",")[0])
        assert f'consistency = "{again.method.consistency}"' in text
        assert np.log(rehearsed[best]).mean() < np.log(rehearsed["matching"]).mean()
    assert "optimised" not in GROUPS.forecast(plan, Wanted(), Silent()).plain


def test_ranks_are_left_as_they_are(tmp_path: Path) -> None:
    config = config_of(tmp_path, query="ranks")
    plan = GROUPS.plan(config)
    public = tmp_path / "sizes.csv"
    assert read_look_alike(plan, public).private.group_counts[0] > 0
    shown = GROUPS.forecast(plan, Wanted(public=public, optimise=True), Silent())
    assert "every level is asked" in dict(shown.notes)["Questions"]
    assert shown.plain["optimised"]["bucket_growth"] == []
