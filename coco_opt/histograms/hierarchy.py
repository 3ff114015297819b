"""The public hierarchy of regions as flat arrays in breadth-first order: any depth, any fan-out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Ints
from coco_opt.errors import HierarchyError, InputError, Place
from coco_opt.execution.temporary_storage import stored_array, stored_by_parts
from coco_opt.histograms import hierarchy_build
from coco_opt.histograms.arrays import as_int64
from coco_opt.histograms.texts import Listed, Texts

if TYPE_CHECKING:
    import pandas as pd

Number = TypeVar("Number", np.int64, np.float64)

_ARRAYS = ("parent", "level", "first_child", "level_start")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Hierarchy:
    """Hold a rooted tree of n regions whose leaves all lie at the same depth.

    Build it with ``from_paths``, ``from_edges`` or ``from_parents``, which take regions in any order.

    Parameters
    ----------
    parent : array_like of int, shape (n,)
        The parent of each region, -1 at the root. Regions are numbered breadth first: the root is 0, a level is one
        contiguous range, and so are the children of a region, the leaves below it and the leaves of the tree.
    names : sequence of str, length n
        The regions' own names, stored as bytes.

    Attributes
    ----------
    level : ndarray of int64, shape (n,)
        The level of each region; the root's is 0.
    first_child : ndarray of int64, shape (n + 1,)
        The children of region v are ``first_child[v]`` to ``first_child[v + 1] - 1``.
    level_start : ndarray of int64, shape (levels + 1,)
        The regions of level k are ``level_start[k]`` to ``level_start[k + 1] - 1``.

    Raises
    ------
    HierarchyError
        With a code: no-root, several-roots, cycle, orphan, uneven-depth, bad-name, duplicate-region, bad-order. A
        hierarchy is public, so its errors name regions.

    Notes
    -----
    O(n) time and memory.

    Examples
    --------
    >>> from coco_opt import Hierarchy
    >>> tree = Hierarchy.from_paths([("nation", "north"), ("nation", "south")])
    >>> tree.regions, tree.levels, list(tree.paths)
    (3, 2, ['nation', 'nation/north', 'nation/south'])
    """

    parent: Ints
    names: Sequence[str]
    level: Ints = field(init=False)
    first_child: Ints = field(init=False)
    level_start: Ints = field(init=False)
    _index: dict[str, int] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        parent = as_int64(self.parent, "parent").copy()
        names = self.names if isinstance(self.names, Texts) else tuple(self.names)
        self._set(Texts.of(names), stored_array([parent]), *_with_levels(*hierarchy_build.layout(parent, names)))

    def _set(self, names: Texts[str], *arrays: Ints) -> None:
        object.__setattr__(self, "names", names)
        for name, array in zip(_ARRAYS, arrays, strict=True):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __reduce__(self) -> tuple[Callable[..., Hierarchy], tuple[Any, ...]]:
        # Data that were checked once are not checked again in every worker that reads them.
        return _unpickled, (self.names, *(getattr(self, name) for name in _ARRAYS))

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[str]], place: Callable[[int], Place] | None = None) -> Hierarchy:
        """Build from one path a leaf, names from the root down; siblings keep the order of first appearance.

        Parameters
        ----------
        paths : iterable of sequence of str
            For each leaf, the names of the regions on the way to it, the root's first.
        place : callable, optional
            Turns the index of a path into its place in the user's file, for messages.

        Raises
        ------
        HierarchyError
            no-root (no path), several-roots, uneven-depth, duplicate-region, bad-name.

        Notes
        -----
        Leaves of one parent become neighbours even where their paths are not: find them by ``index``. O(leaves x
        levels).

        Examples
        --------
        >>> from coco_opt import Hierarchy
        >>> Hierarchy.from_paths([("land", "north"), ("land", "south")]).index("land/south")
        2
        """
        return cls(*hierarchy_build.from_paths(paths, place))

    @classmethod
    def from_columns(
        cls, columns: Sequence[hierarchy_build.Column], place: Callable[[int], Place] | None = None
    ) -> tuple[Hierarchy, Ints]:
        """Build from paths as columns, one a level, root first; return also the leaf of every row, int64[rows].

        A column is (places of its names in a list int64[rows], that list without repetitions). See ``from_paths``.
        """
        parent, names, leaf = hierarchy_build.from_columns(columns, place)
        return named_tree(parent, names), leaf

    @classmethod
    def from_edges(
        cls,
        child: Iterable[str],
        parent: Iterable[str | None],
        place: Callable[[int], Place] | None = None,
    ) -> Hierarchy:
        """Build from (child, parent) pairs of ids, each id being one region and its name.

        The root is the row whose parent is None or "", or, without such a row, the one id that is nobody's
        child. Siblings keep the order of their rows. Raises HierarchyError: cycle, two-parents, orphan (a
        parent that is nobody's child next to a marked root), no-root (no row), several-roots, uneven-depth,
        bad-name, duplicate-region (a repeated row). O(rows).
        """
        return cls(*hierarchy_build.from_edges(child, parent, place))

    @classmethod
    def from_parents(cls, parent: npt.ArrayLike, names: Iterable[str]) -> Hierarchy:
        """Build from a parent array in any order (-1 at the root); siblings keep their order.

        Raises HierarchyError: no-root (empty), several-roots, cycle, orphan (an index outside 0..n-1),
        uneven-depth, bad-name, duplicate-region. O(n).
        """
        return cls(*hierarchy_build.from_parents(parent, tuple(names)))

    @property
    def regions(self) -> int:
        """Number of regions, the root and the leaves included."""
        return int(self.parent.size)

    @property
    def levels(self) -> int:
        """Number of levels; 1 for a single region."""
        return int(self.level_start.size - 1)

    @property
    def leaves(self) -> range:
        """The leaves, the last contiguous range of regions."""
        return self.level_range(self.levels - 1)

    @property
    def paths(self) -> Listed[str]:
        """Full names from the root, joined by "/", escaped inside a name; each is built on access."""
        return Paths(self)

    def path(self, region: int) -> str:
        """Return a region's full name, as ``paths`` has it; O(levels)."""
        above = (*reversed(self.ancestors(region)), region)
        return hierarchy_build.joined(self.names[v] for v in above)

    def level_range(self, level: int) -> range:
        """Return the regions of one level, 0 being the root's."""
        if not 0 <= level < self.levels:
            raise InputError("unknown-level", f"there is no level {level}; levels are 0 to {self.levels - 1}")
        return range(int(self.level_start[level]), int(self.level_start[level + 1]))

    def within_level(self, regions: range) -> tuple[int, slice]:
        """Return the level of consecutive regions of one level, and their places in it."""
        level = int(self.level[regions.start])
        first = int(self.level_start[level])
        return level, slice(regions.start - first, regions.stop - first)

    def children(self, region: int) -> range:
        """Return the children of a region; empty for a leaf."""
        self._check(region)
        return range(int(self.first_child[region]), int(self.first_child[region + 1]))

    def levels_below(self, regions: range) -> list[range]:
        """Return consecutive regions of one level, and all regions below them level by level."""
        ranges = [regions]
        for _ in range(int(self.level[regions.start]) + 1, self.levels):
            last = ranges[-1]
            ranges.append(range(int(self.first_child[last.start]), int(self.first_child[last.stop])))
        return ranges

    def ancestors(self, region: int) -> tuple[int, ...]:
        """Return the regions above, the parent first and the root last; empty for the root."""
        self._check(region)
        above = []
        up = int(self.parent[region])
        while up >= 0:
            above.append(up)
            up = int(self.parent[up])
        return tuple(above)

    def leaf_range(self, region: int) -> range:
        """Return the leaves at or below a region: contiguous in breadth-first order; O(levels)."""
        self._check(region)
        start, stop = region, region + 1
        for _ in range(self.levels - 1 - int(self.level[region])):
            start, stop = int(self.first_child[start]), int(self.first_child[stop])
        return range(start, stop)

    def index(self, path: str | Sequence[str]) -> int:
        """Return the region of a full path, either joined by "/" or as a list of names. Raises HierarchyError."""
        if self._index is None:
            object.__setattr__(self, "_index", {full: v for v, full in enumerate(self.paths)})
        assert self._index is not None
        full = path if isinstance(path, str) else hierarchy_build.joined(path)
        if full not in self._index:
            such_as = next((known for known in self.paths if known.endswith(f"/{full}")), self.paths[-1])
            message = f"there is no region {full!r}; give its path from the root, such as {such_as!r}"
            raise HierarchyError("unknown-region", message)
        return self._index[full]

    def aggregate(self, leaf_values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Return the sum over the leaves below every region: [leaves, ...] becomes [regions, ...].

        Values are int64 (no check for overflow: counts stay far below) or float64. O(regions x trailing
        cells).
        """
        leaves = self.leaves
        values: npt.NDArray[Number] = np.asarray(leaf_values)
        if values.ndim == 0 or values.shape[0] != len(leaves):
            raise InputError("bad-shape", f"leaf values need one row for each of the {len(leaves)} leaves")
        if values.dtype.name not in ("int64", "float64"):
            raise InputError("bad-dtype", f"leaf values must be int64 or float64, not {values.dtype}")
        out = np.empty((self.regions, *values.shape[1:]), values.dtype)
        out[leaves.start :] = values
        for level in range(self.levels - 2, -1, -1):
            regions, below = self.level_range(level), self.level_range(level + 1)
            self.child_sums(out[below.start : below.stop], level, out[regions.start : regions.stop])
        return out

    def child_sums(
        self, child_values: npt.NDArray[Number], level: int, out: npt.NDArray[Number] | None = None
    ) -> npt.NDArray[Number]:
        """Return the sums over the children of a level's regions: [regions below, ...] becomes [regions, ...]."""
        regions = self.level_range(level)
        starts = self.first_child[regions.start : regions.stop] - regions.stop
        sums: npt.NDArray[Number] = np.add.reduceat(child_values, starts, axis=0, out=out)
        return sums

    def leaf_starts(self) -> tuple[Ints, ...]:
        """Return, for each level, the first leaf of every region and the number of leaves, int64[regions + 1].

        O(regions); compute it once.
        """
        starts = [
            stored_by_parts(len(self.leaves) + 1, np.dtype(np.int64), lambda some: np.arange(some.start, some.stop))
        ]
        for level in range(self.levels - 2, -1, -1):
            regions = self.level_range(level)
            starts.append(starts[-1][self.first_child[regions.start : regions.stop + 1] - regions.stop])
        return tuple(reversed(starts))

    def first_branches(self, most: int | Sequence[int]) -> tuple[Hierarchy, Ints]:
        """Return the tree of the first ``most`` children of each region, and where its regions lie in this tree.

        ``most`` may be one number a level, the root's children first. O(regions). Raises InputError for fewer than one
        child, or another number of levels.
        """
        limits = (most,) * (self.levels - 1) if isinstance(most, int) else tuple(most)
        if len(limits) != self.levels - 1 or min(limits, default=1) < 1:
            raise InputError("bad-shape", "a region needs at least one child")
        chosen = np.ones(self.regions, bool)
        for level in range(1, self.levels):
            regions = np.asarray(self.level_range(level))
            up = self.parent[regions]
            chosen[regions] = chosen[up] & (regions - self.first_child[up] < limits[level - 1])
        where = np.flatnonzero(chosen)
        parent = np.searchsorted(where, self.parent[where])
        parent[0] = -1
        return Hierarchy(parent, Texts.of(self.names[region] for region in where.tolist())), where

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame of ``region`` (path), ``parent`` (path, None at the root) and ``level``."""
        import pandas as pd

        paths = self.paths
        parents = [None, *(paths[up] for up in self.parent[1:].tolist())]
        return pd.DataFrame({"region": list(paths), "parent": parents, "level": self.level.copy()})

    def __repr__(self) -> str:
        widths = " / ".join(f"{width:,}" for width in np.diff(self.level_start[:9]).tolist())
        more = " / ..." if self.levels > 8 else ""
        what = f"{self.regions:,} regions in {self.levels:,} level(s)"
        return f"Hierarchy({self.names[0]!r}, {what}: {widths}{more})"

    def _check(self, region: int) -> None:
        if not 0 <= region < self.regions:
            raise InputError("unknown-region", f"there is no region {region}; regions are 0 to {self.regions - 1}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Paths(Listed[str]):
    """The full names of all regions."""

    tree: Hierarchy

    def __len__(self) -> int:
        return self.tree.regions

    def at(self, place: int) -> str:
        """Return a region's full name."""
        return self.tree.path(place)

    def some(self, places: Iterable[int]) -> Iterator[str]:
        """Yield the full names of regions; what lies above siblings is joined once."""
        names, parent, last, above = self.tree.names, self.tree.parent, -1, ""
        for region in places:
            up = int(parent[region])
            if up != last:
                last, above = up, f"{self.tree.path(up)}/" if up >= 0 else ""
            yield above + hierarchy_build.escaped(names[region])


def _with_levels(first_child: Ints, level_start: Ints) -> tuple[Ints, Ints, Ints]:
    def level_of(regions: slice) -> Ints:
        return np.searchsorted(level_start, np.arange(regions.start, regions.stop), side="right") - 1

    return stored_by_parts(int(level_start[-1]), np.dtype(np.int64), level_of), first_child, level_start


def named_tree(parent: Ints, names: Texts[str]) -> Hierarchy:
    """Return the tree of breadth-first parents, and names that were found printable and different below each parent.

    Raises HierarchyError.
    """
    return _unpickled(names, parent, *_with_levels(*hierarchy_build.layout(parent, names, named=True)))


def _unpickled(names: Texts[str], *arrays: Ints) -> Hierarchy:
    hierarchy = object.__new__(Hierarchy)
    object.__setattr__(hierarchy, "_index", None)
    hierarchy._set(names, *arrays)
    return hierarchy
