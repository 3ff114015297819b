"""The smooth base of the sizes' shape, drawn along with the groups: a gamma density where answers are weak.

The problem: where noise hides single sizes, a region's sizes are known only as well as a smooth curve fits them. How
smooth they are is unknown too. At knots k_0 < k_1 < ... (those of the hats of ``kernels.posterior_shares``) the
logarithm of the base is g_j; between knots it is a straight line in l(k) = log(1 + k). Sizes alone, with hats of their
own, depart from it by h_i. The increments of g follow a power times an exponential, with deviations r_j:

    g_j - g_(j-1) = c (l(k_j) - l(k_(j-1))) + b (k_j - k_(j-1)) + r_j,
    r_j ~ Student's t with 2 degrees of freedom and the scale tau sqrt(l(k_j) - l(k_(j-1))), wider for j = 1.

So the base may depart from a gamma density anywhere, where the answers are strong enough. The root's weights of the
hats are Dirichlet(s m), where m are the base's masses under the hats, divided by their sum and mixed with a little of
equal ones. c, b and h are normal, log tau and log s uniform between two bounds.

1. Sum the shape and the base under the hats, interval by interval, and the groups by their place between knots.
2. For every knot but the first: propose to raise the base from there on; only one interval is summed anew.
3. Propose to tilt the whole base by a power or an exponential, with c or b.
4. Propose h of some sizes alone; c, b and tau given g; s.
5. Apply the new base to the shape, and set the root's parameters.

All are Metropolis steps given the groups' sizes and hats, the root's weights integrated out. The lengths of steps are
drawn from two orders of magnitude, so none is tuned.

Invariant: up to a factor, ``values`` is exp(g), interpolated, times exp(h) at sizes alone; the shape is ``values``
times its factors. Cost: O(sizes + hats^2) a draw.
Source: Metropolis et al. 1953; the construction is our own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place
from coco_opt.kernels.drawing import below, uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

POWER, RATE, ROUGHNESS, STRENGTH = 0, 1, 2, 3  # places of c, b, log tau and log s
SPREADS = (3.0, 1.0, 3.0)  # standard deviations of c, b and h
BOUNDS = ((math.log(0.02), math.log(3.0)), (math.log(100.0), math.log(1e5)))  # of log tau and log s
EMPTY = 1.5  # scale of the first increment beyond the others': groups of size 0 are a kind of their own
EQUAL = 1e-4  # share of the root's parameters that is the same for all hats, so that no size is impossible
_STEPS = (math.log(0.02), math.log(3.0))  # of the logarithm of a step's length
_RAISES, _REPEATS, _ALONE = 2, 3, 8  # proposals a draw: of every knot, of every scalar, of sizes alone


class Knots(NamedTuple):
    """Sizes at knots (J,), as ``far`` in floats, their l (J,), and where each size lies: (K + 1,) arrays.

    ``interval[k]`` is the knot at or before size k, at most J - 2, ``between[k]`` how far l(k) has gone to the next
    one's, and ``lent[k]`` whether the size is not alone. ``alone`` (A,) are the others, whose hats begin at
    ``first_own``; ``expected`` (A,) are the means of h. Without knots base and root stay as they are.
    """

    size: Ints
    far: Floats
    log_size: Floats
    interval: Ints
    between: Floats
    lent: NDArray[np.bool_]
    alone: Ints
    first_own: int
    expected: Floats


class Base(NamedTuple):
    """One chain's base: g (J,), h (A,), the ``scalars`` (4,), its ``values`` (K + 1,), and ``root`` (hats,): s m.

    The others are work space. ``now`` (J,) is g so far in a draw, and ``sums`` (J, 4) the shape's and the base's sums
    under the earlier and the later hat of every interval; ``trial``, ``trial_sums`` and ``trial_scalars`` are proposed.
    ``placed`` (J, 2) are the groups of every interval, by their nearness to its two knots.
    """

    level: Floats
    excess: Floats
    scalars: Floats
    values: Floats
    root: Floats
    now: Floats
    trial: Floats
    sums: Floats
    trial_sums: Floats
    trial_scalars: Floats
    placed: Floats


class Counted(NamedTuple):
    """What the base is drawn given: ``groups`` (K + 1,) by size, ``of_hat`` and ``at_root`` (hats,), and the shape.

    ``of_hat`` are all groups by hat, ``at_root`` those that come from the root's weights; ``shape`` and each size's
    share ``part`` in the later of its hats are (K + 1,).
    """

    groups: Floats
    of_hat: Floats
    at_root: Ints
    shape: Floats
    part: Floats


@compiled_in_place
def draw_base(knots: Knots, base: Base, counted: Counted, words: Words) -> None:
    """Draw the base, its roughness and the root's strength anew, and scale the shape with the base."""
    count = knots.size.size
    _begin(knots, base, counted)
    target = _target(knots, base, counted, base.now, base.sums, base.scalars)
    # Raise the base from one knot on: only the interval before it changes its form.
    for knot in range(1, count):
        for _ in range(_RAISES):
            length = step_of_any_length(words)
            for j in range(knot, count):
                base.trial[j] = base.now[j] + length
            target = _decide(knots, base, counted, knot - 1, knot, target, words)
    # Tilt the whole base together with c or b, so that the deviations r stay as they are.
    for scalar in (POWER, RATE):
        along = knots.log_size if scalar == POWER else knots.far
        length = step_of_any_length(words) / along[count - 1]
        base.trial_scalars[scalar] += length
        for j in range(count):
            base.trial[j] = base.now[j] + length * along[j]
        target = _decide(knots, base, counted, 0, count - 1, target, words)
    for _ in range(min(_ALONE, knots.alone.size)):
        target = _try_excess(knots, base, counted, below(words, knots.alone.size), target, words)
    # The scalars alone; the base stays, and no interval is summed anew.
    for n in range(_REPEATS * base.scalars.size):
        scalar = n % base.scalars.size
        base.trial_scalars[scalar] += step_of_any_length(words)
        target = _decide(knots, base, counted, 0, 0, target, words)
    _finish(knots, base, counted)


