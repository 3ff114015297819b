"""The public hierarchy as files: read from the user's table, written with measurements and releases, and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.errors import HierarchyError, InputError, Place
from coco_opt.execution.temporary_storage import stored_array, stored_by_parts
from coco_opt.files import column_checks
from coco_opt.files.arrow_texts import OrderedNames, arrow_texts_at, as_arrow, coded, distinct, from_arrow, paths_at
from coco_opt.files.batches import Batches, batches_of
from coco_opt.files.column_checks import occur_at_most
from coco_opt.files.folder import ROWS_PER_GROUP, Again, Coded, FileTable, read_columns, read_parts
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.in_threads import in_threads
from coco_opt.files.inputs import Input, InputLike, hierarchy_columns
from coco_opt.files.release_checks import Regions, int64_column, refuse_types
from coco_opt.files.source import Faults, Loaded, isolated, load
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.hierarchy import named_tree
from coco_opt.histograms.hierarchy_build import unescaped
from coco_opt.histograms.texts import Texts
from coco_opt.privacy.measurement import MeasurementPlan

if TYPE_CHECKING:
    import duckdb

REGIONS = "hierarchy.parquet"
_AT_ONCE = 1 << 17  # regions whose names are compared together
_Column = tuple[NDArray[np.int32], Texts[str]]
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?")
_ROOT_LEVELS = ("root", "all", "root level")
NAME_THE_ROOT = (
    'name the region above them in [data], such as root = "all", or add a first column for it. Levels are listed root '
    "first"
)
REGION_COLUMNS = ("region", "region_id", "parent", "level", "level_name")


@dataclass(frozen=True, eq=False, slots=True)
class PublicRegions:
    """A public hierarchy, the names of its levels (columns, root first), ids in the user's files and their leaves.

    ``ids[k]`` is the id of leaf ``leaf[k]`` (int64), counted from 0 within ``hierarchy.leaves``; each occurs once.
    """

    hierarchy: Hierarchy
    levels: tuple[str, ...]
    ids: Texts[str]
    leaf: Ints

    @property
    def leaf_of(self) -> dict[str, int]:
        """Return the leaf of every id."""
        return dict(zip(self.ids, self.leaf.tolist(), strict=True))

    @property
    def region_ids(self) -> Sequence[str | None]:
        """Return the id of every region in the user's files; None for a region that has none."""
        place = np.full(self.hierarchy.regions, -1, np.int32)
        place[self.hierarchy.leaves.start + self.leaf] = np.arange(len(self.ids))
        return self.ids.taken(place)


def read_regions(hierarchy: InputLike) -> PublicRegions:
    """Read a hierarchy (region_id, then one column a level, root first, or the levels that the input names).

    Raises HierarchyError where the regions form no tree, InputError: not-a-level, null-id, space-in-id, empty-file and
    the codes of ``source.load``.
    """
    source = Input.of(hierarchy, "hierarchy")
    expected = hierarchy_columns(source.levels)
    opened = batches_of(source, expected)
    columns = None if opened is None else quietly(source, lambda: _sound_columns(opened))
    if opened is not None and columns is not None:
        _return_memory()
        return _regions(source, opened.names[1:], columns, opened.place)
    with isolated([source]) as con:  # a CSV file, and whatever is wrong with a table: by it, errors say what and where
        return _read_tree(load(con, "hierarchy", source, expected))


