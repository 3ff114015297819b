"""What checks of any release folder share: their result, raw columns as arrays, regions, rows of counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import InputError, Place
from coco_opt.execution.temporary_storage import forget_pages
from coco_opt.files.arrow_texts import OrderedNames, as_arrow, coded
from coco_opt.histograms.arrays import rising
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.histograms.texts import Texts

_LARGEST_SUM = 4e18
_FORGOTTEN = 1 << 16  # regions whose rows were read, before they leave the memory
_ROWS = 1 << 20  # rows of counts that are looked at together
_BLOCK = 1 << 10  # regions whose rows, and those of their children, are in memory at a time
Codes = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing checked in a release folder: what, whether it holds, and what was seen."""

    name: str
    passed: bool
    detail: str


class BrokenError(InputError):
    """A file of a release does not keep a promise: the place or the message says which row or region, and how."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__("bad-release", message, place)


def checked(name: str, look: Callable[[], str]) -> Check:
    """Return the check of what ``look`` looks at: it returns in words what was seen, or raises InputError.

    Files that do not fit their manifest may have it raise anything.
    """
    try:
        return Check(name, passed=True, detail=look())
    except InputError as error:
        detail = error.words
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        detail = f"the files and the manifest do not fit together ({type(error).__name__})"
    return Check(name, passed=False, detail=detail)


def refuse_types(rows: Any, types: Mapping[str, str], file: str, before: int = 0) -> None:
    """Raise BrokenError for a column that has empty entries, or is not of its type: double, bool, or an integer."""
    import pyarrow.types as kinds

    known = {"double": (kinds.is_float64, "numbers"), "bool": (kinds.is_boolean, "true or false")}
    for name, kind in types.items():
        is_kind, what = known.get(kind, (kinds.is_signed_integer, "integers"))
        if not is_kind(rows.column(name).type):
            raise BrokenError(f"must hold {what} only", Place(file, None, name))
        if rows.column(name).null_count:
            refuse(np.asarray(rows.column(name).is_null()), "is empty", file, before, name)


def refuse(wrong: Flags, what: str, file: str, before: int = 0, column: str | None = None) -> None:
    """Raise BrokenError, naming the first row of a file that is wrong; ``before`` rows of the file came before."""
    if wrong.any():
        raise BrokenError(what, Place(file, before + first_of(wrong) + 1, column))


def refuse_repeated(keys: Ints, what: str, file: str) -> None:
    """Raise BrokenError for a row whose key an earlier row has; rising keys, as in written files, need no sorting."""
    if not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        again = np.zeros(keys.size, np.bool_)
        again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
        refuse(again, what, file)


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of a stored hierarchy.parquet: their tree, the names of its levels, and what the file has of each.

    ``paths`` name the regions in all files, ``ids`` in the user's own. ``numbers`` are the kind's public numbers of
    every region, int64[regions] each, by column name.
    """

    hierarchy: Hierarchy
    levels: tuple[str, ...]
    paths: Texts[str]
    ids: Texts[str | None]
    numbers: Mapping[str, Ints]

    @cached_property
    def _listed(self) -> OrderedNames:
        return OrderedNames(as_arrow(self.paths))

    @cached_property
    def _texts(self) -> tuple[Any, Any]:
        return as_arrow(self.levels), as_arrow(self.ids)

    def at(self, column: Any) -> Ints:
        """Return the row of every path in a column of texts: -1 for null, -2 for no region."""
        return self._listed.at(column)

    def refuse_misnamed(self, rows: Any, region: Codes, file: str, before: int = 0) -> None:
        """Raise BrokenError for the first row of an unknown region, or whose level or id is not its region's."""
        refuse(region < 0, "no such region", file, before)
        if wrong := self.misnamed(rows, region):
            refuse(np.arange(len(region)) == wrong[0], f"not the region's {wrong[1]}", file, before)

    def misnamed(self, rows: Any, region: Codes) -> tuple[int, str] | None:
        """Return the first row whose level, its name or the region's id is not the region's, and which; None for none.

        ``region`` are the rows' regions, all known.
        """
        level, (level_names, ids) = self.hierarchy.level[region], self._texts
        wrong = [(row, "level") for row in np.flatnonzero(int64_column(rows, "level") != level)[:1].tolist()]
        for name, expected, own in (("level_name", level_names, level), ("region_id", ids, region)):
            row = _first_other(rows.column(name), expected, own)
            wrong += [] if row is None else [(row, name)]
        return min(wrong) if wrong else None


