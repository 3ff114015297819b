"""The correction of a posterior's answers by linear estimates, on draws whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt.histograms import Hierarchy
from coco_opt.kernels.posterior_table_summaries import Draws
from coco_opt.operators import Grouping, Operator
from coco_opt.topdown.estimating.posterior.correction import Correction, Counting, DrawnTables, central
from coco_opt.topdown.estimating.posterior.result import Targets

REGIONS, DRAWS = 400, 120
TREE = Hierarchy.from_paths([("land", f"r{k}", "leaf") for k in range(REGIONS)])
ALL = Grouping(np.zeros(1, np.int64), 1)
PRIOR, NOISE = 20.0, 10.0  # standard deviations: of the truth around 1,000, and of the estimates around the truth


@dataclass(frozen=True)
class Estimates:
    """Linear estimates of a level's regions, each with the same standard error."""

    estimates: NDArray[np.float64]

    def answers(self, operator: Operator, level: int, regions: slice = slice(None)) -> NDArray[np.float64]:
        own = self.estimates if level else self.estimates.sum(keepdims=True)
        return np.asarray(own[regions, None])

    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> NDArray[np.float64]:
        return np.full_like(self.answers(operator, level, regions), NOISE if level else NOISE * REGIONS**0.5)


def corrected(
    error: float | NDArray[np.float64], spread: float = 1.0, *, widened: bool = False
) -> tuple[Correction, NDArray[np.float64], NDArray[np.float64]]:
    """Return the correction of draws whose mean is wrong by an error, the true answers, and the estimates."""
    rng = np.random.default_rng(5)
    true = 1000.0 + PRIOR * rng.standard_normal(REGIONS)
    estimates = true + NOISE * rng.standard_normal(REGIONS)
    mean = (1000.0 * NOISE**2 + estimates * PRIOR**2) / (NOISE**2 + PRIOR**2) + error
    deviation = spread * PRIOR * NOISE / np.hypot(PRIOR, NOISE)
    numbers = np.rint(mean + deviation * rng.standard_normal((DRAWS, REGIONS))).astype(np.int32)
    offset = np.arange(DRAWS)[:, None] * REGIONS + np.arange(REGIONS + 1)
    drawn = DrawnTables(TREE, Draws(offset, np.zeros(numbers.size, np.uint16), numbers.reshape(-1)), 1)
    linear: Any = Estimates(estimates)
    return Correction.of(drawn, linear, ((ALL,),) * 3, widened=drawn if widened else None), true, estimates


def test_a_posterior_that_holds_stays_as_it_is() -> None:
    correction, _, _ = corrected(0.0)
    assert correction.weights[1][0] < 0.2
    assert correction.weights[2] == (0.0,)  # the leaves' answers are the draws'


@pytest.mark.parametrize("error", [5.0, 20.0, 100.0])
def test_errors_are_no_larger_than_those_of_the_estimates_and_intervals_hold(error: float) -> None:
    correction, true, estimates = corrected(error)
    values = correction.sorted_answers(1, TREE.level_range(1), 0)
    assert values is not None
    assert (np.diff(values, axis=1) >= 0).all()
    squared = np.mean((values.mean(axis=1) - true) ** 2)
    assert squared < 1.03 * np.mean((estimates - true) ** 2)
    lower, upper = central(values, 0.9)
    assert 0.85 < np.mean((lower <= true) & (true <= upper)) < 0.95


def test_targets_of_many_regions_are_corrected_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    correction, true, _ = corrected(100.0)
    targets = Targets(correction.drawn, correction, ((ALL,),) * 3)
    regions, parent = TREE.level_range(1), np.array([int(true.sum())])
    together = targets(regions, parent)
    monkeypatch.setattr("coco_opt.topdown.estimating.posterior.correction._NUMBERS", 7 * DRAWS)
    np.testing.assert_array_equal(targets(regions, parent), together)


def test_narrow_draws_get_the_spread_of_their_risk() -> None:
    correction, true, _ = corrected(50.0, spread=0.2)
    values = correction.sorted_answers(1, TREE.level_range(1), 0)
    assert values is not None
    lower, upper = central(values, 0.9)
    assert 0.8 < np.mean((lower <= true) & (true <= upper)) < 0.95


def test_leaves_of_a_posterior_that_holds_keep_their_intervals() -> None:
    correction, _, _ = corrected(0.0, widened=True)
    assert correction.factors[0] == pytest.approx(1.0, abs=0.1)
    assert corrected(30.0)[0].sorted_answers(2, TREE.level_range(2), 0) is None  # targets have no factors


@pytest.mark.parametrize("error", [15.0, 40.0])
def test_intervals_of_leaves_are_widened_to_the_errors_and_keep_their_centres(error: float) -> None:
    correction, true, _ = corrected(np.where(np.arange(REGIONS) % 2, error, -error), widened=True)
    regions = TREE.level_range(2)
    before = correction.drawn.sorted_answers(regions, Counting.of(ALL))
    after = correction.sorted_answers(2, regions, 0)
    assert after is not None
    assert (np.diff(after, axis=1) >= 0).all()
    np.testing.assert_allclose(after.mean(axis=1), before.mean(axis=1), atol=0.5)
    squared = np.mean((before.mean(axis=1) - true) ** 2)
    assert after.var(axis=1).mean() == pytest.approx(squared, rel=0.15)
    some = range(regions.start + 100, regions.start + 110)
    np.testing.assert_array_equal(correction.sorted_answers(2, some, 0), after[100:110])
