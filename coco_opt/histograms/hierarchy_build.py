"""Turn paths, edges or parent arrays into the breadth-first layout, or raise an error if they are no tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import HierarchyError, Place
from coco_opt.execution.temporary_storage import stored_array, stored_by_parts, stored_empty
from coco_opt.histograms.arrays import as_int64
from coco_opt.histograms.texts import Texts

_AT_ONCE = 1 << 19  # regions
PlaceOf = Callable[[int], Place]
_ESCAPED = re.compile(r"\\(.)")
_ONE_NAME = re.compile(r"([^/\\]|\\[/\\])+")
Built = tuple[Ints, Sequence[str]]
Places = npt.NDArray[np.integer[Any]]
Column = tuple[Places, Sequence[str]]
"""The names of a level, one a row, by their places in a list in which each occurs once."""


def joined(names: Iterable[str]) -> str:
    """Return names as a path; slashes and backslashes in them follow a backslash: no two lists give one path."""
    return "/".join(map(escaped, names))


def escaped(name: str) -> str:
    """Return a name as it stands in a path."""
    return name.replace("\\", "\\\\").replace("/", "\\/") if "/" in name or "\\" in name else name


def unescaped(part: str) -> str:
    """Return the name that is written in a path as ``part``."""
    return _ESCAPED.sub(r"\1", part) if "\\" in part else part


def parted(path: str) -> list[str]:
    """Return the names that ``joined`` made a path of."""
    return [unescaped(part[0]) for part in _ONE_NAME.finditer(path)]


def _place(place: PlaceOf | None, row: int) -> Place | None:
    return None if place is None else place(row)


def _name_error(name: object, place: Place | None = None) -> HierarchyError:
    message = f"a region's name must be printable text, and not empty: {name!r}"
    return HierarchyError("bad-name", message, place)


def _bad_name(name: object) -> bool:
    return not isinstance(name, str) or name == "" or not name.isprintable()


def _path(parent: Ints, names: Sequence[str], region: int) -> str:
    parts = []
    while region >= 0:
        parts.append(names[region])
        region = int(parent[region])
    return joined(reversed(parts))


def layout(parent: Ints, names: Sequence[str], *, named: bool = False) -> tuple[Ints, Ints]:
    """Check a breadth-first parent array and return ``(first_child, level_start)``; O(n).

    ``named`` says that names were found to be printable, and different below each parent, already.
    Raises HierarchyError: no-root, several-roots, orphan, bad-order, bad-name, duplicate-region,
    uneven-depth.
    """
    n = parent.size
    _check_parents(parent, names)
    if parent[0] != -1 or np.any(parent[1:] < parent[:-1]) or not _above(parent):
        raise HierarchyError("bad-order", "regions are not in breadth-first order; use Hierarchy.from_parents")
    if not named:
        _check_names(parent, names)
    first_child = stored_by_parts(
        n + 1, np.dtype(np.int64), lambda some: np.searchsorted(parent, np.arange(some.start, some.stop))
    )
    starts = [0]
    while starts[-1] < n:
        starts.append(int(first_child[starts[-1]]))
    childless = np.flatnonzero(np.diff(first_child[: starts[-2] + 1]) == 0)
    if childless.size:
        path = _path(parent, names, int(childless[0]))
        raise HierarchyError(
            "uneven-depth",
            f"{path!r} ends above the deepest level; give it one region of its own name on each level below",
        )
    return first_child, np.array(starts, np.int64)


def _above(parent: Ints) -> bool:
    """Return whether each region's parent has a lower number."""
    steps = range(0, parent.size, _AT_ONCE)
    return all((parent[at : at + _AT_ONCE] < np.arange(at, min(at + _AT_ONCE, parent.size))).all() for at in steps)


def _check_parents(parent: Ints, names: Sequence[str]) -> None:
    if parent.size != len(names):
        raise HierarchyError("bad-shape", "a hierarchy needs one name for each region")
    if parent.size == 0:
        raise HierarchyError("no-root", "a hierarchy needs at least one region")
    if parent.min() < -1 or parent.max() >= parent.size:
        outside = np.flatnonzero((parent < -1) | (parent >= parent.size))
        raise HierarchyError("orphan", f"the parent of region {names[int(outside[0])]!r} does not exist")
    roots = np.flatnonzero(parent == -1)
    if roots.size > 1:
        raise _several_roots([names[int(root)] for root in roots[:3]])


def _twice(path: str, first: Place | None, place: Place | None) -> HierarchyError:
    first_row = f" (first in row {first.row})" if first is not None and first.row is not None else ""
    return HierarchyError(
        "duplicate-region",
        f"{path!r} occurs twice{first_row}: the last level must name each region within its parent, so give two "
        "regions of one name different ones, or add a last level that distinguishes them, such as their ids. To "
        "publish no smaller regions than these, give each of them one row, and its id to all records in it",
        place,
    )


def _several_roots(names: Sequence[str], place: Place | None = None) -> HierarchyError:
    shown = ", ".join(repr(name) for name in names[:3])
    return HierarchyError("several-roots", f"more than one region has no parent: {shown}", place)


