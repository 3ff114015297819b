"""The trees of the queries, corrected in each region to its exact constraints: where constraints are too many for more.

Let x be a region's table from the trees, N the normal equations of its level and E x = e its exact constraints. Then

    x + N^+ E' (E N^+ E')^+ (e - E x)

meets them and stays unbiased; it is the best correction where the trees' variances are in the proportions of the
weights in N. Its errors are those of x without E, so standard errors are exact: r' x has the weights
r - r' N^+ E' (E N^+ E')^+ E on the trees' tables. Constraints that the level's queries do not determine are left out,
and so is what constraints say about other regions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.operators import Operator, blocks_of_rows
from coco_opt.topdown.estimating.linear.linear_estimates import ExactRows, LinearEstimates, NormalEquations, groups
from coco_opt.topdown.estimating.linear.query_trees import LinearStage, linear_stage

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import TableMeasurements


_OUTSIDE = 1e-8  # part of a row, relative to its size, that counts as zero
_RANK = 1e-11  # eigenvalues and singular values below this part of the largest are zero
_EXACT = 1e-18  # a variance, over that without constraints, that is none
_NOTHING = 1e-20  # a variance, over that of a query's answer, that is none


@dataclass(frozen=True, eq=False, slots=True)
class Correction:
    """The correction of regions in which the same rows are exact: x + N^+ E' gain (e - E x).

    ``rows`` are places among the level's exact rows, and ``gain`` (k, k) is (E N^+ E')^+.
    """

    rows: Ints
    gain: Floats


@dataclass(frozen=True, eq=False)
class LevelConstraints:
    """The exact rows of a level that its queries determine: their ``matrix`` and N^+ of it [rows, cells]."""

    exact: ExactRows
    normal: NormalEquations
    matrix: Floats
    solved: Floats

    @classmethod
    def of(cls, exact: ExactRows, normal: NormalEquations) -> LevelConstraints:
        """Solve for all rows of a level."""
        matrix = exact.operator.to_sparse().toarray()
        solved = normal.solve(matrix)
        left = np.linalg.norm(matrix - normal.apply(solved), axis=1)
        inside = np.flatnonzero(left <= _OUTSIDE * np.linalg.norm(matrix, axis=1))
        used = ExactRows(exact.operator, exact.exact[:, inside], exact.values[:, inside])
        return cls(used, normal, matrix[inside], solved[inside])

    @cached_property
    def patterns(self) -> tuple[Ints, tuple[Correction, ...]]:
        """Return the number of each region's correction, and the corrections."""
        patterns, inverse = np.unique(self.exact.exact, axis=0, return_inverse=True)
        return inverse.reshape(-1), tuple(self._correction(np.flatnonzero(pattern)) for pattern in patterns)

    @cached_property
    def gram(self) -> Floats:
        """Return E N^+ E'."""
        return np.asarray(self.matrix @ self.solved.T)

    def _correction(self, rows: Ints) -> Correction:
        gram = self.gram[np.ix_(rows, rows)]
        gain = np.linalg.pinv(gram, rcond=_RANK, hermitian=True) if gram.size else gram
        return Correction(rows, np.asarray(gain))


