"""intervals.parquet: intervals of the counts of groups of each size, and of at most each size; written and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import InputError, Place
from coco_opt.files.folder import FileTable, read_columns
from coco_opt.files.regions import region_columns
from coco_opt.files.release_checks import Check, first_of, int64_column, is_safe, positions
from coco_opt.groups.estimating.intervals import Intervals
from coco_opt.groups.noisy_measurements import buckets_of, max_size_of, size_queries
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import MeasurementPlan
from coco_opt.releases.kind import Folder

INTERVALS = "intervals.parquet"
PROMISE = "intervals"
COUNTS = ("size", "groups_lower", "groups_upper", "at_most", "at_most_lower", "at_most_upper")
CONVERGED, MEASURED = "converged", "measured"
COLUMNS = ("level", "level_name", "region", "region_id", *COUNTS, CONVERGED, MEASURED)
WORDS = (
    "equal-tailed intervals of each count alone under the posterior of the release's method, whose shape over all "
    "regions is learned from the same noisy answers; each holds its released count, and at sizes that no answers "
    "separate the counts that the released buckets permit; in none of the intervals has a size without a row any "
    "groups, nor groups at most its size other than the released number"
)

_TYPES = {"level": "int32", **dict.fromkeys(COUNTS, "int64"), CONVERGED: "bool", MEASURED: "bool"}


def interval_table(
    measurement_plan: MeasurementPlan,
    histograms: Sequence[CountOfCounts],
    intervals: Intervals,
    not_converged: Sequence[int] = (),
) -> FileTable:
    """Return a row for each region and size that has groups or is uncertain, in the hierarchy's order.

    The rows of regions whose chains have ``not_converged`` say so, and so do sizes that are not ``measured_sizes``.

    Sizes with groups_lower = groups_upper = 0 and at_most_lower = at_most_upper = at_most have no row.
    """
    shown = (intervals.groups_upper > 0) | (intervals.at_most_lower < intervals.at_most_upper)
    region, size = np.nonzero(shown)
    max_size = shown.shape[1] - 1
    at_most = np.array([histogram.cumulative(max_size) for histogram in histograms])
    columns = {
        **region_columns(measurement_plan, region),
        "size": size,
        "groups_lower": intervals.groups_lower[shown],
        "groups_upper": intervals.groups_upper[shown],
        "at_most": at_most[shown],
        "at_most_lower": intervals.at_most_lower[shown],
        "at_most_upper": intervals.at_most_upper[shown],
        CONVERGED: ~np.isin(region, np.asarray(not_converged, np.int64)),
        MEASURED: measured_sizes(measurement_plan)[measurement_plan.hierarchy.level[region], size],
    }
    return FileTable.of(columns, _TYPES)


def measured_sizes(measurement_plan: MeasurementPlan) -> Flags:
    """Return which sizes the answers at a level or below it tell from their neighbours, bool[levels, max_size + 1].

    The other sizes share a bucket with others, or follow one that does: how groups are spread in a bucket is up to the
    model, and its intervals are widened there (``posterior.in_buckets``).
    """
    levels = measurement_plan.hierarchy.levels
    alone = np.zeros((levels, max_size_of(measurement_plan) + 1), np.bool_)
    alone[:, -1] = True  # no group is larger
    for query in size_queries(measurement_plan):
        buckets = buckets_of(measurement_plan, query.level)
        alone[query.level, :-1] |= (
            True
            if buckets is None
            else np.isin(np.arange(alone.shape[1] - 1), buckets.begin[buckets.end - buckets.begin == 1])
        )
    separated = alone & np.pad(alone, ((0, 0), (1, 0)), constant_values=True)[:, :-1]
    return np.logical_or.accumulate(separated[::-1], axis=0)[::-1]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ReleasedIntervals:
    """The rows of intervals.parquet: ``region`` and ``size`` int64[rows], sorted, and the other columns by name."""

    coverage: float
    region: Ints
    columns: Mapping[str, Ints]

    def of(self, region: int, released: CountOfCounts, max_size: int) -> Intervals:
        """Return the intervals of one region, int64[max_size + 1] each; sizes without a row are certain."""
        rows = slice(*np.searchsorted(self.region, [region, region + 1]).tolist())
        size = self.columns["size"][rows]
        certain = np.zeros(max_size + 1, np.int64), released.cumulative(max_size)
        ends = []
        for name in COUNTS[1:3] + COUNTS[4:]:
            ends.append(certain[name.startswith("at_most")].copy())
            ends[-1][size] = self.columns[name][rows]
        groups_lower, groups_upper, at_most_lower, at_most_upper = ends
        return Intervals(self.coverage, groups_lower, groups_upper, at_most_lower, at_most_upper)


def read_intervals(folder: Path, hierarchy: Hierarchy, coverage: float, max_size: int) -> ReleasedIntervals:
    """Read intervals.parquet of a release; ``interval_check`` judges its content.

    Raises InputError: file-not-found, unreadable-file, missing-column, not-an-integer, unknown-region, bad-size.
    """
    rows = read_columns(folder / INTERVALS, COLUMNS)
    wrong = _wrong_types(rows)
    if wrong:
        raise InputError("not-an-integer", wrong, Place(INTERVALS))
    region = positions(rows.column("region"), hierarchy.paths)
    columns = {name: int64_column(rows, name) for name in COUNTS}
    unknown, outside = region < 0, (columns["size"] < 0) | (columns["size"] > max_size)
    if unknown.any():
        row = int(first_of(unknown)) + 1
        raise InputError("unknown-region", "this region is not in the hierarchy", Place(INTERVALS, row, "region"))
    if outside.any():
        row = int(first_of(outside)) + 1
        raise InputError("bad-size", f"is not a size of 0 to {max_size:,}", Place(INTERVALS, row, "size"))
    order = np.lexsort((columns["size"], region))
    return ReleasedIntervals(coverage, region[order], {name: column[order] for name, column in columns.items()})


def interval_check(folder: Folder, histogram: tuple[Ints, Ints, Ints], totals: Ints, max_size: int) -> Check:
    """Check that intervals are ordered, in bounds, of existing keys, and hold the released counts; O(rows log rows).

    ``histogram`` are the regions, sizes and groups of the rows of histograms.parquet, ``totals`` the regions' groups.
    """
    stated = folder.manifest.get("intervals")
    coverage = stated.get("coverage") if isinstance(stated, dict) else None
    if not isinstance(coverage, float) or not 0.0 < coverage < 1.0:
        return Check(PROMISE, passed=False, detail="the manifest states no coverage between 0 and 1")
    rows = read_columns(folder.path / INTERVALS, COLUMNS)
    wrong = _wrong_types(rows)
    if wrong:
        return Check(PROMISE, passed=False, detail=wrong)
    region = folder.regions.at(rows.column("region"))
    columns = {name: int64_column(rows, name) for name in ("level", *COUNTS)}
    size = columns["size"]
    outside = (region < 0) | (size < 0) | (size > max_size)
    if outside.any():
        return Check(PROMISE, passed=False, detail=f"row {first_of(outside) + 1}: no such region or size")
    misnamed = folder.regions.misnamed(rows, region)
    if misnamed:
        return Check(PROMISE, passed=False, detail=f"row {misnamed[0] + 1}: not the region's {misnamed[1]}")
    key = region * (max_size + 1) + size
    order = np.argsort(key, kind="stable")
    twice = np.diff(key[order]) == 0
    if twice.any():
        row = int(order[1:][twice].min()) + 1
        return Check(PROMISE, passed=False, detail=f"row {row}: this region and size occur twice")
    wrong = _wrong_marks(folder, region, rows.column(CONVERGED).to_numpy())
    if wrong:
        return Check(PROMISE, passed=False, detail=wrong)
    if not is_safe(histogram[2]):
        return Check(PROMISE, passed=False, detail="the counts do not add up within 64 bits")
    return _released_check(columns, key, region, histogram, totals, max_size)


def _wrong_marks(folder: Folder, region: Ints, converged: Flags) -> str:
    """Return what is wrong with the marks of regions that have not converged, "" if they are the manifest's."""
    account = folder.manifest.get("convergence")
    paths = account.get("not_converged") if isinstance(account, dict) else None
    if not isinstance(account, dict) or not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        return "the manifest does not list the regions that have not converged"
    listed = np.flatnonzero(np.isin(list(folder.regions.names), paths))
    if not account.get("regions_not_converged") == len(paths) == listed.size:
        return "the manifest's list of regions that have not converged is not one of so many regions"
    wrong = converged == np.isin(region, listed)
    if not wrong.any():
        return ""
    row = first_of(wrong)
    stated = "lists" if converged[row] else "does not list"
    return f"row {row + 1}: {CONVERGED!r} is not what the manifest says, which {stated} the region as not converged"


