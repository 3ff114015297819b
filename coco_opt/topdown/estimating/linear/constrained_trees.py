"""The trees of the queries, corrected in each region to its exact constraints: where constraints are too many for more.

Let x be a region's table from the trees, N the normal equations of its level and E x = e its exact constraints. Then

    x + N^+ E' (E N^+ E')^+ (e - E x)

meets them and stays unbiased; it is the best correction where the trees' variances are in the proportions of the
weights in N. Its errors are those of x without E, so standard errors are exact: r' x has the weights
r - r' N^+ E' (E N^+ E')^+ E on the trees' tables. A constraint that the queries do not determine adds what they leave
open. What constraints say about other regions is not used.
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
    """The correction of regions in which the same rows are exact: x + N^+ E' gain (e - E x), then + O opened (e - E x).

    ``rows`` are places among the level's exact rows, ``gain`` (k, k), and ``opened`` (m, k) maps what the rows still
    miss to the directions O that the queries leave open.
    """

    rows: Ints
    gain: Floats
    opened: Floats


@dataclass(frozen=True, eq=False)
class LevelConstraints:
    """The exact rows of a level: their ``matrix`` and N^+ of it [rows, cells].

    ``basis`` (cells, m) is orthonormal for what the level's queries leave of the rows, ``outside`` (rows, m).
    """

    exact: ExactRows
    normal: NormalEquations
    matrix: Floats
    solved: Floats
    basis: Floats
    outside: Floats

    @classmethod
    def of(cls, exact: ExactRows, normal: NormalEquations) -> LevelConstraints:
        """Solve for all rows of a level."""
        matrix = exact.operator.to_sparse().toarray()
        solved = normal.solve(matrix)
        left = matrix - normal.apply(solved)
        left[np.linalg.norm(left, axis=1) <= _OUTSIDE * np.linalg.norm(matrix, axis=1)] = 0.0
        _, values, right = np.linalg.svd(left[left.any(axis=1)], full_matrices=False)
        basis = right[values > _OUTSIDE * values.max(initial=0.0)].T
        return cls(exact, normal, matrix, solved, basis, left @ basis)

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
        gram, outside = self.gram[np.ix_(rows, rows)], self.outside[rows]
        if not outside.any():
            return Correction(rows, _pseudo_inverse(gram), np.zeros((self.basis.shape[1], rows.size)))
        left, values, _ = np.linalg.svd(outside)
        within = left[:, int((values > _OUTSIDE * values[0]).sum()) :]
        gain = np.asarray(within @ _pseudo_inverse(within.T @ gram @ within) @ within.T, np.float64)
        return Correction(rows, gain, np.asarray(np.linalg.pinv(outside, rcond=_OUTSIDE), np.float64))


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
            values = self.levels[level].values[regions][np.ix_(at, correction.rows)]
            tables[at] += (values - tables[at] @ matrix.T) @ correction.gain @ solved
            if constraints.basis.shape[1]:
                tables[at] += (values - tables[at] @ matrix.T) @ correction.opened.T @ constraints.basis.T
        return tables

    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return the exact standard errors [regions of level, answers] in people, infinite where undetermined."""
        spreads, stage = self._spreads_of(operator, level), self.stage
        used = [query for query, weight in enumerate(stage.weights[level]) if weight > 0]
        own = [stage.variances(query, level)[regions] for query in used]
        out = np.full((len(self.hierarchy.level_range(level)[regions]), operator.answers), np.inf)
        for correction, at in self._corrections(level, regions):
            lengths, known = spreads.left_by(correction)
            variances = np.zeros((at.size, operator.answers))
            for variance, length in zip(own, lengths, strict=True):
                variances[:, length > 0.0] += np.multiply.outer(variance[at], length[length > 0.0])
            out[at] = np.where(known, np.sqrt(variances), np.inf)
        return out

    def determines(self, operator: Operator, level: int) -> Flags:
        """Return which answers (answers,) of a query are determined in every region of a level."""
        reached = self.stage.reached[level]
        if reached.all() and self.stage.normal[level].definite:
            return np.ones(operator.answers, np.bool_)
        spreads = self._spreads_of(operator, level)
        known = [
            spreads.known(each, trees=bool(reached[at].all())) for each, at in self._corrections(level, slice(None))
        ]
        return np.asarray(np.all(known, axis=0))

    def known(self, operator: Operator, level: int, regions: slice = slice(None)) -> Flags:
        """Return which answers of a query are determined in some regions of a level, bool[regions, answers]."""
        out = np.zeros((len(self.hierarchy.level_range(level)[regions]), operator.answers), np.bool_)
        reached, spreads = self.stage.reached[level][regions], self._spreads_of(operator, level)
        for correction, at in self._corrections(level, regions):
            out[at[reached[at]]] = spreads.known(correction, trees=True)
            out[at[~reached[at]]] = spreads.known(correction, trees=False)
        return out

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
    A_q r . A_q E (answers, rows) and ``grams`` A_q E . A_q E (rows, rows). ``along`` is r' N^+ E', ``outside`` what the
    level's queries leave of r, in the basis of the level, and ``lost`` the part of |r| that even the basis leaves.
    """

    operator: Operator
    constraints: LevelConstraints
    weights: Sequence[tuple[float, Operator]]
    squares: list[Floats]
    products: list[Floats]
    grams: list[Floats]
    along: Floats
    outside: Floats
    lost: Floats
    _left: dict[bytes, tuple[list[Floats], Flags]] = field(default_factory=dict)

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
        outside, lost = np.zeros((operator.answers, constraints.basis.shape[1])), np.zeros(operator.answers)
        for block, rows in blocks_of_rows(operator):
            solved = np.asfortranarray(constraints.normal.solve(rows))
            for query, (weight, own) in enumerate(weights):
                left = weight * own.apply(solved)
                squares[query][block], products[query][block] = (left**2).sum(axis=1), left @ right[query].T
            along[block] = rows @ exact.T
            if constraints.normal.definite:  # the queries leave nothing of any answer
                continue
            beyond = rows - constraints.normal.apply(solved)
            outside[block] = beyond @ constraints.basis
            beyond -= outside[block] @ constraints.basis.T
            lost[block] = np.linalg.norm(beyond, axis=1) / np.maximum(1.0, np.linalg.norm(rows, axis=1))
        return cls(
            operator, constraints, weights, squares, products, [each @ each.T for each in right], along, outside, lost
        )

    def left_by(self, correction: Correction) -> tuple[list[Floats], Flags]:
        """Return |A_q (r - c E)|^2 (answers,) of every query under a correction, and which answers are determined."""
        key = correction.rows.tobytes()
        if key not in self._left:
            self._left[key] = self._left_by(correction)
        return self._left[key]

    def known(self, correction: Correction, *, trees: bool) -> Flags:
        """Return which answers are determined: with the trees' tables, or by what is exact alone."""
        lengths, known = self.left_by(correction)
        return known if trees else known & (np.sum(lengths, axis=0) == 0.0)

    def _left_by(self, correction: Correction) -> tuple[list[Floats], Flags]:
        rows = correction.rows
        opened = self.outside @ correction.opened
        left = self.outside - opened @ self.constraints.outside[rows]
        known = np.maximum(np.linalg.norm(left, axis=1), self.lost) <= _OUTSIDE
        used = opened + (self.along[:, rows] - opened @ self.constraints.gram[np.ix_(rows, rows)]) @ correction.gain
        lengths = []
        for square, product, gram in zip(self.squares, self.products, self.grams, strict=True):
            crossed = (used * product[:, rows]).sum(axis=1)
            within = ((used @ gram[np.ix_(rows, rows)]) * used).sum(axis=1)
            lengths.append(square - 2.0 * crossed + within)
        small = np.flatnonzero(np.sum(lengths, axis=0) <= _SMALL * np.sum(self.squares, axis=0))
        for length, square, direct in zip(lengths, self.squares, self._directly(small, used[small], rows), strict=True):
            length[small] = np.where(direct > _EXACT * square[small] + _NOTHING, direct, 0.0)
        return lengths, known

    def _directly(self, answers: Ints, used: Floats, rows: Ints) -> Iterator[Floats]:
        """Yield |A_q (r - c E)|^2 of some answers without differences of squares, which lose what is small."""
        matrix = self.operator.to_sparse().tocsr()[answers].toarray()
        left = np.asfortranarray(self.constraints.normal.solve(matrix - used @ self.constraints.matrix[rows]))
        for weight, own in self.weights:
            yield ((weight * own.apply(left)) ** 2).sum(axis=1)


def _pseudo_inverse(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.pinv(matrix, rcond=_RANK, hermitian=True)) if matrix.size else matrix


def constrained_trees(measured: TableMeasurements, stage: LinearStage | None = None) -> LinearEstimates:
    """Return the linear stage, corrected where something is exact; computed if it is not given.

    Raises what ``linear_stage`` raises.
    """
    levels = tuple(ExactRows.of(measured, level) for level in range(measured.hierarchy.levels))
    stage = linear_stage(measured) if stage is None else stage
    return (
        ConstrainedTrees(measured.hierarchy, stage, levels) if any(rows.operator.answers for rows in levels) else stage
    )