@dataclass(frozen=True, eq=False)
class ConstrainedTrees(LinearEstimates):
    """Linear unbiased estimates of trees under exact constraints: build it with ``constrained_trees``."""

    stage: LinearStage
    levels: tuple[ExactRows, ...]
    _constraints: dict[int, LevelConstraints] = field(default_factory=dict)
    _spreads: dict[tuple[Operator, int], _Spreads] = field(default_factory=dict)

    def tables(self, level: int, regions: slice = slice(None)) -> Floats:
        """Return the tables [regions, cells] of consecutive regions of a level, its exact constraints met."""
        tables, constraints = self.stage.tables(level, regions), self._of(level)
        for correction, at in self._corrections(level, regions):
            matrix, solved = constraints.matrix[correction.rows], constraints.solved[correction.rows]
            values = constraints.exact.values[regions][np.ix_(at, correction.rows)]
            tables[at] += (values - tables[at] @ matrix.T) @ correction.gain @ solved
        return tables

    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return the exact standard errors [regions of level, answers] in people, infinite where undetermined."""
        spreads, stage = self._spreads_of(operator, level), self.stage
        used = [query for query, weight in enumerate(stage.weights[level]) if weight > 0]
        reached = stage.reached[level][regions]
        spread_of = [np.where(reached, stage.variances(query, level)[regions], 0.0) for query in used]
        variances = np.zeros((reached.size, operator.answers))
        for correction, at in self._corrections(level, regions):
            for variance, length in zip(spread_of, spreads.left_by(correction), strict=True):
                variances[at] += np.multiply.outer(variance[at], length)
        return np.where(self.known(operator, level, regions), np.sqrt(variances), np.inf)

    def determines(self, operator: Operator, level: int) -> Flags:
        """Return which answers (answers,) of a query are determined in every region of a level."""
        return self.stage.determines(operator, level)

    def known(self, operator: Operator, level: int, regions: slice = slice(None)) -> Flags:
        """Return which answers of a query are determined in some regions of a level, bool[regions, answers]."""
        return self.stage.known(operator, level, regions)

    def _of(self, level: int) -> LevelConstraints:
        if level not in self._constraints:
            self._constraints[level] = LevelConstraints.of(self.levels[level], self.stage.normal[level])
        return self._constraints[level]

    def _corrections(self, level: int, regions: slice) -> Iterator[tuple[Correction, Ints]]:
        """Yield the corrections of some regions of a level, and the places among them that have each."""
        numbers, corrections = self._of(level).patterns
        for number, at in groups(numbers[regions]):
            yield corrections[number], at

    def _spreads_of(self, operator: Operator, level: int) -> _Spreads:
        spreads = self._spreads.get((operator, level))
        if spreads is None:
            spreads = _Spreads.of(operator, self._of(level), self.stage, level)
            self._spreads.clear()  # they are as large as a query, which is read region by region
            self._spreads[operator, level] = spreads
        return spreads


@dataclass(frozen=True, eq=False)
class _Spreads:
    """What the errors of a query's answers r have in common for all regions of a level.

    With A_q = w_q Q_q N^+, for each query q of positive weight: ``left`` A_q r (answers, answers of q) and ``right``
    A_q E (rows, answers of q). ``along`` is r' N^+ E'.
    """

    left: list[Floats]
    right: list[Floats]
    along: Floats
    _lengths: dict[bytes, list[Floats]] = field(default_factory=dict)

    @classmethod
    def of(cls, operator: Operator, constraints: LevelConstraints, stage: LinearStage, level: int) -> _Spreads:
        """Solve for all rows of a query: O(answers x cells^2)."""
        weights = [pair for pair in zip(stage.weights[level], stage.operators, strict=True) if pair[0] > 0]
        exact = np.asfortranarray(constraints.solved)  # as sums over groups of cells read it
        left = [np.empty((operator.answers, query.answers)) for _, query in weights]
        along = np.zeros((operator.answers, len(exact)))
        for block, rows in blocks_of_rows(operator):
            solved = np.asfortranarray(constraints.normal.solve(rows))
            for parts, (weight, query) in zip(left, weights, strict=True):
                parts[block] = weight * query.apply(solved)
            along[block] = rows @ exact.T
        return cls(left, [weight * query.apply(exact) for weight, query in weights], along)

    def left_by(self, correction: Correction) -> list[Floats]:
        """Return |A_q (r - c E)|^2 (answers,) of every query under a correction."""
        key = correction.rows.tobytes()
        if key not in self._lengths:
            used, lengths = self.along[:, correction.rows] @ correction.gain, []
            for left, right in zip(self.left, self.right, strict=True):
                length = ((left - used @ right[correction.rows]) ** 2).sum(axis=1)
                least = _EXACT * (left**2).sum(axis=1) + _NOTHING
                lengths.append(np.where(length > least, length, 0.0))
            self._lengths[key] = lengths  # at once, for other threads read them
        return self._lengths[key]


def constrained_trees(measured: TableMeasurements, stage: LinearStage | None = None) -> LinearEstimates:
    """Return the linear stage, corrected where something is exact; computed if it is not given.

    Raises what ``linear_stage`` raises.
    """
    levels = tuple(ExactRows.of(measured, level) for level in range(measured.hierarchy.levels))
    stage = linear_stage(measured) if stage is None else stage
    return (
        ConstrainedTrees(measured.hierarchy, stage, levels) if any(rows.operator.answers for rows in levels) else stage
    )
