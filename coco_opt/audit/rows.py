"""The audit of a release of any kind: how much privacy its measurement and its released counts lose.

It gives three figures of different strength: the loss of the pair's noisy answers is exact; a lower bound is sound at
its confidence; an estimate from residuals is neither an upper nor a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from coco_opt.activity import Progress
from coco_opt.audit.bounds import (
    CONFIDENCE,
    LowerBound,
    Sides,
    lower_bound,
    measured_scores,
    release_scores,
    score_places,
)
from coco_opt.audit.privacy_loss import CAVEAT, PrivacyLoss, ResidualCounts, empirical_privacy_loss
from coco_opt.audit.subject import (
    Differing,
    PrivateT,
    ResultT,
    Sources,
    Statistics,
    Subject,
    lost,
    stated_epsilon,
    witness,
)
from coco_opt.privacy import Cost, NoiseSource, Pair
from coco_opt.privacy.composition import DELTAS, Composition

DRAWS = 200_000
RUNS = 100

TOGETHER = "all measurements together"
DIRECT = "release, direct"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row of an audit: the epsilon claimed, and the estimate from residuals and the sound bound, if there are any.

    ``lost`` is the epsilon that the pair loses by its noisy answers, at the claim's delta, rounded up where that is
    not 0. ``excess`` is by how much the loss exceeds the claim, exactly, in epsilon or rho. ``runs`` is the number of
    runs a side.
    """

    what: str
    claimed: Fraction
    runs: int
    estimate: float | None = None
    bound: LowerBound | None = None
    note: str = ""
    lost: Fraction | None = None
    excess: Fraction = Fraction(0)

    @property
    def violated(self) -> bool:
        """Return whether more privacy is lost than claimed: exactly, or at the bound's confidence."""
        return self.excess > 0 or (self.bound is not None and self.bound.epsilon > self.claimed)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON and CSV."""
        bound = self.bound
        return {
            "what": self.what,
            "epsilon_claimed": str(self.claimed),
            "epsilon_lost": None if self.lost is None else str(self.lost),
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
    """The rows of an audit, its neighbours in words, and the estimated losses by the row they belong to.

    ``claimed`` is the total cost as stated, ``lost`` what the pair loses of it, exactly. ``curve`` repeats the rows of
    all measurements together and of the release at other deltas, where the claim has any.
    """

    neighbours: str
    claimed: Cost
    lost: Cost
    rows: tuple[AuditRow, ...]
    curve: tuple[AuditRow, ...]
    losses: Mapping[str, PrivacyLoss]

    @property
    def violated(self) -> tuple[AuditRow, ...]:
        """Return the rows in which more is lost than claimed."""
        return tuple(row for row in (*self.rows, *self.curve) if row.violated)


def audit_release(
    subject: Subject[PrivateT, ResultT],
    pair: Pair[PrivateT],
    sources: Sources,
    *,
    draws: int = DRAWS,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> Audit:
    """Audit the noisy answers with ``draws`` draws a side and the complete release with ``runs`` runs a side.

    Each level is compared with the cost of its queries, everything together with the subject's claim; a rho is compared
    by the (epsilon, delta) that it implies. ``progress`` gets the release runs done and their number. Reads the tables
    of ``pair`` and spends nothing: call it on simulated or public data. Each bound holds with ``confidence`` by itself.
    Raises
    VerificationError where an answer reaches the output without its noise or an exact one differs, ProblemError where
    nothing measured differs. O(draws x changed answers + runs x one release).
    """
    cells = witness(subject, pair)
    rows, measured = _measurement_rows(subject, cells, sources, draws, confidence)
    losses: dict[str, PrivacyLoss] = {}
    scores: dict[str, Sides] = {TOGETHER: measured}
    if runs:
        claimed = subject.epsilon()
        released = released_runs(subject, pair, runs, sources, progress)
        for part, residuals in released.residuals.items():
            row, loss = _estimate_row(f"release, {part}", claimed, runs, residuals)
            rows.append(row)
            losses.update({} if loss is None else {row.what: loss})
        if runs >= 2:
            scores[DIRECT] = released.scores
            rows.append(AuditRow(DIRECT, claimed, runs, bound=_bound(subject, released.scores, confidence)))
    loss_of_pair = lost(cells)
    curve = _curve(subject.claim(), loss_of_pair, scores, confidence) if subject.failure else ()
    return Audit(pair.words, subject.claimed, loss_of_pair.cost, tuple(rows), tuple(curve), losses)


def _measurement_rows(
    subject: Subject[PrivateT, ResultT], cells: Sequence[Differing], sources: Sources, draws: int, confidence: float
) -> tuple[list[AuditRow], Sides]:
    """Return a row for each level and a row for all together, and the scores of the latter."""
    measurement_plan, totals = subject.measurement_plan, (np.zeros((draws, 2)), np.zeros((draws, 2)))
    rows: list[AuditRow] = []
    levels = sorted({cell.query.level for cell in cells})
    for number, level in enumerate(levels):
        # Two sides a level: every call opens its own sources, so no two levels share noise.
        level_cells = [cell for cell in cells if cell.query.level == level]
        scores = measured_scores(level_cells, draws, partial(_level_source, sources, number))
        for side, columns in zip(totals, scores, strict=True):
            side += columns
        queries = measurement_plan.at(level)
        what = f"measurement, {measurement_plan.levels[level]} ({', '.join(query.name for query in queries)})"
        rows.append(_measurement_row(subject, what, level_cells, subject.claim(queries), scores, confidence))
    together = _measurement_row(subject, TOGETHER, cells, subject.claim(), totals, confidence)
    if len(levels) > 1 or {row.claimed for row in rows} != {together.claimed}:
        rows.append(together)
    return rows, totals


def _measurement_row(
    subject: Subject[PrivateT, ResultT],
    what: str,
    cells: Sequence[Differing],
    claim: Composition,
    scores: Sides,
    confidence: float,
) -> AuditRow:
    loss = lost(cells)
    excess = max(loss.cost.amount - claim.cost.amount, Fraction(0))
    claimed, leaked = (stated_epsilon(composition, subject.delta) for composition in (claim, loss))
    bound = _bound(subject, scores, confidence)
    return AuditRow(what, claimed, len(scores[0]), bound=bound, lost=leaked, excess=excess)


def _curve(
    claim: Composition, loss: Composition, scores_of: Mapping[str, Sides], confidence: float
) -> Iterator[AuditRow]:
    """Yield for each delta the claim, the loss of the pair and the bound."""
    for delta in DELTAS:
        claimed, leaked = (stated_epsilon(composition, delta) for composition in (claim, loss))
        for what, scores in scores_of.items():
            bound = lower_bound(*scores, confidence=confidence, delta=float(delta))
            yield AuditRow(what, claimed, len(scores[0]), bound=bound, lost=leaked if what == TOGETHER else None)


def _level_source(sources: Sources, number: int, side: int) -> NoiseSource:
    return sources(2 * number + side)


def _bound(subject: Subject[PrivateT, ResultT], scores: Sides, confidence: float) -> LowerBound:
    return lower_bound(*scores, confidence=confidence, delta=subject.failure)


def _estimate_row(
    what: str, claimed: Fraction, runs: int, residuals: ResidualCounts
) -> tuple[AuditRow, PrivacyLoss | None]:
    """Return the row of an estimate from residuals, and its curve where they are not all equal."""
    if residuals.deviation == 0:
        return AuditRow(what, claimed, runs, note="all residuals are equal: no estimate"), None
    loss = empirical_privacy_loss(residuals)
    largest = None if math.isnan(loss.maximum) else loss.maximum
    smooth = "; hardly smoothed: the bandwidth is below 1" if loss.bandwidth < 1 else ""
    return AuditRow(what, claimed, runs, largest, note=CAVEAT + smooth), loss


@dataclass(frozen=True, eq=False, slots=True)
class ReleasedRuns:
    """Residuals of the runs on D by part, and the scores of the runs on both sides."""

    residuals: Mapping[str, ResidualCounts]
    scores: Sides


def released_runs(
    subject: Subject[PrivateT, ResultT],
    pair: Pair[PrivateT],
    runs: int,
    sources: Sources,
    progress: Progress | None = None,
) -> ReleasedRuns:
    """Release D and D' ``runs`` times each with independent noise.

    Scores are taken at the counts in which D and D' differ. O(runs x one release).
    """
    truth, second_truth = (subject.statistics(table) for table in (pair.first, pair.second))
    exact = [tuple(subject.exact(table)) for table in (pair.first, pair.second)]
    places = score_places(truth, second_truth)
    scores = (np.empty((runs, 2)), np.empty((runs, 2)))
    residuals: dict[str, list[ResidualCounts]] = {part: [] for part in truth}
    for run in range(runs):
        for side in (0, 1):
            released = subject.released(exact[side], sources(2 * run + side))
            scores[side][run] = release_scores(released, places)[0]
            if side == 0:
                for part, counts in residuals_of(truth, released).items():
                    residuals[part].append(counts)
        if progress is not None:
            progress(run + 1, runs)
    return ReleasedRuns({part: ResidualCounts.total(run_counts) for part, run_counts in residuals.items()}, scores)


def residuals_of(truth: Statistics, released: Statistics) -> dict[str, ResidualCounts]:
    """Return released minus exact counts by part, without those whose exact counts are masked."""
    return {
        part: ResidualCounts.of((np.asarray(released[part]) - np.ma.getdata(exact))[~np.ma.getmaskarray(exact)])
        for part, exact in truth.items()
    }
