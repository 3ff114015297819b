"""The look: a first small measurement of the root, from which the size distribution is estimated.

The root's cumulative counts are summed over buckets that grow by half, so that even a fiftieth of the budget says how
many groups lie at small, middle and large sizes. What is measured next is chosen under the estimated distribution
(``coco_opt.groups.measuring.automatic``). It is adaptive composition: both costs add up, and only noisy values decide.
The posterior estimates a look together with the main measurement; other methods read only the main measurement.
"""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.noisy_measurements import buckets_of, has_private_counts, max_size_of
from coco_opt.groups.queries import GROUPS
from coco_opt.kernels.isotonic_l2 import fit
from coco_opt.privacy import Measurement, MeasurementPlan

LOOK_GROWTH = 0.5
_NOBODY = 0.5  # groups: fewer are none
_CERTAIN = 2.0  # standard deviations of its noise from which on a bucket has large groups


def is_look(plan: MeasurementPlan) -> bool:
    """Return whether a measurement plan has the form of a look: the root's buckets of ``LOOK_GROWTH`` alone."""
    if [query.level for query in plan.queries] != [0] or has_private_counts(plan):
        return False
    buckets, looked = buckets_of(plan, 0), Buckets.by_growth(max_size_of(plan), LOOK_GROWTH)
    if buckets is None and plan.queries[0].name == "cumulative":  # where sizes are few, each is a bucket
        buckets = Buckets.cells(max_size_of(plan))
    return buckets is not None and np.array_equal(buckets.begin, looked.begin)


def distribution_of_look(look: Measurement) -> Floats:
    """Return the size distribution that a look suggests: probabilities of the sizes 0 .. max_size.

    The buckets' means are made to rise by least squares (isotonic regression, weights the squared widths, which undo
    the noise's), cut to 0 .. G, and joined by straight lines. O(max_size).
    """
    plan = look.measurement_plan
    max_size, groups = max_size_of(plan), float(plan.per_region[GROUPS][0])
    buckets = buckets_of(plan, 0) or Buckets.cells(max_size)
    middle, means = _means(buckets, look.answers[0].values.astype(np.float64), groups)
    cumulative = np.interp(np.arange(max_size + 1), np.append(middle, max_size), np.append(means, groups))
    return _probabilities(cumulative)


def certain_distribution(look: Measurement) -> tuple[Floats, float]:
    """Return a smooth distribution without large groups that noise alone can make, and the entities these would hold.

    It is for simulated data. Where there are no large groups, noise makes some, and straight lines make steps in the
    middle of buckets: releases of such data err up to three times as much at the root. So no group lies in the last
    buckets, as far as each of them is within two standard deviations of holding none, and the logarithms of the numbers
    of larger groups are joined by a monotone cubic spline (Fritsch and Carlson 1980). O(max_size).
    """
    plan = look.measurement_plan
    values, groups = look.answers[0].values.astype(np.float64), float(plan.per_region[GROUPS][0])
    max_size = max_size_of(plan)
    buckets = buckets_of(plan, 0) or Buckets.cells(max_size)
    full = groups * (buckets.end - buckets.begin)
    deviation = float(plan.queries[0].distribution.variance) ** 0.5
    missing = np.flatnonzero(full - values >= _CERTAIN * deviation)
    beyond = int(missing[-1]) + 1 if missing.size else 0
    middle, means = _means(buckets, np.append(values[:beyond], full[beyond:]), groups)
    certain = _probabilities(groups - _larger(middle, groups - means, max_size))
    sizes = np.arange(max_size + 1)
    tail = sizes >= np.append(buckets.begin, max_size + 1)[beyond]
    hidden = groups * float((distribution_of_look(look) - certain)[tail] @ sizes[tail])
    return certain, max(hidden, 0.0)


def _means(buckets: Buckets, values: Floats, groups: float) -> tuple[Floats, Floats]:
    """Return the buckets' middles, and rising means of the cumulative counts in them."""
    width = (buckets.end - buckets.begin).astype(np.float64)
    return np.asarray(0.5 * (buckets.begin + buckets.end - 1)), fit(values / width, width**2, 0.0, groups)


def _larger(middle: Floats, larger: Floats, max_size: int) -> Floats:
    """Return how many groups are larger than each size, from those in the middles of buckets, without steps."""
    from scipy.interpolate import PchipInterpolator

    present = np.flatnonzero(larger > _NOBODY)
    sizes = np.arange(max_size + 1, dtype=np.float64)
    if not present.size:
        return np.zeros(max_size + 1)
    count = int(present[-1]) + 1
    end = float(np.append(middle, max_size)[count])
    spline = PchipInterpolator(np.append(middle[:count], end), np.log(np.append(larger[:count], _NOBODY)))
    return np.where(sizes < end, np.exp(spline(sizes.clip(middle[0], end))), 0.0)


def _probabilities(cumulative: Floats) -> Floats:
    counts = np.diff(cumulative, prepend=0.0).clip(0.0)
    return np.asarray(counts / counts.sum() if counts.sum() > 0 else np.full(counts.size, 1.0 / counts.size))
