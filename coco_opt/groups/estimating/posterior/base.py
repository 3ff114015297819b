"""The smooth base of a size distribution with which chains begin (``kernels.posterior_base``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.groups.estimating.posterior.prior import Hats

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_base import Base, Knots

_ROUGHNESS, _STRENGTH = 0.3, 300.0  # of the base's increments, and in groups, at the start
_ABOVE = 3.0  # expected logarithm of how far a size alone stands above the base; the last size does not


def first_base(shape: Floats, hats: Hats) -> tuple[Knots, Base]:
    """Return a base's knots and the base nearest to a ``shape`` float64[K + 1] > 0, as the kernels read them.

    Hats without knots have the shape itself, which is not drawn.
    """
    from coco_opt.kernels import posterior_base

    last, size = shape.size - 1, hats.knots
    sizes, log_sizes, log_size = np.arange(shape.size), np.log1p(np.arange(shape.size)), np.log1p(size)
    lent = hats.left <= size.size
    alone = np.flatnonzero(~lent)
    expected = np.where(alone == last, 0.0, _ABOVE)
    scalars = np.array([0.0, 0.0, np.log(_ROUGHNESS), np.log(_STRENGTH)])
    interval, between = np.zeros(shape.size, np.int64), np.zeros(shape.size)
    level, excess, values = np.zeros(0), np.zeros(alone.size), shape.copy()
    if size.size:
        interval = np.clip(np.searchsorted(size, sizes, side="right") - 1, 0, size.size - 2)
        between = (log_sizes - log_size[interval]) / np.diff(log_size)[interval]
        level = np.interp(log_size, log_sizes[lent], np.log(shape[lent])) if lent.any() else np.zeros(size.size)
        smooth = np.interp(log_sizes, log_size, level)
        values = np.where(lent, np.exp(smooth), shape)
        level -= np.log(values.sum())
        values /= values.sum()
        excess = np.log(values[alone]) - np.interp(log_sizes[alone], log_size, level)
    knots = posterior_base.Knots(
        size, size.astype(np.float64), log_size, interval, between, lent, alone, size.size + 1, expected
    )
    work = np.zeros(size.size), np.zeros(size.size), np.zeros((size.size, 4)), np.zeros((size.size, 4)), np.zeros(4)
    root = np.zeros(hats.count)
    return knots, posterior_base.Base(level, excess, scalars, values, root, *work, np.zeros((size.size, 2)))
