"""What a release of groups publishes: histograms.parquet and its part of the manifest, written and read back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.config.model import Config
from coco_opt.errors import InputError, Place
from coco_opt.estimators import estimator_row
from coco_opt.files.differences import FrameKind, as_frame, stored_frame
from coco_opt.files.folder import FileTable, read_columns
from coco_opt.files.regions import region_columns, stored_regions
from coco_opt.files.release_checks import Regions, int64_column, refuse, refuse_types
from coco_opt.files.unchanged import unchanged_manifest
from coco_opt.groups.estimating.estimate import GroupsResult
from coco_opt.groups.estimating.intervals import NO_INTERVALS
from coco_opt.groups.estimating.method import SLOW, GroupsMethod
from coco_opt.groups.estimating.unbiased import NO_UNBIASED, UnbiasedCounts
from coco_opt.groups.kind.intervals import COLUMNS as INTERVAL_COLUMNS
from coco_opt.groups.kind.intervals import (
    INTERVALS,
    PROMISE,
    SUMMARY_FILE,
    SUMMARY_PROMISE,
    WORDS,
    ReleasedIntervals,
    interval_table,
    read_intervals,
    summary_table,
)
from coco_opt.groups.kind.unbiased import PROMISE as UNBIASED_PROMISE
from coco_opt.groups.kind.unbiased import UNBIASED, ReleasedUnbiased, unbiased_table
from coco_opt.groups.kind.unbiased import WORDS as UNBIASED_WORDS
from coco_opt.groups.noisy_measurements import (
    KIND,
    MAX_SIZE,
    buckets_of,
    has_private_counts,
    max_size_of,
    size_queries,
    split_of,
)
from coco_opt.groups.queries import GROUPS
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Measurement, MeasurementPlan
from coco_opt.releases.kind import Released

if TYPE_CHECKING:
    import pandas as pd

HISTOGRAMS = "histograms.parquet"
HISTOGRAM_COLUMNS = ("level", "level_name", "region", "region_id", "size", "groups")
SUMS = "children_sum_to_parents"
TABLE_PROMISES = ("nonnegative", "sizes_at_most_max_size", "group_totals", SUMS)
PROMISES = (*TABLE_PROMISES, PROMISE, SUMMARY_PROMISE, UNBIASED_PROMISE)

PRIVATE_COUNTS = (
    "The numbers of groups got noise too and were made to sum: an entity is hidden together with a group that it alone "
    "is in. The regions are public."
)

_TYPES = {"level": "int32", "size": "int64", "groups": "int64"}


def released(measurement: Measurement, method: GroupsMethod, result: GroupsResult, config: Config) -> Released:
    """Return the histograms as a table, what they keep to, and the manifest's account of the method."""
    measurement_plan = measurement.measurement_plan
    adds_up = "sums" in estimator_row("groups", method.consistency).keeps
    promises = TABLE_PROMISES if adds_up else TABLE_PROMISES[:-1]
    files = {HISTOGRAMS: histogram_table(measurement_plan, result.histograms)}
    private = has_private_counts(measurement_plan)
    manifest: dict[str, Any] = {
        MAX_SIZE: max_size_of(measurement_plan),
        "group_counts": "private" if private else "public",
        "method": _plain(method, measurement_plan),
    }
    numbers = {GROUPS: result.group_counts} if private else {}
    notes: tuple[str, ...] = (PRIVATE_COUNTS,) if private else ()
    if method.consistency in SLOW:
        manifest["unproved"] = {"worst_relative_gap": result.uncertified_gap}
    if result.level_gaps is not None:
        manifest["relative_gap_by_level"] = [None if math.isnan(gap) else gap for gap in result.level_gaps.tolist()]
    if result.convergence is not None:
        manifest["convergence"] = result.convergence.account(result.hierarchy.paths)
        if not result.convergence.converged:
            marks = f"the manifest lists them and {INTERVALS} marks them"
            notes = (*notes, f"{result.convergence} The errors and intervals of the others are less certain: {marks}")
        refuted = result.convergence.refuted_words(measurement_plan.levels)
        notes = (*notes, *([refuted] if refuted else []))
    if result.intervals is not None:
        promises = (*promises, PROMISE)
        marked = () if result.convergence is None else result.convergence.not_converged
        files[INTERVALS] = interval_table(measurement_plan, result.histograms, result.intervals, marked)
        if result.intervals.summaries is not None:
            promises = (*promises, SUMMARY_PROMISE)
            files[SUMMARY_FILE] = summary_table(measurement_plan, result.intervals.summaries)
        manifest["intervals"] = {"coverage": result.intervals.coverage, "words": WORDS}
    if result.unbiased is not None:
        promises = (*promises, UNBIASED_PROMISE)
        files[UNBIASED] = unbiased_table(result.unbiased)
        manifest["unbiased"] = {"words": UNBIASED_WORDS}
    return Released(files, promises, manifest, notes, numbers)


