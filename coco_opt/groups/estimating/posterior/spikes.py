"""What the noisy answers say before any sampling: the root's shape, sizes that stand alone, and how regions differ.

Sizes that have far more groups than their neighbours: round numbers, or a kind of group with a single size.

A prior that is smooth over sizes would exclude them in every region, whatever the number of groups. They are detected
in the noisy answers, before any estimate, because an estimate would keep its first assumption.

Up to which size regions differ from their parents size by size, from the noisy answers alone, before any sampling.

A region's departures from its parent are smooth over sizes (``prior.Hats``) unless the answers say otherwise. At every
level, and from the answers of that level or of one below added up, let n_v be the noisy groups of region v by size, n
those of its parent's regions together and q_v its share of their g groups.

1. If all share one distribution p, r_v = n_v - q_v n has the known variance of its noise and that of a sample,
   g_v (1 - q_v) p (1 - p).
2. The weighted least squares fit of r_v by p times hats is what smooth departures explain; it is removed.
3. The squares of the rest are compared with those that 1 expects, by level and class of sizes.

Where the squares of a class exceed those by a good share and clearly, its sizes and all smaller ones vary alone. The
construction is our own.

The shape of the root's size distribution, from the noisy answers alone, as fine as they allow.

An estimate that is smoothed repeatedly becomes flat wherever the answers are weak compared with the prior. The shape is
therefore estimated once, before any sampling. Chains start near it and propose from it. The prior contains only the
smooth distribution through its hats' means (``prior.smooth_distribution``), because answers that are used twice make
intervals too narrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.observations import Answers, Survey
from coco_opt.groups.estimating.posterior.prior import Hats, only_last, reaching, smoothed

_EXCESS = 4.0  # standard deviations beyond which a size stands alone
_VAGUE = 1e-9  # weight of a level's answers for sizes that its buckets do not separate


def isolated_sizes(survey: Survey, reach: float) -> Flags:
    """Return which sizes 0 .. K must not be smoothed over k +- reach k: the last, and those far above their neighbours.

    They are found one by one, the clearest first, because each raises the mean of the others. O(answers + spikes K).
    """
    counts, variance = informed_counts(survey)
    alone = only_last(counts.size)
    while True:
        means = smoothed(counts, reaching(counts.size, reach), alone)
        excess = np.where(alone, 0.0, (counts - means) / np.sqrt(np.maximum(means, 0.0) + variance))
        size = int(np.argmax(excess))
        if excess[size] <= _EXCESS:
            return alone
        alone[size] = True


@dataclass(frozen=True, eq=False, slots=True)
class CountSet:
    """The answers to one query about the ``regions`` of a level, all of them, whose ``variance`` is that of one answer.

    ``distinct`` (K + 1,) are the sizes that they separate.
    """

    level: int
    regions: Ints
    answers: Sequence[Answers]
    buckets: Buckets
    variance: float
    distinct: Flags

    def counts(self, groups: Ints, sizes: int) -> Floats:
        """Return the regions' noisy groups of sizes 0 .. ``sizes`` - 1, float64[regions, sizes], without their sum."""
        return np.stack(
            [
                _differences(self.buckets, block.values, int(groups[block.region]), self.distinct.size)[:sizes]
                for block in self.answers
            ]
        )


def count_sets(survey: Survey) -> Iterator[CountSet]:
    """Yield the answers by level that count groups by size; a region's second answers are another set."""
    levels = survey.levels()
    sets: dict[tuple[int, int], list[Answers]] = {}
    blocks_before = np.zeros(levels.size, np.int64)
    for block in survey.answers:
        sets.setdefault((int(levels[block.region]), int(blocks_before[block.region])), []).append(block)
        blocks_before[block.region] += 1
    for (level, _), answers in sets.items():
        buckets = answers[0].query
        alike = all(block.query is buckets for block in answers) and len(answers) == int((levels == level).sum())
        if not isinstance(buckets, Buckets) or not alike or int(buckets.end[-1]) < survey.max_size:
            continue
        regions = np.array([block.region for block in answers])
        variance = sum(float(block.distribution.variance) for block in answers) / len(answers)
        yield CountSet(level, regions, answers, buckets, variance, buckets.separated(survey.max_size))


def informed_counts(survey: Survey) -> tuple[Floats, Floats]:
    """Return the answers' estimate of the root's groups of each size, float64[K + 1], and its variances.

    Neighbouring answers are differenced, regions of a level added, and levels weighted by their variances. A variance
    is infinite where no level separates a size from its neighbours.
    """
    sizes = survey.max_size + 1
    weights, weighted, sharp = np.zeros((3, sizes))
    for level in count_sets(survey):
        weight = 1.0 / (2.0 * sum(block.distribution.variance for block in level.answers))
        each = weight * np.where(level.distinct, 1.0, _VAGUE)
        sums = np.sum([block.values for block in level.answers], axis=0)
        counts = _differences(level.buckets, sums, int(survey.groups[0]), sizes)
        weights, weighted, sharp = weights + each, weighted + each * counts, sharp + weight * level.distinct
    with np.errstate(divide="ignore"):
        return weighted / np.maximum(weights, 1e-300), 1.0 / sharp


