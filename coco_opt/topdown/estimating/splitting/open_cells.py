"""Cells that no query determines: one guess, whichever solver has found the fit.

Where only marginals are measured many tables fit equally well, and each solver ends at another of them: an active-set
method at a vertex with many zeros, an interior-point method in the middle. All of them agree on the measured answers.
So these answers are kept, and what they leave open is shared out in proportion to the margins: of all tables with the
same answers, parent and constraints that is the one nearest, in relative entropy, to equal parts of the parent's cells
(at the root: to equal cells). Without a parent and with single attributes measured it is the product of the margins.
"""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.problems.topdown_split import TopdownSplit

_ENOUGH = 1e-4  # people by which an answer may be off: the tables are rounded to whole persons afterwards
_ROUNDS = 300


def leaves_cells_open(problem: TopdownSplit) -> bool:
    """Return whether some cell is not measured by itself, so that the fit may leave it open."""
    return bool((problem.single[0] <= 0.0).any())


def shared_in_proportion(problem: TopdownSplit, tables: Floats) -> Floats:
    """Return the tables [children, cells] with the same answers whose open cells follow the margins.

    A problem all of whose cells are measured, or with rows that weigh cells differently, keeps its tables.
    """
    rows = problem.queries.above(problem.rows)
    if not leaves_cells_open(problem) or not (rows.value == 1.0).all():
        return tables
    from coco_opt.kernels.arrays import as_floats, read_only
    from coco_opt.kernels.proportional_fitting import fit

    table = np.maximum(problem.table(tables), 0.0)
    answers, (lower, upper) = problem.queries.apply(table), problem.sides
    measured = problem.weights > 0.0
    sums = np.zeros(0) if problem.sums is None else problem.sums
    x = np.ones(table.shape) if problem.sums is None else np.repeat(sums[:, None], table.shape[1], axis=1)
    fit(
        read_only(rows.start),
        read_only(rows.cell),
        as_floats(np.concatenate([np.where(measured, answers, 0.0), lower])),
        as_floats(np.concatenate([np.where(measured, answers, np.inf), upper])),
        as_floats(sums),
        x,
        _ROUNDS,
        _ENOUGH,
    )
    return problem.expand(x)
