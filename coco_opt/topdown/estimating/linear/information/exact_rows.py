"""The rows of a level that hold exactly in some of its regions: constraints whose two sides are equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.operators import Operator
from coco_opt.topdown.matrix_operator import MatrixOperator

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import TableMeasurements


@dataclass(frozen=True, eq=False, slots=True)
class ExactRows:
    """``operator`` (rows, cells); where each row is exact, ``exact`` [regions of a level, rows]; and its ``values``."""

    operator: Operator
    exact: Flags
    values: Floats

    @classmethod
    def of(cls, measured: TableMeasurements, level: int) -> ExactRows:
        """Return the exact rows of a level, without those that are exact nowhere."""
        from scipy.sparse import csr_array

        regions = measured.hierarchy.level_range(level)
        constraints = measured.constraints_of(regions)
        if constraints is None:
            none = MatrixOperator(csr_array((0, measured.queries[0].operator.cells)))
            return cls(none, np.zeros((len(regions), 0), np.bool_), np.zeros((len(regions), 0)))
        exact = constraints.lower == constraints.upper
        rows = np.flatnonzero(exact.any(axis=0))
        operator = MatrixOperator(csr_array(constraints.operator.to_sparse()[rows]))
        return cls(operator, np.ascontiguousarray(exact[:, rows]), constraints.lower[:, rows].astype(np.float64))


def groups(numbers: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each distinct number and where it stands."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.flatnonzero(np.diff(numbers[order])) + 1
    for at in np.split(order, bounds):
        if at.size:
            yield int(numbers[at[0]]), at
