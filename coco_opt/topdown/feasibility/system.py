"""All constraints of a tree of regions as one system of ranged rows over the classes of cells in every leaf.

lower  <=  sum over the leaves below a region and over classes of  row[class] x[leaf, class]  <=  upper,   x >= 0.

Cells that no constraint distinguishes are one class: constraints bind the classes' counts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.topdown.constraint import UNBOUNDED, LinearConstraint, Source
from coco_opt.topdown.rows import CellClasses, infinite, integer_matrix
from coco_opt.topdown.schema import Schema

if TYPE_CHECKING:
    from coco_opt.topdown.constraint import RegionBounds


Ranged = tuple[Any, Floats, Floats]
"""Rows of a program, low <= matrix x <= high, with infinite sides for none."""

RegionConstraint = tuple[int, int]
"""A row of a system and a region, counted from 0 within the row's level."""


@dataclass(frozen=True, eq=False, slots=True)
class ConstraintRow:
    """One row of a constraint in every region of a level: coefficients int64[classes], sides int64[regions], names."""

    level: int
    coefficients: Ints
    lower: Ints
    upper: Ints
    label: str
    source: Source
    relation: bool = False  # the label is a complete statement, sides and all

    @property
    def binding(self) -> Flags:
        """Return the regions in which the row says anything: 0 is no lower side of a count."""
        low = self.lower > (0 if (self.coefficients >= 0).all() else -UNBOUNDED)
        return np.asarray(low | (self.upper < UNBOUNDED))

    @property
    def counts_once(self) -> bool:
        """Return whether the row counts every class once or not at all."""
        return bool(((self.coefficients == 0) | (self.coefficients == 1)).all())

    def nests(self, other: ConstraintRow) -> bool:
        """Return whether two rows that count once have nested or disjoint sets of (leaf, class) in all regions."""
        if not (self.coefficients & other.coefficients).any():
            return True
        inner = bool((other.coefficients >= self.coefficients).all())
        outer = bool((self.coefficients >= other.coefficients).all())
        return (self.level >= other.level and inner) or (other.level >= self.level and outer)

    @property
    def without_sides(self) -> ConstraintRow:
        """Return the row without sides in any region."""
        return replace(self, lower=np.full_like(self.lower, -UNBOUNDED), upper=np.full_like(self.upper, UNBOUNDED))