def _first_other(column: Any, expected: Any, own: Codes) -> int | None:
    """Return the first row of texts that is not ``expected[own[row]]``, None for none; equal rows are read once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes, texts = coded(column)
    begins = np.flatnonzero(np.append(own.size > 0, (own[1:] != own[:-1]) | (codes[1:] != codes[:-1])))
    named = codes[begins]
    stated = texts.take(pa.array(named, mask=named == len(texts)))
    wanted = expected.take(pa.array(own[begins]))
    same = pc.and_(stated.is_null(), wanted.is_null())
    if pa.types.is_string(stated.type):
        same = pc.or_(same, pc.fill_null(pc.equal(stated, wanted), fill_value=False))
    differ = np.flatnonzero(~np.asarray(same.to_numpy(zero_copy_only=False), np.bool_))
    return int(begins[differ[0]]) if differ.size else None


def int64_column(table: Any, name: str) -> Ints:
    """Return a column of integers; InputError (wrong-type) for any other, and for an empty entry."""
    import pyarrow.types as kinds

    column = table.column(name)
    if column.null_count or not kinds.is_integer(column.type):
        raise InputError("wrong-type", "must hold integers only", Place("a table", None, name))
    return np.asarray(column.to_numpy(), np.int64)


def is_safe(*values: npt.NDArray[Any]) -> bool:
    """Return whether sums of all these values stay far inside int64, so that a wrap cannot fake a total."""
    return bool(sum(np.abs(some.astype(np.float64)).sum() for some in values) < _LARGEST_SUM)


def first_of(mask: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
    """Return the first place that holds."""
    return int(np.flatnonzero(mask)[0])


@dataclass(frozen=True, eq=False)
class CountRows:
    """The rows of a table of counts, ``file``: ``region`` is a row of the regions' file, ``key`` a size or a cell.

    Keys are from 0 to ``keys`` - 1. Arrays of many rows lie in files without a name.
    """

    file: ClassVar[str]
    regions: Regions
    region: Codes
    key: Codes
    counts: Ints
    keys: int

    def pieces(self) -> Iterator[slice]:
        """Yield the rows, some at a time; what was read of those before has left the memory."""
        for start in range(0, self.counts.size, _ROWS):
            yield slice(start, min(start + _ROWS, self.counts.size))
            forget_pages()

    def numbers(self, rows: slice | Ints) -> Ints:
        """Return a number for the region and the key of each of some rows."""
        return self.region[rows] * np.int64(self.keys) + self.key[rows]

    def refuse(self, is_wrong: Callable[[slice], Flags], what: str) -> None:
        """Raise BrokenError, naming the first row that is wrong."""
        for rows in self.pieces():
            refuse(is_wrong(rows), what, self.file, rows.start)

    def refuse_repeated(self, what: str) -> None:
        """Raise BrokenError for a row whose region and key an earlier row has."""
        last = -1
        for rows in self.pieces():
            numbers = np.append(last, self.numbers(rows))
            last = int(numbers[-1])
            if not (numbers[1:] > numbers[:-1]).all():
                refuse_repeated(self.numbers(slice(None)), what, self.file)

    @property
    def add_up_safely(self) -> bool:
        """Return whether no sum of counts can wrap around."""
        return is_safe(*(self.counts[rows] for rows in self.pieces()))

    def refuse_other_sums(self, words: Callable[[int], str], block: int = _BLOCK) -> None:
        """Raise BrokenError unless each inner region has at every key the sum of its children's counts.

        ``words`` says what a key is. The rows of ``block`` regions and of their children are in memory at a time.
        """
        if not self.add_up_safely:
            raise BrokenError("the counts do not add up within 64 bits")
        wrong, first = 0, ""
        for region, key, counts in self._families(block):
            numbers, where = np.unique(region * np.int64(self.keys) + key, return_inverse=True)
            rest = np.zeros(numbers.size, np.int64)
            np.add.at(rest, where, counts)
            if rest.any():
                at, of_key = divmod(int(numbers[first_of(rest != 0)]), self.keys)
                first = first or f"{self.regions.paths[at]!r}, {words(of_key)}"
                wrong += int(np.count_nonzero(rest))
        if wrong:
            raise BrokenError(f"{wrong} cells differ from the sum of the region's children; the first is {first}")

    def _families(self, block: int) -> Iterator[tuple[Codes, Codes, Ints]]:
        """Yield rows of regions with children, and negated rows of those children: parent region, key, count.

        Each item holds some parents with all rows that count there. Children lie together, as a tree is checked before.
        """
        parent, level = self.regions.hierarchy.parent, self.regions.hierarchy.level
        order = None if rising(self.region) else np.argsort(self.region, kind="stable")
        sorted_regions = self.region if order is None else self.region[order]

        def rows_of(low: int, high: int) -> Ints:
            # Bounds of another type would have all regions converted at every call.
            first, last = np.searchsorted(sorted_regions, np.array([low, high], sorted_regions.dtype))
            return np.arange(first, last) if order is None else order[first:last]

        for start in range(0, int(np.searchsorted(level, level.max())), block):
            above, below = rows_of(start, start + block), rows_of(*np.searchsorted(parent, [start, start + block]))
            above = above[level[self.region[above]] < level.max()]
            yield (
                np.concatenate([self.region[above], parent[self.region[below]]]),
                np.concatenate([self.key[above], self.key[below]]),
                np.concatenate([self.counts[above], -self.counts[below]]),
            )
            if start % _FORGOTTEN == 0:
                forget_pages()
