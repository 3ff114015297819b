"""Regions that two releases call differently: the file of their names, and tables under the later names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.files.columns import Columns
from coco_opt.files.faults import RowError, RowFaults
from coco_opt.files.inputs import Input
from coco_opt.files.source import isolated, load

if TYPE_CHECKING:
    import pyarrow as pa

RENAMED = Columns(first=("earlier", "later"), others=True, private=False)


@dataclass(frozen=True, eq=False, slots=True)
class Renamed:
    """An earlier release whose regions have other paths in the later release: ``paths``, by the earlier paths."""

    release: Any
    paths: Mapping[str, str]

    def table(self, table: pa.Table | None) -> pa.Table | None:
        """Return a table of the release under the later names."""
        import pyarrow as pa

        if table is None or "region" not in table.column_names:
            return table
        place = table.column_names.index("region")
        coded = table.column("region").combine_chunks()
        coded = coded if pa.types.is_dictionary(coded.type) else coded.dictionary_encode()
        texts = pa.array([later_path(path, self.paths) for path in coded.dictionary.to_pylist()], pa.string())
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
        faults, row_faults = column_checks.absent_entries(table, range(2)), RowFaults(table)
        paths: dict[str, str] = {}
        for row, names in enumerate(table.fetch("SELECT c0, c1 FROM {t} ORDER BY rowid")):
            if all(names):
                with row_faults.row(row):
                    _add(paths, names, sides)
        row_faults.check(faults)
        _check_apart(paths, earlier.column("region").to_pylist(), row_faults)
    return paths


def _check_apart(paths: Mapping[str, str], names: Sequence[str], row_faults: RowFaults) -> None:
    """Raise InputError (duplicate-region) where a row gives a region the name that another region has afterwards."""
    afterwards = Counter(later_path(name, paths) for name in names)
    for row, after in enumerate(paths.values()):  # every row has added its own, in order
        with row_faults.row(row):
            if afterwards[after] > 1:
                message = (
                    "another region of the earlier release would have the same name: give that one its later name in a "
                    "row of its own, or leave this row out"
                )
                raise RowError("duplicate-region", message, 1)
    row_faults.check()


def _add(paths: dict[str, str], names: Sequence[str], sides: Sequence[Callable[[str], _Region | None]]) -> None:
    matches = [side(name) for side, name in zip(sides, names, strict=True)]
    for column, (region, side) in enumerate(zip(matches, ("earlier", "later"), strict=True)):
        if region is None:
            message = f"is no region of the {side} release: give its path from the root, or its id"
            raise RowError("unknown-region", message, column)
    earlier, later = (region for region in matches if region is not None)
    if earlier.level != later.level:
        message = (
            f"is a region of level {later.level_name!r}, and the earlier one of level {earlier.level_name!r}: a region "
            "keeps its level"
        )
        raise RowError("other-level", message, 1)
    before, after = earlier.path, later.path
    if before in paths:
        raise RowError("duplicate-region", "this region has an earlier row", 0)
    if after in paths.values():
        message = "another region got this name: regions that were merged are not added up, so leave them out"
        raise RowError("duplicate-region", message, 1)
    paths[before] = after


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


def renamed_release(earlier: Any, file: Path, read: Callable[[Any], pa.Table | None], later: Any) -> Renamed:
    """Return the earlier release under the later names; ``read`` returns a release's table of regions."""
    tables = [read(release) for release in (earlier, later)]
    if tables[0] is None or tables[1] is None:
        raise InputError("not-comparable", "a release without regions has none that were renamed")
    return Renamed(earlier, read_renamed(file, tables[0], tables[1]))
