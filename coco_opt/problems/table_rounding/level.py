"""Many roundings in one call: the children of all parents of a level whose rows are nested, in passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.kernels.arrays import read_only
from coco_opt.problems.sparse_rows import SparseRows


class Rounded(NamedTuple):
    """Integer tables, the parents that were rounded, and the worst certified gaps of all passes, with their number."""

    tables: Ints
    done: Flags
    solves: int
    gap: float
    relative_gap: float


@dataclass(frozen=True, eq=False)
class RoundingLevel:
    """Fractional ``tables`` of several parents' children (see ``SplitLevel``) to round in passes.

    ``rows`` are those of the passes' queries on all cells, nested, ``turn`` each row's pass, rising; ``passes`` their
    number, the cells' pass after them. ``first`` is the region of each parent's first child; ``seed`` decides ties.
    """

    rows: SparseRows
    turn: Ints
    passes: int
    starts: Ints
    cells: Ints
    people: Ints
    first: Ints
    children: Ints
    places: Ints
    tables: Floats
    seed: int

    @classmethod
    def example(cls) -> Self:
        """Return two parents with two children each, two cells and a pass for the cells' sum."""
        two, four = np.array([0, 2]), np.array([0, 2, 4])
        return cls(
            rows=SparseRows(two, np.arange(2), np.ones(2), np.arange(3), np.zeros(2, np.int64), np.ones(2)),
            turn=np.zeros(1, np.int64),
            passes=1,
            starts=four,
            cells=np.array([0, 1, 0, 1]),
            people=np.array([3, 2, 1, 4]),
            first=np.array([3, 5]),
            children=four,
            places=np.array([0, 4, 8]),
            tables=np.array([1.5, 1.5, 0.25, 1.75, 0.5, 0.5, 1.4, 2.6]),
            seed=1,
        )

    @property
    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Return the rows by columns and each row's pass, for kernels."""
        return read_only(self.rows.column_start), read_only(self.rows.row), read_only(self.turn)


@runtime_checkable
class LevelRounder(Protocol):
    """A solver of ``table_rounding`` that takes many problems in one call."""

    def round_level(self, level: RoundingLevel) -> Rounded:
        """Return integer tables with certified gaps; parents not ``done`` are left to ``solve``."""
        ...
