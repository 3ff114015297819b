"""Orders and ranks of compiled lists, beside numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from coco_opt.kernels.sorting import falling, nth_smallest


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_orders_and_ranks_are_numpys(kind: type) -> None:
    rng = np.random.default_rng(5)
    for size in (0, 1, 2, 11, 40, 500):
        for spread in (2, 10**6):
            keys = rng.integers(0, spread, size).astype(kind)
            order = np.empty(size, np.int64)
            falling(keys, order)
            assert order.tolist() == np.argsort(-keys, kind="stable").tolist()
            for n in {0, size // 3, size - 1} if size else ():
                selected = keys.copy()
                assert nth_smallest(selected, n) == np.sort(keys)[n]
                assert (selected[:n] <= selected[n]).all()
                assert (selected[n:] >= selected[n]).all()
