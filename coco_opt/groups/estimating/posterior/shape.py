"""The shape of the root's size distribution, from the noisy answers alone, as fine as they allow.

An estimate that is smoothed repeatedly becomes flat wherever the answers are weak compared with the prior. The shape is
therefore estimated once, before any sampling. Chains start near it and propose from it. The prior contains only the
smooth distribution through its hats' means (``prior.smooth_distribution``), because answers that are used twice make
intervals too narrow.
"""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Flags, Floats
from coco_opt.groups.estimating.posterior.observations import Survey
from coco_opt.groups.estimating.posterior.prior import Hats
from coco_opt.groups.estimating.posterior.spikes import informed_counts

_PLAIN = 8.0  # standard deviations of noise that the groups between two knots should exceed
_STEPS = 200


def root_shape(survey: Survey, fitted: Floats, alone: Flags, reach: float) -> Floats:
    """Return about how many of the root's groups have each size, float64[K + 1], at least 0.

    This is the most likely combination of hats for the answers of all levels, added up and made nondecreasing;
    ``fitted`` float64[K + 1] replaces them where no buckets were measured. Sizes ``alone`` are not smoothed. O(K).
    """
    from coco_opt.kernels import isotonic_l1

    counts, variance = informed_counts(survey)
    groups = int(survey.groups[0])
    root_counts = fitted
    if counts.any():
        rows = isotonic_l1.fit(np.rint(np.cumsum(counts)[:-1]).astype(np.int64), 0, groups)
        root_counts = np.diff(rows, prepend=0, append=groups).astype(np.float64)
    hats = Hats.at(plain_knots(root_counts, variance, reach), alone)
    mass = hats.sums(np.ones((1, root_counts.size)))[0]
    factors = np.full(hats.count, max(root_counts.sum(), 1.0) / root_counts.size)
    for _ in range(_STEPS):
        values = np.maximum(hats.values(factors), 1e-300)
        expected = factors * hats.sums((root_counts / values)[None])[0]
        factors = np.divide(expected, mass, out=np.zeros_like(mass), where=mass > 0.0)
    return hats.values(factors)


def size_probabilities(shape: Floats) -> Floats:
    """Return the probabilities of sizes from ``root_shape``; equal ones where it has no groups.

    Private numbers of groups may all be released as 0.
    """
    groups = shape.sum()
    return np.asarray(shape / groups) if groups > 0.0 else np.full(shape.shape, 1.0 / shape.size)


def plain_knots(counts: Floats, variance: Floats, reach: float) -> list[int]:
    """Return knots from 0 to the largest size, as close as the groups between two exceed noise and chance variation.

    ``variance`` is the variance of each count's answer; a knot is at most about 1 + reach times the one before.
    """
    knots, begin, last = [0], 0, counts.size - 1
    groups = 0.0
    for k in range(1, last):
        groups += float(counts[k])
        if groups > _PLAIN * np.sqrt(variance[k] + groups) or k >= int(begin * (1.0 + reach)):
            knots.append(k)
            begin, groups = k, 0.0
    return [*knots, last]
