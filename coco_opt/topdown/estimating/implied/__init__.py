"""Which way of enforcing implied constraints a run takes: the most exact way whose predicted time is allowed.

Times are predicted from public numbers: cells, regions, levels, sets of constraints, and how many counts of classes
the constraints leave open. The constants were measured on one core.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coco_opt.topdown.estimating.implied.cuts import CutOracle
from coco_opt.topdown.estimating.implied.minimal_schema import bounds_fall_short, core_fits
from coco_opt.topdown.estimating.method import Implied, TopdownMethod
from coco_opt.topdown.feasibility.programs import open_classes
from coco_opt.topdown.feasibility.system import ConstraintSystem

NEARLY = 20.0
"""Seconds that another method may take where every constraint bounds single answers, so that bounds nearly suffice."""

_START = 0.1  # seconds of the minimal schema, whatever the size
_VARIABLE = 3e-5  # seconds of the minimal schema for each class of each region
_PAIRS, _GROWTH = 5e-8, 1.17  # its seconds for pairs of open classes of a region, and the power of their number
_CUT = 3e-5  # seconds of cuts for each class of a leaf and level above it
_MANY = 1e5  # unknowns from which the programs of cuts are slow


@dataclass(frozen=True, slots=True)
class ImpliedChoice:
    """The methods to try, best first, each with its predicted seconds, and why they stand in this order."""

    candidates: tuple[tuple[Implied, float], ...]
    reason: str
    limit: float = float("inf")  # seconds that a method may take before the next method goes on

    @property
    def method(self) -> Implied:
        """Return the method to begin with."""
        return self.candidates[0][0]

    @property
    def seconds(self) -> float:
        """Return the seconds that the first method is predicted to take besides the splits."""
        return self.candidates[0][1]


def predicted_seconds(system: ConstraintSystem) -> dict[Implied, float]:
    """Return what each method takes besides the splits, in seconds of one core, from public numbers alone."""
    hierarchy, classes = system.hierarchy, system.classes.count
    each, pairs = open_classes(system).astype(np.float64), 0.0
    for level in range(hierarchy.levels):
        pairs += float((np.minimum(system.sums(each, level), classes) ** 2).sum())
    core = _START + _VARIABLE * hierarchy.regions * classes + _PAIRS * pairs**_GROWTH
    unknowns, above = system.leaves * classes, hierarchy.levels - 1
    cuts = _START + _CUT * unknowns * above
    if CutOracle(system).kind == "projection":
        cuts *= 1.0 + unknowns / _MANY
    return {"minimal_schema": core, "cuts": cuts, "bounds": 0.0}


def implied_choice(system: ConstraintSystem | None, method: TopdownMethod) -> ImpliedChoice:
    """Return how constraints (None for none) are enforced: as configured, or by the rule of ``TopdownMethod``.

    Bounds come last and always end.
    """
    if system is None or not system.rows:
        return ImpliedChoice((("bounds", 0.0),), "")
    if method.implied != "auto":
        return ImpliedChoice(((method.implied, predicted_seconds(system)[method.implied]),), "")
    if not bounds_fall_short(system):
        return ImpliedChoice((("bounds", 0.0),), "bounds on single answers suffice: their sets are nested")
    single = all(row.counts_once for row in system.rows)
    limit, seconds = min(method.time, NEARLY) if single else method.time, predicted_seconds(system)
    fits = {"minimal_schema": core_fits(system), "cuts": True, "bounds": True}
    chosen = [(name, value) for name, value in seconds.items() if fits[name] and (value <= limit or name == "bounds")]
    return ImpliedChoice(tuple(chosen), _reason(system, seconds, chosen[0][0], limit, single), limit)


def _reason(
    system: ConstraintSystem, seconds: dict[Implied, float], method: Implied, limit: float, single: bool
) -> str:
    """Return in words why a method is the first."""
    size = f"{system.classes.count:,} classes of cells in {system.hierarchy.regions:,} regions"
    if method == "minimal_schema":
        return f"the minimal schema ({size}) takes about {_shown(seconds[method])}, and bounds alone can fall short"
    slow = f"the minimal schema ({size}) would take about {_shown(seconds['minimal_schema'])}"
    if not core_fits(system):
        slow = f"the minimal schema ({size}) is too large for one program"
    if method == "cuts":
        return f"{slow}, and cuts take about {_shown(seconds['cuts'])}"
    nearly = "; every constraint bounds single answers, so bounds nearly suffice" if single else ""
    return f"{slow} and cuts {_shown(seconds['cuts'])}, where {_shown(limit)} are allowed{nearly}"


def _shown(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:,.0f} s"
