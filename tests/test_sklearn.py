"""The estimators for scikit-learn: its own contract, its isotonic regression as a peer, ties, bounds and weights."""

from __future__ import annotations

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from sklearn.isotonic import IsotonicRegression as Peer  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from coco_opt.sklearn import IsotonicRegression  # noqa: E402

ESTIMATORS = {
    "isotonic-l2": IsotonicRegression(),
    "isotonic-l1": IsotonicRegression(p=1),
    "isotonic-bounds": IsotonicRegression(y_min=0, y_max=3, increasing=False),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore::Warning")
def test_fulfils_the_contract_of_scikit_learn(name: str) -> None:
    check_estimator(ESTIMATORS[name])


@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_squares_equal_those_of_scikit_learn(seed: int, increasing: bool) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 20, 60), rng.normal(size=60) + 0.1 * np.arange(60)
    weights = rng.integers(0, 4, 60).astype(float)
    asked = np.linspace(-2, 22, 49)
    bounds = {"y_min": 1.0, "y_max": 4.0}
    peer = Peer(increasing=increasing, out_of_bounds="clip", **bounds).fit(x, y, weights)
    ours = IsotonicRegression(increasing=increasing, **bounds).fit(x, y, weights)
    np.testing.assert_allclose(ours.predict(asked), peer.predict(asked), atol=1e-9)


@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_absolute_values_are_least_among_functions_of_x(seed: int, increasing: bool) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 6, 25), rng.integers(-5, 6, 25)
    model = IsotonicRegression(p=1, increasing=increasing).fit(x, y)
    fitted = model.predict(x)
    assert np.all(np.diff(model.y_thresholds_) * (1 if increasing else -1) >= 0)
    # Oracle: all values among the data, one a distinct x, by dynamic programming over the last value.
    values = np.unique(y) if increasing else np.unique(y)[::-1]
    cost = np.zeros(values.size)
    for at in np.unique(x):
        cost = np.minimum.accumulate(cost) + np.abs(values[:, None] - y[x == at]).sum(axis=1)
    assert np.abs(fitted - y).sum() == pytest.approx(cost.min())


def test_outside_of_the_training_data_values_are_clipped_or_nan() -> None:
    x, y = [1.0, 2.0], [1.0, 2.0]
    assert IsotonicRegression().fit(x, y).predict([0.0, 3.0]).tolist() == [1.0, 2.0]
    assert np.isnan(IsotonicRegression(out_of_bounds="nan").fit(x, y).predict([0.0, 3.0])).all()


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(ValueError, match="p must be 1 or 2"):
        IsotonicRegression(p=3).fit([1.0, 2.0], [1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one feature, X has 2"):
        IsotonicRegression().fit([[1.0, 2.0], [2.0, 1.0]], [1.0, 2.0])
