"""The earth mover's distance between group-size histograms: the entities to add or remove."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import InputError
from coco_opt.histograms.arrays import INT64_MAX, as_int64, exact_dot
from coco_opt.histograms.counts import CountOfCounts
from coco_opt.histograms.hierarchy import Hierarchy


def _counts_at(histogram: CountOfCounts, sizes: Ints) -> Ints:
    stops = np.concatenate([np.zeros(1, np.int64), np.cumsum(histogram.counts)])
    return stops[np.searchsorted(histogram.sizes, sizes, side="right")]


def emd(a: CountOfCounts, b: CountOfCounts) -> int:
    """Return the earth mover's distance of two histograms: the entities to add or remove until they are equal.

    Parameters
    ----------
    a, b : CountOfCounts
        Histograms with the same number of groups.

    Returns
    -------
    int
        sum_i |Hc_a[i] - Hc_b[i]| in entities, exact, Hc[i] being the number of groups of size at most i.

    Raises
    ------
    InputError
        The numbers of groups differ.

    Notes
    -----
    O(runs log runs); no run is expanded. Source: Kuo et al. 2018, Lemma 1.

    Examples
    --------
    >>> from coco_opt import CountOfCounts, emd
    >>> emd(CountOfCounts.from_ranks([1, 2, 2]), CountOfCounts.from_ranks([1, 2, 5]))
    3
    """
    if a.groups != b.groups:
        raise InputError("unequal-groups", "emd compares histograms with the same number of groups")
    sizes = np.union1d(a.sizes, b.sizes)
    gaps = np.abs(_counts_at(a, sizes[:-1]) - _counts_at(b, sizes[:-1]))
    return exact_dot(gaps, np.diff(sizes))


def emd_cumulative(hc: npt.ArrayLike, hc2: npt.ArrayLike) -> int:
    """Return sum_i |hc[i] - hc2[i]| in entities for cumulative counts over the same sizes 0..K, exactly.

    Raises InputError where the lengths, or the numbers of groups (the last cells), differ. O(K).
    """
    first, second = as_int64(hc, "hc"), as_int64(hc2, "hc2")
    if first.size != second.size:
        raise InputError("bad-shape", "emd_cumulative compares arrays of the same length")
    if first.size == 0:
        return 0
    if first[-1] != second[-1]:
        raise InputError("unequal-groups", "emd compares histograms with the same number of groups")
    bound = max(int(np.abs(first).max()), int(np.abs(second).max()))
    if 2 * bound * first.size <= INT64_MAX:
        return int(np.abs(first - second).sum())
    return sum(abs(x - y) for x, y in zip(first.tolist(), second.tolist(), strict=True))


def errors_by_level(
    hierarchy: Hierarchy, histograms: Sequence[CountOfCounts], truth: Sequence[CountOfCounts]
) -> Floats:
    """Return the mean earth mover's distance of a region at each level, float64[levels], in entities.

    Where numbers of groups differ, empty groups are added to the fewer: an entity to add or remove counts one.
    """
    errors = np.array([_distance(a, b) for a, b in zip(histograms, truth, strict=True)], dtype=np.float64)
    return np.asarray(np.add.reduceat(errors, hierarchy.level_start[:-1]) / np.diff(hierarchy.level_start))


def _distance(a: CountOfCounts, b: CountOfCounts) -> int:
    most = max(a.groups, b.groups)
    filled = (
        histogram
        if histogram.groups == most
        else CountOfCounts.total([histogram, CountOfCounts.from_runs([0], [most - histogram.groups])])
        for histogram in (a, b)
    )
    return emd(*filled)
