"""All facts of a tree of regions as one system of ranged rows over the classes of cells in every leaf.

lower  <=  sum over the leaves below a region and over classes of  row[class] x[leaf, class]  <=  upper,   x >= 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.constraint import LinearConstraint, Source
from coco_opt.topdown.facts.classes import CellClasses
from coco_opt.topdown.schema import Schema

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coco_opt.topdown.invariants import RegionBounds

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Fact = tuple[int, int]
"""A row of a system and a region, counted from 0 within the row's level."""


@dataclass(frozen=True, eq=False, slots=True)
class FactRow:
    """One row of a fact in every region of a level: coefficients int64[classes], sides int64[regions], names."""

    level: int
    coefficients: Ints
    lower: Ints
    upper: Ints
    label: str
    source: Source
    relation: bool = False  # the label is a whole statement, sides and all

    @property
    def stated(self) -> Bools:
        """Return the regions in which the row says anything: 0 is no lower side of a count."""
        low = self.lower > (0 if (self.coefficients >= 0).all() else -UNBOUNDED)
        return np.asarray(low | (self.upper < UNBOUNDED))

    @property
    def counts_once(self) -> bool:
        """Return whether the row counts every class once or not at all."""
        return bool(((self.coefficients == 0) | (self.coefficients == 1)).all())

    def nests(self, other: FactRow) -> bool:
        """Return whether two rows that count once have nested or disjoint sets of (leaf, class) in all regions."""
        if not (self.coefficients & other.coefficients).any():
            return True
        inner = bool((other.coefficients >= self.coefficients).all())
        outer = bool((self.coefficients >= other.coefficients).all())
        return (self.level >= other.level and inner) or (other.level >= self.level and outer)

    def without_sides(self, but: Sequence[int] = ()) -> FactRow:
        """Return the row without sides but in some regions."""
        lower, upper, here = np.full_like(self.lower, -UNBOUNDED), np.full_like(self.upper, UNBOUNDED), list(but)
        lower[here], upper[here] = self.lower[here], self.upper[here]
        return replace(self, lower=lower, upper=upper)


