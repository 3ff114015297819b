"""intervals.parquet: intervals of the counts of groups of each size, and of at most each size; written and checked.

summaries.parquet: every region's mean size, quantiles and the like with their intervals; written and checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.files.folder import FileTable, read_columns
from coco_opt.files.regions import region_columns
from coco_opt.files.release_checks import (
    BrokenError,
    Regions,
    int64_column,
    is_safe,
    refuse,
    refuse_repeated,
    refuse_types,
)
from coco_opt.groups.estimating.intervals import QUANTILES, Intervals, SummaryIntervals
from coco_opt.groups.noisy_measurements import buckets_of, max_size_of, size_queries
from coco_opt.histograms import CountOfCounts
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
    model, and its intervals are widened there (``widen_in_buckets``).
    """
    max_size = max_size_of(measurement_plan)
    separated = np.zeros((measurement_plan.hierarchy.levels, max_size + 1), np.bool_)
    for query in size_queries(measurement_plan):
        buckets = buckets_of(measurement_plan, query.level)
        separated[query.level] = True if buckets is None else buckets.separated(max_size)
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


def read_intervals(folder: Path, regions: Regions, coverage: float, max_size: int) -> ReleasedIntervals:
    """Read intervals.parquet of a release; ``verify`` judges its content.

    Raises InputError: file-not-found, unreadable-file, missing-column, bad-release.
    """
    _, region, columns = _rows_of(folder, regions, max_size)
    order = np.lexsort((columns["size"], region))
    return ReleasedIntervals(coverage, region[order], {name: column[order] for name, column in columns.items()})


def _rows_of(folder: Path, regions: Regions, max_size: int) -> tuple[Any, Ints, dict[str, Ints]]:
    """Return the rows of intervals.parquet, their regions and their counts. Raises BrokenError."""
    rows = read_columns(folder / INTERVALS, COLUMNS)
    refuse_types(rows, _TYPES, INTERVALS)
    region, columns = regions.at(rows.column("region")), {name: int64_column(rows, name) for name in COUNTS}
    outside = (columns["size"] < 0) | (columns["size"] > max_size)
    refuse((region < 0) | outside, "no such region or size", INTERVALS)
    return rows, region, columns


def check_intervals(folder: Folder, histogram: tuple[Ints, Ints, Ints], totals: Ints, max_size: int) -> str:
    """Check that intervals are ordered, in bounds, of existing keys, and hold the released counts; O(rows log rows).

    ``histogram`` are the regions, sizes and groups of the rows of histograms.parquet, ``totals`` the regions' groups.
    Raises BrokenError.
    """
    stated = folder.manifest.get("intervals")
    coverage = stated.get("coverage") if isinstance(stated, dict) else None
    if not isinstance(coverage, float) or not 0.0 < coverage < 1.0:
        raise BrokenError("the manifest states no coverage between 0 and 1")
    rows, region, columns = _rows_of(folder.path, folder.regions, max_size)
    folder.regions.refuse_misnamed(rows, region, INTERVALS)
    key = region * (max_size + 1) + columns["size"]
    refuse_repeated(key, "this region and size occur twice", INTERVALS)
    _check_marks(folder, region, rows.column(CONVERGED).to_numpy())
    if not is_safe(histogram[2]):
        raise BrokenError("the counts do not add up within 64 bits")
    return _check_released(columns, key, region, histogram, totals, max_size)


def _check_marks(folder: Folder, region: Ints, converged: Flags) -> None:
    """Raise BrokenError unless the marks of regions that have not converged are the manifest's."""
    account = folder.manifest.get("convergence")
    paths = account.get("not_converged") if isinstance(account, dict) else None
    if not isinstance(account, dict) or not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise BrokenError("the manifest does not list the regions that have not converged")
    listed = np.flatnonzero(np.isin(list(folder.regions.paths), paths))
    if not account.get("regions_not_converged") == len(paths) == listed.size:
        raise BrokenError("the manifest's list of regions that have not converged is not one of so many regions")
    refuse(
        converged == np.isin(region, listed), f"{CONVERGED!r} is not what the manifest says of the region", INTERVALS
    )


