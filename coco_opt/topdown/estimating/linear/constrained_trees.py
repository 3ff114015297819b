"""The trees of the queries, corrected in each region to its exact constraints: where constraints are too many for more.

Let x be a region's table from the trees, N the normal equations of its level and E x = e its exact constraints. Then

    x + N^+ E' (E N^+ E')^+ (e - E x)

meets them and stays unbiased; it is the best correction where the trees' variances are in the proportions of the
weights in N. Its errors are those of x without E, so standard errors are exact: r' x has the weights
r - r' N^+ E' (E N^+ E')^+ E on the trees' tables. Constraints that the level's queries do not determine are left out,
and so is what constraints say about other regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
_SMALL = 1e-6  # a variance, over that without constraints, that is computed more exactly
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
        if (operator, level) not in self._spreads:
            self._spreads[operator, level] = _Spreads.of(operator, self._of(level), self.stage, level)
        return self._spreads[operator, level]


@dataclass(frozen=True, eq=False)
class _Spreads:
    """What the errors of a query's answers r have in common for all regions of a level.

    With A_q = w_q Q_q N^+, for each query q of positive weight: ``squares`` |A_q r|^2 (answers,), ``products``
    A_q r . A_q E (answers, rows) and ``grams`` A_q E . A_q E (rows, rows). ``along`` is r' N^+ E'.
    """

    operator: Operator
    constraints: LevelConstraints
    weights: Sequence[tuple[float, Operator]]
    squares: list[Floats]
    products: list[Floats]
    grams: list[Floats]
    along: Floats
    _left: dict[bytes, list[Floats]] = field(default_factory=dict)

    @classmethod
    def of(cls, operator: Operator, constraints: LevelConstraints, stage: LinearStage, level: int) -> _Spreads:
        """Solve for all rows of a query: O(answers x cells^2)."""
        exact = constraints.solved
        weights = [
            (weight, own) for weight, own in zip(stage.weights[level], stage.operators, strict=True) if weight > 0
        ]
        right = [weight * own.apply(np.asfortranarray(exact)) for weight, own in weights]
        squares = [np.zeros(operator.answers) for _ in weights]
        products = [np.zeros((operator.answers, len(exact))) for _ in weights]
        along = np.zeros((operator.answers, len(exact)))
        for block, rows in blocks_of_rows(operator):
            solved = np.asfortranarray(constraints.normal.solve(rows))
            for query, (weight, own) in enumerate(weights):
                left = weight * own.apply(solved)
                squares[query][block], products[query][block] = (left**2).sum(axis=1), left @ right[query].T
            along[block] = rows @ exact.T
        return cls(operator, constraints, weights, squares, products, [each @ each.T for each in right], along)

    def left_by(self, correction: Correction) -> list[Floats]:
        """Return |A_q (r - c E)|^2 (answers,) of every query under a correction."""
        key = correction.rows.tobytes()
        if key not in self._left:
            self._left[key] = self._left_by(correction)
        return self._left[key]

    def _left_by(self, correction: Correction) -> list[Floats]:
        rows, used = correction.rows, self.along[:, correction.rows] @ correction.gain
        lengths = []
        for square, product, gram in zip(self.squares, self.products, self.grams, strict=True):
            crossed = (used * product[:, rows]).sum(axis=1)
            within = ((used @ gram[np.ix_(rows, rows)]) * used).sum(axis=1)
            lengths.append(square - 2.0 * crossed + within)
        small = np.flatnonzero(np.sum(lengths, axis=0) <= _SMALL * np.sum(self.squares, axis=0))
        for length, square, direct in zip(lengths, self.squares, self._directly(small, used[small], rows), strict=True):
            length[small] = np.where(direct > _EXACT * square[small] + _NOTHING, direct, 0.0)
        return lengths

    def _directly(self, answers: Ints, used: Floats, rows: Ints) -> Iterator[Floats]:
        """Yield |A_q (r - c E)|^2 of some answers without differences of squares, which lose what is small."""
        matrix = self.operator.to_sparse().tocsr()[answers].toarray()
        left = np.asfortranarray(self.constraints.normal.solve(matrix - used @ self.constraints.matrix[rows]))
        for weight, own in self.weights:
            yield ((weight * own.apply(left)) ** 2).sum(axis=1)


def constrained_trees(measured: TableMeasurements, stage: LinearStage | None = None) -> LinearEstimates:
    """Return the linear stage, corrected where something is exact; computed if it is not given.

    Raises what ``linear_stage`` raises.
    """
    levels = tuple(ExactRows.of(measured, level) for level in range(measured.hierarchy.levels))
    stage = linear_stage(measured) if stage is None else stage
    return (
        ConstrainedTrees(measured.hierarchy, stage, levels) if any(rows.operator.answers for rows in levels) else stage
    )
