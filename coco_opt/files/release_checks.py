"""What checks of any release folder share: their result, raw columns as arrays, the tree of regions, rows of counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import InputError, Place
from coco_opt.execution.temporary_storage import forget_pages
from coco_opt.files.arrow_texts import OrderedNames, as_arrow
from coco_opt.histograms.arrays import rising
from coco_opt.histograms.hierarchy_build import is_one_name
from coco_opt.histograms.texts import Texts

_LARGEST_SUM = 4e18
_AT_ONCE = 1 << 17  # regions that are looked at together
_ROWS = 1 << 20  # rows of counts that are looked at together
_BLOCK = 1 << 10  # regions whose rows, and those of their children, are in memory at a time
T = TypeVar("T")
Codes = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing checked in a release folder: what, whether it holds, and what was seen."""

    name: str
    passed: bool
    detail: str


class BrokenError(ValueError):
    """A file of a release does not keep a promise: the message says which row or region, and how."""


def checked(name: str, look: Callable[[], str]) -> Check:
    """Return the check of what ``look`` looks at: it returns in words what was seen, or raises BrokenError."""
    try:
        return Check(name, passed=True, detail=look())
    except BrokenError as error:
        return Check(name, passed=False, detail=str(error))


def sound(read: Callable[[], T], code: str, file: str) -> T:
    """Return what ``read`` reads of a file; InputError ``code`` where it keeps no promise."""
    try:
        return read()
    except BrokenError as error:
        raise InputError(code, str(error), Place(file)) from None


def refuse_row(wrong: Flags, code: str, message: str, place: Place) -> None:
    """Raise InputError at the first row of a column that is wrong; ``place`` are its file and the column."""
    if wrong.any():
        raise InputError(code, message, replace(place, row=first_of(wrong) + 1))


def refuse_types(rows: Any, types: Mapping[str, str], file: str) -> None:
    """Raise BrokenError for a column that has empty entries, or is not of its type: double, bool, or an integer."""
    import pyarrow.types as kinds

    known = {"double": (kinds.is_float64, "numbers"), "bool": (kinds.is_boolean, "true or false")}
    for name, kind in types.items():
        is_kind, what = known.get(kind, (kinds.is_signed_integer, "integers"))
        if rows.column(name).null_count or not is_kind(rows.column(name).type):
            raise BrokenError(f"{file}, column {name!r} does not hold {what} only")


def refuse(wrong: Flags, what: str, file: str = "", before: int = 0) -> None:
    """Raise BrokenError, naming the first row of a file that is wrong; ``before`` rows of the file came before."""
    if wrong.any():
        raise BrokenError(f"{f'{file}, ' if file else ''}row {before + first_of(wrong) + 1}: {what}")


def refuse_repeated(keys: Ints, what: str, file: str = "") -> None:
    """Raise BrokenError for a row whose key an earlier row has; rising keys, as in written files, need no sorting."""
    if not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        again = np.zeros(keys.size, np.bool_)
        again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
        refuse(again, what, file)


@dataclass(frozen=True, eq=False, slots=True)
class Regions:
    """The rows of a release's hierarchy.parquet, found to be a tree: columns as arrays, ``parent`` by row (-1: none).

    ``numbers`` are the kind's public numbers of every region, int64[rows] each, by column name; ``texts`` are what
    other files repeat of every region, Arrow's strings: one a level, or one a region.
    """

    names: Sequence[str]
    parent: Ints
    level: Ints
    numbers: Mapping[str, Ints]
    level_texts: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, Any] = field(default_factory=dict)
    _listed: OrderedNames = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_listed", OrderedNames(as_arrow(self.names)))

    @property
    def level_names(self) -> list[str]:
        """Return the names of the levels, root first."""
        names: list[str] = self.level_texts["level_name"].to_pylist() if self.level_texts else []
        return names

    def at(self, column: Any) -> Ints:
        """Return the row of every path in a column of texts: -1 for null, -2 for no region."""
        codes, texts = coded(column)
        return self._listed.places(texts)[codes]

    def refuse_misnamed(self, rows: Any, region: Codes, file: str = "", before: int = 0) -> None:
        """Raise BrokenError for the first row of an unknown region, or with another level or text than its region's."""
        refuse(region < 0, "no such region", file, before)
        if wrong := self.misnamed(rows, region):
            refuse(np.arange(len(region)) == wrong[0], f"not the region's {wrong[1]}", file, before)

    def misnamed(self, rows: Any, region: Codes) -> tuple[int, str] | None:
        """Return the first row whose level, or a text of its region, is not the region's, and which; None for none.

        ``region`` are the rows' regions, all known.
        """
        level = self.level[region]
        wrong = [(row, "level") for row in np.flatnonzero(int64_column(rows, "level") != level)[:1].tolist()]
        for all_texts, own in ((self.level_texts, level), (self.texts, region)):
            for name, expected in all_texts.items():
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


