"""Check the files of a release of groups against its promises, from raw columns, without the code that wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.files.folder import read_columns
from coco_opt.files.regions import REGIONS
from coco_opt.files.release_checks import Check, first_of, int64_column, is_safe
from coco_opt.groups.kind.files import HISTOGRAM_COLUMNS, HISTOGRAMS
from coco_opt.groups.kind.intervals import INTERVALS, PROMISE, interval_check
from coco_opt.groups.kind.summaries import SUMMARY_FILE, SUMMARY_PROMISE, summary_check
from coco_opt.groups.kind.unbiased import PROMISE as UNBIASED_PROMISE
from coco_opt.groups.kind.unbiased import UNBIASED, unbiased_check
from coco_opt.groups.queries import GROUPS
from coco_opt.releases.kind import Folder


@dataclass(frozen=True, eq=False, slots=True)
class _Content:
    """The columns of both tables as arrays; ``parent`` and ``region`` are row numbers in the hierarchy table."""

    names: Sequence[str]
    parent: Ints
    totals: Ints
    region: Ints
    sizes: Ints
    groups: Ints
    max_size: int


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
    integers = _integers(folder, rows)
    yield integers
    if not integers.passed:
        return
    content = _Content(
        names=folder.regions.names,
        parent=folder.regions.parent,
        totals=folder.regions.numbers[GROUPS],
        region=folder.regions.at(rows.column("region")),
        sizes=int64_column(rows, "size"),
        groups=int64_column(rows, "groups"),
        max_size=max_size,
    )
    known_regions = _known_regions(folder, content, rows)
    yield known_regions
    if known_regions.passed:
        yield _rows(content)
        for name, check in _PROMISE_CHECKS.items():
            if name in folder.manifest["promises"]:
                yield check(content)
        if PROMISE in folder.manifest["promises"] or (folder.path / INTERVALS).exists():
            yield interval_check(folder, (content.region, content.sizes, content.groups), content.totals, max_size)
        if SUMMARY_PROMISE in folder.manifest["promises"] or (folder.path / SUMMARY_FILE).exists():
            yield summary_check(folder, (content.region, content.sizes, content.groups), content.totals)
        if UNBIASED_PROMISE in folder.manifest["promises"] or (folder.path / UNBIASED).exists():
            yield unbiased_check(folder, content.totals, max_size)


def _integers(folder: Folder, rows: Any) -> Check:
    import pyarrow.types as kinds

    if GROUPS not in folder.regions.numbers:
        return Check("integers", passed=False, detail=f"{REGIONS} has no column {GROUPS!r}")
    for name in ("level", "size", "groups"):
        column = rows.column(name)
        signed = kinds.is_signed_integer(column.type)
        if not signed or column.null_count:
            what = "has empty entries" if signed else f"has type {column.type}"
            return Check("integers", passed=False, detail=f"{HISTOGRAMS}, column {name!r} {what}")
    return Check("integers", passed=True, detail="levels, sizes and counts are integers")


def _known_regions(folder: Folder, content: _Content, rows: Any) -> Check:
    """Check that rows name regions of the hierarchy, and their levels, names and ids as it does."""
    unknown = content.region < 0
    if unknown.any():
        return Check("regions", passed=False, detail=f"row {first_of(unknown) + 1}: no such region")
    wrong = folder.regions.misnamed(rows, content.region)
    if wrong:
        return Check("regions", passed=False, detail=f"row {wrong[0] + 1}: not the region's {wrong[1]}")
    return Check("regions", passed=True, detail="every row has a known region, its level and names")


def _rows(content: _Content) -> Check:
    order = np.lexsort((content.sizes, content.region))
    region, size = content.region[order], content.sizes[order]
    twice = (region[1:] == region[:-1]) & (size[1:] == size[:-1])
    if twice.any():
        row = int(order[1:][twice].min()) + 1
        return Check("rows", passed=False, detail=f"row {row}: this region and size occur twice")
    if np.any(content.groups == 0):
        row = first_of(content.groups == 0) + 1
        return Check("rows", passed=False, detail=f"row {row}: a row with 0 groups must be left out")
    return Check("rows", passed=True, detail="every region and size occurs once")


def _nonnegative(content: _Content) -> Check:
    negative = (content.groups < 0) | (content.sizes < 0)
    if negative.any():
        return Check("nonnegative", passed=False, detail=f"row {first_of(negative) + 1} is negative")
    if np.any(content.totals < 0):
        return Check("nonnegative", passed=False, detail="a number of groups in the hierarchy is negative")
    return Check("nonnegative", passed=True, detail="no size and no count is negative")


def _sizes(content: _Content) -> Check:
    outside = (content.sizes > content.max_size) | (content.sizes < 0)
    detail = f"row {first_of(outside) + 1} lies outside" if outside.any() else "sizes lie within"
    return Check("sizes_at_most_max_size", not outside.any(), f"{detail} 0..{content.max_size}")


def _group_totals(content: _Content) -> Check:
    name = "group_totals"
    if not is_safe(content.groups) or not is_safe(content.totals):
        return Check(name, passed=False, detail="the counts do not add up within 64 bits")
    totals = np.zeros(len(content.names), np.int64)
    np.add.at(totals, content.region, content.groups)
    wrong = totals != content.totals
    if wrong.any():
        row = first_of(wrong)
        detail = f"{content.names[row]!r} has {totals[row]:,} groups, the hierarchy says {content.totals[row]:,}"
        return Check(name, passed=False, detail=f"{np.count_nonzero(wrong)} regions differ; {detail}")
    below = np.zeros(len(content.names), np.int64)
    inner = content.parent >= 0
    np.add.at(below, content.parent[inner], content.totals[inner])
    parents = np.unique(content.parent[inner])
    off = parents[below[parents] != content.totals[parents]]
    if off.size:
        return Check(name, passed=False, detail=f"the parts of {content.names[off[0]]!r} do not add up to it")
    return Check(name, passed=True, detail=f"all regions have their stated number of groups ({totals.max():,})")


def _children_sum(content: _Content) -> Check:
    """Compare each inner region's runs with the sums of its children's: the difference must vanish everywhere."""
    name = "children_sum_to_parents"
    if not is_safe(content.groups):
        return Check(name, passed=False, detail="the counts do not add up within 64 bits")
    is_parent = np.zeros(len(content.names), bool)
    is_parent[content.parent[content.parent >= 0]] = True
    own = is_parent[content.region]
    up = content.parent[content.region]
    region = np.concatenate([content.region[own], up[up >= 0]])
    size = np.concatenate([content.sizes[own], content.sizes[up >= 0]])
    groups = np.concatenate([content.groups[own], -content.groups[up >= 0]])
    order = np.lexsort((size, region))
    region, size, groups = region[order], size[order], groups[order]
    new = np.ones(region.size, bool)
    new[1:] = (region[1:] != region[:-1]) | (size[1:] != size[:-1])
    starts = np.flatnonzero(new)
    rest = np.add.reduceat(groups, starts) if starts.size else groups
    if rest.any():
        where = int(starts[first_of(rest != 0)])
        detail = f"{content.names[region[where]]!r}, size {size[where]}, differs from the sum of its children"
        return Check(name, passed=False, detail=f"{np.count_nonzero(rest)} cells differ; {detail}")
    return Check(name, passed=True, detail="every region is the sum of its children at every size")


_PROMISE_CHECKS: Mapping[str, Callable[[_Content], Check]] = {
    "nonnegative": _nonnegative,
    "sizes_at_most_max_size": _sizes,
    "group_totals": _group_totals,
    "children_sum_to_parents": _children_sum,
}