@compiled_in_place
def step_of_any_length(words: Words) -> float:
    """Return a step of either direction, its length between two bounds, even in its logarithm."""
    low, high = _STEPS
    length = math.exp(low + (high - low) * uniform(words))
    return length if uniform(words) < 0.5 else -length


@compiled_in_place
def _copy(values: Floats, to: Floats) -> None:
    for n in range(values.size):
        to[n] = values[n]


@compiled_in_place
def _copy_rows(values: Floats, to: Floats) -> None:
    for n in range(values.shape[0]):
        _copy(values[n], to[n])


@compiled_in_place
def _begin(knots: Knots, base: Base, counted: Counted) -> None:
    """Start from the present base: sum shape and base under the hats, and place the groups between knots."""
    _copy(base.level, base.now)
    _copy(base.level, base.trial)
    _copy(base.scalars, base.trial_scalars)
    for i in range(base.placed.shape[0]):
        base.placed[i, 0] = base.placed[i, 1] = 0.0
    for k in range(knots.interval.size):
        if knots.lent[k]:
            i, between, groups = knots.interval[k], knots.between[k], counted.groups[k]
            base.placed[i, 0] += groups * (1.0 - between)
            base.placed[i, 1] += groups * between
    _sum_intervals(knots, base, counted, 0, base.level.size - 1)
    _copy_rows(base.trial_sums, base.sums)


@compiled_in_place
def _sum_intervals(knots: Knots, base: Base, counted: Counted, first: int, last: int) -> None:
    """Fill ``trial_sums``: intervals ``first`` to ``last`` - 1 size by size; later ones are raised evenly."""
    _copy_rows(base.sums, base.trial_sums)
    for i in range(first, last):
        for n in range(4):
            base.trial_sums[i, n] = 0.0
        at, to = base.trial[i] - base.level[i], base.trial[i + 1] - base.level[i + 1]
        # A straight line in l between the changes at both knots.
        for k in range(knots.size[i], knots.size[i + 1]):
            if knots.lent[k]:
                by = math.exp(at + knots.between[k] * (to - at))
                part = counted.part[k]
                base.trial_sums[i, 0] += by * counted.shape[k] * (1.0 - part)
                base.trial_sums[i, 1] += by * counted.shape[k] * part
                base.trial_sums[i, 2] += by * base.values[k] * (1.0 - part)
                base.trial_sums[i, 3] += by * base.values[k] * part
    # Both knots of a later interval are raised alike.
    for i in range(last, base.level.size - 1):
        by = math.exp(base.trial[i] - base.now[i])
        for n in range(4):
            base.trial_sums[i, n] *= by


@compiled_in_place
def _decide(knots: Knots, base: Base, counted: Counted, first: int, last: int, target: float, words: Words) -> float:
    """Accept what is proposed or go back; return the logarithm of the target's density. Intervals as above."""
    _sum_intervals(knots, base, counted, first, last)
    proposed = _target(knots, base, counted, base.trial, base.trial_sums, base.trial_scalars)
    if math.log(uniform(words)) < proposed - target:
        _copy(base.trial, base.now)
        _copy_rows(base.trial_sums, base.sums)
        _copy(base.trial_scalars, base.scalars)
        return proposed
    _copy(base.now, base.trial)
    _copy(base.scalars, base.trial_scalars)
    return target


@compiled_in_place
def _try_excess(knots: Knots, base: Base, counted: Counted, i: int, target: float, words: Words) -> float:
    """Propose another h of one size alone."""
    before = base.excess[i]
    base.excess[i] += step_of_any_length(words)
    proposed = _target(knots, base, counted, base.now, base.sums, base.scalars)
    if math.log(uniform(words)) < proposed - target:
        return proposed
    base.excess[i] = before
    return target


