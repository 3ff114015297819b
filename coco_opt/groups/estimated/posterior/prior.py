"""Priors learned from the noisy answers alone: how counts of nearby sizes and of parents inform a region's own.

Empirical Bayes (Robbins 1956): what the prior needs is the posterior mean of the counts under the prior before,
smoothed over sizes; the smoothing windows and the borrowing from parents are our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

PriorKind = Literal["multinomial", "increments"]

_RHO_MOST = 1.0 - 1e-9
_Q_LEAST = 1e-9


def smoothed(values: FloatArray, reach: float, alone: BoolArray | None = None) -> FloatArray:
    """Return means over the sizes k - w .. k + w, w = floor(reach k); last axis, O(n).

    Sizes that stand ``alone`` (n,) keep their own values and lend them to no other: by default the last one, which
    counts all larger groups; for reach < 1 size 0 keeps its own too.
    """
    n = values.shape[-1]
    single = only_last(n) if alone is None else alone
    first, end = _windows(n, reach)
    lent = np.where(single, 0.0, values)
    running = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(lent, axis=-1)], axis=-1)
    lending = np.append(0, np.cumsum(~single))
    near = np.maximum(lending[end] - lending[first], 1)
    # A running sum may leave -1e-17 where all values are zero.
    means = np.maximum((running[..., end] - running[..., first]) / near, 0.0)
    return np.where(single, values, means)


def _windows(sizes: int, reach: float) -> tuple[IntArray, IntArray]:
    k = np.arange(sizes)
    width = np.floor(reach * k).astype(np.int64)
    return np.maximum(k - width, 0), np.minimum(k + width + 1, sizes)


def only_last(sizes: int) -> BoolArray:
    """Return which of 0 .. sizes - 1 stand alone where nothing is known: the last one."""
    alone = np.zeros(sizes, bool)
    alone[-1] = True
    return alone


def increment_prior(jumps: FloatArray, increments: FloatArray, reach: float) -> tuple[FloatArray, FloatArray]:
    """Return q and rho (..., K + 1) from P(increment > 0) and the mean increments of every size, smoothed.

    An increment above zero is 1 + geometric(rho) and has the mean 1 / (1 - rho): the maximisation step of Baum et al.
    1970 for this law, on sums over nearby sizes. To those of a leaf one size of all leaves' mean is added, and to
    theirs half a jump and half a stay (Jeffreys 1946): from few sizes q would else learn 0 from itself, and stay there.
    """
    sizes = jumps.shape[-1]
    first, end = _windows(sizes, reach)
    near = np.where(only_last(sizes), 1.0, np.maximum(np.minimum(end, sizes - 1) - first, 1))
    own = smoothed(jumps, reach)
    leaves = jumps.size // sizes
    of_all = (own.reshape(leaves, sizes).sum(axis=0) * near + 0.5) / (leaves * near + 1.0)
    q = (own * near + of_all) / (near + 1.0)
    mean = np.maximum(smoothed(increments, reach), q)
    rho = np.where(mean > 0.0, 1.0 - q / np.where(mean > 0.0, mean, 1.0), 0.0)
    return np.clip(q, _Q_LEAST, 1.0 - _Q_LEAST), np.clip(rho, 0.0, _RHO_MOST)


@dataclass(frozen=True, slots=True)
class PriorOptions:
    """How the prior is learned.

    "multinomial": each group of a leaf has size k with chance pi(k), the counts smoothed over k +- reach k (the root's
    over ``root_reach``) plus ``borrowed`` groups of the parent's pi; the root's pi has at least ``floor`` everywhere.
    Sizes that answers tell to stand out are not smoothed (``spikes``). "increments": the count of size k is 0 with
    chance 1 - q, else 1 + geometric(rho), each leaf's own, smoothed over ``increment_reach``. It borrows nothing from
    parents and errs more, on Taxi too, but is quick where only cells were asked and leaves have many groups.
    """

    kind: PriorKind = "multinomial"
    root_reach: float = 0.15
    reach: float = 0.3
    borrowed: float = 30.0
    floor: float = 1e-6
    increment_reach: float = 0.05

    def __post_init__(self) -> None:
        if not all(0.0 <= reach < 1.0 for reach in (self.root_reach, self.reach, self.increment_reach)):
            raise ProblemError("counts are smoothed over k +- reach k, with a reach from 0 to below 1")
        if not (self.borrowed > 0.0 and self.floor > 0.0):
            raise ProblemError("every size needs a chance: 'borrowed' and 'floor' must be positive")


def size_chances(
    parent: IntArray, counts: FloatArray, options: PriorOptions, alone: BoolArray | None = None
) -> FloatArray:
    """Return pi float64[regions, K + 1], rows of sum 1, from the regions' mean counts; O(regions K).

    Sizes that stand ``alone`` (K + 1,) are not smoothed; by default the last one.
    """
    chances = smoothed(counts, options.reach, alone)
    root = smoothed(counts[0], options.root_reach, alone)
    root = root / max(root.sum(), 1e-300) + options.floor
    chances[0] = root / root.sum()
    totals = chances.sum(axis=1)
    for region in range(1, parent.size):
        chances[region] += options.borrowed * chances[parent[region]]
        chances[region] /= totals[region] + options.borrowed
    return chances
