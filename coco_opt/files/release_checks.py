"""What checks of any release folder share: their result, columns of raw files as arrays, and the tree of regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Ints
from coco_opt.files.arrow_texts import as_arrow
from coco_opt.files.text_index import OrderedNames
from coco_opt.histograms.hierarchy_build import is_one_name

_LARGEST_SUM = 4e18


@dataclass(frozen=True, slots=True)
class Check:
    """One thing checked in a release folder: what, whether it holds, and what was seen."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, eq=False, slots=True)
class Regions:
    """The rows of a release's hierarchy.parquet, found to be a tree: columns as arrays, ``parent`` by row (-1: none).

    ``numbers`` are the kind's public numbers of every region, int64[rows] each, by column name; ``texts`` what other
    files repeat of every region, as ``coded`` gives it.
    """

    names: Sequence[str]
    parent: Ints
    level: Ints
    numbers: Mapping[str, Ints]
    texts: Mapping[str, tuple[Ints, Any]] = field(default_factory=dict)
    _listed: Mapping[str | None, OrderedNames] = field(init=False)

    def __post_init__(self) -> None:
        listed: dict[str | None, OrderedNames] = {None: OrderedNames(as_arrow(self.names))}
        listed |= {name: OrderedNames(expected) for name, (_, expected) in self.texts.items()}
        object.__setattr__(self, "_listed", listed)

    def at(self, column: Any) -> Ints:
        """Return the row of every path in a column of texts: -1 for null, -2 for no region."""
        codes, texts = coded(column)
        return self._listed[None].places(texts)[codes]

    def misnamed(self, rows: Any, region: Ints) -> tuple[int, str] | None:
        """Return the first row whose level, or a text of its region, is not the region's, and which; None for none.

        ``region`` are the rows' regions, all known.
        """
        differences = [(np.flatnonzero(int64_column(rows, "level") != self.level[region]), "level")]
        for name, (own, expected) in self.texts.items():
            codes, texts = coded(rows.column(name))
            stated = self._listed[name].places(texts)[codes]
            differences.append((np.flatnonzero(np.where(stated == -1, len(expected), stated) != own[region]), name))
        wrong = [(int(differ[0]), name) for differ, name in differences if differ.size]
        return min(wrong) if wrong else None


def int64_column(table: Any, name: str) -> Ints:
    """Return a column of integers."""
    return np.asarray(table.column(name).to_numpy(), np.int64)


def positions(values: Any, names: Sequence[str]) -> Ints:
    """Return where each value stands in ``names``: -1 for null, -2 for a value that does not occur there."""
    codes, texts = coded(values)
    return places(texts, as_arrow(names))[codes]


def coded(values: Any) -> tuple[Ints, Any]:
    """Return a column as places in an Arrow array of the values it has; a null's is that array's length."""
    encoded = values.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(), np.int64), encoded.dictionary


def places(texts: Any, names: Any) -> Ints:
    """Return where each of ``texts`` stands in the array ``names``, -2 for one that does not; and then null's -1."""
    return OrderedNames(names).places(texts)


def tree_check(names: Sequence[str], parent: Ints, level: Ints) -> Check:
    """Check that regions form a tree whose leaves lie at one depth and whose names are paths; rows by number."""
    problem = _tree_problem(names, parent, level)
    return Check(
        "hierarchy", not problem, problem or f"a tree of {len(names):,} region{'' if len(names) == 1 else 's'}"
    )


def _tree_problem(names: Sequence[str], parent: Ints, level: Ints) -> str:
    if not all(names):
        return "a region has no name"
    if len(as_arrow(names).dictionary_encode().dictionary) < len(names):
        return "a region occurs twice"
    if np.count_nonzero(parent == -1) != 1:
        return f"{np.count_nonzero(parent == -1)} regions have no parent; one must"
    if np.any(parent == -2):
        return f"the parent of {names[first_of(parent == -2)]!r} is not in the table"
    if not is_one_name(names[first_of(parent == -1)]):
        return "the root's name holds a slash that is not escaped"
    inner = parent >= 0
    if level[~inner][0] != 0 or np.any(level[inner] != level[parent[inner]] + 1):
        return "a region's level is not its parent's plus one"
    for name, up in zip(names, parent.tolist(), strict=True):
        if up >= 0 and not _lies_below(name, names[up]):
            return f"{name!r} does not lie below its parent"
    childless = np.bincount(parent[inner], minlength=len(names)) == 0
    if np.any(level[childless] != level.max()):
        return "leaves lie at different depths"
    return ""


def _lies_below(name: str, above: str) -> bool:
    head, slash, own = name[: len(above)], name[len(above) : len(above) + 1], name[len(above) + 1 :]
    return head == above and slash == "/" and is_one_name(own)


def is_safe(values: npt.NDArray[Any]) -> bool:
    """Return whether sums of these values stay far inside int64, so that a wrap cannot fake a total."""
    return bool(np.abs(values.astype(np.float64)).sum() < _LARGEST_SUM)


def first_of(mask: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
    """Return the first place that holds."""
    return int(np.flatnonzero(mask)[0])
