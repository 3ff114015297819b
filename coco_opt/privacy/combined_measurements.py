"""Several measurements of the same data as one value, to be estimated together: a later budget adds to the first.

Noisy answers do not show that the data are the same: whoever passes several measurements states it. What they show is
checked: regions, neighbours, exact answers, and that no measurement occurs twice, which would count its noise as
independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np

from coco_opt.errors import InputError, ProblemError
from coco_opt.privacy.measurement import Measurement


def together(measurements: Sequence[Measurement]) -> Measurement:
    """Return the first of several measurements of the same data with the others in ``also``; one alone as it is.

    Their queries, shares and noise distributions may differ; kind, regions and neighbours may not. Names of levels and
    ids of regions are those of the first. Raises InputError: measurements-differ, measurement-twice; ProblemError for
    none. O(answers), where there are several.
    """
    listed = [group.every[0] for group in measurements]
    content = cache(lambda measurement: measurement.content)
    # A look may come with several: with what was measured after it, and by itself.
    for further in (further for group in measurements for further in group.also):
        if not any(_same(further, other, content) for other in listed):
            listed.append(further)
    if not listed:
        raise ProblemError("an estimate needs at least one measurement")
    first, *rest = listed
    for number, second in enumerate(rest, start=2):
        reason = _difference(first, second)
        if reason:
            raise differ(number, reason)
    for (i, one), (j, other) in combinations(enumerate(listed[: len(measurements)], start=1), 2):
        if _same(one, other, content):
            message = f"measurement {j} is measurement {i} once more and adds nothing: leave it out"
            raise InputError("measurement-twice", message)
    return replace(first, also=tuple(rest)) if rest else first


def _same(first: Measurement, second: Measurement, content: Callable[[Measurement], str]) -> bool:
    """Return whether two measurements are one: by their receipts, or by their answers where they have none."""
    if first.receipt and second.receipt:
        return first.receipt == second.receipt
    return content(first) == content(second)


def differ(number: int, reason: str) -> InputError:
    """Return the error of a measurement, counted from 1, that cannot be estimated together with the first."""
    message = f"measurement {number} {reason}: only measurements of the same data are estimated together"
    return InputError("measurements-differ", message)


def _difference(first: Measurement, second: Measurement) -> str:
    """Return how two measurements differ in what must be equal, "" for no difference."""
    first_plan, second_plan = first.measurement_plan, second.measurement_plan
    if first_plan.kind != second_plan.kind:
        return f"is of the kind {second_plan.kind!r}, and the first of {first_plan.kind!r}"
    trees = first_plan.hierarchy, second_plan.hierarchy
    if trees[0].names != trees[1].names or not np.array_equal(trees[0].parent, trees[1].parent):
        return "is of other regions than the first"
    if first_plan.neighbours != second_plan.neighbours:
        stated = second_plan.neighbours
        return f"is of neighbours = {stated!r}, the first of {first_plan.neighbours!r}: costs do not add up"
    return ""