def positions(values: Any, names: Sequence[str]) -> Ints:
    """Return where each value stands in ``names``: -1 for null, -2 for a value that does not occur there."""
    codes, texts = coded(values)
    return places(texts, as_arrow(names))[codes]


def coded(values: Any) -> tuple[Ints, Any]:
    """Return a column as places in an Arrow array of the values it has; a null's is that array's length."""
    encoded = values.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(), np.int64), encoded.dictionary


def places(texts: Any, names: Any) -> Ints:
    """Return where each of ``texts`` stands in the array ``names``, -2 for a text that does not; and then null's -1."""
    return OrderedNames(names).places(texts)


def tree_check(names: Texts[str], parent: Ints, level: Ints) -> Check:
    """Check that regions form a tree whose leaves lie at one depth and whose names are paths; rows by number."""
    problem = _tree_problem(names, parent, level)
    return Check(
        "hierarchy", not problem, problem or f"a tree of {len(names):,} region{'' if len(names) == 1 else 's'}"
    )


def _tree_problem(names: Texts[str], parent: Ints, level: Ints) -> str:
    if not names.filled:
        return "a region has no name"
    if not all_differ(names, parent):
        return "a region occurs twice"
    if np.count_nonzero(parent == -1) != 1:
        return f"{np.count_nonzero(parent == -1)} regions have no parent; one must"
    if np.any(parent == -2):
        return f"the parent of {names[first_of(parent == -2)]!r} is not in the table"
    if not is_one_name(names[first_of(parent == -1)]):
        return "the root's name holds a slash that is not escaped"
    inner = parent >= 0
    if (parent[1:] < parent[:-1]).any():
        return "the regions are not in the order of the tree: level by level, children in the order of their parents"
    if level[~inner][0] != 0 or np.any(level[inner] != level[parent[inner]] + 1):
        return "a region's level is not its parent's plus one"
    last, above = -1, ""
    for start in range(0, parent.size, _AT_ONCE):
        for name, up in zip(names[start : start + _AT_ONCE], parent[start : start + _AT_ONCE].tolist(), strict=True):
            if up != last:
                last, above = up, names[up]
            if up >= 0 and not _lies_below(name, above):
                return f"{name!r} does not lie below its parent"
    childless = np.bincount(parent[inner], minlength=len(names)) == 0
    if np.any(level[childless] != level.max()):
        return "leaves lie at different depths"
    return ""


def all_differ(names: Texts[str], parent: Ints) -> bool:
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


def _lies_below(name: str, above: str) -> bool:
    head, slash, own = name[: len(above)], name[len(above) : len(above) + 1], name[len(above) + 1 :]
    return head == above and slash == "/" and is_one_name(own)


def is_safe(*values: npt.NDArray[Any]) -> bool:
    """Return whether sums of all these values stay far inside int64, so that a wrap cannot fake a total."""
    return bool(sum(np.abs(some.astype(np.float64)).sum() for some in values) < _LARGEST_SUM)


def first_of(mask: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
    """Return the first place that holds."""
    return int(np.flatnonzero(mask)[0])


@dataclass(frozen=True, eq=False)
class CountRows:
    """The rows of a table of counts: ``region`` is a row of the regions' file, ``key`` a size or a cell.

    Keys are from 0 to ``keys`` - 1. Arrays of many rows lie in files without a name.
    """

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
            refuse(is_wrong(rows), what, before=rows.start)

    def refuse_repeated(self, what: str) -> None:
        """Raise BrokenError for a row whose region and key an earlier row has."""
        last = -1
        for rows in self.pieces():
            numbers = np.append(last, self.numbers(rows))
            last = int(numbers[-1])
            if not (numbers[1:] > numbers[:-1]).all():
                refuse_repeated(self.numbers(slice(None)), what)

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
                first = first or f"{self.regions.names[at]!r}, {words(of_key)}"
                wrong += int(np.count_nonzero(rest))
        if wrong:
            raise BrokenError(f"{wrong} cells differ from the sum of the region's children; the first is {first}")

    def _families(self, block: int) -> Iterator[tuple[Codes, Codes, Ints]]:
        """Yield rows of regions with children, and negated rows of those children: parent region, key, count.

        Each item holds some parents with all rows that count there. Children lie together, as a tree is checked before.
        """
        parent, level = self.regions.parent, self.regions.level
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
            if start % (_AT_ONCE >> 1) == 0:
                forget_pages()
