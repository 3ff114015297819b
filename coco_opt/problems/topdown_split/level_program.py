"""The splits of many parents, with bounds on classes of cells, as sparse quadratic programs for generic solvers.

Variables are those of ``program``: in every child and occupied cell the distance from the cell's own answer, then the
residuals of all answers to several cells. All programs are written together, because a small one takes longer to write
than to solve; each is solved alone, so that no parent's table depends on what else is in its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.forms import Formulation, ProgramDual, QuadraticProgram
from coco_opt.problems.sparse_rows import runs_from
from coco_opt.problems.topdown_split.level import SplitLevel

_MENDED = 3  # rounds


class _Cells(NamedTuple):
    """The numbers of the tables that may be above 0: where each is, and its answers' weight and mean, alone."""

    places: Ints
    cell: Ints
    child: Ints
    label: Ints
    curvature: Floats
    base: Floats


class _Answers(NamedTuple):
    """The answers [children, rows] to several cells: where they are, and their entries (row, pair, value)."""

    places: Ints
    row: Ints
    pair: Ints
    value: Floats


@dataclass(frozen=True, eq=False)
class BoundedSplits:
    """The programs of all parents of a level: ``together``, whose columns and rows belong to parents.

    ``together`` gives tables as in ``SplitLevel``, and prices of bounds float64[children, classes].
    """

    together: Formulation[Floats, Floats]
    of_column: Ints
    of_row: Ints

    @classmethod
    def of(cls, level: SplitLevel) -> BoundedSplits:
        """Return the programs of a level with bounds."""
        from scipy.sparse import block_array, csc_array, csr_array, diags_array, eye_array

        assert level.lower is not None
        assert level.upper is not None
        cells, answers = _measured(level)
        shape, pairs, several = level.lower.shape, cells.places.size, answers.places.size
        lower, upper, binding = _binding(level)
        ones, every, inside = np.ones(pairs), np.arange(pairs), cells.label >= 0
        place = cells.child * shape[1] + cells.label
        blocks = [
            csr_array((answers.value, (answers.row, answers.pair)), shape=(several, pairs)),
            csr_array((ones, (cells.cell, every)), shape=(level.cells.size, pairs)),
            csr_array((ones[inside], (place[inside], every[inside])), shape=(lower.size, pairs))[binding],
        ]
        equal = np.concatenate([level.answers.ravel()[answers.places], level.counts])
        of_base = np.concatenate([block @ cells.base for block in blocks])
        weights = level.weights[:, level.query_of].ravel()[answers.places]
        diagonal = 2.0 * np.concatenate([cells.curvature, weights])
        rows: Any = [[blocks[0], -eye_array(several)], [blocks[1], None], [blocks[2], None]]
        program = QuadraticProgram(
            P=diags_array([diagonal], offsets=[0], shape=(diagonal.size, diagonal.size), format="csc"),
            c=np.zeros(diagonal.size),
            A=csc_array(block_array(rows)),
            row_lower=np.concatenate([equal, lower[binding]]) - of_base,
            row_upper=np.concatenate([equal, upper[binding]]) - of_base,
            lower=np.concatenate([-cells.base, np.full(several, -np.inf)]),
            upper=np.full(diagonal.size, np.inf),
        )

        def recover(z: Floats) -> Floats:
            x = np.maximum(cells.base + z[:pairs], 0.0)
            # What a solver leaves of the sums is mended in proportion, those of the parents' tables last.
            for _ in range(_MENDED):
                now = _sums(place[inside], x[inside], lower.size)
                x[inside] *= _ratios(np.clip(now, lower, upper), now)[place[inside]]
                x *= _ratios(level.counts, _sums(cells.cell, x, level.cells.size))[cells.cell]
            tables = np.zeros(int(level.places[-1]))
            tables[cells.places] = x
            return tables

        def multipliers(dual: ProgramDual) -> Floats:
            prices = np.zeros(shape)
            prices.ravel()[binding] = dual.rows[dual.rows.size - binding.size :]
            return prices

        parent_of = np.repeat(np.arange(level.starts.size - 1), np.diff(level.children))
        of_answers = parent_of[answers.places // level.rows.shape[0]]
        return cls(
            Formulation(program, recover, multipliers, in_residuals=True),
            np.concatenate([parent_of[cells.child], of_answers]),
            np.concatenate([of_answers, level.parent, parent_of[binding // shape[1]]]),
        )

    def __iter__(self) -> Iterator[tuple[Ints, Ints, Formulation[Floats, ProgramDual]]]:
        """Yield the columns, the rows and the program of each parent."""
        from scipy.sparse import csc_array

        columns, rows = (np.argsort(part, kind="stable") for part in (self.of_column, self.of_row))
        program = self.together.program
        assert isinstance(program, QuadraticProgram)
        matrix, curvature = program.A[:, columns].tocsr()[rows].tocsc(), program.P.diagonal()
        matrix.sort_indices()
        parents = np.arange(int(self.of_row.max(initial=-1)) + 2)
        column_ends, row_ends = (
            np.searchsorted(part[order], parents) for part, order in ((self.of_column, columns), (self.of_row, rows))
        )
        for first, last, top, end in zip(column_ends[:-1], column_ends[1:], row_ends[:-1], row_ends[1:], strict=True):
            own, its_rows, starts = columns[first:last], rows[top:end], matrix.indptr[first : last + 1]
            entries = slice(starts[0], starts[-1])
            part = matrix.data[entries], matrix.indices[entries] - top, starts - starts[0]
            size = last - first
            yield (
                own,
                its_rows,
                Formulation(
                    QuadraticProgram(
                        P=csc_array((curvature[own], np.arange(size), np.arange(size + 1)), shape=(size, size)),
                        c=program.c[own],
                        A=csc_array(part, shape=(end - top, size)),
                        row_lower=program.row_lower[its_rows],
                        row_upper=program.row_upper[its_rows],
                        lower=program.lower[own],
                        upper=program.upper[own],
                    ),
                    lambda z: z,
                    lambda dual: dual,
                    in_residuals=True,
                ),
            )


def _measured(level: SplitLevel) -> tuple[_Cells, _Answers]:
    """Return the numbers that are not closed, and the answers that weigh anything and count several of them."""
    places = np.flatnonzero(~level.closed)
    cells, child, label = (values[places] for values in level.pairs_with_classes)
    begin, queries = level.rows.column_start, level.rows.shape[0]
    lengths = (begin[1:] - begin[:-1])[cells]
    entries, pair = runs_from(begin[cells], lengths), np.repeat(np.arange(places.size), lengths)
    answer, value = child[pair] * queries + level.rows.row[entries], level.rows.column_value[entries]
    answers, weights = level.answers.ravel(), level.weights[:, level.query_of].ravel()
    met = np.bincount(answer, minlength=answers.size)
    alone = met[answer] == 1
    heavy = (weights[answer] * value)[alone]
    curvature = _sums(pair[alone], heavy * value[alone], places.size)
    moment = _sums(pair[alone], heavy * answers[answer[alone]], places.size)
    base = np.divide(moment, curvature, out=np.zeros(places.size), where=curvature > 0.0)
    several = np.flatnonzero((met > 1) & (weights > 0.0))
    number = np.full(answers.size, -1)
    number[several] = np.arange(several.size)
    lifted = number[answer] >= 0
    cell = np.repeat(np.arange(level.cells.size), np.diff(level.children)[level.parent])[places]
    return (
        _Cells(places, cell, child, label, curvature, base),
        _Answers(several, number[answer[lifted]], pair[lifted], value[lifted]),
    )


def _binding(level: SplitLevel) -> tuple[Floats, Floats, Ints]:
    """Return the sides of all bounds, infinite where they bind nothing, and the bounds that rows are for."""
    assert level.lower is not None
    assert level.upper is not None
    persons = np.repeat(np.add.reduceat(level.counts, level.starts[:-1]), np.diff(level.children))
    lower = np.where(level.lower <= 0.0, -np.inf, level.lower).ravel()
    upper = np.where(level.upper >= persons[:, None], np.inf, level.upper).ravel()
    return lower, upper, np.flatnonzero((lower > -np.inf) | ((upper < np.inf) & (upper > 0.0)))


def _sums(places: Ints, values: Floats, size: int) -> Floats:
    """Return the sums of the values of each place, float64[size]."""
    return np.bincount(places, values, size).astype(np.float64, copy=False)


def _ratios(goal: Floats, now: Floats) -> Floats:
    """Return goals over numbers, 1 where these are 0."""
    return np.divide(goal, now, out=np.ones_like(now), where=now > 0.0)