def _differences(buckets: Buckets, sums: Ints, groups: int, sizes: int) -> Floats:
    """Return the groups of each size from noisy sums, the cumulative counts rising evenly between buckets' middles."""
    middle = 0.5 * (buckets.begin + buckets.end - 1)
    rows = np.interp(np.arange(sizes - 1), middle, sums / (buckets.end - buckets.begin))
    return np.diff(rows, prepend=0.0, append=float(groups))


_SIZES = 256  # larger ones never vary alone: a region has few groups of each
_REGIONS = 2**14  # of a level whose answers are read; where there are more, levels above say enough
_SHARE, _CLEAR = 0.25, 2.25  # of the expected squares, and standard errors
_TAILS = 6.0  # variance of a square over its squared mean: geometric noise has heavy tails

Squares = tuple[Floats, Floats, float]
"""Squares and what is expected of them (regions, sizes); how many regions there are for each that is independent."""


def rough_sizes(survey: Survey, alone: Flags, reach: float) -> int:
    """Return the largest size that varies alone in a region, 0 where departures over k +- reach k are smooth."""
    sizes, hats = min(survey.max_size + 1, _SIZES), Hats.by_reach(alone, reach)
    counts, forms = np.maximum(informed_counts(survey)[0], 0.5), hats.values(np.eye(hats.count)).T
    share, octave = counts / counts.sum(), np.log2(np.arange(sizes) + 1.0).astype(np.int64) // 2
    rough = 0
    for answers in count_sets(survey):
        used = np.flatnonzero(answers.distinct[:sizes])
        if answers.regions.size > _REGIONS or used.size < 2:
            continue
        for squares, expected, repeated in _by_level(survey, answers, used, share[used], forms[used]):
            for each in np.unique(octave[used]).tolist():
                some = octave[used] == each
                mean = float(expected[:, some].sum())
                spread = _TAILS * repeated * float((expected[:, some] ** 2).sum())
                if float(squares[:, some].sum()) > _bound(mean, spread):
                    rough = max(rough, int(used[some][-1]))
    return rough


def _bound(mean: float, variance: float) -> float:
    """Return the sum of squares that is clearly more than the mean (Wilson and Hilferty 1931: its cube root)."""
    part = variance / (9.0 * mean**2) if mean > 0.0 else 0.0
    return mean * max(1.0 + _SHARE, float((1.0 - part + _CLEAR * part**0.5) ** 3))


def _by_level(survey: Survey, answers: CountSet, used: Ints, share: Floats, forms: Floats) -> Iterator[Squares]:
    """Yield the squares of the regions of the answers' level and of those above, except the root."""
    parent, levels = survey.parent, survey.levels()
    counts, (number, groups) = np.zeros((parent.size, used.size)), np.zeros((2, parent.size))
    counts[answers.regions] = answers.counts(survey.groups, int(used[-1]) + 1)[:, used]
    number[answers.regions], groups[answers.regions] = 1.0, survey.groups[answers.regions]
    cells = _cells(used, survey.max_size)
    for level in range(answers.level, 0, -1):
        here = np.flatnonzero((levels == level) & (groups > 0.0))
        above = parent[here]
        for sums in (counts, number, groups):
            np.add.at(sums, above, sums[here])
        part = groups[here] / groups[above]
        noise = answers.variance * ((1.0 - part) ** 2 * number[here] + part**2 * (number[above] - number[here]))
        rest, sampled, some = counts[here] - part[:, None] * counts[above], groups[here] * (1.0 - part), noise > 0.0
        if some.any():
            repeated = some.sum() / max(int(some.sum()) - np.unique(above[some]).size, 1)
            yield *_squares(rest[some], noise[some], sampled[some], share, forms, cells), float(repeated)


def _cells(used: Ints, max_size: int) -> Floats:
    """Return the combinations of cumulative counts (sizes, cells) that are the groups of some sizes, but for a sum."""
    cells = np.zeros((used.size, int(used[-1]) + 1))
    cells[np.arange(used.size), used] = np.where(used < max_size, 1.0, 0.0)
    cells[np.arange(used.size), np.maximum(used - 1, 0)] -= used > 0
    return cells


def _squares(
    rest: Floats, noise: Floats, sampled: Floats, share: Floats, forms: Floats, cells: Floats
) -> tuple[Floats, Floats]:
    """Return the squares of what smooth departures leave of ``rest`` (regions, sizes), over their usual variance."""
    unit = np.sqrt(2.0 * noise.mean() + sampled.mean() * share)
    left, scales, _ = np.linalg.svd(forms * (share / unit)[:, None], full_matrices=False)
    left = left[:, scales > 1e-9 * scales[0]]
    keep = np.eye(share.size) - left @ left.T
    of_noise = ((keep @ (cells / unit[:, None])) ** 2).sum(axis=1)
    of_sample = (keep**2 * (share / unit**2)).sum(axis=1)
    return (rest / unit @ keep) ** 2, noise[:, None] * of_noise + sampled[:, None] * of_sample


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