@dataclass(frozen=True, eq=False)
class FactSystem:
    """The facts of a hierarchy over its leaves' classes; ``rows`` by level and answer. Build it with ``of``."""

    hierarchy: Hierarchy
    classes: CellClasses
    rows: tuple[FactRow, ...]

    @classmethod
    def of(
        cls,
        hierarchy: Hierarchy,
        schema: Schema,
        bounds: Sequence[RegionBounds],
        linear: Sequence[LinearConstraint] = (),
    ) -> FactSystem:
        """Return the system of stated bounds and constraints. O(facts x (cells + regions))."""
        own = [one.row(schema) for one in linear]
        classes = CellClasses.of([one.query.operator for one in bounds], own, schema.size)
        rows = []
        for one in bounds:
            weights, names = classes.coefficients(one.query.operator), one.query.labels()
            for answer, name in enumerate(names):
                label = name if name == one.query.name else f"{one.query.name}: {name}"
                sides = one.lower[:, answer], one.upper[:, answer]
                rows.append(FactRow(one.level, weights[answer], *sides, label, one.source))
        for given, row in zip(linear, own, strict=True):
            weights, sides = row[classes.first], (given.lower, given.upper)
            rows.append(FactRow(given.level, weights, *sides, given.text, given.source, given.is_relation))
        return cls(hierarchy, classes, tuple(row for row in rows if row.stated.any()))

    def only(self, facts: Collection[Fact]) -> FactSystem:
        """Return the system of some facts alone: the same rows, without sides where nothing of theirs is kept."""
        regions: dict[int, list[int]] = {}
        for at, region in facts:
            regions.setdefault(at, []).append(region)
        rows = tuple(row.without_sides(regions.get(at, ())) for at, row in enumerate(self.rows))
        return FactSystem(self.hierarchy, self.classes, rows)

    @property
    def leaves(self) -> int:
        """Return the number of leaves."""
        return len(self.hierarchy.leaves)

    @cached_property
    def leaf_starts(self) -> tuple[Ints, ...]:
        """Return, for each level, the first leaf of every region and the number of leaves, int64[regions + 1]."""
        starts = [np.arange(self.leaves + 1, dtype=np.int64)]
        for level in range(self.hierarchy.levels - 2, -1, -1):
            here, below = self.hierarchy.level_range(level), self.hierarchy.level_range(level + 1)
            starts.append(starts[-1][self.hierarchy.first_child[here.start : here.stop + 1] - below.start])
        return tuple(reversed(starts))

    def sums(self, table: Ints | Floats, level: int) -> NDArray[Any]:
        """Return the sums of leaves' numbers [leaves, ...] over the regions of a level."""
        found: NDArray[Any] = np.add.reduceat(table, self.leaf_starts[level][:-1], axis=0)
        return found

    def broken(self, table: Ints) -> list[tuple[FactRow, int]]:
        """Return the first rows (and regions, from 0 within their level) that whole leaves [leaves, classes] break."""
        found = []
        for row in self.rows:
            values = self.sums(table @ row.coefficients, row.level)
            wrong = np.flatnonzero((values < row.lower) | (values > row.upper))
            if wrong.size:
                found.append((row, int(wrong[0])))
        return found

    def holds(self, table: Ints) -> bool:
        """Tell whether whole leaves int64[leaves, classes] are nonnegative and meet every fact, in integers."""
        return bool((table >= 0).all()) and not self.broken(table)

    def words(self, row: FactRow, region: int) -> str:
        """Return a fact of one region in words; of an exact answer without its value, which may not be paid for yet."""
        path = self.hierarchy.paths[self.hierarchy.level_range(row.level).start + region]
        low, high = int(row.lower[region]), int(row.upper[region])
        if row.relation:
            said = repr(row.label)
        elif row.source == "data":
            said = f"{row.label!r} as it is in the data,"
        elif low == high:
            said = f"{row.label!r} is {low:,}"
        elif high >= UNBOUNDED:
            said = f"{row.label!r} is at least {low:,}"
        elif low <= 0:
            said = f"{row.label!r} is at most {high:,}"
        else:
            said = f"{row.label!r} is {low:,} to {high:,}"
        return f"{said} in {path!r}" + (", as published before" if row.source == "release" else "")

    @cached_property
    def by_sums(self) -> bool:
        """Return whether bounds closed under sums decide everything, in whole numbers too.

        So it is where all rows count classes once and the sets (regions below, classes) are nested or disjoint: each
        row is then the sum of the rows within it and of free cells, and intervals add up.
        """
        sets = {(row.level, row.coefficients.tobytes()): row for row in self.rows if row.stated.any()}
        rows = list(sets.values())
        if len(rows) > _MOST_SETS or not all(row.counts_once for row in rows):
            return False
        return all(row.nests(other) for at, row in enumerate(rows) for other in rows[:at])

    def nested_parts(self) -> Iterator[FactSystem]:
        """Yield systems of some rows that ``by_sums`` decides, together of every row that counts classes once."""
        rows = [(at, row) for at, row in enumerate(self.rows) if row.stated.any() and row.counts_once][:_MOST_SETS]
        done: set[int] = set()
        while len(done) < len(rows):
            part: dict[int, FactRow] = {}
            # What no part has yet comes first; then whatever nests with it.
            for at, row in sorted(rows, key=lambda one: one[0] in done):
                if all(row.nests(other) for other in part.values()):
                    part[at] = row
            done |= part.keys()
            kept = tuple(row if at in part else row.without_sides() for at, row in enumerate(self.rows))
            yield FactSystem(self.hierarchy, self.classes, kept)

    @cached_property
    def box(self) -> tuple[Ints, Ints]:
        """Return what rows of one class in a leaf leave each variable, int64[leaves, classes] twice."""
        shape = (self.leaves, self.classes.count)
        lower, upper = np.zeros(shape, np.int64), np.full(shape, UNBOUNDED)
        last = self.hierarchy.levels - 1
        for row in self.rows:
            used = np.flatnonzero(row.coefficients)
            if (row.coefficients >= 0).all():
                # No class can exceed what any row that counts it allows, in any leaf below.
                most = np.repeat(row.upper, np.diff(self.leaf_starts[row.level]))
                for one in used.tolist():
                    weight = int(row.coefficients[one])
                    limit = np.where(most >= UNBOUNDED, UNBOUNDED, most // weight)
                    upper[:, one] = np.minimum(upper[:, one], limit)
            if row.level == last and used.size == 1 and row.coefficients[used[0]] > 0:
                weight = int(row.coefficients[used[0]])
                lower[:, used[0]] = np.maximum(lower[:, used[0]], -(-row.lower // weight))
        return lower, upper

    def ranged(self) -> Iterator[tuple[int, Ints]]:
        """Yield the (row, regions) that a box of variables does not say already."""
        last = self.hierarchy.levels - 1
        for at, row in enumerate(self.rows):
            single = np.count_nonzero(row.coefficients) == 1 and row.coefficients.max() > 0
            if row.level == last and single:
                continue
            regions = np.flatnonzero(row.stated)
            if regions.size:
                yield at, regions

    def matrix(self, pairs: Sequence[tuple[int, Ints]]) -> tuple[csr_array, Floats, Floats]:
        """Return rows of some (row, regions) over all variables, leaf by leaf, with infinite sides for none."""
        from scipy.sparse import csr_array

        count, data, columns, sizes, lows, highs = self.classes.count, [], [], [], [], []
        for at, regions in pairs:
            row = self.rows[at]
            used = np.flatnonzero(row.coefficients)
            starts = self.leaf_starts[row.level]
            spans = starts[regions + 1] - starts[regions]
            first = np.repeat(starts[regions] - np.cumsum(spans) + spans, spans)
            leaf = first + np.arange(int(spans.sum()))
            columns.append((leaf[:, None] * count + used).reshape(-1))
            data.append(np.tile(row.coefficients[used], leaf.size))
            sizes.append(spans * used.size)
            lows.append(row.lower[regions])
            highs.append(row.upper[regions])
        shape = (sum(size.size for size in sizes), self.leaves * count)
        if not pairs:
            return csr_array(shape), np.zeros(0), np.zeros(0)
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(sizes))])
        matrix = csr_array((np.concatenate(data).astype(np.float64), np.concatenate(columns), start), shape=shape)
        low, high = np.concatenate(lows), np.concatenate(highs)
        return matrix, infinite(low), infinite(high)


_MOST_SETS = 400


def infinite(side: Ints) -> Floats:
    """Return sides as numbers, infinite where there is none."""
    found = side.astype(np.float64)
    found[side >= UNBOUNDED] = np.inf
    found[side <= -UNBOUNDED] = -np.inf
    return found
