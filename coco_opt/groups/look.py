"""The look: a first small measurement of the root, from which the size distribution is estimated.

The root's cumulative counts are summed over buckets that grow by half, so that even a fiftieth of the budget says how
many groups lie at small, middle and large sizes. What is measured next is chosen under the estimated distribution
(``coco_opt.groups.measuring.automatic``). It is adaptive composition: both costs add up, and only noisy values decide.
The posterior estimates a look together with the main measurement; other methods read only the main measurement.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.groups.buckets import Buckets
from coco_opt.groups.noisy_measurements import buckets_of, has_private_counts, max_size_of
from coco_opt.groups.queries import GROUPS
from coco_opt.privacy import Measurement, MeasurementPlan

FloatArray = NDArray[np.float64]

LOOK_GROWTH = 0.5
_CERTAIN = 2.0  # standard deviations of its noise from which on a bucket has large groups


def is_look(plan: MeasurementPlan) -> bool:
    """Return whether a measurement plan has the form of a look: the root's buckets of ``LOOK_GROWTH`` alone."""
    if [query.level for query in plan.queries] != [0] or has_private_counts(plan):
        return False
    buckets, looked = buckets_of(plan, 0), Buckets.by_growth(max_size_of(plan), LOOK_GROWTH)
    if buckets is None and plan.queries[0].name == "cumulative":  # where sizes are few, each is a bucket
        buckets = Buckets.cells(max_size_of(plan))
    return buckets is not None and np.array_equal(buckets.begin, looked.begin)


def distribution_of_look(look: Measurement) -> FloatArray:
    """Return the size distribution that a look suggests: probabilities of the sizes 0 .. max_size.

    The buckets' means are made to rise by least squares (isotonic regression, weights the squared widths, which undo
    the noise's), cut to 0 .. G, and joined by straight lines. O(max_size).
    """
    return _distribution(look, look.answers[0].values.astype(np.float64))


def certain_distribution(look: Measurement) -> tuple[FloatArray, float]:
    """Return the distribution without large groups that noise alone can make, and the entities that these would hold.

    Where there are no large groups, noise makes some, and releases of data simulated so err too much at the root. So
    no group lies in the last buckets, as far as each of them is within two standard deviations of holding none.
    """
    plan = look.measurement_plan
    values, groups = look.answers[0].values.astype(np.float64), float(plan.per_region[GROUPS][0])
    buckets = buckets_of(plan, 0) or Buckets.cells(max_size_of(plan))
    full = groups * (buckets.end - buckets.begin)
    deviation = float(plan.queries[0].distribution.variance) ** 0.5
    missing = np.flatnonzero(full - values >= _CERTAIN * deviation)
    beyond = int(missing[-1]) + 1 if missing.size else 0
    certain = _distribution(look, np.append(values[:beyond], full[beyond:]))
    sizes = np.arange(certain.size)
    return certain, groups * float((distribution_of_look(look) - certain) @ sizes)


def _distribution(look: Measurement, values: FloatArray) -> FloatArray:
    """Return the distribution for sums of cumulative counts over the look's buckets."""
    from scipy.optimize import isotonic_regression

    plan = look.measurement_plan
    max_size, groups = max_size_of(plan), float(plan.per_region[GROUPS][0])
    buckets = buckets_of(plan, 0) or Buckets.cells(max_size)
    width = (buckets.end - buckets.begin).astype(np.float64)
    means = isotonic_regression(values / width, weights=width**2).x.clip(0.0, groups)
    middle = 0.5 * (buckets.begin + buckets.end - 1)
    cumulative = np.interp(np.arange(max_size + 1), np.append(middle, max_size), np.append(means, groups))
    counts = np.diff(cumulative, prepend=0.0).clip(0.0)
    return np.asarray(counts / counts.sum() if counts.sum() > 0 else np.full(max_size + 1, 1.0 / (max_size + 1)))
