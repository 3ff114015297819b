"""Many runs of a small release: noise in bulk, and every distinct noisy answer post-processed once.

Post-processing is a function of the sealed answers, so runs that saw the same ones release the same; on a few cells
hundreds of thousands of runs have a few thousand distinct ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coco_opt.audit.measured import Exact, Floats, Ints, Progress, Sources
from coco_opt.audit.neighbours import NeighbourPair
from coco_opt.audit.released import GroupsMechanism, score_places, score_release
from coco_opt.groups import estimate_groups
from coco_opt.privacy import Measurement, Measurements, NoiseSource


def bulk_scores(
    pair: NeighbourPair, mechanism: GroupsMechanism, runs: int, sources: Sources, progress: Progress | None = None
) -> tuple[Floats, Floats]:
    """Return the scores of ``runs`` independent releases of D and as many of D', float64[runs, 2] each.

    For small hierarchies and bounds: memory is runs x all measured cells. ``sources(side)`` makes a fresh noise source
    for side 0 and side 1; every region reads one stream of it. ``progress`` is told the distinct answers done.
    """
    places = score_places(pair, mechanism.max_size)
    known: dict[bytes, Floats] = {}
    sides = []
    for side, histograms in enumerate((pair.first, pair.second)):
        exact = mechanism.measured(pair, histograms, Exact())
        noisy = _noisy(exact, runs, sources(side))
        distinct, where = np.unique(noisy, axis=0, return_inverse=True)
        rows = np.empty((len(distinct), 2))
        for number, row in enumerate(distinct):
            key = row.tobytes()
            if key not in known:
                released = estimate_groups(_with_values(exact, row), mechanism.method, mechanism.solvers).histograms
                known[key] = score_release(released, places)
            rows[number] = known[key]
            if progress is not None:
                progress(number + 1, len(distinct))
        sides.append(rows[where.ravel()])
    return sides[0], sides[1]


def _answered(measurements: Measurements) -> list[Measurement]:
    return [answer for answer in measurements if answer is not None]


def _noisy(exact: Measurements, runs: int, source: NoiseSource) -> Ints:
    """Return ``runs`` noisy answers of all regions side by side, int64[runs, cells]."""
    parts = []
    for answer in _answered(exact):
        stream = source.stream(answer.scale, measurement=answer.query, region=answer.region)
        parts.append(stream.add_to(np.tile(answer.values, runs)).reshape(runs, answer.values.size))
    return np.concatenate(parts, axis=1)


def _with_values(exact: Measurements, row: Ints) -> Measurements:
    answers: list[Measurement | None] = []
    start = 0
    for answer in exact:
        if answer is None:
            answers.append(None)
            continue
        stop = start + answer.values.size
        answers.append(replace(answer, values=row[start:stop].copy()))
        start = stop
    return replace(exact, answers=tuple(answers))
