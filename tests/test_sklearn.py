"""The estimators for scikit-learn: its own contract, its isotonic regression as a peer, ties, bounds and weights."""

from __future__ import annotations

import pickle
from typing import Any

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


DTYPES = (np.float32, np.float64, np.int8, np.uint8, np.int64, np.uint64, np.bool_)


@pytest.mark.parametrize("seed", range(100))
def test_it_takes_the_place_of_the_peer(seed: int) -> None:
    """Random data of every type, ties, near values, weights, parameters: predictions and attributes are the peer's."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 40))
    x, y = (rng.integers(0, 30, size).astype(DTYPES[rng.integers(len(DTYPES))]) for _ in range(2))
    step = 0.6 * np.finfo(x.dtype).resolution if x.dtype.kind == "f" and seed % 2 else x.dtype.type(1)
    lower, upper = sorted(rng.integers(0, 30, 2).tolist())
    parameters: dict[str, Any] = {
        "y_min": (None, lower)[rng.integers(2)],
        "y_max": (None, upper)[rng.integers(2)],
        "increasing": bool(rng.integers(2)),
        "out_of_bounds": str(rng.choice(["nan", "clip"])),
    }
    weights = (None, rng.integers(0, 3, size) + (np.arange(size) == 0))[rng.integers(2)]
    x = step * (x.reshape(-1, 1) if rng.integers(2) else x)
    peer, ours = (kind(**parameters).fit(x, y, weights) for kind in (Peer, IsotonicRegression))
    at = step * np.linspace(-1, 31, 65)
    for method in ("predict", "transform"):
        theirs, own = (getattr(model, method)(at) for model in (peer, ours))
        np.testing.assert_allclose(own, theirs, atol=1e-5 if own.dtype == np.float32 else 1e-12)
        assert own.dtype == theirs.dtype
    assert (ours.X_min_, ours.X_max_, ours.increasing_) == (peer.X_min_, peer.X_max_, peer.increasing_)
    assert ours.X_thresholds_.size <= peer.X_thresholds_.size + 2
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ours)).predict(at), ours.predict(at))


def test_outside_of_the_training_data_values_are_nan_clipped_or_refused() -> None:
    x, y = [1.0, 2.0], [1.0, 2.0]
    assert np.isnan(IsotonicRegression().fit(x, y).predict([0.0, 3.0])).all()
    assert IsotonicRegression(out_of_bounds="clip").fit(x, y).predict([0.0, 3.0]).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="below the interpolation range"):
        IsotonicRegression(out_of_bounds="raise").fit(x, y).predict([0.0, 3.0])


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(ValueError, match="'p' parameter"):
        IsotonicRegression(p=3).fit([1.0, 2.0], [1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="y_min = 2 exceeds y_max = 1"):
        IsotonicRegression(y_min=2, y_max=1).fit([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="2d array with 1 feature"):
        IsotonicRegression().fit([[1.0, 2.0], [2.0, 1.0]], [1.0, 2.0])