def _plain(method: GroupsMethod, measurement_plan: MeasurementPlan) -> dict[str, Any]:
    queries = {level_query.level: level_query.name for level_query in size_queries(measurement_plan)}
    levels = range(measurement_plan.hierarchy.levels)
    buckets = [buckets_of(measurement_plan, level) for level in levels]
    return {
        "queries": [queries.get(level) for level in levels],
        "bucket_starts": [None if scheme is None else scheme.begin.tolist() for scheme in buckets],
        "rank_above": [
            None if scheme is None else scheme.at for scheme in (split_of(measurement_plan, level) for level in levels)
        ],
        "losses": [method.loss(level) for level in levels],
        "ties": method.ties,
        "consistency": method.consistency,
        "merge": method.merge,
        "rounding": method.rounding,
        "variances": method.variances,
        "intervals": method.intervals,
        "unbiased": method.unbiased,
    }


def histogram_table(measurement_plan: MeasurementPlan, histograms: Sequence[CountOfCounts]) -> FileTable:
    """Return one row for each region and size that has groups, in the hierarchy's order."""
    runs = np.array([histogram.distinct for histogram in histograms], np.int64)
    columns = {
        **region_columns(measurement_plan, np.repeat(np.arange(measurement_plan.hierarchy.regions), runs)),
        "size": np.concatenate([histogram.sizes for histogram in histograms]),
        "groups": np.concatenate([histogram.counts for histogram in histograms]),
    }
    return FileTable.of(columns, _TYPES)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Release:
    """A release of groups as read from its folder: everything in it is public.

    ``levels`` are the names of the hierarchy's levels, ``region_ids`` the regions' ids in the user's files;
    ``group_counts`` int64[regions] and ``histograms``, one per region, in the order of ``hierarchy``;
    ``released_intervals`` are the rows of intervals.parquet, None where there is none, ``released_unbiased`` those of
    unbiased.parquet, which are read on demand from the ``folder``.
    """

    hierarchy: Hierarchy
    levels: tuple[str, ...]
    region_ids: Sequence[str | None]
    group_counts: Ints
    histograms: tuple[CountOfCounts, ...]
    manifest: Mapping[str, Any]
    released_intervals: ReleasedIntervals | None = None
    released_unbiased: ReleasedUnbiased | None = None
    folder: Path | None = None

    def intervals(self, region: str | None = None, *, frame: FrameKind = "pandas") -> Any:
        """Return the intervals of a region by its path from the root: of H and Hc, int64[max_size + 1] each.

        Without a region, return the rows of intervals.parquet, for all regions, as a ``frame`` of pandas, Polars
        ("polars") or Arrow ("arrow"). Raises InputError (no-intervals) where the release has none: only consistency
        "posterior" gives any.
        """
        if self.released_intervals is None or self.folder is None:
            raise InputError("no-intervals", NO_INTERVALS, Place(INTERVALS))
        if region is None:
            return as_frame(read_columns(self.folder / INTERVALS, INTERVAL_COLUMNS), frame)
        place = self.hierarchy.index(region)
        return self.released_intervals.of(place, self.histograms[place], int(self.manifest[MAX_SIZE]))

    def unbiased(self, *regions: str) -> UnbiasedCounts:
        """Return the unbiased counts of a region by its path from the root, or the sums of several, variances too.

        Raises InputError: no-unbiased where the release has none, and what ``ReleasedUnbiased.of`` does.
        """
        if self.released_unbiased is None:
            raise InputError("no-unbiased", NO_UNBIASED, Place(UNBIASED))
        return self.released_unbiased.of(*regions)

    def __sub__(self, earlier: Any) -> pd.DataFrame:
        """Return the differences from an earlier release of groups: see ``coco_opt.differences``."""
        from coco_opt.releases.differences import differences

        changes: pd.DataFrame = differences(self, earlier)
        return changes

    def __getitem__(self, region: str) -> CountOfCounts:
        """Return the histogram of a region by its path from the root."""
        return self.histograms[self.hierarchy.index(region)]

    def to_pandas(self, table: str = "histograms") -> pd.DataFrame:
        """Return a frame with level, level_name, region, region_id, size and groups; or another table of the folder.

        Raises InputError (unknown-table).
        """
        return stored_frame(self.folder, table)

    def __repr__(self) -> str:
        return f"Release({self.hierarchy!r}, {int(self.group_counts[0]):,} groups)"