@dataclass(frozen=True, eq=False)
class ConstraintSystem:
    """The constraints of a hierarchy over its leaves' classes; ``rows`` by level and answer. Build it with ``of``."""

    hierarchy: Hierarchy
    classes: CellClasses
    rows: tuple[ConstraintRow, ...]

    @classmethod
    def of(
        cls,
        hierarchy: Hierarchy,
        schema: Schema,
        bounds: Sequence[RegionBounds],
        linear: Sequence[LinearConstraint] = (),
    ) -> ConstraintSystem:
        """Return the system of stated bounds and constraints. O(constraints x (cells + regions))."""
        linear = [constraint.oriented for constraint in linear]
        coefficients = [constraint.row(schema) for constraint in linear]
        rows_of = [integer_matrix(row[None, :]) for row in coefficients]
        classes = CellClasses.of([*(bound.query.operator for bound in bounds), *rows_of], schema.size)
        rows = []
        for bound in bounds:
            weights, names = np.rint(classes.matrix(bound.query.operator)).astype(np.int64), bound.query.labels()
            for answer, name in enumerate(names):
                label = name if name == bound.query.name else f"{bound.query.name}: {name}"
                sides = bound.lower[:, answer], bound.upper[:, answer]
                rows.append(ConstraintRow(bound.level, weights[answer], *sides, label, bound.source))
        for constraint, row in zip(linear, coefficients, strict=True):
            weights, sides = row[classes.first], (constraint.lower, constraint.upper)
            rows.append(
                ConstraintRow(
                    constraint.level, weights, *sides, constraint.text, constraint.source, constraint.is_relation
                )
            )
        return cls(hierarchy, classes, tuple(row for row in rows if row.binding.any()))

    @property
    def leaves(self) -> int:
        """Return the number of leaves."""
        return len(self.hierarchy.leaves)

    @cached_property
    def leaf_starts(self) -> tuple[Ints, ...]:
        """Return, for each level, the first leaf of every region and the number of leaves, int64[regions + 1]."""
        return self.hierarchy.leaf_starts()

    def sums(self, table: Ints | Floats, level: int) -> NDArray[Any]:
        """Return the sums of leaves' numbers [leaves, ...] over the regions of a level."""
        totals: NDArray[Any] = np.add.reduceat(table, self.leaf_starts[level][:-1], axis=0)
        return totals

    def holds(self, table: Ints) -> bool:
        """Return whether integer leaves int64[leaves, classes] are nonnegative and meet every constraint, exactly."""
        answers = ((row, self.sums(table @ row.coefficients, row.level)) for row in self.rows)
        kept = (bool(((row.lower <= values) & (values <= row.upper)).all()) for row, values in answers)
        return bool((table >= 0).all()) and all(kept)

    def words(self, row: ConstraintRow, region: int) -> str:
        """Return a region's constraint in words; an exact answer without its value, which may not be paid for yet."""
        path = self.hierarchy.paths[self.hierarchy.level_range(row.level).start + region]
        low, high = int(row.lower[region]), int(row.upper[region])
        if row.relation:
            statement = repr(row.label)
        elif row.source == "data":
            statement = f"{row.label!r} as it is in the data,"
        elif low == high:
            statement = f"{row.label!r} is {low:,}"
        elif high >= UNBOUNDED:
            statement = f"{row.label!r} is at least {low:,}"
        elif low <= 0:
            statement = f"{row.label!r} is at most {high:,}"
        else:
            statement = f"{row.label!r} is {low:,} to {high:,}"
        return f"{statement} in {path!r}" + (", as published before" if row.source == "release" else "")

    @cached_property
    def by_sums(self) -> bool:
        """Return whether bounds closed under sums decide everything, in integers too.

        So it is where all rows count classes once and the sets (regions below, classes) are nested or disjoint: each
        row is then the sum of the rows within it and of free cells, and intervals add up.
        """
        sets = {(row.level, row.coefficients.tobytes()): row for row in self.rows if row.binding.any()}
        rows = list(sets.values())
        if len(rows) > _MOST_SETS or not all(row.counts_once for row in rows):
            return False
        return all(row.nests(other) for at, row in enumerate(rows) for other in rows[:at])

    def nested_parts(self) -> Iterator[ConstraintSystem]:
        """Yield systems of some rows that ``by_sums`` decides, together of every row that counts classes once."""
        rows = [(at, row) for at, row in enumerate(self.rows) if row.binding.any() and row.counts_once][:_MOST_SETS]
        done: set[int] = set()
        while len(done) < len(rows):
            part: dict[int, ConstraintRow] = {}
            # What no part has yet comes first; then whatever nests with it.
            for at, row in sorted(rows, key=lambda item: item[0] in done):
                if all(row.nests(other) for other in part.values()):
                    part[at] = row
            done |= part.keys()
            part_rows = tuple(row if at in part else row.without_sides for at, row in enumerate(self.rows))
            yield ConstraintSystem(self.hierarchy, self.classes, part_rows)

    @cached_property
    def box(self) -> tuple[Ints, Ints]:
        """Return each variable's bounds from rows of one class in a leaf, int64[leaves, classes] twice."""
        return self.box_of(range(self.leaves))

    def box_of(self, leaves: range) -> tuple[Ints, Ints]:
        """Return the ``box`` of consecutive leaves."""
        shape, chosen = (len(leaves), self.classes.count), slice(leaves.start, leaves.stop)
        lower, upper = np.zeros(shape, np.int64), np.full(shape, UNBOUNDED)
        last = self.hierarchy.levels - 1
        for row in self.rows:
            used = np.flatnonzero(row.coefficients)
            if (row.coefficients >= 0).all():
                # No class can exceed what any row that counts it allows, in any leaf below.
                most = self._of_leaves(row.upper, row.level, leaves)
                for column in used.tolist():
                    weight = int(row.coefficients[column])
                    limit = np.where(most >= UNBOUNDED, UNBOUNDED, most // weight)
                    upper[:, column] = np.minimum(upper[:, column], limit)
            if row.level == last and used.size == 1 and row.coefficients[used[0]] > 0:
                weight = int(row.coefficients[used[0]])
                lower[:, used[0]] = np.maximum(lower[:, used[0]], -(-row.lower[chosen] // weight))
        return lower, upper

    def _of_leaves(self, numbers: Ints, level: int, leaves: range) -> Ints:
        """Return for each of consecutive leaves the number of its region at a level."""
        starts = self.leaf_starts[level]
        first, last = np.searchsorted(starts, [leaves.start, leaves.stop - 1], side="right") - 1
        ends = np.asarray(np.clip(starts[first : last + 2], leaves.start, leaves.stop), np.int64)
        return np.asarray(np.repeat(numbers[first : last + 1], ends[1:] - ends[:-1]))

    def within(self, level: int, start: int, stop: int) -> list[tuple[int, Ints]]:
        """Return the (row, regions) that bind consecutive regions of a level or regions in them."""
        first, last, pairs = self.leaf_starts[level][start], self.leaf_starts[level][stop], []
        for at, row in enumerate(self.rows):
            if row.level >= level:
                starts = self.leaf_starts[row.level]
                inside = (starts[:-1] >= first) & (starts[1:] <= last) & row.binding
                pairs.append((at, np.flatnonzero(inside)))
        return [(at, regions) for at, regions in pairs if regions.size]

    def ranged(self) -> Iterator[tuple[int, Ints]]:
        """Yield the (row, regions) that a box of variables does not say already."""
        last = self.hierarchy.levels - 1
        for at, row in enumerate(self.rows):
            single = np.count_nonzero(row.coefficients) == 1 and row.coefficients.max() > 0
            if row.level == last and single:
                continue
            regions = np.flatnonzero(row.binding)
            if regions.size:
                yield at, regions

    def matrix(self, pairs: Sequence[tuple[int, Ints]]) -> Ranged:
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
