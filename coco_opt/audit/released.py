"""Whole releases run again and again on two neighbours: residuals part by part, and scores of every run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.audit.residuals import Floats, Ints, ResidualCounts
from coco_opt.audit.scores import Places, Sides, release_scores, score_places
from coco_opt.audit.subject import Pair, PrivateT, Progress, ResultT, Sources, Statistics, Subject
from coco_opt.privacy import Answers, Asked, Exact, Measurement, NoiseSource
from coco_opt.privacy.answers import offsets_of


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
    truth, other = (subject.statistics(table) for table in (pair.first, pair.second))
    exact = [tuple(subject.exact(table)) for table in (pair.first, pair.second)]
    places = score_places(truth, other)
    found = (np.empty((runs, 2)), np.empty((runs, 2)))
    residuals: dict[str, list[ResidualCounts]] = {part: [] for part in truth}
    for run in range(runs):
        for side in (0, 1):
            released = subject.released(exact[side], sources(2 * run + side))
            found[side][run] = release_scores(released, places)[0]
            if side == 0:
                for part, counts in residuals_of(truth, released).items():
                    residuals[part].append(counts)
        if progress is not None:
            progress(run + 1, runs)
    return ReleasedRuns({part: ResidualCounts.total(every) for part, every in residuals.items()}, found)


def residuals_of(truth: Statistics, released: Statistics) -> dict[str, ResidualCounts]:
    """Return released minus exact counts by part, but where the exact ones are masked."""
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

    For small tables: memory is runs x all answers. Noise is drawn in bulk, ``sources`` makes that of side 0 and of
    side 1, and every distinct noisy answer is post-processed once: on a few cells hundreds of thousands of runs have a
    few thousand distinct ones. ``progress`` is told the distinct answers done.
    """
    places = score_places(*(subject.statistics(table) for table in (pair.first, pair.second)))
    known: dict[bytes, Floats] = {}
    sides = []
    for side, table in enumerate((pair.first, pair.second)):
        rows = _noisy_rows(subject, subject.exact(table), runs, sources(side))
        distinct, where = np.unique(rows, axis=0, return_inverse=True)
        unknown = [row for row in distinct if row.tobytes() not in known]
        for row, score in zip(unknown, _row_scores(subject, unknown, places, progress), strict=True):
            known[row.tobytes()] = score
        sides.append(np.array([known[row.tobytes()] for row in distinct])[where.ravel()])
    return sides[0], sides[1]


def _row_scores(
    subject: Subject[PrivateT, ResultT], rows: Sequence[Ints], places: Sequence[Places], progress: Progress | None
) -> Iterable[Floats]:
    """Return the scores of the releases made of sealed answers, one measurement a row."""
    if rows and subject.release_all is not None:
        return release_scores(subject.release_all(np.array(rows)), places, len(rows))
    found = []
    for number, row in enumerate(rows, 1):
        released = subject.statistics(subject.estimate(_with_answers(subject.asked, row)))
        found.append(release_scores(released, places)[0])
        if progress is not None:
            progress(number, len(rows))
    return found


def _noisy_rows(subject: Subject[PrivateT, ResultT], exact: Iterable[Exact], runs: int, source: NoiseSource) -> Ints:
    """Return ``runs`` sealed answers to all questions side by side, int64[runs, answers]."""
    columns: dict[tuple[int, str], list[Ints]] = {(one.level, one.query): [] for one in subject.asked.questions}
    for part in exact:
        values = np.tile(part.values, runs)
        if not part.question.exact:
            stream = part.question.law.opened(source, measurement=part.question.query, region=part.label)
            values = stream.add_to(values)
        columns[part.question.level, part.question.query].append(values.reshape(runs, -1))
    return np.concatenate([part for parts in columns.values() for part in parts], axis=1)


def _with_answers(asked: Asked, row: Ints) -> Measurement:
    """Return the measurement whose answers to all questions stand side by side in a row."""
    offsets = [offsets_of(question, asked.hierarchy, asked.per_region) for question in asked.questions]
    starts = np.cumsum([ends[-1] for ends in offsets])[:-1]
    values = (part.copy() for part in np.split(row, starts))
    answers = tuple(Answers(*one) for one in zip(asked.questions, offsets, values, strict=True))
    return Measurement(asked, answers, "bulk", private=False)