@compiled_in_place
def _target(knots: Knots, base: Base, counted: Counted, level: Floats, sums: Floats, scalars: Floats) -> float:
    """Return the log-density of g, h and the scalars given the groups, up to a constant."""
    for n in range(2):
        low, high = BOUNDS[n]
        if not low <= scalars[ROUGHNESS + n] <= high:
            return -math.inf
    density = _log_prior(knots, base, level, scalars)
    # The groups' places between knots, and the masses by which each hat's shape is normed.
    for i in range(level.size - 1):
        density += base.placed[i, 0] * level[i] + base.placed[i, 1] * level[i + 1]
    for j in range(level.size):
        mass = sums[j, 0] + (sums[j - 1, 1] if j > 0 else 0.0)
        if counted.of_hat[j] > 0.0:
            density -= counted.of_hat[j] * math.log(mass)
    return density + _log_root(knots, base, counted, level, sums, scalars)


@compiled_in_place
def _log_prior(knots: Knots, base: Base, level: Floats, scalars: Floats) -> float:
    """Return the log-density of g, h, c and b."""
    power, rate, scale = scalars[POWER], scalars[RATE], math.exp(2.0 * scalars[ROUGHNESS])
    density = -0.5 * ((power / SPREADS[0]) ** 2 + (rate / SPREADS[1]) ** 2)
    for j in range(1, level.size):
        wide = knots.log_size[j] - knots.log_size[j - 1]
        gone = level[j] - level[j - 1] - power * wide - rate * (knots.far[j] - knots.far[j - 1])
        square = scale * wide + (EMPTY * EMPTY if j == 1 else 0.0)
        density -= 1.5 * math.log1p(gone * gone / (2.0 * square)) + 0.5 * math.log(square)
    for i in range(knots.alone.size):
        density -= 0.5 * ((base.excess[i] - knots.expected[i]) / SPREADS[2]) ** 2
    return float(density)


@compiled_in_place
def _log_root(knots: Knots, base: Base, counted: Counted, level: Floats, sums: Floats, scalars: Floats) -> float:
    """Return the log-probability of the root's groups by hat, and leave the root's parameters in ``root``."""
    root, total, hats = base.root, 0.0, 0.0
    _fill_masses(knots, base, level, sums)
    for j in range(root.size):
        total += root[j]
        hats += root[j] > 0.0
    strength, groups = math.exp(scalars[STRENGTH]), 0
    density = math.lgamma(strength)
    for j in range(root.size):
        if root[j] > 0.0:
            root[j] = strength * ((1.0 - EQUAL) * root[j] / total + EQUAL / hats)
            groups += counted.at_root[j]
            if counted.at_root[j] > 0:
                density += math.lgamma(root[j] + counted.at_root[j]) - math.lgamma(root[j])
    return float(density - math.lgamma(strength + groups))


@compiled_in_place
def _fill_masses(knots: Knots, base: Base, level: Floats, sums: Floats) -> None:
    """Set ``root`` to the base's masses under the hats."""
    for j in range(base.root.size):
        base.root[j] = 0.0
    for j in range(level.size):
        base.root[j] = sums[j, 2] + (sums[j - 1, 3] if j > 0 else 0.0)
    for i in range(knots.alone.size):
        base.root[knots.first_own + i] = math.exp(_log_alone(knots, base, level, i))


@compiled_in_place
def _log_alone(knots: Knots, base: Base, level: Floats, i: int) -> float:
    """Return the logarithm of the base at a size alone."""
    k = knots.alone[i]
    j, between = knots.interval[k], knots.between[k]
    return float(level[j] + between * (level[j + 1] - level[j]) + base.excess[i])


@compiled_in_place
def _finish(knots: Knots, base: Base, counted: Counted) -> None:
    """Apply the new base to its values and the shape, normed, and set the root's parameters."""
    total = 0.0
    for k in range(knots.interval.size):
        if knots.lent[k]:
            i = knots.interval[k]
            at, to = base.now[i] - base.level[i], base.now[i + 1] - base.level[i + 1]
            by = math.exp(at + knots.between[k] * (to - at))
            base.values[k] *= by
            counted.shape[k] *= by
            total += base.values[k]
    for i in range(knots.alone.size):
        base.values[knots.alone[i]] = counted.shape[knots.alone[i]] = math.exp(_log_alone(knots, base, base.now, i))
        total += base.values[knots.alone[i]]
    for k in range(base.values.size):
        base.values[k] /= total
        counted.shape[k] /= total
    for j in range(base.level.size):
        base.level[j] = base.now[j] - math.log(total)
    _log_root(knots, base, counted, base.now, base.sums, base.scalars)
