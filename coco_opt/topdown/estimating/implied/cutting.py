"""Implied constraints added to a run's splits where a region's table would not extend to its leaves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import time

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.operators import Operator, stack
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.feasibility.cuts import Cut, CutOracle
from coco_opt.topdown.invariants import Constraints
from coco_opt.topdown.matrix_operator import integer_matrix

ROUNDS = 40
"""Times that one split is solved again with more cuts; the failsafe follows where that is not enough."""


@dataclass(frozen=True, eq=False)
class Cutting:
    """The cuts found so far, by region; a region's tables are part of one split only, so threads do not interfere."""

    oracle: CutOracle
    cuts: dict[int, list[Cut]] = field(default_factory=dict)
    unchecked: set[int] = field(default_factory=set)  # regions for which the time for cuts was over
    deadline: float = float("inf")  # seconds since the epoch, after which no cut is looked for

    @property
    def count(self) -> int:
        """Return the number of cuts found."""
        return sum(len(cuts) for cuts in self.cuts.values())

    @property
    def sorted(self) -> tuple[tuple[int, Cut], ...]:
        """Return all cuts with their regions, in the regions' order."""
        return tuple((region, cut) for region in sorted(self.cuts) for cut in self.cuts[region])

    def fresh(self) -> Cutting:
        """Return the same oracle and deadline without cuts, for one task."""
        return Cutting(self.oracle, deadline=self.deadline)

    def add(self, cuts: Iterable[tuple[int, Cut]], unchecked: Iterable[int] = ()) -> None:
        """Add the cuts of a task or of an interrupted run, and the regions for which a task had no time."""
        for region, cut in cuts:
            self.cuts.setdefault(region, []).append(cut)
        self.unchecked.update(unchecked)

    def added(self, constraints: Constraints | None, regions: range) -> Constraints | None:
        """Return what binds consecutive regions with their cuts, one row for each set of weights."""
        rows: dict[bytes, Ints] = {}
        for region in regions:
            rows.update({cut.weights.tobytes(): cut.weights for cut in self.cuts.get(region, ())})
        if not rows:
            return constraints
        labels = self.oracle.system.classes.labels
        upper = np.full((len(regions), len(rows)), UNBOUNDED)
        place = {key: at for at, key in enumerate(rows)}
        for at, region in enumerate(regions):
            for cut in self.cuts.get(region, ()):
                column = place[cut.weights.tobytes()]
                upper[at, column] = min(int(upper[at, column]), cut.upper)
        operators: list[Operator] = [integer_matrix(np.stack(list(rows.values()))[:, labels])]
        lower, names = np.full_like(upper, -UNBOUNDED), ("an implied constraint",) * len(rows)
        if constraints is None:
            return Constraints(operators[0], lower, upper, names)
        return Constraints(
            stack([constraints.operator, *operators]),
            np.hstack([constraints.lower, lower]),
            np.hstack([constraints.upper, upper]),
            (*constraints.labels, *names),
        )

    def cut(self, regions: range, tables: Floats | Ints) -> bool:
        """Add a cut for every region whose table [regions, cells] violates one; return whether there was any."""
        system, any_new = self.oracle.system, False
        level = int(system.hierarchy.level[regions.start])
        if level == system.hierarchy.levels - 1:
            return False
        if time() > self.deadline:
            self.unchecked.update(regions)
            return False
        first = system.hierarchy.level_range(level).start
        for region, classes in zip(regions, system.classes.operator.apply(tables), strict=True):
            new = self.oracle.violated(level, region - first, classes)
            if new is not None:
                self.cuts.setdefault(region, []).append(new)
                any_new = True
        return any_new