def _wrong_types(rows: Any) -> str:
    import pyarrow.types as kinds

    for name in ("level", *COUNTS):
        column = rows.column(name)
        if not kinds.is_signed_integer(column.type) or column.null_count:
            return f"{INTERVALS}, column {name!r} does not hold integers"
    for name in (CONVERGED, MEASURED):
        column = rows.column(name)
        if not kinds.is_boolean(column.type) or column.null_count:
            return f"{INTERVALS}, column {name!r} does not hold true or false"
    return ""


def _released_check(
    columns: dict[str, Ints],
    key: Ints,
    region: Ints,
    histogram: tuple[Ints, Ints, Ints],
    totals: Ints,
    max_size: int,
) -> Check:
    """Compare every row with the released counts, and every released count with the rows."""
    released_region, released_size, released = histogram
    released_key = released_region * (max_size + 1) + released_size
    order = np.argsort(released_key, kind="stable")
    keys, running = released_key[order], np.append(0, np.cumsum(released[order]))
    at_most = running[np.searchsorted(keys, key, side="right")]
    at_most -= running[np.searchsorted(keys, region * (max_size + 1))]
    groups = running[np.searchsorted(keys, key, side="right")] - running[np.searchsorted(keys, key)]
    if not np.isin(keys, key).all():
        return Check(PROMISE, passed=False, detail="a size that has groups has no interval")
    faults = {
        "at_most is not the released count": columns["at_most"] != at_most,
        "groups outside its interval": (groups < columns["groups_lower"]) | (groups > columns["groups_upper"]),
        "at_most outside its interval": (at_most < columns["at_most_lower"]) | (at_most > columns["at_most_upper"]),
        "below zero": (columns["groups_lower"] < 0) | (columns["at_most_lower"] < 0),
        "more groups than the region has": (columns["groups_upper"] > totals[region])
        | (columns["at_most_upper"] > totals[region]),
    }
    for what, where in faults.items():
        if where.any():
            return Check(PROMISE, passed=False, detail=f"row {first_of(where) + 1}: {what}")
    return Check(PROMISE, passed=True, detail=f"{key.size:,} intervals are in order and hold what is released")
