"""The shape of the root's law of sizes, from the noisy answers alone: as fine as they can tell, no smoother.

An estimate that is smoothed, believed and smoothed again ends flat wherever answers are weak beside the prior. So the
shape is found once, before any sampling. Chains start near it and propose from it; of the prior only the smooth law
under its hats' means is (``prior.smooth_law``), for answers that are read twice make intervals too narrow.
"""

from __future__ import annotations

import numpy as np

from coco_opt.groups.estimated.posterior.prior import BoolArray, FloatArray, Hats
from coco_opt.groups.estimated.posterior.spikes import told_counts
from coco_opt.groups.estimated.posterior.survey import Survey

_PLAIN = 8.0  # standard deviations of noise that the groups between two knots should exceed
_STEPS = 200


def root_shape(survey: Survey, fitted: FloatArray, alone: BoolArray, reach: float) -> FloatArray:
    """Return about how many of the root's groups have each size, float64[K + 1], at least 0.

    The most likely combination of hats for the answers of all levels, added up and made nondecreasing; ``fitted``
    float64[K + 1] stands in where no buckets were asked. Sizes ``alone`` are not smoothed. O(K).
    """
    from coco_opt.kernels import isotonic_l1

    counts, variance = told_counts(survey)
    groups = int(survey.groups[0])
    whole = fitted
    if counts.any():
        rows = isotonic_l1.fit(np.rint(np.cumsum(counts)[:-1]).astype(np.int64), 0, groups)
        whole = np.diff(rows, prepend=0, append=groups).astype(np.float64)
    hats = Hats.at(plain_knots(whole, variance, reach), alone)
    mass = hats.sums(np.ones((1, whole.size)))[0]
    factors = np.full(hats.count, max(whole.sum(), 1.0) / whole.size)
    for _ in range(_STEPS):
        values = np.maximum(hats.values(factors), 1e-300)
        told = factors * hats.sums((whole / values)[None])[0]
        factors = np.divide(told, mass, out=np.zeros_like(mass), where=mass > 0.0)
    return hats.values(factors)


def plain_knots(counts: FloatArray, variance: FloatArray, reach: float) -> list[int]:
    """Return knots from 0 to the largest size, as close as the groups between two are more than noise and chance.

    ``variance`` is that of each count's answer; a knot is at most about 1 + reach times the one before.
    """
    knots, begin, last = [0], 0, counts.size - 1
    held = 0.0
    for k in range(1, last):
        held += float(counts[k])
        if held > _PLAIN * np.sqrt(variance[k] + held) or k >= int(begin * (1.0 + reach)):
            knots.append(k)
            begin, held = k, 0.0
    return [*knots, last]
