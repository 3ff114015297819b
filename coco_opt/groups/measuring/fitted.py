"""How far off the fits of single levels will be, by level, from public numbers and an assumed size distribution.

Problem: as in ``coco_opt.groups.measuring.predicted``, for the methods that fit noisy answers without a prior
("joint", "matching", "none"): predict the mean earth mover's distance of a region at each level.

Steps, for each class of like regions of a level:

1. Draw a histogram of the class's mean number of groups from the distribution, and Laplace noise of the variance.
2. Fit the noisy sums over buckets as ``coco_opt.groups.estimating.estimators`` does: isotonic regression by absolute
   values within 0 .. G, rising evenly between the buckets' middles.
3. The distance to the histogram, averaged over the classes, is the level's error.

What regions gain from their parents and children is left out, because on sparse data they gain little: fits of small
regions are off in the same direction, and their sum is off by much. On Hawaii's blocks, queries chosen by these
predictions and not by the posterior's lower the error of matching by 40 to 55 %. On dense regions, which gain from one
another, matching errs by a third more (Manhattan's taxis, epsilon 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.measuring.predicted import Regions
from coco_opt.kernels.isotonic_l1 import fit_real

MOST_SIZES = 5_000
"""Of a distribution whose fits are drawn in seconds."""

_CLASSES = 3  # of regions of a level, of those of ``Regions``
_DRAWS = 2  # of a class's histogram and noise
_SEED = 20_181_220  # the same numbers give the same choice


class FitPredictor:
    """Predicts errors under one size distribution: ``probabilities`` float64[K + 1] of sum 1, K = max_size."""

    def __init__(self, regions: Regions, probabilities: Floats) -> None:
        self._regions, self._probabilities = regions, probabilities
        self._classes = [_few(*level) for level in zip(regions.groups, regions.parts, strict=True)]
        self._stored: dict[tuple[int, int, float], float] = {}
        self._buckets: dict[int, Buckets] = {}  # kept alive, since they are known by their id

    def errors(self, buckets: Sequence[Buckets], variances: Floats) -> Floats:
        """Return the predicted mean distance (entities) of a region at each level, float64[levels], root first.

        ``buckets`` are what each level measures, single cells too, with noise of ``variances`` float64[levels]
        (infinite where nothing is measured: then the leaves alone are added up). O(levels x K) where new.
        """
        own = [self._level(level, *each) for level, each in enumerate(zip(buckets, variances.tolist(), strict=True))]
        below = self._regions.count[-1] / self._regions.count
        return np.where(np.isinf(own), own[-1] * np.sqrt(below), own)

    def _level(self, level: int, buckets: Buckets, variance: float) -> float:
        if not np.isfinite(variance):
            return np.inf
        key = level, id(buckets), variance
        if key not in self._stored:
            self._buckets[id(buckets)] = buckets
            groups, parts = self._classes[level]
            rng = np.random.default_rng(_SEED)
            errors = [self._distance(round(each), buckets, variance, rng) for each in groups.tolist()]
            self._stored[key] = float(parts @ np.array(errors))
        return self._stored[key]

    def _distance(self, groups: int, buckets: Buckets, variance: float, rng: np.random.Generator) -> float:
        """Return the mean distance of fits of regions drawn with so many groups."""
        max_size = self._probabilities.size - 1
        width = (buckets.end - buckets.begin).astype(np.float64)
        middle, cells = 0.5 * (buckets.begin + buckets.end - 1), np.arange(max_size)
        total = 0.0
        for counts in rng.multinomial(groups, self._probabilities, size=_DRAWS):
            cumulative = np.cumsum(counts)[:max_size]
            noise = np.rint(rng.laplace(scale=(0.5 * variance) ** 0.5, size=width.size))
            fitted = fit_real((buckets.sums(cumulative) + noise) / width, width, 0.0, float(groups))
            total += float(np.abs(np.rint(np.interp(cells, middle, fitted)) - cumulative).sum())
        return total / _DRAWS


def _few(groups: Floats, parts: Floats) -> tuple[Floats, Floats]:
    """Return a level's classes joined into a few: their mean numbers of groups, and their parts of the regions."""
    joined = np.array_split(np.arange(groups.size), min(_CLASSES, groups.size))
    sums = np.array([parts[each].sum() for each in joined])
    return np.array([groups[each] @ parts[each] for each in joined]) / sums, sums
