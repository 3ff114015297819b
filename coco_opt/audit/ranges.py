"""The audit of universal and unattributed histograms: what is measured and what is released.

As for groups: bounds from the noisy counts in which neighbours differ, the less-obvious estimate from the residuals of
whole releases, and a bound from what is released.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coco_opt.audit.bounds import CONFIDENCE, lower_bound
from coco_opt.audit.groups import DRAWS, RUNS, Audit, AuditRow, estimated_row
from coco_opt.audit.histograms import CellPair, CellsMechanism
from coco_opt.audit.measured import Exact, Floats, Ints, Progress, Scores, Sources, Witness, measured_scores
from coco_opt.audit.privacy_loss import PrivacyLoss
from coco_opt.audit.residuals import ResidualCounts
from coco_opt.errors import ProblemError
from coco_opt.privacy import NoiseSource


def audit_ranges(
    pair: CellPair,
    mechanism: CellsMechanism,
    *,
    draws: int = DRAWS,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    sources: Sources | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit the noisy counts with ``draws`` draws a side and the whole release with ``runs`` runs a side.

    Meaning of the arguments, and what is spent (nothing), as for ``audit_groups``. Residuals (entities) are those of
    the cells and of the tree's wider intervals, or of the ranks: an estimate from them is neither an upper nor a lower
    bound. O(draws x changed counts + runs x one release).
    """
    scores = measured_scores(cells_witness(pair, mechanism), draws, sources or mechanism.sources)
    measured = AuditRow("measurement", mechanism.epsilon, draws, bound=lower_bound(*scores, confidence=confidence))
    residuals, first, second = _released_runs(pair, mechanism, runs, progress)
    found: list[tuple[AuditRow, PrivacyLoss | None]] = [
        estimated_row(f"release, {part}", mechanism.epsilon, runs, counted, "entity")
        for part, counted in residuals.items()
    ]
    if runs >= 2:
        bound = lower_bound(first, second, confidence=confidence)
        found.append((AuditRow("release, direct", mechanism.epsilon, runs, bound=bound), None))
    rows = (measured, *(row for row, _ in found))
    return Audit(pair.what, rows, {row.what: loss for row, loss in found if loss is not None})


def cells_witness(pair: CellPair, mechanism: CellsMechanism) -> Witness:
    """Return the noisy counts in which the neighbours differ, with the scale that the release itself uses.

    Both come from the release run without noise, not from a stated sensitivity, so that a wrong one shows. Raises
    ProblemError where the neighbours differ in nothing that is measured.
    """
    one, two = (mechanism.measured(cells, Exact()) for cells in (pair.first, pair.second))
    differ = np.flatnonzero(one.values != two.values)
    if differ.size == 0:
        raise ProblemError("the neighbours do not differ in any measured count: nothing to audit")
    labels = tuple((mechanism.name, f"count {place}") for place in differ.tolist())
    scales = (one.scale,) * differ.size
    return Witness(one.values[differ], two.values[differ], scales, np.zeros(differ.size, np.int64), labels)


def bulk_range_scores(pair: CellPair, mechanism: CellsMechanism, runs: int, sources: Sources) -> tuple[Floats, Floats]:
    """Return the scores of ``runs`` independent releases of D and as many of D', float64[runs, 2] each.

    For small domains: memory is runs x all counts. ``sources(side)`` makes a fresh noise source for side 0 and side 1.
    Distinct noisy answers are post-processed once, and all trees of one size together.
    """
    sides = []
    for side, cells in enumerate((pair.first, pair.second)):
        exact = mechanism.measured(cells, Exact())
        rows = _noisy_rows(mechanism, exact, runs, sources(side))
        distinct, where = np.unique(rows, axis=0, return_inverse=True)
        released = mechanism.released_rows(exact, distinct)
        sides.append(_scores(pair, mechanism, released)[where.ravel()])
    return sides[0], sides[1]


def _noisy_rows(mechanism: CellsMechanism, exact: Any, runs: int, source: NoiseSource) -> Ints:
    """Return ``runs`` noisy answers, int64[runs, counts]."""
    rows: Ints = np.tile(exact.values, (runs, 1))
    noisy = mechanism.noisy(exact)
    stream = source.stream(exact.scale, measurement=mechanism.name, region="all")
    rows[:, noisy] = stream.add_to(rows[:, noisy].ravel()).reshape(runs, -1)
    return rows


def _released_runs(
    pair: CellPair, mechanism: CellsMechanism, runs: int, progress: Progress | None
) -> tuple[dict[str, ResidualCounts], Floats, Floats]:
    """Release D and D' ``runs`` times each; return the residuals on D by part, and the scores of both sides."""
    exact = mechanism.exact(pair.first)
    parts = mechanism.parts(pair.first.size)
    residuals: dict[str, list[ResidualCounts]] = {name: [] for name in parts}
    scores: tuple[list[Floats], list[Floats]] = ([], [])
    for run in range(runs):
        for side, cells in enumerate((pair.first, pair.second)):
            released = mechanism.released(mechanism.measured(cells, mechanism.sources(2 * run + side)))
            scores[side].append(_scores(pair, mechanism, released[None, :]))
            if side == 0:
                for name, part in parts.items():
                    residuals[name].append(ResidualCounts.of((released - exact)[part]))
        if progress is not None:
            progress(run + 1, runs)
    counted = {name: ResidualCounts.total(every) for name, every in residuals.items()}
    return counted, np.concatenate(scores[0]), np.concatenate(scores[1])


def _scores(pair: CellPair, mechanism: CellsMechanism, released: Floats) -> Floats:
    """Return the scores of releases (rows) where the exact counts of D and D' differ, float64[rows, 2]."""
    one, two = mechanism.exact(pair.first), mechanism.exact(pair.second)
    total = Scores.zeros(len(released))
    for place in np.flatnonzero(one != two).tolist():
        total.add(released[:, place], int(one[place]), int(two[place]), 1.0)
    return total.columns
