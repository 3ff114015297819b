"""What a release publishes of its posterior's draws: intervals.parquet, and draws.parquet where it was configured.

``intervals.parquet`` has a row for every interval of the tree and every range of the workload that can be listed:
``start`` and ``stop`` (its values are start to stop - 1), ``lower`` and ``upper``, both included. ``draws.parquet`` has
the cells that are not empty, draw by draw: ``draw``, ``start``, ``stop``, ``count``.

What a release says of its posterior: the account of the chains in the manifest, and notes for the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.files.folder import FileTable, read_columns
from coco_opt.files.release_checks import (
    BrokenError,
    Check,
    checked,
    int64_column,
    refuse,
    refuse_repeated,
    refuse_types,
)
from coco_opt.posterior.chains import Criterion
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.estimating.posterior.release import RangeDraws
from coco_opt.ranges.estimating.posterior.sampler import LEAST_DRAWS
from coco_opt.ranges.estimating.universal import IntervalSource, UniversalHistogram
from coco_opt.ranges.workload import Workload
from coco_opt.releases.kind import Folder

INTERVALS, DRAWS = "intervals.parquet", "draws.parquet"
PROMISE_OF = {INTERVALS: "intervals", DRAWS: "draws"}
_COLUMNS = {INTERVALS: ("start", "stop", "lower", "upper"), DRAWS: ("draw", "start", "stop", "count")}


def drawn_files(
    histogram: UniversalHistogram, workload: Workload, coverage: float, draws: int
) -> Mapping[str, FileTable]:
    """Return the files of a posterior, by name; none for other estimators."""
    files = {}
    if histogram.posterior is not None and coverage:
        begin, end = published_ranges(histogram.domain, workload)
        spans, edges = histogram.intervals(begin, end, coverage), histogram.domain.edges
        files[INTERVALS] = _table(INTERVALS, edges[begin], edges[end], spans.lower, spans.upper)
    if histogram.posterior is not None and draws:
        drawn = histogram.posterior.draws.cells
        # Some of each chain, evenly.
        chosen = drawn[np.linspace(0, len(drawn) - 1, draws).round().astype(np.int64)]
        draw, cell = np.nonzero(chosen)
        edges = histogram.domain.edges
        files[DRAWS] = _table(DRAWS, draw, edges[cell], edges[cell + 1], chosen[draw, cell].astype(np.int64))
    return files


def _table(name: str, *columns: Ints) -> FileTable:
    return FileTable.of(dict(zip(_COLUMNS[name], columns, strict=True)), dict.fromkeys(_COLUMNS[name], "int64"))


def published_ranges(domain: DomainTree, workload: Workload) -> tuple[Ints, Ints]:
    """Return the ranges begin:end of cells that have intervals: the tree's, and those of a workload that are listed."""
    begin, end = domain.spans()
    pairs = np.stack([np.concatenate([begin, workload.begin]), np.concatenate([end, workload.end])], axis=1)
    pairs = np.unique(pairs, axis=0)
    return pairs[:, 0], pairs[:, 1]


@dataclass(frozen=True, eq=False, slots=True)
class PublishedIntervals:
    """The rows of intervals.parquet by cells begin:end, rising; ``coverage`` is theirs."""

    coverage: float
    begin: Ints
    end: Ints
    lower: Ints
    upper: Ints

    def interval(self, begin: Ints, end: Ints, coverage: float) -> tuple[Ints, Ints]:
        """Return the intervals of published ranges; ProblemError for others, and for another coverage."""
        if coverage != self.coverage:
            raise ProblemError(f"the release has intervals of coverage {self.coverage:g} alone, not {coverage:g}")
        most = int(self.end.max(initial=0)) + 1
        keys, wanted = self.begin * most + self.end, begin * most + end
        rows = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        unknown = keys[rows] != wanted
        if unknown.any():
            place = int(np.argmax(unknown))
            message = f"the release has no interval of the cells {begin[place]}:{end[place]}"
            raise ProblemError(f"{message}: publish draws (draws = 100), from which those of any range are read")
        return self.lower[rows], self.upper[rows]


def read_spans(folder: Path, domain: DomainTree, cells: Ints, manifest: Mapping[str, Any]) -> IntervalSource | None:
    """Return what a release folder knows of intervals: its draws, else its rows, None without any.

    Raises InputError (bad-release); ``verify`` says more.
    """
    if (folder / DRAWS).exists():
        return RangeDraws(_read_draws(folder, domain, manifest), cells)
    if not (folder / INTERVALS).exists():
        return None
    return _read_intervals(folder, domain, manifest)


def interval_checks(folder: Folder, domain: DomainTree, nodes: Floats) -> Iterator[Check]:
    """Yield the checks of what is published of the draws, where anything is, or should be."""
    looks = {
        INTERVALS: lambda: _look_at_intervals(folder, domain, nodes[domain.first_leaf :]),
        DRAWS: lambda: f"{len(_read_draws(folder.path, domain, folder.manifest)):,} draws of nonnegative integers",
    }
    for name, look in looks.items():
        if PROMISE_OF[name] in folder.manifest["promises"] or (folder.path / name).exists():
            yield checked(PROMISE_OF[name], look)


