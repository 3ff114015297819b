"""Differences of two releases' tables, row by row, and how far noise alone may move them.

Intervals of a difference are those of Zou and Donner 2008 for independent estimates x and y with intervals of one
coverage: x - y with (x - lower(x))^2 + (upper(y) - y)^2 below, squared, and the opposite ends above.

Regions that two releases call differently are compared under the later names, which a file states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from coco_opt.errors import InputError, MissingPackageError
from coco_opt.files import column_checks
from coco_opt.files.folder import read_columns
from coco_opt.files.inputs import Columns, Input
from coco_opt.files.source import Faults, Loaded, isolated, load

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


FrameKind = Literal["pandas", "polars", "arrow"]
REGION = ("level", "level_name", "region", "region_id")
COVERAGE = 0.9
"""Of the intervals of differences that have standard errors."""


def stored_frame(folder: Path | None, table: str) -> pd.DataFrame:
    """Return a table of a release folder as a pandas frame. Raises InputError (unknown-table)."""
    names = [] if folder is None else sorted(path.stem for path in folder.glob("*.parquet"))
    if folder is None or table not in names:
        raise InputError("unknown-table", f"there is no table {table!r}: there are {', '.join(names) or 'none'}")
    return decoded(read_columns(folder / f"{table}.parquet", ()))


@dataclass(frozen=True, slots=True)
class Compared:
    """A table by which releases of a kind are compared: its keys besides the region, and its values.

    ``keys``: () for all other columns. ``error`` is the column of standard errors; or the table ``bounds`` has the
    intervals of the same rows, in the columns ``lower`` and ``upper``; where its keys are others, ``keyed`` returns its
    rows with these keys, from the table and the release's manifest. A row that one release lacks is a count of 0 if
    ``absent_is_zero``; else it is left out. ``every`` returns the columns of all keys that a release with this manifest
    could have, None where they are more than a number. ``ordered`` returns the values of keys in their order, where
    they are not sorted. ``measured`` is a key of the manifest that is false where no query measured the rows: without
    intervals they are guesses.
    """

    table: str
    value: str
    keys: tuple[str, ...] = ()
    error: str = ""
    bounds: str = ""
    lower: str = ""
    upper: str = ""
    absent_is_zero: bool = True
    keyed: Callable[[pa.Table, Mapping[str, Any]], pa.Table] | None = None
    every: Callable[[Mapping[str, Any], int], Mapping[str, Any] | None] | None = None
    measured: str = ""
    ordered: Callable[[Mapping[str, Any]], Mapping[str, Sequence[Any]]] | None = None


class Side(NamedTuple):
    """One of two releases: its manifest, and what returns its tables by name, None where it has none."""

    manifest: Mapping[str, Any]
    table: Callable[[str], pa.Table | None]


def as_frame(table: pa.Table, frame: FrameKind) -> Any:
    """Return an Arrow table as a frame of pandas, of Polars, or as it is. Raises InputError, MissingPackageError."""
    if frame == "arrow":
        return table
    if frame == "pandas":
        return table.to_pandas()
    if frame != "polars":
        raise InputError("bad-option", f'frame is "pandas", "polars" or "arrow", not {frame!r}')
    try:
        import polars as pl
    except ModuleNotFoundError:
        raise MissingPackageError("polars", "a Polars frame") from None
    return pl.DataFrame(table)


def difference_frame(compared: Compared, later: Side, earlier: Side, coverage: float | None) -> pd.DataFrame:
    """Return a row for each key in common regions: ``earlier``, ``later``, ``difference``, and their noise if stated.

    ``coverage`` is that of both releases' intervals, None where they have none in common. The columns of noise are
    ``standard_error`` (where tables have standard errors), ``lower`` and ``upper`` of the difference, and
    ``beyond_noise``, whether these ends exclude 0; of regions whose chains have not converged also ``converged``, and
    of groups ``measured``, whether both releases measured the size apart from its neighbours.
    """
    apart: set[str] = set().union(*regions_apart(later, earlier))
    sides = [_rows(compared, side, apart, with_bounds=coverage is not None) for side in (later, earlier)]
    keys = [name for name in sides[0].columns if name not in (*_VALUES, *REGION[:2], REGION[3])]
    how: Any = "outer" if compared.absent_is_zero else "inner"
    merged = sides[0].merge(sides[1], on=keys, how=how, suffixes=("_later", "_earlier"), sort=False)
    texts = [name for name in REGION if name != "region" and f"{name}_later" in merged]
    result = merged[keys].copy()
    for place, name in enumerate(texts):
        known = merged[f"{name}_later"]
        known = known.where(known.notna(), merged[f"{name}_earlier"]).infer_objects()
        result.insert(place if name != "region_id" else place + 1, name, known)
    _add_values(result, merged, compared)
    _add_noise(result, merged, compared, coverage)
    return result.sort_values([name for name in ("level",) if name in result], kind="stable", ignore_index=True)


_LEAST_REACH = 1e-9  # of an interval, in groups: what is exact in both releases comes first
# Names inside this module: "=" occurs in no attribute's name.
_VALUES = ("=value", "=lower", "=upper", "=error", "=converged", "=measured")
_ADDED = ("earlier", "later", "difference")


def _rows(compared: Compared, side: Side, apart: AbstractSet[str], *, with_bounds: bool) -> pd.DataFrame:
    """Return a release's rows with keys and the columns of _VALUES that there are, regions ``apart`` left out."""
    table = side.table(compared.table)
    if table is None:
        raise InputError("unknown-table", f"a release has no table {compared.table!r}")
    frame = _within(decoded(table), apart).rename(columns={compared.value: "=value", compared.error or "-": "=error"})
    region = [name for name in REGION if name in frame]
    keys = compared.keys or tuple(str(name) for name in frame if name not in (*region, *_VALUES))
    taken = [name for name in keys if name in _ADDED]
    if taken:
        message = f"a column {taken[0]!r} has the name of a column of differences, so they cannot stand side by side"
        raise InputError("not-comparable", message)
    frame = frame[[*region, *keys, *(name for name in _VALUES if name in frame)]]
    bounds = side.table(compared.bounds) if with_bounds and compared.bounds else None
    if bounds is None:
        return frame
    if compared.keyed is not None:
        bounds = compared.keyed(bounds, side.manifest)
    names = {compared.lower: "=lower", compared.upper: "=upper"} | {
        name: f"={name}" for name in ("converged", "measured")
    }
    ends = _within(decoded(bounds), apart).rename(columns=names)
    ends = ends[[*region, *keys, *(name for name in _VALUES[1:] if name in ends)]]
    return frame.merge(ends, on=[*region, *keys], how="outer", sort=False)


