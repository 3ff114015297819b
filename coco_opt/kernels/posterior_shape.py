"""The shape of the sizes under the hats, drawn along with the groups: single sizes may depart from a smooth curve.

Under hats that are wide the size distribution (``kernels.posterior_shares``) has the shape

    shape(k) = base(k) prod_s f_s(block_s(k)),   f_s(b) ~ gamma(a_s, mean 1) for every block b of scale s,

blocks of a scale being runs of sizes, and ``base`` smooth. The precisions a_s are unknown too, log a_s even between two
bounds.

1. Draw u_j ~ gamma(N_j) / mass_j for the N_j groups of each hat j (the integral of u^(N - 1) exp(-u mass) is
   gamma(N) mass^-N). Given these and each group's hat, the likelihood of a factor f of n groups is f^n exp(-f e), where
   e adds up u_j hat_j(k) shape(k) / f over the block: gamma again.
2. For every scale draw a_s by a step of Metropolis with the factors integrated out.
3. Draw the factors of its blocks exactly (Gibbs sampling), and multiply the shape by their change.

Invariant: values = base x product of the factors. Cost: O(scales x sizes) a draw.
Source: Geman and Geman 1984 (Gibbs sampling), Metropolis et al. 1953; the construction is our own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place
from coco_opt.kernels.drawing import gamma, uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

LEAST_PRECISION, MOST_PRECISION = 0.3, 3_000.0
_STEP = 1.2  # of log a: the width of what is proposed, to either side
_LEAST = 1e-200  # of a factor: what underflows must be able to come back


class Scales(NamedTuple):
    """Blocks of sizes: block b of scale s is ``begin[b]`` to ``end[b]`` for ``start[s]`` <= b < ``start[s + 1]``."""

    start: Ints
    begin: Ints
    end: Ints


class Shape(NamedTuple):
    """One chain's shape float64[K + 1], factors (blocks,) and precisions (scales,), and work space.

    ``groups`` and ``rates`` (K + 1,) are of sizes, ``block_groups`` and ``block_rates`` (blocks,) of blocks, ``of_hat``
    and ``scaled`` (hats,) of hats.
    """

    values: Floats
    factors: Floats
    precisions: Floats
    groups: Floats
    rates: Floats
    block_groups: Floats
    block_rates: Floats
    of_hat: Floats
    scaled: Floats


@compiled_in_place
def draw_shape(scales: Scales, shape: Shape, left: Ints, part: Floats, mass: Floats, words: Words) -> None:
    """Draw factors and precisions anew; O(scales x sizes).

    ``shape.groups`` are all groups by size, ``shape.of_hat`` by hat, and ``mass`` (hats,) is the present shape's.
    """
    values, groups, rates = shape.values, shape.groups, shape.rates
    block_groups, block_rates, scaled = shape.block_groups, shape.block_rates, shape.scaled
    hats, sizes = mass.size, values.size
    # The auxiliary u_j of every hat that has groups.
    for j in range(hats):
        some = shape.of_hat[j] > 0.0 and mass[j] > 0.0
        scaled[j] = gamma(words, shape.of_hat[j]) / mass[j] if some else 0.0
    # A size's rate: the u of its two hats, in their shares.
    for k in range(sizes):
        rates[k] = scaled[left[k]] * (1.0 - part[k])
        if part[k] > 0.0:
            rates[k] += scaled[left[k] + 1] * part[k]
    # One scale after the other: collect its blocks, then precision and factors.
    for s in range(shape.precisions.size):
        first, last = scales.start[s], scales.start[s + 1]
        for b in range(first, last):
            block_groups[b] = block_rates[b] = 0.0
            for k in range(scales.begin[b], scales.end[b]):
                block_groups[b] += groups[k]
                block_rates[b] += rates[k] * values[k]
            block_rates[b] /= shape.factors[b]
        old = shape.precisions[s]
        new = old * math.exp(_STEP * (2.0 * uniform(words) - 1.0))
        if LEAST_PRECISION <= new <= MOST_PRECISION:
            ratio = _log_evidence(new, block_groups, block_rates, first, last) - _log_evidence(
                old, block_groups, block_rates, first, last
            )
            if math.log(uniform(words)) < ratio:
                shape.precisions[s] = new
        a = shape.precisions[s]
        # A factor given its block's groups and rate is gamma.
        for b in range(first, last):
            drawn = max(gamma(words, a + block_groups[b]) / (a + block_rates[b]), _LEAST)
            by = drawn / shape.factors[b]
            shape.factors[b] = drawn
            for k in range(scales.begin[b], scales.end[b]):
                values[k] *= by


@compiled_in_place
def sum_masses(values: Floats, left: Ints, part: Floats, mass: Floats) -> None:
    """Set ``mass`` (hats,) to a shape's sums under the hats."""
    for j in range(mass.size):
        mass[j] = 0.0
    for k in range(values.size):
        mass[left[k]] += values[k] * (1.0 - part[k])
        if part[k] > 0.0:
            mass[left[k] + 1] += values[k] * part[k]


@compiled_in_place
def _log_evidence(a: float, block_groups: Floats, block_rates: Floats, first: int, last: int) -> float:
    """Return the log-likelihood of a precision, factors integrated out, up to what does not depend on it."""
    evidence = 0.0
    log_a, zero = math.log(a), math.lgamma(a)
    # The gamma prior integrates against f^n exp(-f e) in closed form.
    for b in range(first, last):
        if block_groups[b] > 0.0:
            evidence += math.lgamma(a + block_groups[b]) - zero - block_groups[b] * math.log(a + block_rates[b])
        evidence += a * (log_a - math.log(a + block_rates[b]))
    return evidence