def _check_names(parent: Ints, names: Sequence[str]) -> None:
    numbers: dict[str, int] = {}
    for name in names:
        if name not in numbers and _bad_name(name):
            raise _name_error(name)
        numbers.setdefault(name, len(numbers))
    text = np.fromiter((numbers[name] for name in names), np.int64, len(names))
    _, first, keys = np.unique(parent * len(numbers) + text, return_index=True, return_inverse=True)
    if first.size < keys.size:
        again = np.setdiff1d(np.arange(keys.size), first)
        raise HierarchyError("duplicate-region", f"{_path(parent, names, int(again[0]))!r} occurs twice")


def from_parents(parent: npt.ArrayLike, names: tuple[str, ...]) -> Built:
    """Sort regions from any order into breadth-first order, siblings in their input order; O(n log n)."""
    up = as_int64(parent, "parent")
    _check_parents(up, names)
    order = _breadth_first(up, names)
    rank = np.empty(up.size, np.int64)
    rank[order] = np.arange(up.size)
    sorted_up = up[order]
    new_parent = np.where(sorted_up < 0, np.int64(-1), rank[sorted_up])
    return new_parent, tuple(names[v] for v in order.tolist())


def _breadth_first(parent: Ints, names: Sequence[str]) -> Ints:
    n = parent.size
    by_parent = np.argsort(parent, kind="stable")
    first = np.searchsorted(parent[by_parent], np.arange(n + 1)).tolist()
    children = by_parent.tolist()
    # A plain queue: one pass whatever the shape, where numpy level by level takes seconds on a deep chain.
    order = np.flatnonzero(parent == -1).tolist()
    for v in order:
        order.extend(children[first[v] : first[v + 1]])
    if len(order) < n:
        raise _cycle(parent, names, np.setdiff1d(np.arange(n), order))
    return np.array(order, np.int64)


def _cycle(parent: Ints, names: Sequence[str], unreached: Ints) -> HierarchyError:
    region = int(unreached[0])
    seen: dict[int, int] = {}
    while region not in seen:
        seen[region] = len(seen)
        region = int(parent[region])
    loop = [names[v] for v, step in seen.items() if step >= seen[region]]
    shown = " -> ".join([*loop[:4], "..."] if len(loop) > 4 else [*loop, loop[0]])
    return HierarchyError("cycle", f"a region lies below itself: {shown}")


def from_edges(child: Iterable[str], parent: Iterable[str | None], place: PlaceOf | None = None) -> Built:
    """Build from (child, parent) ids; see ``Hierarchy.from_edges``."""
    above = _read_edges(list(child), list(parent), place)
    if not above:
        raise HierarchyError("no-root", "a hierarchy needs at least one region")
    marked = [name for name, up in above.items() if up == ""]
    unknown = dict.fromkeys(up for up in above.values() if up != "" and up not in above)
    if marked and unknown:
        raise HierarchyError("orphan", f"the parent {next(iter(unknown))!r} has no row of its own")
    roots = marked or list(unknown)
    if len(roots) > 1:
        raise _several_roots(roots)
    names = tuple(above) if marked else (*unknown, *above)
    number = {name: v for v, name in enumerate(names)}
    return from_parents([number.get(above.get(name, ""), -1) for name in names], names)


def _read_edges(child: list[str], parent: list[str | None], place: PlaceOf | None) -> dict[str, str]:
    """Return the parent's id of every child, "" where the row marks a root."""
    if len(child) != len(parent):
        raise HierarchyError("bad-shape", "child and parent must have the same length")
    above: dict[str, str] = {}
    for row, (name, parent_id) in enumerate(zip(child, parent, strict=True)):
        up = "" if parent_id is None else parent_id
        if _bad_name(name) or (up != "" and _bad_name(up)):
            raise _name_error(name if _bad_name(name) else up, _place(place, row))
        if name in above:
            if above[name] == up:
                raise HierarchyError("duplicate-region", f"{name!r} occurs twice", _place(place, row))
            raise HierarchyError(
                "two-parents", f"{name!r} has two parents: {above[name]!r} and {up!r}", _place(place, row)
            )
        above[name] = up
    return above


def from_paths(paths: Iterable[Sequence[str]], place: PlaceOf | None = None) -> Built:
    """Build from one path a leaf; see ``Hierarchy.from_paths``."""
    listed = list(paths)
    for row, path in enumerate(listed):
        if isinstance(path, str):
            message = f'a path is a sequence of names, such as ("nation", "north"), not {path!r}'
            raise HierarchyError("bad-path", message, _place(place, row))
    rows = [tuple(path) for path in listed]
    _check_depth(rows, place)
    columns = []
    for column in zip(*rows, strict=True):
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(name, len(numbers)) for name in column]
        columns.append((np.array(codes, np.int64), list(numbers)))
    return from_columns(columns, place)[:2]