def _check_released(
    columns: dict[str, Ints],
    key: Ints,
    region: Ints,
    histogram: tuple[Ints, Ints, Ints],
    totals: Ints,
    max_size: int,
) -> str:
    """Compare every row with the released counts, and every released count with the rows."""
    released_region, released_size, released = histogram
    released_key = released_region * (max_size + 1) + released_size
    order = np.argsort(released_key, kind="stable")
    keys, running = released_key[order], np.append(0, np.cumsum(released[order]))
    at_most = running[np.searchsorted(keys, key, side="right")]
    at_most -= running[np.searchsorted(keys, region * (max_size + 1))]
    groups = running[np.searchsorted(keys, key, side="right")] - running[np.searchsorted(keys, key)]
    if not np.isin(keys, key).all():
        raise BrokenError("a size that has groups has no interval")
    faults = {
        "at_most is not the released count": columns["at_most"] != at_most,
        "groups outside its interval": (groups < columns["groups_lower"]) | (groups > columns["groups_upper"]),
        "at_most outside its interval": (at_most < columns["at_most_lower"]) | (at_most > columns["at_most_upper"]),
        "below zero": (columns["groups_lower"] < 0) | (columns["at_most_lower"] < 0),
        "more groups than the region has": (columns["groups_upper"] > totals[region])
        | (columns["at_most_upper"] > totals[region]),
    }
    for what, where in faults.items():
        refuse(where, what, INTERVALS)
    return f"{key.size:,} intervals are in order and hold what is released"


SUMMARY_FILE = "summaries.parquet"
SUMMARY_PROMISE = "summaries"
NUMBERS = ("value", "lower", "upper")
SUMMARY_COLUMNS = ("level", "level_name", "region", "region_id", "summary", *NUMBERS)

_SUMMARY_TYPES = {"level": "int32", **dict.fromkeys(NUMBERS, "float64")}


def summary_table(measurement_plan: MeasurementPlan, summaries: SummaryIntervals) -> FileTable:
    """Return a row for each region that has groups and each summary, in the hierarchy's order."""
    some = ~np.isnan(summaries.value[:, 0])
    columns = {
        **region_columns(measurement_plan, np.repeat(np.flatnonzero(some), len(summaries.names))),
        "summary": np.tile(np.array(summaries.names, dtype=object), int(some.sum())),
        **{name: getattr(summaries, name)[some].ravel() for name in NUMBERS},
    }
    return FileTable.of(columns, _SUMMARY_TYPES)


def check_summaries(folder: Folder, histogram: tuple[Ints, Ints, Ints], totals: Ints) -> str:
    """Check that every region has each summary once, computed from the released counts and within its interval.

    ``histogram`` are the regions, sizes and groups of the rows of histograms.parquet, ``totals`` the regions' groups.
    O(rows log rows). Raises BrokenError.
    """
    rows = read_columns(folder.path / SUMMARY_FILE, SUMMARY_COLUMNS)
    names, region = rows.column("summary").to_pylist(), folder.regions.at(rows.column("region"))
    try:
        value, lower, upper = (rows.column(name).to_numpy().astype(np.float64) for name in NUMBERS)
    except (TypeError, ValueError):
        raise BrokenError(f"{SUMMARY_FILE} does not hold numbers") from None
    released = _released_summaries(*histogram, totals)
    keys = list(zip(region.tolist(), names, strict=True))
    if len(keys) != len(released) or set(keys) != set(released):
        raise BrokenError("not every region that has groups has each summary once")
    expected = np.array([released[key] for key in keys])
    folder.regions.refuse_misnamed(rows, region, SUMMARY_FILE)
    refuse(~np.isclose(value, expected, rtol=1e-12, atol=0.0), "not the summary of what is released", SUMMARY_FILE)
    inside = (lower >= 0.0) & (lower <= value) & (value <= upper) & np.isfinite(upper)
    refuse(~inside, "not within its interval", SUMMARY_FILE)
    return f"{len(keys):,} summaries are those released, in their intervals"


def _released_summaries(region: Ints, size: Ints, groups: Ints, totals: Ints) -> dict[tuple[int, str], float]:
    """Return the summaries of all regions that have groups, by region and name."""
    order = np.lexsort((size, region))
    cuts = np.searchsorted(region[order], np.arange(totals.size + 1)).tolist()
    summaries: dict[tuple[int, str], float] = {}
    for place, (begin, end) in enumerate(pairwise(cuts)):
        if begin == end:
            continue
        sizes, counts = size[order[begin:end]], groups[order[begin:end]]
        running = np.cumsum(counts)
        total = int(running[-1])
        summaries[place, "mean_size"] = int(sizes @ counts) / total
        summaries[place, "share_of_size_1"] = int(counts[sizes == 1].sum()) / total
        summaries[place, "largest_size"] = float(sizes[-1])
        for part in QUANTILES:
            # At least part x total groups, in integers.
            least = -(-part.numerator * total // part.denominator)
            summaries[place, f"size_quantile_{float(part):g}"] = float(sizes[np.searchsorted(running, least)])
    return summaries