def read_groups_release(folder: str | Path) -> Release:
    """Read a release folder of groups.

    Parameters
    ----------
    folder : str or Path
        The release folder.

    Returns
    -------
    Release
        Histograms by region (``release["nation/north"]``), ``to_pandas()``, ``intervals(region)``,
        ``unbiased(*regions)``.

    Raises
    ------
    InputError
        file-not-found, unreadable-file, bad-manifest, other-release, missing-column, bad-order, bad-release, or what
        ``Hierarchy`` and ``CountOfCounts`` say of their content.
    VerificationError
        The manifest or a table is not what was written.

    Notes
    -----
    Use ``verify_release`` to judge the content.
    """
    folder = Path(folder)
    manifest = unchanged_manifest(folder, kind=KIND)
    regions = stored_regions(folder)
    if GROUPS not in regions.numbers:
        raise InputError("missing-column", "must occur once", Place("hierarchy.parquet", None, GROUPS))
    rows = read_columns(folder / HISTOGRAMS, HISTOGRAM_COLUMNS)
    histograms, intervals = _histograms_by_region(regions, rows), None
    stated_intervals = manifest.get("intervals")
    if isinstance(stated_intervals, Mapping):
        intervals = read_intervals(folder, regions, float(stated_intervals["coverage"]), int(manifest[MAX_SIZE]))
    tree, unbiased = regions.hierarchy, None
    if UNBIASED_PROMISE in manifest["promises"]:
        unbiased = ReleasedUnbiased(folder / UNBIASED, tree)
    public = tree, regions.levels, regions.ids, regions.numbers[GROUPS]
    return Release(*public, histograms, manifest, intervals, unbiased, folder)


def _histograms_by_region(regions: Regions, rows: Any) -> tuple[CountOfCounts, ...]:
    refuse_types(rows, _TYPES, HISTOGRAMS)
    region = regions.at(rows.column("region"))
    refuse(region < 0, "no such region", HISTOGRAMS)
    order = np.argsort(region, kind="stable")
    sizes, counts = (int64_column(rows, name)[order] for name in ("size", "groups"))
    cuts = np.searchsorted(region[order], np.arange(regions.hierarchy.regions + 1)).tolist()
    return tuple(CountOfCounts(sizes[start:stop], counts[start:stop]) for start, stop in pairwise(cuts))
