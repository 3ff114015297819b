"""Up to which size regions differ from their parents size by size, from the noisy answers alone, before any sampling.

A region's departures from its parent are smooth over sizes (``prior.Hats``) unless the answers say otherwise. At every
level, and from the answers of that level or of one below added up, let n_v be the noisy groups of region v by size, n
those of its parent's regions together and q_v its share of their g groups.

1. If all share one distribution p, r_v = n_v - q_v n has the known variance of its noise and that of a sample,
   g_v (1 - q_v) p (1 - p).
2. The weighted least squares fit of r_v by p times hats is what smooth departures explain; it is removed.
3. The squares of the rest are compared with those that 1 expects, by level and class of sizes.

Where the squares of a class exceed those by a good share and clearly, its sizes and all smaller ones vary alone. The
construction is our own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.groups.estimating.posterior.observations import Survey
from coco_opt.groups.estimating.posterior.prior import Hats
from coco_opt.groups.estimating.posterior.spikes import CountSet, count_sets, informed_counts

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
