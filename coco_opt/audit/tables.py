"""The audit of a release of tables of persons: its noisy answers, and the whole tables made from them.

As for groups: sound bounds from the answers in which neighbours differ, the less-obvious estimate from the residuals
of whole releases, and a bound from what is released. Discrete Gaussian noise is held to the (epsilon, delta) that its
rho implies at a stated delta.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from coco_opt.audit.bounds import CONFIDENCE, LowerBound, lower_bound
from coco_opt.audit.groups import DRAWS, RUNS, Audit, AuditRow, estimated_row
from coco_opt.audit.measured import Progress, Sources
from coco_opt.audit.privacy_loss import PrivacyLoss
from coco_opt.audit.residuals import ResidualCounts
from coco_opt.audit.table_answers import TablesMechanism, answer_scores, tables_witness
from coco_opt.audit.table_pairs import TablePair
from coco_opt.operators import Operator
from coco_opt.privacy import NoiseSource
from coco_opt.topdown.counts import TableCounts
from coco_opt.topdown.release import TablesResult

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class _Place:
    """An answer of a region to a query in which D and D' differ, with both exact values."""

    level: int
    region: int
    query: int
    answer: int
    first: int
    second: int


def audit_tables(
    pair: TablePair,
    mechanism: TablesMechanism,
    *,
    draws: int = DRAWS,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> Audit:
    """Audit the noisy answers with ``draws`` draws a side and the whole release with ``runs`` runs a side.

    Each level is held to the amounts its queries were given, everything together to what the mechanism claims.
    Residuals (persons) are those of all cells of a level. Spends nothing and reads what ``pair`` holds only: call it
    on made or public data. Each bound holds with ``confidence`` on its own. Raises VerificationError where an answer
    reaches the output without noise, ProblemError where nothing measured differs. O(draws x changed answers + runs x
    one release).
    """
    rows = _measured_rows(pair, mechanism, draws, confidence)
    residuals, first, second = _released_runs(pair, mechanism, runs, progress)
    name = f"release ({mechanism.method.estimation})"
    found: list[tuple[AuditRow, PrivacyLoss | None]] = [
        estimated_row(f"{name}, level {level}", mechanism.claimed, runs, counted, "person")
        for level, counted in enumerate(residuals)
    ]
    if runs >= 2:
        bound = _bound(mechanism, (first, second), confidence)
        found.append((AuditRow(f"{name}, direct", mechanism.claimed, runs, bound=bound), None))
    losses = {row.what: loss for row, loss in found if loss is not None}
    return Audit(pair.what, (*rows, *(row for row, _ in found)), losses)


def _measured_rows(pair: TablePair, mechanism: TablesMechanism, draws: int, confidence: float) -> list[AuditRow]:
    every = tables_witness(pair, mechanism)
    total: tuple[Floats, Floats] = (np.zeros((draws, 1)), np.zeros((draws, 1)))
    rows = []
    for number, level in enumerate(np.unique(every.levels).tolist()):
        # Two sides a level: every call opens sources of its own, so that no two levels share noise.
        scores = answer_scores(every.at(level), mechanism, draws, partial(_of_side, mechanism.sources, number))
        total[0][:] += scores[0]
        total[1][:] += scores[1]
        what = f"measurement, level {level} ({', '.join(mechanism.asked_at(level))})"
        claimed = mechanism.epsilon(sum(mechanism.plan.amounts[level], Fraction(0)))
        rows.append(AuditRow(what, claimed, draws, bound=_bound(mechanism, scores, confidence)))
    bound = _bound(mechanism, total, confidence)
    rows.append(AuditRow("all measurements together", mechanism.claimed, draws, bound=bound))
    return rows


def _of_side(sources: Sources, number: int, side: int) -> NoiseSource:
    return sources(2 * number + side)


def _bound(mechanism: TablesMechanism, scores: tuple[Floats, Floats], confidence: float) -> LowerBound:
    return lower_bound(*scores, confidence=confidence, delta=float(mechanism.delta))


def _released_runs(
    pair: TablePair, mechanism: TablesMechanism, runs: int, progress: Progress | None
) -> tuple[list[ResidualCounts], Floats, Floats]:
    """Release D and D' ``runs`` times each; return the residuals on D by level, and the scores of both sides."""
    places = score_places(pair, mechanism)
    scores = (np.empty((runs, 1)), np.empty((runs, 1)))
    levels = pair.first.hierarchy.levels
    parts: list[list[ResidualCounts]] = [[] for _ in range(levels)]
    truth = [pair.first.level_tables(level) for level in range(levels)]
    for run in range(runs):
        for side, counts in enumerate((pair.first, pair.second)):
            released = mechanism.run(counts, 2 * run + side)
            scores[side][run] = score_release(released, mechanism, places)
            if side == 0:
                for level, exact in enumerate(truth):
                    parts[level].append(ResidualCounts.of(released.level(level) - exact))
        if progress is not None:
            progress(run + 1, runs)
    return [ResidualCounts.total(part) for part in parts], *scores


def score_places(pair: TablePair, mechanism: TablesMechanism) -> list[_Place]:
    """Return every answer of every level in which D and D' differ, whether it was asked there or not."""
    places = []
    for level in range(pair.first.hierarchy.levels):
        for region in pair.changed(level):
            for number, query in enumerate(mechanism.plan.queries):
                one, two = (_answers(counts, query.operator, region) for counts in (pair.first, pair.second))
                places += [
                    _Place(level, region, number, answer, int(one[answer]), int(two[answer]))
                    for answer in np.flatnonzero(one != two).tolist()
                ]
    return places


def _answers(counts: TableCounts, operator: Operator, region: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = counts.answers_of(operator, range(region, region + 1))[0]
    return found


def score_release(released: TablesResult, mechanism: TablesMechanism, places: list[_Place]) -> float:
    """Return a number that grows where D' is likelier: the sum of |y - d| - |y - d'| over the places."""
    known: dict[tuple[int, int], NDArray[np.int64]] = {}
    score = 0.0
    for place in places:
        if (place.region, place.query) not in known:
            at = place.region - int(released.hierarchy.level_start[place.level])
            table = released.tables[place.level].dense(at, at + 1)[0]
            known[place.region, place.query] = mechanism.plan.queries[place.query].operator.apply(table)
        answer = int(known[place.region, place.query][place.answer])
        score += abs(answer - place.first) - abs(answer - place.second)
    return score