def _return_memory() -> None:
    """Return to the system what Arrow holds for further tables: that of a country's columns is much."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def _sound_columns(opened: Batches) -> list[_Column] | None:
    """Return the columns of a Parquet file or a frame, none of which is held as texts; None where anything is wrong."""
    read = [_distinct_column, *[_sound_column] * (len(opened.columns) - 1)]
    columns = list(in_threads(lambda k: read[k](opened.only(k)), range(len(read))))
    sound = [column for column in columns if column is not None]
    return sound if len(sound) == len(columns) else None


def _sound_column(opened: Batches) -> _Column | None:
    """Return the only column where its texts are sound, else None."""
    parts = []
    for (part,) in opened.texts():
        plain = column_checks.plain_texts(part)
        if plain is None:
            return None
        parts.append(plain.dictionary_encode())
    return _dictionary_column(parts)


def _distinct_column(opened: Batches) -> _Column | None:
    """Return the only column where its texts are sound and all differ, else None; no table of many is made."""

    def parts() -> Iterator[Texts[str]]:
        for (part,) in opened.texts():
            plain = column_checks.plain_texts(part)
            if plain is None:
                raise ValueError
            yield from_arrow(plain)

    try:
        texts = Texts.joined(parts())
    except ValueError:
        return None
    # Hashes first: they take less memory than a table of many texts.
    if not len(texts) or not (
        occur_at_most(opened) or len(as_arrow(texts).dictionary_encode().dictionary) == len(texts)
    ):
        return None
    return np.arange(len(texts), dtype=np.int32), texts


def _dictionary_column(parts: list[Any]) -> _Column:
    """Return Arrow's strings, in dictionaries, as places among the distinct ones, in the order in which these come."""
    import pyarrow as pa

    chunks = pa.chunked_array(parts, pa.dictionary(pa.int32(), pa.string())).unify_dictionaries().chunks
    codes = [np.asarray(chunk.indices.to_numpy(zero_copy_only=False), np.int32) for chunk in chunks]
    return stored_array([np.zeros(0, np.int32), *codes]), from_arrow(chunks[0].dictionary)


def _read_tree(table: Loaded) -> PublicRegions:
    """Return the regions of a loaded hierarchy table."""
    levels = range(1, len(table.names))
    column_checks.check_rows(table)
    faults = Faults()
    with faults:
        column_checks.check_ids(table, (0,))
    with faults:
        column_checks.check_levels(table, levels)
    if column_checks.repeats(table, "c0"):
        path = f"concat_ws('/', {', '.join(f'c{k}' for k in levels)})"
        places, again = (column_checks.repeated_rows(table, "c0", path, changed=changed) for changed in (True, False))
        message = "this region {} in the hierarchy: give each one row"
        faults.note(table, places, 0, "two-parents", message.format("lies at two places"), HierarchyError)
        faults.note(table, again, 0, "duplicate-region", message.format("occurs twice"), HierarchyError)
    faults.check()
    read = [_dictionary_column([part.dictionary_encode() for part in table.texts(k)]) for k in range(len(table.names))]
    return _regions(table.source, table.names[1:], read, table.place)


def _regions(
    source: Input, names: Sequence[str], columns: Sequence[_Column], place: Callable[[int], Place]
) -> PublicRegions:
    """Return the tree of columns region_id, each once, and one a level; columns of ``names``, unless levels are named.

    Raises HierarchyError, and InputError (not-a-level) where no levels are named and a column looks like none.
    """
    names, columns = source.levels or tuple(names), list(columns)
    if not source.levels:
        _check_not_measured(source, names, columns[1:])
    if source.root is not None:
        names = (root_level(names), *names)
        columns.insert(1, (np.zeros(columns[0][0].size, np.int32), Texts.of((source.root,))))
    tree, leaf = _tree_of(names, columns[1:], place, rooted=source.root is not None)
    if not source.levels:
        _check_dividing(source, names, tree)
    leaf = stored_by_parts(leaf.size, leaf.dtype, lambda some: leaf[some] - tree.leaves.start)
    return PublicRegions(tree, names, columns[0][1], leaf)


def root_level(levels: Sequence[str]) -> str:
    """Return the name of the level of a root that no column has, above ``levels``."""
    return next(level for level in chain(_ROOT_LEVELS, map("root {}".format, count(1))) if level not in levels)


def _tree_of(
    names: Sequence[str], columns: Sequence[_Column], place: Callable[[int], Place], *, rooted: bool
) -> tuple[Hierarchy, Ints]:
    """Return the tree of columns, and each row's region; where it has no root, the error says how to name it."""
    try:
        return Hierarchy.from_columns(columns, place)
    except HierarchyError as error:
        if error.code != "several-roots" or rooted:
            raise
        advice = NAME_THE_ROOT
        if len(columns[-1][1]) == 1:  # the last level is the root
            advice = f"levels are listed root first, such as levels = {_listed(names[::-1])} in [data]"
        message, where = f"{error.message}: {advice}", error.place
    raise HierarchyError("several-roots", message, where)


