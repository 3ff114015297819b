"""Many runs of a small release of tables: noise in bulk, and every distinct noisy answer post-processed once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.audit.measured import Progress, Sources
from coco_opt.audit.table_answers import TablesMechanism, bulk_answers, recorded, with_answers
from coco_opt.audit.table_pairs import TablePair
from coco_opt.audit.tables import score_places, score_release

Floats = NDArray[np.float64]


def bulk_table_scores(
    pair: TablePair, mechanism: TablesMechanism, runs: int, sources: Sources, progress: Progress | None = None
) -> tuple[Floats, Floats]:
    """Return the scores of ``runs`` independent releases of D and as many of D', float64[runs, 1] each.

    For one or two regions and few cells: memory is runs x all answers. ``sources(side)`` makes a fresh noise source
    for side 0 and side 1. ``progress`` is told the distinct answers done.
    """
    places = score_places(pair, mechanism)
    known: dict[bytes, float] = {}
    sides = []
    for side, counts in enumerate((pair.first, pair.second)):
        exact, streams = recorded(counts, mechanism)
        distinct, where = np.unique(bulk_answers(exact, streams, runs, sources(side)), axis=0, return_inverse=True)
        scores = np.empty((len(distinct), 1))
        for number, row in enumerate(distinct):
            key = row.tobytes()
            if key not in known:
                known[key] = score_release(mechanism.estimated(with_answers(exact, row)), mechanism, places)
            scores[number] = known[key]
            if progress is not None:
                progress(number + 1, len(distinct))
        sides.append(scores[where.ravel()])
    return sides[0], sides[1]
