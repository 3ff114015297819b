"""unbiased.parquet: signed, unbiased counts of measured regions with exact variances; written, read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.files.folder import Again, FileTable, read_parts
from coco_opt.files.measurement import query_from_dict
from coco_opt.files.regions import region_columns
from coco_opt.files.release_checks import BrokenError, int64_column, refuse
from coco_opt.groups.estimating.unbiased import UnbiasedCounts, UnbiasedEstimates, checked_regions, not_measured
from coco_opt.groups.queries import GROUPS
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import LevelQuery
from coco_opt.releases.kind import Folder
from coco_opt.releases.manifest import OF

UNBIASED = "unbiased.parquet"
PROMISE = "unbiased"
SIZES = ("size", "last_size")
FIGURES = ("entities", "entities_variance", "at_most", "at_most_variance", "groups", "groups_variance")
COLUMNS = ("level", "level_name", "region", "region_id", *SIZES, *FIGURES)
WORDS = (
    "each region's own noisy answers, rewritten as counts: right on average, with exact variances; counts of different "
    "regions are independent, so that they add up with their variances; negative and fractional as they come"
)

_TYPES = {"level": "int32", **dict.fromkeys(SIZES, "int64"), **dict.fromkeys(FIGURES, "double")}
_TOLERANCE = 1e-9


def unbiased_table(estimates: UnbiasedEstimates) -> FileTable:
    """Return a row for each measured region and its sizes, in the hierarchy's order, a part at a time."""

    def rows() -> Iterator[Mapping[str, Any]]:
        for regions, counts in estimates.parts():
            columns = region_columns(estimates.measurement.measurement_plan, np.repeat(regions, counts.size.size))
            for name in SIZES:
                columns[name] = np.tile(getattr(counts, name), regions.size)
            for name in FIGURES:
                column = getattr(counts, name).ravel()
                columns[name] = np.ma.MaskedArray(column, np.isnan(column))
            yield columns

    return FileTable(Again(rows), _TYPES)


