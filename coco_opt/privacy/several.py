"""Several measurements of the same data as one value, to be estimated together: a later budget adds to the first.

That the data are the same cannot be seen from noisy answers: whoever gives several measurements states it. What can be
seen is checked: regions, neighbours, what is exact, and that no measurement is given twice, which would count its noise
as if it were drawn anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from coco_opt.errors import InputError, ProblemError
from coco_opt.privacy.measurement import Measurement


def together(measurements: Sequence[Measurement]) -> Measurement:
    """Return the first of several measurements of the same data with the others in ``also``; one alone as it is.

    Their questions, shares and laws of noise may differ; kind, regions and neighbours may not. Names of levels and ids
    of regions are those of the first. Raises InputError: measurements-differ, measurement-twice; ProblemError for none.
    O(answers), where there are several.
    """
    listed = [one for given in measurements for one in given.every]
    if not listed:
        raise ProblemError("an estimate needs at least one measurement")
    first, *others = listed
    for number, other in enumerate(others, start=2):
        reason = _difference(first, other)
        if reason:
            raise differ(number, reason)
    _check_copies(listed)
    return replace(first, also=tuple(others)) if others else first


def differ(number: int, reason: str) -> InputError:
    """Return the error of a measurement, counted from 1, that cannot be estimated together with the first."""
    message = f"measurement {number} {reason}: only measurements of the same data are estimated together"
    return InputError("measurements-differ", message)


def _difference(first: Measurement, other: Measurement) -> str:
    """Return in what two measurements differ that would have to be one of the other's, "" for nothing."""
    one, two = first.asked, other.asked
    if one.kind != two.kind:
        return f"is of the kind {two.kind!r}, and the first of {one.kind!r}"
    trees = one.hierarchy, two.hierarchy
    if trees[0].names != trees[1].names or not np.array_equal(trees[0].parent, trees[1].parent):
        return "is of other regions than the first"
    if one.neighbours != two.neighbours:
        return f"is of neighbours = {two.neighbours!r}, the first of {one.neighbours!r}: costs do not add up"
    return ""


def _check_copies(listed: Sequence[Measurement]) -> None:
    """Raise InputError where a measurement is given twice: by its receipt, or by its answers where one has none."""
    contents = [one.content for one in listed]
    for (at, one), (after, two) in combinations(enumerate(listed), 2):
        paid = one.receipt != "" and two.receipt != ""
        if one.receipt == two.receipt if paid else contents[at] == contents[after]:
            message = f"measurement {after + 1} is measurement {at + 1} once more and adds nothing: leave it out"
            raise InputError("measurement-twice", message)