def from_columns(columns: Sequence[Column], place: PlaceOf | None = None) -> tuple[Ints, Texts[str], Ints]:
    """Build from one column a level; see ``Hierarchy.from_columns``. Returns every row's region on the last level too.

    O(rows log rows) a level, O(rows) where the rows of each region lie together.
    """
    regions: Places = _by_parts(columns[0][0].size, lambda some: np.zeros(some.stop - some.start))  # of each row
    parents, names, above, before = list[Ints](), [], -1, 0
    for level, (own, texts) in enumerate(columns):
        first, numbers = _grouped(regions, own, len(texts))
        up = _taken(regions, first)
        # Regions come in the order in which their parents do, and below one parent in that of their first rows.
        if not _rise(up, first):
            order = np.lexsort((first, up))
            first, up, rank = first[order], up[order], np.empty(order.size, np.int32)
            rank[order] = np.arange(order.size)
            numbers = rank[numbers]
        _check_level(columns, level, first, numbers, place)
        names.append((texts, _taken(own, first)))
        parents.append(_added(up, above))
        regions, above, before = numbers, before, before + first.size
    taken = [Texts.of(texts).taken(places) for texts, places in names]
    return stored_array(parents), Texts.joined(taken), _added(regions, above)


def _grouped(regions: Places, own: Places, texts: int) -> tuple[Places, Places]:
    """Return the first row of each different pair of a region and a name, and the number of each row's pair."""
    changed = stored_by_parts(own.size, np.dtype(np.bool_), lambda some: _changes(regions, some) | _changes(own, some))
    first = stored_empty((int(np.count_nonzero(changed)),), np.dtype(np.int32))
    numbers, pairs = stored_empty((own.size,), np.dtype(np.int32)), 0
    for at in range(0, own.size, _AT_ONCE):
        rows = np.flatnonzero(changed[at : at + _AT_ONCE])
        first[pairs : pairs + rows.size] = rows + at
        numbers[at : at + _AT_ONCE] = np.cumsum(changed[at : at + _AT_ONCE]) + (pairs - 1)
        pairs += rows.size
    above, name = _taken(regions, first), _taken(own, first)
    if not _rise(above, name):
        keys = above * np.int64(texts) + name
        if np.unique(keys).size < keys.size:  # rows of one region lie apart
            _, first, numbers = np.unique(regions * np.int64(texts) + own, return_index=True, return_inverse=True)
            return first.astype(np.int32), numbers.astype(np.int32)
    return first, numbers


def _changes(values: Places, rows: slice) -> Flags:
    """Return which of some rows differ from the row before; the first of all does."""
    before = values[max(0, rows.start - 1) : rows.stop]
    return np.concatenate([np.ones(int(rows.start == 0), np.bool_), before[1:] != before[:-1]])


def _rise(above: Places, own: Places) -> bool:
    """Return whether pairs rise, by their first number and then by the second."""
    for at in range(0, above.size - 1, _AT_ONCE):
        up, name = above[at : at + _AT_ONCE + 1], own[at : at + _AT_ONCE + 1]
        if not ((up[1:] > up[:-1]) | ((up[1:] == up[:-1]) & (name[1:] > name[:-1]))).all():
            return False
    return True


def _by_parts(rows: int, part: Callable[[slice], npt.NDArray[Any]]) -> Places:
    """Return an array of which some rows are computed at a time; many lie in a file."""
    return stored_by_parts(rows, np.dtype(np.int32), part)


def _taken(values: Places, rows: Places) -> Places:
    return _by_parts(rows.size, lambda some: values[rows[some]])


def _added(values: Places, number: int) -> Ints:
    return stored_by_parts(values.size, np.dtype(np.int64), lambda some: values[some] + np.int64(number))


def _check_depth(rows: list[tuple[str, ...]], place: PlaceOf | None) -> None:
    if not rows or not rows[0]:
        raise HierarchyError("no-root", "a hierarchy needs at least one region")
    depth = len(rows[0])
    for row, path in enumerate(rows):
        if len(path) != depth:
            raise HierarchyError(
                "uneven-depth",
                f"{'/'.join(map(str, path))!r} has {len(path)} level(s) where the first path has {depth}; "
                "repeat the name of a region that has no subregions",
                _place(place, row),
            )


def _check_level(columns: Sequence[Column], level: int, first: Places, codes: Places, place: PlaceOf | None) -> None:
    """Raise HierarchyError if the regions of a level, which begin in rows ``first``, are not valid."""
    own, texts = columns[level]
    fine = isinstance(texts, Texts) and texts.printable
    bad = [] if fine else [text for text, name in enumerate(texts) if _bad_name(name)]
    if bad:
        row = int(np.flatnonzero(np.isin(own, bad))[0])
        raise _name_error(texts[own[row]], _place(place, row))
    if level == 0 and first.size > 1:
        rows = np.sort(first)
        raise _several_roots([texts[text] for text in own[rows].tolist()], _place(place, int(rows[1])))
    if level == len(columns) - 1 and first.size < codes.size:
        again = np.ones(codes.size, np.bool_)
        again[first] = False
        row = int(np.flatnonzero(again)[0])
        path = joined(of_texts[int(of_rows[row])] for of_rows, of_texts in columns)
        raise _twice(path, _place(place, int(first[codes[row]])), _place(place, row))
