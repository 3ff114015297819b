"""The audit of a groups release: what is measured, what is released, how much privacy each is seen to lose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from coco_opt.audit.bounds import CONFIDENCE, LowerBound, lower_bound
from coco_opt.audit.measured import Floats, Progress, Sources, measured_scores, witness
from coco_opt.audit.neighbours import NeighbourPair
from coco_opt.audit.privacy_loss import PrivacyLoss, empirical_privacy_loss
from coco_opt.audit.released import GroupsMechanism, ReleasedRuns, released_runs
from coco_opt.audit.residuals import ResidualCounts
from coco_opt.privacy import NoiseSource

DRAWS = 200_000
RUNS = 100


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One thing audited: the epsilon claimed for it, the estimate from residuals and the sound bound, where there are.

    ``runs`` is the number of runs a side.
    """

    what: str
    claimed: Fraction
    runs: int
    estimate: float | None = None
    bound: LowerBound | None = None
    note: str = ""

    @property
    def violated(self) -> bool:
        """Tell whether more privacy is lost than claimed, at the bound's confidence."""
        return self.bound is not None and self.bound.epsilon > self.claimed

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON and CSV."""
        bound = self.bound
        return {
            "what": self.what,
            "epsilon_claimed": str(self.claimed),
            "runs": self.runs,
            "estimate": self.estimate,
            "lower_bound": None if bound is None else bound.epsilon,
            "confidence": None if bound is None else bound.confidence,
            "delta": None if bound is None else bound.delta,
            "hits": None if bound is None else bound.hits,
            "trials": None if bound is None else bound.trials,
            "other_hits": None if bound is None else bound.other_hits,
            "other_trials": None if bound is None else bound.other_trials,
            "violated": self.violated,
            "note": self.note,
        }


@dataclass(frozen=True, eq=False, slots=True)
class Audit:
    """The rows of an audit, on which neighbours, and the curves of the estimates by what they belong to."""

    neighbours: str
    rows: tuple[AuditRow, ...]
    losses: Mapping[str, PrivacyLoss]

    @property
    def violated(self) -> tuple[AuditRow, ...]:
        """Return the rows whose sound bound lies above the claim."""
        return tuple(row for row in self.rows if row.violated)


def audit_groups(
    pair: NeighbourPair,
    mechanism: GroupsMechanism,
    *,
    draws: int = DRAWS,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    sources: Sources | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit the measurements with ``draws`` draws a side and the whole release with ``runs`` runs a side.

    ``sources`` makes the noise of the measurements' draws, side 0 and 1 (the mechanism's own unless given).
    ``progress`` is told the release runs done and their number. Reads no user's data but what ``pair`` holds and
    spends nothing: call it on made or public data. Each bound holds with ``confidence`` on its own. Raises
    ProblemError where the neighbours differ in nothing that is measured.
    """
    rows = _measured_rows(pair, mechanism, draws, confidence, sources or mechanism.sources)
    released = released_runs(pair, mechanism, runs, progress)
    found = _released_rows(mechanism, released, runs, confidence)
    return Audit(pair.what, (*rows, *(row for row, _ in found)), {row.what: loss for row, loss in found if loss})


def _measured_rows(
    pair: NeighbourPair, mechanism: GroupsMechanism, draws: int, confidence: float, sources: Sources
) -> list[AuditRow]:
    every = witness(pair, mechanism.queries, mechanism.budget, mechanism.max_size)
    rows: list[AuditRow] = []
    total: tuple[Floats, Floats] = (np.zeros((draws, 2)), np.zeros((draws, 2)))
    for number, level in enumerate(np.unique(every.levels).tolist()):
        # Two sides a level: every call opens sources of its own, so that no two levels share noise.
        scores = measured_scores(every.at(level), draws, partial(_of_side, sources, number))
        total[0][:] += scores[0]
        total[1][:] += scores[1]
        bound = lower_bound(*scores, confidence=confidence)
        query, claimed = mechanism.queries[level], mechanism.budget.levels[level]
        rows.append(AuditRow(f"measurement, level {level} ({query})", claimed, draws, bound=bound))
    if len(rows) > 1:
        bound = lower_bound(*total, confidence=confidence)
        rows.append(AuditRow("all measurements together", mechanism.budget.epsilon, draws, bound=bound))
    return rows


def _of_side(sources: Sources, number: int, side: int) -> NoiseSource:
    return sources(2 * number + side)


def _released_rows(
    mechanism: GroupsMechanism, released: ReleasedRuns, runs: int, confidence: float
) -> list[tuple[AuditRow, PrivacyLoss | None]]:
    epsilon = mechanism.budget.epsilon
    found: list[tuple[AuditRow, PrivacyLoss | None]] = []
    for level, residuals in enumerate(released.residuals):
        what = f"release ({mechanism.method.consistency}), level {level}"
        found.append(estimated_row(what, epsilon, runs, residuals, "group"))
    if runs >= 2:
        bound = lower_bound(released.first, released.second, confidence=confidence)
        found.append((AuditRow(f"release ({mechanism.method.consistency}), direct", epsilon, runs, bound=bound), None))
    return found


def estimated_row(
    what: str, claimed: Fraction, runs: int, residuals: ResidualCounts, unit: str
) -> tuple[AuditRow, PrivacyLoss | None]:
    """Return the row of an estimate from residuals (in ``unit``), and its curve where they are not all equal."""
    if residuals.deviation == 0:
        return AuditRow(what, claimed, runs, note="all residuals are equal"), None
    loss = empirical_privacy_loss(residuals)
    largest = None if math.isnan(loss.maximum) else loss.maximum
    note = f"bandwidth below one {unit}: hardly smoothed" if loss.bandwidth < 1 else ""
    return AuditRow(what, claimed, runs, largest, note=note), loss
