"""What checks of any release folder share: their result, columns of raw files as arrays, and the tree of regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Ints
from coco_opt.errors import InputError, Place
from coco_opt.files.arrow_texts import as_arrow
from coco_opt.files.text_index import OrderedNames
from coco_opt.histograms.hierarchy_build import is_one_name
from coco_opt.histograms.texts import Texts

_LARGEST_SUM = 4e18
_AT_ONCE = 1 << 17  # regions, or rows, that are looked at together


@dataclass(frozen=True, slots=True)
class Check:
    """One thing checked in a release folder: what, whether it holds, and what was seen."""

    name: str
    passed: bool
    detail: str


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

    def misnamed(self, rows: Any, region: Ints) -> tuple[int, str] | None:
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


def _first_other(column: Any, expected: Any, own: Ints) -> int | None:
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