def _look_at_intervals(folder: Folder, domain: DomainTree, cells: Floats) -> str:
    read, of_tree = _read_intervals(folder.path, domain, folder.manifest), domain.spans()
    if not np.isin(of_tree[0] * (domain.cells + 1) + of_tree[1], read.begin * (domain.cells + 1) + read.end).all():
        raise BrokenError("an interval of the tree has no row")
    sums = np.concatenate([[0.0], np.cumsum(cells)])
    released = sums[read.end] - sums[read.begin]
    outside = (read.lower < 0) | (read.lower > released) | (released > read.upper)
    refuse(outside, "does not hold the released count, or is negative", INTERVALS)
    return "every interval holds its released count"


def _columns(folder: Path, name: str) -> list[Ints]:
    """Return the columns of a file. Raises BrokenError."""
    table = read_columns(folder / name, _COLUMNS[name])
    refuse_types(table, dict.fromkeys(_COLUMNS[name], "int64"), name)
    return [int64_column(table, column) for column in _COLUMNS[name]]


def _read_intervals(folder: Path, domain: DomainTree, manifest: Mapping[str, Any]) -> PublishedIntervals:
    """Return the rows of intervals.parquet. Raises BrokenError."""
    stated = manifest.get("intervals")
    coverage = stated.get("coverage") if isinstance(stated, dict) else None
    if not isinstance(coverage, float) or not 0.0 < coverage < 1.0:
        raise BrokenError("the manifest states no coverage between 0 and 1")
    start, stop, lower, upper = _columns(folder, INTERVALS)
    begin, end = (np.searchsorted(domain.edges, edge).astype(np.int64) for edge in (start, stop))
    known = np.isin(start, domain.edges) & np.isin(stop, domain.edges) & (begin < end)
    refuse(~known, "is no range of cells", INTERVALS)
    refuse(np.diff(begin * (domain.cells + 1) + end) <= 0, "is not above the one before", INTERVALS, before=1)
    return PublishedIntervals(coverage, begin, end, lower, upper)


def _read_draws(folder: Path, domain: DomainTree, manifest: Mapping[str, Any]) -> Ints:
    """Return the draws [draws, cells]. Raises BrokenError."""
    account = manifest.get("posterior")
    number = account.get("draws_published") if isinstance(account, dict) else None
    if not isinstance(number, int) or not 0 < number <= LEAST_DRAWS:
        raise BrokenError("the manifest does not say how many draws there are")
    draw, start, stop, count = _columns(folder, DRAWS)
    cell = np.minimum(np.searchsorted(domain.edges, start), domain.cells - 1)
    bad = (domain.edges[cell] != start) | (domain.edges[cell + 1] != stop) | (count < 1)
    refuse(bad | (draw < 0) | (draw >= number), "is no count of a cell in a draw", DRAWS)
    refuse_repeated(draw * domain.cells + cell, "a cell occurs twice in a draw", DRAWS)
    drawn = np.zeros((number, domain.cells), np.int64)
    drawn[draw, cell] = count
    return drawn


WORDS = (
    "central intervals of each range alone under the posterior of all cells' counts, whose prior is learned from the "
    "same noisy counts; each holds its released count"
)


def posterior_account(histogram: UniversalHistogram, coverage: float, draws: int) -> dict[str, Any]:
    """Return the manifest's account of the chains and of the released counts, empty for other estimators."""
    posterior = histogram.posterior
    if posterior is None:
        return {}
    sampled = posterior.sampled
    account = {
        **Criterion().account(np.array([sampled.converged]), sampled.r_hat, sampled.effective),
        "draws": int(sampled.cells.shape[0]),
        "draws_published": draws,
        "rounds": sampled.rounds,
        "mean_squared_distance_to_posterior_mean": posterior.excess,
    }
    intervals = {"intervals": {"coverage": coverage, "words": WORDS}} if coverage else {}
    return {"posterior": account, **intervals}


def posterior_notes(histogram: UniversalHistogram) -> Iterator[str]:
    """Yield a note where the chains have not converged."""
    if histogram.posterior is not None and not histogram.posterior.sampled.converged:
        sampled = histogram.posterior.sampled
        doubtful = "differ in the number of empty cells alone" if sampled.counts_agree else "differ in counts"
        yield (
            f"the chains of the posterior have not converged after {sampled.rounds:,} rounds (R-hat "
            f"{sampled.r_hat:.2f}, effective sample size {sampled.effective:.0f}): they {doubtful}, and intervals of "
            f"{'such cells' if sampled.counts_agree else 'all ranges'} are less certain. The standard errors of "
            'estimator = "consistent" need no chains'
        )
