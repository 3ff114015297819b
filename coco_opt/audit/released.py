"""Complete releases, run many times on two neighbours: residuals part by part, and scores of every run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.activity import Progress
from coco_opt.array_types import Floats, Ints
from coco_opt.audit.bounds import Places, Sides, release_scores, score_places
from coco_opt.audit.privacy_loss import ResidualCounts
from coco_opt.audit.subject import Pair, PrivateT, ResultT, Sources, Statistics, Subject
from coco_opt.privacy import Answers, Exact, Measurement, MeasurementPlan, NoiseSource
from coco_opt.privacy.queries import offsets_of


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


def bulk_scores(
    subject: Subject[PrivateT, ResultT],
    pair: Pair[PrivateT],
    runs: int,
    sources: Sources,
    progress: Progress | None = None,
) -> Sides:
    """Return the scores of ``runs`` independent releases of D and as many of D'.

    For small tables: memory is runs x all answers. Noise is drawn in bulk from ``sources``, numbers 0 and 1 for the two
    sides. Every distinct noisy measurement is post-processed once: on a few cells hundreds of thousands of runs have a
    few thousand distinct measurements. ``progress`` counts the distinct measurements done.
    """
    places = score_places(*(subject.statistics(table) for table in (pair.first, pair.second)))
    score_of: dict[bytes, Floats] = {}
    sides = []
    for side, table in enumerate((pair.first, pair.second)):
        rows = _noisy_rows(subject, subject.exact(table), runs, sources(side))
        distinct, where = np.unique(rows, axis=0, return_inverse=True)
        new_rows = [row for row in distinct if row.tobytes() not in score_of]
        for row, score in zip(new_rows, _row_scores(subject, new_rows, places, progress), strict=True):
            score_of[row.tobytes()] = score
        sides.append(np.array([score_of[row.tobytes()] for row in distinct])[where.ravel()])
    return sides[0], sides[1]


def _row_scores(
    subject: Subject[PrivateT, ResultT], rows: Sequence[Ints], places: Sequence[Places], progress: Progress | None
) -> Iterable[Floats]:
    """Return the scores of the releases estimated from sealed answers, one measurement a row."""
    if rows and subject.release_all is not None:
        return release_scores(subject.release_all(np.array(rows)), places, len(rows))
    scores = []
    for number, row in enumerate(rows, 1):
        released = subject.statistics(subject.estimate(_with_answers(subject.measurement_plan, row)))
        scores.append(release_scores(released, places)[0])
        if progress is not None:
            progress(number, len(rows))
    return scores


def _noisy_rows(subject: Subject[PrivateT, ResultT], exact: Iterable[Exact], runs: int, source: NoiseSource) -> Ints:
    """Return the sealed answers to all queries in ``runs`` runs, int64[runs, answers]."""
    columns: dict[tuple[int, str], list[Ints]] = {
        (query.level, query.name): [] for query in subject.measurement_plan.queries
    }
    for part in exact:
        values = np.tile(part.values, runs)
        if not part.query.exact:
            stream = part.query.distribution.opened(source, measurement=part.query.name, region=part.label)
            values = stream.add_to(values)
        columns[part.query.level, part.query.name].append(values.reshape(runs, -1))
    return np.concatenate([part for parts in columns.values() for part in parts], axis=1)


def _with_answers(measurement_plan: MeasurementPlan, row: Ints) -> Measurement:
    """Return the measurement whose answers to all queries form a row."""
    offsets = [
        offsets_of(query, measurement_plan.hierarchy, measurement_plan.per_region) for query in measurement_plan.queries
    ]
    starts = np.cumsum([ends[-1] for ends in offsets])[:-1]
    values = (part.copy() for part in np.split(row, starts))
    answers = tuple(
        Answers(*row_answers) for row_answers in zip(measurement_plan.queries, offsets, values, strict=True)
    )
    return Measurement(measurement_plan, answers, "bulk", private=False)
