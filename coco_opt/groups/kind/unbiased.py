"""unbiased.parquet: signed, unbiased counts of measured regions with exact variances; written, read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.files.checked import Check, first_of, int64_column
from coco_opt.files.folder import FileTable, read_parts
from coco_opt.files.measurement import question_of
from coco_opt.files.regions import region_columns
from coco_opt.groups.estimated.unbiased import (
    UnbiasedCounts,
    UnbiasedEstimates,
    checked_regions,
    not_measured,
    together,
)
from coco_opt.groups.queries import GROUPS
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Question
from coco_opt.releases.kind import Folder

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

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
    return FileTable(_Parts(estimates), _TYPES)


@dataclass(frozen=True, eq=False, slots=True)
class _Parts:
    """The rows of some regions at a time, made anew whenever they are read."""

    estimates: UnbiasedEstimates

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        asked = self.estimates.measurement.asked
        for regions, counts in self.estimates.parts():
            columns = region_columns(asked, np.repeat(regions, counts.size.size))
            for name in SIZES:
                columns[name] = np.tile(getattr(counts, name), regions.size)
            for name in FIGURES:
                column = getattr(counts, name).ravel()
                columns[name] = np.ma.MaskedArray(column, np.isnan(column))
            yield columns


@dataclass(frozen=True, eq=False, slots=True)
class ReleasedUnbiased:
    """The rows of a release's unbiased.parquet, left on disk until regions are asked for."""

    path: Path
    hierarchy: Hierarchy

    def of(self, *regions: str) -> UnbiasedCounts:
        """Return those of a region, by its path from the root, or the sums of several; O(rows).

        Raises InputError: not-measured, repeated-region, unknown-region, and for a file that cannot be read;
        ProblemError for no region, and for regions of other buckets.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        checked_regions([self.hierarchy.index(region) for region in regions])
        wanted = pa.array(regions, pa.string())
        kept = [
            part.filter(pc.is_in(part.column("region"), wanted))
            for part in read_parts(self.path, COLUMNS, only=("region", *SIZES, *FIGURES))
        ]
        rows = pa.concat_tables(kept)
        named = np.array(rows.column("region").to_pylist(), dtype=object)
        found = []
        for region in regions:
            own = named == region
            if not own.any():
                raise not_measured(region)
            sizes = (int64_column(rows, name)[own] for name in SIZES)
            found.append(UnbiasedCounts(*sizes, *(_figures(rows, name)[own] for name in FIGURES)))
        return together(found)


def _figures(rows: Any, name: str) -> Float64:
    return np.asarray(rows.column(name).to_numpy(), np.float64)


def unbiased_check(folder: Folder, totals: Int64, max_size: int) -> Check:
    """Check that every measured region has rows of all sizes, that they agree, and have the stated noise's variance.

    ``totals`` are the regions' groups. A part of the rows is held at a time.
    """
    try:
        problem = _problem(folder, totals, max_size)
    except (LookupError, TypeError, ValueError):
        problem = f"{UNBIASED} or the manifest's questions do not hold what they must"
    return Check(
        PROMISE, not problem, problem or "the rows hold all sizes, agree, and have the variance of their noise"
    )


def _problem(folder: Folder, totals: Int64, max_size: int) -> str:
    """Return what is wrong, "" for nothing."""
    asked = _asked(folder.manifest)
    alone = "measurements" not in folder.manifest
    wanted = np.flatnonzero(np.isin(folder.regions.level, list(asked)))
    done, last, row = -1, max_size, 0  # regions begun, the last size of the row before, rows read
    for part in read_parts(folder.path / UNBIASED, COLUMNS):
        for name in SIZES + FIGURES[:4]:
            if part.column(name).null_count:
                return f"column {name!r} has empty entries"
        region, first = folder.regions.at(part.column("region")), int64_column(part, "size")
        ends = int64_column(part, "last_size")
        before = np.insert(ends[:-1], 0, last) if ends.size else ends
        begins = before == max_size
        number = done + np.cumsum(begins)
        fault = (first != np.where(begins, 0, before + 1)) | (ends < first) | (ends > max_size)
        fault |= number >= wanted.size
        fault |= region != wanted[np.minimum(number, wanted.size - 1)]
        if fault.any():
            return f"row {row + first_of(fault) + 1}: not the next sizes of the next measured region"
        figures = {name: _figures(part, name) for name in FIGURES}
        wrong = _wrong(figures, first, ends, max_size)
        if alone:
            one = _One(region, folder.regions.level[region], totals[region], first, ends, max_size)
            wrong = wrong | _other_noise(figures, one, asked, folder.manifest)
        if wrong.any():
            return f"row {row + first_of(wrong) + 1}: not what answers of the stated noise give"
        done, last, row = int(number[-1]) if ends.size else done, int(ends[-1]) if ends.size else last, row + ends.size
    if done + 1 != wanted.size or last != max_size:
        return "not every measured region has its rows"
    return ""


def _asked(manifest: Mapping[str, Any]) -> dict[int, dict[str, Question]]:
    """Return the questions of each level that was asked for sizes, by query, from the manifest."""
    found: dict[int, dict[str, Question]] = {}
    for plain in manifest["budget"]["questions"]:
        one = question_of(plain)
        found.setdefault(one.level, {}).setdefault(one.query, one)
    return {level: queries for level, queries in found.items() if set(queries) - {GROUPS}}


def _wrong(figures: Mapping[str, Float64], first: Int64, ends: Int64, max_size: int) -> NDArray[np.bool_]:
    """Tell which rows have figures that no answers give."""
    wrong = np.zeros(first.size, np.bool_)
    for estimate, variance in zip(FIGURES[::2], FIGURES[1::2], strict=True):
        told = ~np.isnan(figures[estimate])
        wrong |= told & ~np.isfinite(figures[estimate])
        wrong |= told != ~np.isnan(figures[variance])
        wrong |= told & ~(np.isfinite(figures[variance]) & (figures[variance] >= 0.0))
    wrong |= ~np.isnan(figures["groups"]) & (first != ends)
    wrong |= (first == max_size) & ((figures["entities"] != 0.0) | (figures["entities_variance"] != 0.0))
    return wrong


@dataclass(frozen=True, eq=False, slots=True)
class _One:
    """Rows of one measurement: region, level, released groups and sizes of each."""

    region: Int64
    level: Int64
    totals: Int64
    first: Int64
    ends: Int64
    max_size: int


def _other_noise(
    figures: Mapping[str, Float64], rows: _One, asked: Mapping[int, Mapping[str, Question]], manifest: Mapping[str, Any]
) -> NDArray[np.bool_]:
    """Tell which rows contradict the others of their region, or the variances of the noise that the manifest states."""
    wrong = np.zeros(rows.first.size, np.bool_)
    width = (rows.ends - rows.first + 1).astype(np.float64)
    # Within a region all rows have the same G = at_most + entities / n, where G is public the stated one.
    groups = figures["at_most"] + figures["entities"] / width
    same = (rows.region[1:] != rows.region[:-1]) | _near(groups[1:], groups[:-1])
    wrong |= ~np.insert(same, 0, True)
    if manifest["group_counts"] == "public":
        wrong |= ~_near(groups, rows.totals.astype(np.float64))
    inner = rows.first < rows.max_size
    for level, queries in asked.items():
        here = inner & (rows.level == level)
        (question,) = (one for query, one in queries.items() if query != GROUPS)
        if question.query == "sizes":
            continue  # what must add up was fitted: every size has another variance
        spread = queries[GROUPS].law.variance if GROUPS in queries else 0.0
        variance = np.full(here.sum(), question.law.variance)
        if question.query == "ranks":
            variance *= rows.totals[here]
        if question.query == "split":
            at = int(str(question.size).rpartition(" ")[2])
            variance = np.where(rows.first[here] == at, variance * rows.totals[here], variance)
        wrong[here] |= ~_near(figures["entities_variance"][here], variance)
        wrong[here] |= ~_near(figures["at_most_variance"][here], spread + variance / width[here] ** 2)
    return wrong


def _near(a: Float64, b: Float64) -> NDArray[np.bool_]:
    return np.asarray(np.abs(a - b) <= _TOLERANCE * np.maximum(1.0, np.abs(b)))
