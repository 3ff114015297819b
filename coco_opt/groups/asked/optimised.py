"""Which buckets to ask of which level, and how to split the budget, by predicted errors under several laws of sizes.

Buckets wider than groups are dense lose what they sum over, and gain several times where groups are sparse. Which it is
depends on the data; so a choice may be worse than single cells at no level under any of the laws that are supposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.groups.asked.predicted import Predictor
from coco_opt.groups.buckets import Buckets

FloatArray = NDArray[np.float64]
Progress = Callable[[int, int], None]

GROWTHS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
_PASSES = 2
_GAIN = 0.005  # less is no reason to change a level's buckets


def steep_law(max_size: int) -> FloatArray:
    """Return chances float64[K + 1] of sizes s from 1 on in proportion to 1 / s^2: most groups are small."""
    chances = np.arange(max_size + 1, dtype=np.float64)
    chances[1:] **= -2.0
    return np.asarray(chances / chances.sum())


def even_law(max_size: int) -> FloatArray:
    """Return equal chances float64[K + 1] of the sizes from 1 on: groups lie as densely at large sizes as they can."""
    chances = np.ones(max_size + 1)
    chances[0] = 0.0
    return chances / max_size


@dataclass(frozen=True, eq=False, slots=True)
class Growths:
    """A growth of the buckets of each level, root first (0: single cells), and the errors float64[laws, levels]."""

    growths: tuple[float, ...]
    errors: FloatArray


def mean_logarithm(errors: FloatArray) -> float:
    """Return what a choice minimises: the mean logarithm of errors, in which every level counts alike."""
    return float(np.log(np.maximum(errors, 1e-12)).mean())


def best_growths(
    predictors: Sequence[Predictor],
    max_size: int,
    variances: FloatArray,
    able: Sequence[bool],
    progress: Progress | None = None,
) -> tuple[Growths, Growths]:
    """Return single cells, and the growths of the least mean logarithm of errors among those never worse than cells.

    Levels are changed in turn, the leaves first, where ``able``; no level of any law may be predicted to err more than
    with cells. ``variances`` float64[levels] are the noise of an answer. Deterministic.
    """
    buckets = {growth: Buckets.by_growth(max_size, growth) for growth in GROWTHS}

    def predicted(growths: Sequence[float]) -> Growths:
        asked = [buckets[growth] for growth in growths]
        return Growths(tuple(growths), np.array([one.errors(asked, variances) for one in predictors]))

    cells = best = predicted((0.0,) * len(able))
    tried = 0
    for _ in range(_PASSES):
        before = best
        for level in reversed(range(len(able))):
            for growth in GROWTHS:
                tried += 1
                if progress is not None:
                    progress(tried, _PASSES * len(able) * len(GROWTHS))
                if not able[level] or growth == best.growths[level]:
                    continue
                other = predicted((*best.growths[:level], growth, *best.growths[level + 1 :]))
                allowed = (other.errors <= cells.errors * (1.0 + 1e-9)).all()
                if allowed and mean_logarithm(other.errors) < mean_logarithm(best.errors) - _GAIN:
                    best = other
        if best is before:
            break
    return cells, best