def _within(frame: pd.DataFrame, apart: AbstractSet[str]) -> pd.DataFrame:
    inside = frame[~frame["region"].isin(apart)] if apart and "region" in frame else frame
    if len(inside):
        return inside
    # pandas cannot merge two columns of Arrow's texts without a row.
    return inside.astype(dict.fromkeys(inside.select_dtypes(exclude="number"), object))


def decoded(table: pa.Table) -> pd.DataFrame:
    """Return a table as a frame whose texts are plain, not coded."""
    import pyarrow as pa
    import pyarrow.types as kinds

    columns = {
        name: column.cast(column.type.value_type) if kinds.is_dictionary(column.type) else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    frame: pd.DataFrame = pa.table(columns).to_pandas()
    return frame


def _add_values(result: pd.DataFrame, merged: pd.DataFrame, compared: Compared) -> None:
    earlier, later = (merged[f"=value_{side}"].fillna(0) for side in ("earlier", "later"))
    if compared.absent_is_zero:
        earlier, later = earlier.astype(np.int64), later.astype(np.int64)
    result["earlier"], result["later"], result["difference"] = earlier, later, later - earlier
    if "level" in result:
        result["level"] = result["level"].astype(np.int32)


def _add_noise(result: pd.DataFrame, merged: pd.DataFrame, compared: Compared, coverage: float | None) -> None:
    difference = result["difference"].to_numpy(np.float64)
    if compared.error:
        error = np.hypot(*(merged[f"=error_{side}"].to_numpy(np.float64) for side in ("later", "earlier")))
        result["standard_error"] = error
        reach = error * NormalDist().inv_cdf(0.5 + COVERAGE / 2)
        below, above = reach, reach
    elif coverage is not None and {"=lower_later", "=lower_earlier"} <= set(merged.columns):
        below, above = _reaches(merged, result)
        _add_converged(result, merged)
        if "=measured_later" in merged:
            result["measured"] = _in_both(merged, "measured")
    else:
        return
    result["lower"], result["upper"] = difference - below, difference + above
    result["beyond_noise"] = (result["lower"] > 0) | (result["upper"] < 0)


def _reaches(merged: pd.DataFrame, result: pd.DataFrame) -> tuple[Any, Any]:
    """Return how far below and above a difference its interval reaches; a size without a row is certain."""
    value = {side: result[side].to_numpy(np.float64) for side in ("later", "earlier")}
    lower = {side: merged[f"=lower_{side}"].fillna(0).to_numpy(np.float64) for side in value}
    upper = {side: merged[f"=upper_{side}"].fillna(0).to_numpy(np.float64) for side in value}
    down = {side: np.maximum(value[side] - lower[side], 0.0) for side in value}
    up = {side: np.maximum(upper[side] - value[side], 0.0) for side in value}
    return np.hypot(down["later"], up["earlier"]), np.hypot(up["later"], down["earlier"])


def _add_converged(result: pd.DataFrame, merged: pd.DataFrame) -> None:
    """Add whether the chains of the region have converged in both releases, in all its rows."""
    if "=converged_later" not in merged:
        return
    result["converged"] = ~result["region"].isin(merged.loc[~_in_both(merged, "converged"), "region"])


def _in_both(merged: pd.DataFrame, mark: str) -> pd.Series:
    """Return which rows have a mark in both releases: a size without a row is certain, and has every mark."""
    later, earlier = (merged[f"={mark}_{side}"].ne(other=False) for side in ("later", "earlier"))
    return later & earlier


def regions_apart(later: Side, earlier: Side) -> tuple[list[str], list[str]]:
    """Return the regions of the later release only and of the earlier one only; InputError where none is common."""
    tables = [table for side in (later, earlier) if (table := side.table("hierarchy")) is not None]
    if len(tables) < 2:
        return [], []
    sides = [set(table.column("region").to_pylist()) for table in tables]
    if not sides[0] & sides[1]:
        message = "the releases have no region in common: compare releases of one hierarchy"
        raise InputError("not-comparable", message)
    return sorted(sides[0] - sides[1]), sorted(sides[1] - sides[0])


def most_certain(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the rows of largest differences: relative to how far noise reaches towards 0, where that is known.

    Rows of regions that have not converged come last, and so do those whose interval begins at the difference itself.
    """
    change = frame["difference"].to_numpy(np.float64)
    size, doubtful = np.abs(change), np.zeros(len(frame), np.bool_)
    if "beyond_noise" in frame:
        towards_zero = np.where(change > 0, change - frame["lower"], frame["upper"] - change)
        size = size / np.maximum(towards_zero, _LEAST_REACH)
        doubtful = (towards_zero <= _LEAST_REACH) & (frame["upper"] - frame["lower"] > _LEAST_REACH).to_numpy()
    if "converged" in frame:
        doubtful |= ~frame["converged"].to_numpy(np.bool_)
    return frame.iloc[np.lexsort((-np.abs(change), -size, doubtful))[:most]]


def key_columns(frame: pd.DataFrame) -> Sequence[str]:
    """Return the columns that name a row: the region and its size, cell or answer."""
    hidden = ("level", "level_name", "region_id")
    return [name for name in frame.columns[: list(frame.columns).index("earlier")] if name not in hidden]


RENAMED = Columns(first=("earlier", "later"), others=True, private=False)


def under_later_names(table: pa.Table | None, paths: Mapping[str, str]) -> pa.Table | None:
    """Return a table of a release whose regions have other paths in a later release: ``paths``, by their paths here."""
    import pyarrow as pa

    if table is None or "region" not in table.column_names:
        return table
    place = table.column_names.index("region")
    coded = table.column("region").combine_chunks()
    coded = coded if pa.types.is_dictionary(coded.type) else coded.dictionary_encode()
    texts = pa.array([later_path(path, paths) for path in coded.dictionary.to_pylist()], pa.string())
    column = pa.DictionaryArray.from_arrays(coded.indices, texts).cast(pa.string())
    return table.set_column(place, "region", column)


def later_path(path: str, paths: Mapping[str, str]) -> str:
    """Return the later path of a region: its own, or below that of the nearest region above that has one."""
    above = path
    while above:
        if above in paths:
            return paths[above] + path[len(above) :]
        above = above.rpartition("/")[0]
    return path


def read_renamed(file: Path, earlier: pa.Table, later: pa.Table) -> dict[str, str]:
    """Return the later paths by the earlier paths, from a file of ``earlier`` and ``later`` paths or ids.

    ``earlier`` and ``later`` are the releases' tables of regions. Raises InputError with all bad rows: unknown-region,
    duplicate-region (a region that has two rows, or two regions that became one: their counts would have to be added),
    other-level (the two are regions of different levels), and the codes of ``source.load``.
    """
    source, sides = Input(file), (_regions_of(earlier), _regions_of(later))
    with isolated([source]) as con:
        table = load(con, "renamed", source, RENAMED)
        faults = column_checks.absent_entries(table, range(2))
        names = enumerate(table.fetch("SELECT c0, c1 FROM {t} ORDER BY rowid"))
        regions = {row: (sides[0](pair[0]), sides[1](pair[1])) for row, pair in names if all(pair)}
        for column, side in enumerate(("earlier", "later")):
            unknown = [row for row, pair in regions.items() if pair[column] is None]
            message = f"is no region of the {side} release: give its path from the root, or its id"
            faults.note(table, unknown, column, "unknown-region", message)
        known = {row: (before, after) for row, (before, after) in regions.items() if before and after}
        _check_levels(table, known, faults)
        again = _repeated({row: before.path for row, (before, _) in known.items()})
        faults.note(table, again, 0, "duplicate-region", "this region has an earlier row")
        first = known.keys() - again
        merged = _repeated({row: after.path for row, (_, after) in known.items() if row in first})
        message = (
            "another region got this name: regions that were merged cannot be listed here. Leave them out, or add up "
            "their earlier counts, and the variances of unbiased ones or of estimates, and compare the sums"
        )
        faults.note(table, merged, 1, "duplicate-region", message)
        faults.check()
        paths = {before.path: after.path for before, after in known.values()}
        afterwards = Counter(later_path(name, paths) for name in earlier.column("region").to_pylist())
        message = (
            "another region of the earlier release has this name, too. If that one has another name later, give it a "
            "row; if both were merged, leave this row out, and add up their earlier counts and variances yourself"
        )
        taken = [row for row, (_, after) in known.items() if afterwards[after.path] > 1]
        faults.note(table, taken, 1, "duplicate-region", message)
        faults.check()
    return paths


def _check_levels(table: Loaded, regions: Mapping[int, tuple[_Region, _Region]], faults: Faults) -> None:
    """Note the rows whose two regions lie at different levels."""
    levels: dict[tuple[str, str], list[int]] = {}
    for row, (before, after) in regions.items():
        if before.level != after.level:
            levels.setdefault((before.level_name, after.level_name), []).append(row)
    for (before_level, after_level), rows in levels.items():
        apart = f"is a region of level {after_level!r}, and the earlier one of level {before_level!r}"
        faults.note(table, rows, 1, "other-level", f"{apart}: a region keeps its level")


def _repeated(texts: Mapping[int, str]) -> list[int]:
    """Return the rows whose text an earlier row has."""
    first: dict[str, int] = {}
    return [row for row, text in texts.items() if first.setdefault(text, row) != row]


class _Region(NamedTuple):
    """A region of a release."""

    path: str
    level: int
    level_name: str


def _regions_of(table: pa.Table) -> Callable[[str], _Region | None]:
    """Return what gives a region by its path or its id."""
    columns = (table.column(name).to_pylist() for name in ("region", "level", "level_name"))
    regions = [_Region(*row) for row in zip(*columns, strict=True)]
    ids = table.column("region_id").to_pylist() if "region_id" in table.column_names else [None] * len(regions)
    by_id = {each: region for each, region in zip(ids, regions, strict=True) if each is not None}
    return {**by_id, **{region.path: region for region in regions}}.get