@dataclass(frozen=True, eq=False, slots=True)
class ReleasedUnbiased:
    """The rows of a release's unbiased.parquet, left on disk until regions are read."""

    path: Path
    hierarchy: Hierarchy

    def of(self, *regions: str) -> UnbiasedCounts:
        """Return the counts of a region, by its path from the root, or the sums of several; O(rows).

        Raises InputError: not-measured, repeated-region, unknown-region, and for a file that cannot be read;
        ProblemError for no region, and for regions of other buckets.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        checked_regions([self.hierarchy.index(region) for region in regions])
        names = pa.array(regions, pa.string())
        parts = [
            part.filter(pc.is_in(part.column("region"), names))
            for part in read_parts(self.path, COLUMNS, only=("region", *SIZES, *FIGURES))
        ]
        rows = pa.concat_tables(parts)
        row_regions = np.array(rows.column("region").to_pylist(), dtype=object)
        counts = []
        for region in regions:
            mask = row_regions == region
            if not mask.any():
                raise not_measured(region)
            sizes = (int64_column(rows, name)[mask] for name in SIZES)
            counts.append(UnbiasedCounts(*sizes, *(_figures(rows, name)[mask] for name in FIGURES)))
        return reduce(UnbiasedCounts.added, counts)


def _figures(rows: Any, name: str) -> Floats:
    return np.asarray(rows.column(name).to_numpy(), np.float64)


def check_unbiased(folder: Folder, totals: Ints, max_size: int) -> str:
    """Check that every measured region has rows of all sizes, that they agree, and have the stated noise's variance.

    ``totals`` are the regions' groups. Only a part of the rows is in memory at a time. Raises BrokenError.
    """
    queries_by_level = _queries_by_level(folder.manifest)
    single = "measurements" not in folder.manifest
    measured = np.flatnonzero(np.isin(folder.regions.hierarchy.level, list(queries_by_level)))
    done, last, row = -1, max_size, 0  # regions begun, the last size of the row before, rows read
    for part in read_parts(folder.path / UNBIASED, COLUMNS):
        for name in SIZES + FIGURES[:4]:
            if part.column(name).null_count:
                raise BrokenError(f"column {name!r} has empty entries")
        region, first = folder.regions.at(part.column("region")), int64_column(part, "size")
        ends = int64_column(part, "last_size")
        before = np.insert(ends[:-1], 0, last) if ends.size else ends
        begins = before == max_size
        number = done + np.cumsum(begins)
        fault = (first != np.where(begins, 0, before + 1)) | (ends < first) | (ends > max_size)
        fault |= number >= measured.size
        fault |= region != measured[np.minimum(number, measured.size - 1)]
        refuse(fault, "not the next sizes of the next measured region", UNBIASED, row)
        folder.regions.refuse_misnamed(part, region, UNBIASED, row)
        figures = {name: _figures(part, name) for name in FIGURES}
        wrong = _wrong(figures, first, ends, max_size)
        if single:
            inner = np.where(first < max_size, folder.regions.hierarchy.level[region], -1)
            width = (ends - first + 1).astype(np.float64)
            # Within a region all rows have the same G = at_most + entities / n, the stated number where G is public.
            groups = figures["at_most"] + figures["entities"] / width
            wrong |= ~np.insert((region[1:] != region[:-1]) | _near(groups[1:], groups[:-1]), 0, True)
            if folder.manifest["group_counts"] == "public":
                wrong |= ~_near(groups, totals[region].astype(np.float64))
            for level, queries in queries_by_level.items():
                rows = np.flatnonzero(inner == level)
                of_level = {name: figure[rows] for name, figure in figures.items()}
                wrong[rows] |= _other_noise(of_level, queries, first[rows], width[rows], totals[region[rows]])
        refuse(wrong, "not what measurements with the stated noise give", UNBIASED, row)
        done, last, row = int(number[-1]) if ends.size else done, int(ends[-1]) if ends.size else last, row + ends.size
    if done + 1 != measured.size or last != max_size:
        raise BrokenError("not every measured region has its rows")
    return "the rows hold all sizes, agree, and have the variance of their noise"


def _queries_by_level(manifest: Mapping[str, Any]) -> dict[int, dict[str, LevelQuery]]:
    """Return the queries of each level whose sizes were measured and read, by name, from the manifest."""
    queries_by_level: dict[int, dict[str, LevelQuery]] = {}
    entries = manifest.get("measurements")
    for plain in manifest["budget"]["questions"]:
        if entries is not None and not entries[plain[OF] - 1].get("read", True):
            continue
        query = query_from_dict(plain)
        queries_by_level.setdefault(query.level, {}).setdefault(query.name, query)
    return {level: queries for level, queries in queries_by_level.items() if set(queries) - {GROUPS}}


def _wrong(figures: Mapping[str, Floats], first: Ints, ends: Ints, max_size: int) -> Flags:
    """Return which rows have figures that no measurement gives."""
    wrong = np.zeros(first.size, np.bool_)
    for estimate, variance in zip(FIGURES[::2], FIGURES[1::2], strict=True):
        present = ~np.isnan(figures[estimate])
        wrong |= present & ~np.isfinite(figures[estimate])
        wrong |= present != ~np.isnan(figures[variance])
        wrong |= present & ~(np.isfinite(figures[variance]) & (figures[variance] >= 0.0))
    wrong |= ~np.isnan(figures["groups"]) & (first != ends)
    wrong |= (first == max_size) & ((figures["entities"] != 0.0) | (figures["entities_variance"] != 0.0))
    return wrong


def _other_noise(
    figures: Mapping[str, Floats], queries: Mapping[str, LevelQuery], first: Ints, width: Floats, totals: Ints
) -> Flags:
    """Return which rows of a level contradict the noise variances that the manifest states of its queries."""
    (level_query,) = (query for name, query in queries.items() if name != GROUPS)
    if level_query.name == "sizes":  # what must add up was fitted: every size has another variance
        return np.zeros(first.size, np.bool_)
    spread = queries[GROUPS].distribution.variance if GROUPS in queries else 0.0
    variance = np.full(first.size, level_query.distribution.variance)
    if level_query.name == "ranks":
        variance *= totals
    if level_query.name == "split":
        start = int(str(level_query.size).rpartition(" ")[2])
        variance = np.where(first == start, variance * totals, variance)
    return ~(
        _near(figures["entities_variance"], variance) & _near(figures["at_most_variance"], spread + variance / width**2)
    )


def _near(a: Floats, b: Floats) -> Flags:
    return np.asarray(np.abs(a - b) <= _TOLERANCE * np.maximum(1.0, np.abs(b)))
