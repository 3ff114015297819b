"""summaries.parquet: every region's mean size, quantiles and the like with their intervals; written and checked."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.files.folder import FileTable, read_columns
from coco_opt.files.regions import region_columns
from coco_opt.files.release_checks import Check, first_of
from coco_opt.groups.estimating.intervals import QUANTILES, SummaryIntervals
from coco_opt.privacy import MeasurementPlan
from coco_opt.releases.kind import Folder

SUMMARY_FILE = "summaries.parquet"
SUMMARY_PROMISE = "summaries"
NUMBERS = ("value", "lower", "upper")
COLUMNS = ("level", "level_name", "region", "region_id", "summary", *NUMBERS)

_TYPES = {"level": "int32", **dict.fromkeys(NUMBERS, "float64")}


def summary_table(measurement_plan: MeasurementPlan, summaries: SummaryIntervals) -> FileTable:
    """Return a row for each region that has groups and each summary, in the hierarchy's order."""
    some = ~np.isnan(summaries.value[:, 0])
    columns = {
        **region_columns(measurement_plan, np.repeat(np.flatnonzero(some), len(summaries.names))),
        "summary": np.tile(np.array(summaries.names, dtype=object), int(some.sum())),
        **{name: getattr(summaries, name)[some].ravel() for name in NUMBERS},
    }
    return FileTable.of(columns, _TYPES)


def summary_check(folder: Folder, histogram: tuple[Ints, Ints, Ints], totals: Ints) -> Check:
    """Check that every region has each summary once, computed from the released counts and within its interval.

    ``histogram`` are the regions, sizes and groups of the rows of histograms.parquet, ``totals`` the regions' groups.
    O(rows log rows).
    """
    rows = read_columns(folder.path / SUMMARY_FILE, COLUMNS)
    names, region = rows.column("summary").to_pylist(), folder.regions.at(rows.column("region"))
    try:
        value, lower, upper = (rows.column(name).to_numpy().astype(np.float64) for name in NUMBERS)
    except (TypeError, ValueError):
        return Check(SUMMARY_PROMISE, passed=False, detail=f"{SUMMARY_FILE} does not hold numbers")
    released = _released(*histogram, totals)
    keys = list(zip(region.tolist(), names, strict=True))
    if len(keys) != len(released) or set(keys) != set(released):
        return Check(SUMMARY_PROMISE, passed=False, detail="not every region that has groups has each summary once")
    expected = np.array([released[key] for key in keys])
    misnamed = folder.regions.misnamed(rows, region)
    if misnamed:
        return Check(SUMMARY_PROMISE, passed=False, detail=f"row {misnamed[0] + 1}: not the region's {misnamed[1]}")
    differs = ~np.isclose(value, expected, rtol=1e-12, atol=0.0)
    if differs.any():
        row = first_of(differs) + 1
        return Check(SUMMARY_PROMISE, passed=False, detail=f"row {row}: not the summary of what is released")
    outside = ~((lower >= 0.0) & (lower <= value) & (value <= upper) & np.isfinite(upper))
    if outside.any():
        return Check(SUMMARY_PROMISE, passed=False, detail=f"row {first_of(outside) + 1}: not within its interval")
    return Check(SUMMARY_PROMISE, passed=True, detail=f"{len(keys):,} summaries are those released, in their intervals")


def _released(region: Ints, size: Ints, groups: Ints, totals: Ints) -> dict[tuple[int, str], float]:
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
