"""Check the files of a release of groups against its promises, from raw columns, without the code that wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.files.folder import read_columns
from coco_opt.files.regions import REGIONS
from coco_opt.files.release_checks import (
    BrokenError,
    Check,
    CountRows,
    checked,
    first_of,
    int64_column,
    is_safe,
    refuse,
    refuse_types,
)
from coco_opt.groups.kind.files import HISTOGRAM_COLUMNS, HISTOGRAMS
from coco_opt.groups.kind.intervals import (
    INTERVALS,
    PROMISE,
    SUMMARY_FILE,
    SUMMARY_PROMISE,
    check_intervals,
    check_summaries,
)
from coco_opt.groups.kind.unbiased import PROMISE as UNBIASED_PROMISE
from coco_opt.groups.kind.unbiased import UNBIASED, check_unbiased
from coco_opt.groups.queries import GROUPS
from coco_opt.releases.kind import Folder


@dataclass(frozen=True, eq=False)
class RawHistograms(CountRows):
    """The raw rows of histograms.parquet: ``key`` is a place among the distinct ``sizes``, ``counts`` are groups.

    ``totals`` are the regions' groups as the hierarchy states them.
    """

    file = HISTOGRAMS
    sizes: Ints
    totals: Ints
    max_size: int

    @classmethod
    def of(cls, folder: Folder, rows: Any, max_size: int) -> RawHistograms:
        """Return the columns of an Arrow table."""
        region, totals = folder.regions.at(rows.column("region")), folder.regions.numbers[GROUPS]
        sizes, key = np.unique(int64_column(rows, "size"), return_inverse=True)
        columns = folder.regions, region, key.reshape(-1), int64_column(rows, "groups"), max(1, sizes.size)
        return cls(*columns, sizes, totals, max_size)

    @property
    def released(self) -> tuple[Ints, Ints, Ints]:
        """Return the regions, sizes and groups of the rows."""
        return np.asarray(self.region, np.int64), self.size, self.counts

    @property
    def size(self) -> Ints:
        """Return the size of each row."""
        return self.sizes[self.key]


def checks_of(folder: Folder) -> Iterator[Check]:
    """Yield the checks of histograms.parquet, and of the promises that the manifest makes; InputError where unreadable.

    Always checked: numbers are integers, and every row has a region of the hierarchy with its level and names, a
    positive count and a size of its own. O(rows log rows).
    """
    rows = read_columns(folder.path / HISTOGRAMS, HISTOGRAM_COLUMNS)
    max_size = folder.manifest.get("max_size")
    if not isinstance(max_size, int) or isinstance(max_size, bool) or max_size < 1:
        yield Check("manifest", passed=False, detail="max_size must be a positive integer")
        return
    yield (integers := checked("integers", lambda: _integers(folder, rows)))
    if not integers.passed:
        return
    histograms = RawHistograms.of(folder, rows, max_size)
    yield (regions := checked("regions", lambda: _regions(histograms, rows)))
    if not regions.passed:
        return
    yield checked("rows", partial(_rows, histograms))
    for name, look in _PROMISE_CHECKS.items():
        if name in folder.manifest["promises"]:
            yield checked(name, partial(look, histograms))
    for promise, file, look_at in _FURTHER:
        if promise in folder.manifest["promises"] or (folder.path / file).exists():
            yield checked(promise, partial(look_at, folder, histograms))


def _integers(folder: Folder, rows: Any) -> str:
    if GROUPS not in folder.regions.numbers:
        raise BrokenError(f"{REGIONS} has no column {GROUPS!r}")
    refuse_types(rows, dict.fromkeys(("level", "size", "groups"), "int64"), HISTOGRAMS)
    return "levels, sizes and counts are integers"


def _regions(histograms: RawHistograms, rows: Any) -> str:
    """Check that rows name regions of the hierarchy, and their levels, names and ids as it does."""
    histograms.regions.refuse_misnamed(rows, histograms.region, HISTOGRAMS)
    return "every row has a known region, its level and names"


def _rows(histograms: RawHistograms) -> str:
    histograms.refuse_repeated("this region and size occur twice")
    histograms.refuse(lambda rows: histograms.counts[rows] == 0, "a row with 0 groups must be left out")
    return "every region and size occurs once"


def _nonnegative(histograms: RawHistograms) -> str:
    negative = (histograms.counts < 0) | (histograms.size < 0)
    refuse(negative, "is negative", HISTOGRAMS)
    if np.any(histograms.totals < 0):
        raise BrokenError("a number of groups in the hierarchy is negative")
    return "no size and no count is negative"


def _sizes(histograms: RawHistograms) -> str:
    within = f"within 0..{histograms.max_size}"
    refuse((histograms.size > histograms.max_size) | (histograms.size < 0), f"does not lie {within}", HISTOGRAMS)
    return f"sizes lie {within}"


def _group_totals(histograms: RawHistograms) -> str:
    names, parent, stated = histograms.regions.paths, histograms.regions.hierarchy.parent, histograms.totals
    if not histograms.add_up_safely or not is_safe(stated):
        raise BrokenError("the counts do not add up within 64 bits")
    totals = np.zeros(len(names), np.int64)
    np.add.at(totals, histograms.region, histograms.counts)
    wrong = totals != stated
    if wrong.any():
        row = first_of(wrong)
        detail = f"{names[row]!r} has {totals[row]:,} groups, the hierarchy says {stated[row]:,}"
        raise BrokenError(f"{np.count_nonzero(wrong)} regions differ; {detail}")
    below, inner = np.zeros(len(names), np.int64), parent >= 0
    np.add.at(below, parent[inner], stated[inner])
    parents = np.unique(parent[inner])
    off = parents[below[parents] != stated[parents]]
    if off.size:
        raise BrokenError(f"the parts of {names[off[0]]!r} do not add up to it")
    return f"all regions have their stated number of groups ({totals.max():,})"


def _children_sum(histograms: RawHistograms) -> str:
    histograms.refuse_other_sums(lambda key: f"size {histograms.sizes[key]}")
    return "every region is the sum of its children at every size"


_PROMISE_CHECKS: Mapping[str, Callable[[RawHistograms], str]] = {
    "nonnegative": _nonnegative,
    "sizes_at_most_max_size": _sizes,
    "group_totals": _group_totals,
    "children_sum_to_parents": _children_sum,
}


_FURTHER: tuple[tuple[str, str, Callable[[Folder, RawHistograms], str]], ...] = (
    (PROMISE, INTERVALS, lambda folder, rows: check_intervals(folder, rows.released, rows.totals, rows.max_size)),
    (SUMMARY_PROMISE, SUMMARY_FILE, lambda folder, rows: check_summaries(folder, rows.released, rows.totals)),
    (UNBIASED_PROMISE, UNBIASED, lambda folder, rows: check_unbiased(folder, rows.totals, rows.max_size)),
)
