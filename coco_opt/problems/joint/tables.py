"""What problems over cumulative tables of a hierarchy share: constraints, and how to meet them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.problem import Problem, plain_answer
from coco_opt.problems.tree.data import Tree


@dataclass(frozen=True, eq=False, init=False)
class CumulativeTables(Problem[NDArray[Any], Floats]):
    """Base of problems whose values are tables (regions, cells) near noisy measurements ``y``.

    Rows are nondecreasing within 0 .. ``groups`` (regions,), and inner regions' are the sums of their children's;
    ``weights`` (regions,) are those of the regions' losses.
    """

    tree: Tree
    y: Floats
    groups: Ints
    weights: Floats

    def _store(self, tree: Tree, **arrays: NDArray[Any]) -> None:
        """Store checked data, with read-only arrays."""
        object.__setattr__(self, "tree", tree)
        for name, values in arrays.items():
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @property
    def variables(self) -> int:
        """Return the number of cells of all regions."""
        return self.y.size

    def accept(self, answer: Any) -> NDArray[Any]:
        """Return the answer as int64 or float64."""
        return plain_answer(answer)

    def violation(self, x: NDArray[Any]) -> float:
        """Return the largest decrease in a row, excess over a bound or error of a sum."""
        x = plain_answer(x)
        if x.shape != self.y.shape or not np.isfinite(x).all():
            return np.inf
        decrease = -float(np.diff(x, axis=1).min(initial=0.0))
        beyond = max(-float(x.min(initial=0.0)), float((x - self.groups[:, None]).max(initial=0.0)))
        return max(decrease, beyond, float(np.abs(x - self.sums(x)).max(initial=0.0)))

    def repair(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the sums of the leaves' rows, each projected on the nondecreasing rows within its bounds."""
        if x.shape != self.y.shape or not np.isfinite(x).all():
            return x
        return self.sums(self.nearest_rows(np.array(x, dtype=np.float64)))

    def sums(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return a table (regions, cells) with the rows of inner regions replaced by their children's sums."""
        from coco_opt.kernels import joint_certificate

        total = np.array(table, order="C")
        joint_certificate.add_upward(self.tree.first_child, total)
        return total

    def objective(self, x: NDArray[Any]) -> float:
        """Return the sum of all regions' losses."""
        return float(self.losses(x).sum())

    @abstractmethod
    def losses(self, x: NDArray[Any]) -> Floats:
        """Return each region's weighted loss (regions,)."""

    @abstractmethod
    def nearest_rows(self, table: Floats) -> Floats:
        """Return the nearest nondecreasing rows within each region's bounds; the table may be overwritten."""
