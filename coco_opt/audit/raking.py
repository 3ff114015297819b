"""Raking: children scaled so that they sum to their parent, top-down (Flaxman 2019, section 2.2).

This consistency method needs no optimisation and no rounding; its results may be negative or fractional.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError


def rake(noisy: NDArray[Any], parent: Ints, level_start: Ints) -> Floats:
    """Return consistent values of every region, float64 like ``noisy``: [regions] or [regions, cells].

    ``parent`` and ``level_start`` are those of a ``Hierarchy`` (breadth first, -1 at the root). The root keeps its
    noisy value; a child gets its noisy value times the parent's raked value, over the sum of the noisy values of all
    the parent's children. Where that sum is zero, the children share the parent's value equally. Raises ProblemError
    where shapes do not fit. O(regions x cells).
    """
    raked = np.array(noisy, dtype=np.float64)
    if len(raked) != len(parent) or int(level_start[-1]) != len(parent):
        raise ProblemError("raking needs one value a region of the hierarchy")
    for start, stop in pairwise(level_start[1:].tolist()):
        above = parent[start:stop]
        sums, siblings = np.zeros_like(raked[:start]), np.bincount(above, minlength=start)[above]
        np.add.at(sums, above, raked[start:stop])
        total = sums[above]
        equal = raked[above] / siblings.reshape((-1,) + (1,) * (raked.ndim - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = raked[start:stop] * (raked[above] / total)
        raked[start:stop] = np.where(total == 0, equal, scaled)
    return raked