def _check_not_measured(source: Input, names: Sequence[str], columns: Sequence[_Column]) -> None:
    """Raise InputError (not-a-level) for a column of decimal numbers, such as an area in km2."""
    for name, (_, texts) in zip(names, columns, strict=True):
        if texts.digits:
            continue
        if all(map(_NUMBER.fullmatch, texts)) and not all(map(_INTEGER.fullmatch, texts)):
            raise _not_a_level(source, names, name, "holds decimal numbers")


def _check_dividing(source: Input, names: Sequence[str], tree: Hierarchy) -> None:
    """Raise InputError (not-a-level) for a last level that divides no region of the level above.

    Above the last level one region each can be an accident of few regions, which a check notes.
    """
    last = tree.levels - 1
    if last > 0 and len(tree.level_range(last)) == len(tree.level_range(last - 1)) > 1:
        what = f"has exactly one value in each region of {names[last - 1]!r}, so it divides nothing"
        raise _not_a_level(source, names, names[last], what)


def _not_a_level(source: Input, names: Sequence[str], column: str, what: str) -> InputError:
    levels = _listed([name for name in names if name != column])
    message = f"{what}: is it a level? Name the levels in [data], root first: levels = {levels}"
    return InputError("not-a-level", message, Place(source.name, None, column))


def _listed(levels: Sequence[str]) -> str:
    """Return names of levels as a configuration lists them."""
    return json.dumps(levels, ensure_ascii=False)


def register_leaves(con: duckdb.DuckDBPyConnection, public: PublicRegions) -> None:
    """Give a connection a relation ``leaves`` of (region, leaf)."""
    import pyarrow as pa

    arrays: dict[str, Any] = {"region": as_arrow(public.ids), "leaf": pa.array(public.leaf)}
    con.register("leaves", pa.table(arrays))


def region_table(measurement_plan: MeasurementPlan, released: Mapping[str, Ints] | None = None) -> FileTable:
    """Return hierarchy.parquet: region, region_id, parent, level, level_name, and the kind's numbers a region.

    They are those that are public beforehand, and those ``released``.
    """
    import pyarrow as pa

    numbers = {**measurement_plan.per_region, **(released or {})}
    tree = measurement_plan.hierarchy

    def rows() -> Iterator[dict[str, Any]]:
        # A group of the file at a time: names are built where they are written.
        for start in range(0, tree.regions, ROWS_PER_GROUP):
            some = slice(start, min(start + ROWS_PER_GROUP, tree.regions))
            regions, up = np.arange(some.start, some.stop), tree.parent[some]
            above, of_region = distinct(up[up >= 0])
            parents = paths_at(tree, above).take(pa.array(of_region))
            yield {
                "region": paths_at(tree, regions),
                "region_id": arrow_texts_at(measurement_plan.region_ids, regions),
                "parent": pa.concat_arrays([pa.nulls(up.size - of_region.size, pa.string()), parents]),
                "level": tree.level[some].astype(np.int32),
                "level_name": Coded(measurement_plan.levels, tree.level[some]),
                **{name: values[some] for name, values in numbers.items()},
            }

    return FileTable(Again(rows), {"level": "int32", **dict.fromkeys(numbers, "int64")})


def stored_regions(folder: Path) -> Regions:
    """Return the regions of a folder's hierarchy.parquet, which must be a tree in its own order.

    The file is read a group of rows at a time, once for each column of texts, and the columns lie in files. Raises
    InputError, HierarchyError.
    """
    paths = _texts_of(folder, "region")
    parent, level, numbers, level_names = _columns_of(folder, paths)
    try:
        hierarchy = _tree_by_paths(paths, parent)
    except HierarchyError as error:
        raise HierarchyError(error.code, error.message, Place(REGIONS)) from None
    named = [number for number, name in level_names if name]
    if len(named) < len(level_names) or named != list(range(hierarchy.levels)) or (level != hierarchy.level).any():
        raise _other_level(folder, hierarchy)
    levels = tuple(name for _, name in level_names if name)
    return Regions(hierarchy, levels, paths, _texts_of(folder, "region_id"), numbers)


def _tree_by_paths(paths: Texts[str], parent: Ints) -> Hierarchy:
    """Return the tree of regions by their paths; they are compared as bytes where no name needs to be escaped."""
    if not paths.filled:
        row = next(row for row, path in enumerate(paths, 1) if not path)
        raise InputError("null-id", "is empty: restore the file", Place(REGIONS, row, "region"))
    sound = len(paths) and parent.min() >= -1 and _all_differ(paths, parent)
    names = paths.last_names(parent) if sound else None
    if names is not None and names.printable:
        return named_tree(parent, names)
    parts = (path if up < 0 else path[len(paths[up]) + 1 :] for path, up in zip(paths, parent, strict=True))
    hierarchy = Hierarchy(parent, Texts.of(map(unescaped, parts)))
    for row, (path, stated) in enumerate(zip(hierarchy.paths, paths, strict=True), 1):
        if path != stated:
            message = f"{stated!r} is not the path of its parent and a name: restore the file"
            raise InputError("bad-order", message, Place(REGIONS, row, "region"))
    return hierarchy


def _all_differ(names: Texts[str], parent: Ints) -> bool:
    """Return whether no name occurs twice: where siblings lie together, they are compared, which takes less memory.

    A name that two parents have lies below one of them alone, as the names of paths are checked to do.
    """
    texts, step = as_arrow(names), parent.size
    if (parent[1:] >= parent[:-1]).all():
        step = _AT_ONCE
    for start in range(0, parent.size, step):
        first, last = np.searchsorted(parent, parent[start]), min(start + step, parent.size)
        some = texts.slice(int(first), int(last - first))
        if len(some.dictionary_encode().dictionary) < len(some):
            return False
    return True


def _other_level(folder: Path, tree: Hierarchy) -> InputError:
    """Return the error of the first row that states another level than the tree, or another name of it."""
    table = read_columns(folder / REGIONS, ("level", "level_name"))
    level, names = int64_column(table, "level"), np.array(table.column("level_name").to_pylist(), object)
    expected = names[tree.level_start[tree.level]]
    row = int(np.argmax((level != tree.level) | (names != expected) | ~names.astype(np.bool_)))
    own = tree.level[row]
    if level[row] != own:
        message = f"is not the level of this region, {own}: restore the file"
        return InputError("other-level", message, Place(REGIONS, row + 1, "level"))
    message = f"is not the one name of level {own}: restore the file"
    return InputError("other-level", message, Place(REGIONS, row + 1, "level_name"))


def _texts_of(folder: Path, column: str) -> Texts[Any]:
    parts = read_parts(folder / REGIONS, REGION_COLUMNS, only=(column,))
    return Texts.joined(from_arrow(part.column(column).combine_chunks()) for part in parts)


def _columns_of(folder: Path, names: Texts[str]) -> tuple[Ints, Ints, dict[str, Ints], list[tuple[int, str | None]]]:
    """Return parents by row, levels, numbers, and the different pairs of a level and its name, by level."""
    listed, level_names = OrderedNames(as_arrow(names)), set[tuple[int, str | None]]()
    columns: dict[str, list[Ints]] = {"parent": [], "level": []}
    for part in read_parts(folder / REGIONS, REGION_COLUMNS, coded=True):
        columns["parent"].append(listed.at(part.column("parent")))
        integers = ["level", *(name for name in part.column_names if name not in REGION_COLUMNS)]
        refuse_types(part, dict.fromkeys(integers, "int64"), REGIONS, sum(map(len, columns["level"])))
        for name in integers:
            columns.setdefault(name, []).append(int64_column(part, name))
        codes, texts = coded(part.column("level_name"))
        level, named = columns["level"][-1], [*texts.to_pylist(), None]
        begins = np.flatnonzero(np.append(level.size > 0, (level[1:] != level[:-1]) | (codes[1:] != codes[:-1])))
        level_names |= {(int(level[row]), named[codes[row]]) for row in begins.tolist()}
    none = np.zeros(0, np.int64)
    numbers = {name: stored_array([none, *parts]) for name, parts in columns.items()}
    parent, level = numbers.pop("parent"), numbers.pop("level")
    return parent, level, numbers, sorted(level_names, key=lambda pair: pair[0])


def region_columns(measurement_plan: MeasurementPlan, regions: Ints) -> dict[str, Any]:
    """Return the columns level, level_name, region and region_id of rows that belong to regions, by their numbers."""
    tree = measurement_plan.hierarchy
    level = tree.level[regions]
    return {
        "level": level.astype(np.int32),
        "level_name": Coded(measurement_plan.levels, level),
        "region": Coded(tree.paths, regions),
        "region_id": Coded(measurement_plan.region_ids, regions),
    }
