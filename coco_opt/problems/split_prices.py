"""Prices of a top-down split: the duality gap they certify, how to rebuild them, and the mending of sums they give.

Tables are [kept cells, children] here, rows of C [rows, children].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.problems.split_rows import Floats

if TYPE_CHECKING:
    from coco_opt.problems.topdown_split import SplitDual, TopdownSplit

_RIDGE = 1e-11
_MENDINGS = 4
_EXACT = 1e-13  # an error of a constraint, over the problem's scale, that is not worth mending
_NEAR = 1e-7  # the distance from a side, over the problem's scale, within which a row may have a price


def gradient(problem: TopdownSplit, table: Floats) -> Floats:
    """Return the objective's gradient [cells, children]."""
    residual = problem.queries.apply(table) - problem.answers
    return problem.queries.adjoint(2.0 * problem.weights * residual)


def gap(problem: TopdownSplit, table: Floats, parent: Floats, rows: Floats) -> float:
    """Return the certified gap of a table under prices of the parent sums [cells] and of the rows of C."""
    from coco_opt.kernels import split_certificate

    reduced = gradient(problem, table) - parent[:, None] - problem.rows.adjoint(np.ascontiguousarray(rows))
    cells = split_certificate.cells_gap(reduced, table, problem.single[0], caps(problem, table))
    return float(cells) + _sides_gap(problem, table, rows)


def _sides_gap(problem: TopdownSplit, table: Floats, rows: Floats) -> float:
    if problem.constraints is None:
        return 0.0
    values, (lower, upper) = problem.rows.apply(table), problem.sides
    distance = np.where(rows > 0.0, values - lower, upper - values)[rows != 0.0]
    return float(np.abs(rows[rows != 0.0]) @ np.maximum(distance, 0.0))


def caps(problem: TopdownSplit, table: Floats) -> Floats:
    """Return what no better table can exceed in any cell: the parent's count, else what the answers and C allow."""
    if problem.sums is not None:
        return np.repeat(problem.sums[:, None], table.shape[1], axis=1)
    residual = problem.queries.apply(table) - problem.answers
    cost = float(np.einsum("ij,ij,ij->", problem.weights, residual, residual))
    reach = np.sqrt(np.divide(cost, problem.weights, out=np.full(residual.shape, np.inf), where=problem.weights > 0.0))
    best = np.full(table.shape, np.inf)
    for rows, most in ((problem.queries, problem.answers + reach), (problem.rows, problem.sides[1])):
        positive = np.minimum.reduceat(np.append(rows.value, 0.0), rows.start[:-1]) if rows.shape[0] else np.zeros(0)
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.start))
        usable = positive[owner] > 0.0
        np.minimum.at(best, rows.cell[usable], np.maximum(most[owner], 0.0)[usable] / rows.value[usable, None])
    most_of_all: Floats = np.maximum(best, table)
    return most_of_all


def rebuilt(problem: TopdownSplit, table: Floats, enough: float, rounds: int) -> SplitDual:
    """Return the best prices found for a table, trying no longer once the gap is at most ``enough``."""
    from coco_opt.kernels import split_certificate
    from coco_opt.problems.topdown_split import SplitDual

    slopes, cap = gradient(problem, table), caps(problem, table)
    rows = np.zeros((problem.rows.shape[0], table.shape[1]))
    if problem.constraints is not None:
        rows = _fitted_rows(problem, np.maximum(table, 0.0), slopes)
    best, chosen = np.inf, (np.zeros(table.shape[0]), rows)
    for _ in range(rounds):
        reduced = slopes - problem.rows.adjoint(rows)
        parent = np.zeros(table.shape[0])
        if problem.sums is not None:
            parent = split_certificate.parent_prices(reduced, table, problem.single[0], problem.sums)
            reduced -= parent[:, None]
        now = float(split_certificate.cells_gap(reduced, table, problem.single[0], cap))
        now += _sides_gap(problem, table, rows)
        if now < best:
            worth, best, chosen = now < 0.9 * best, now, (parent, rows.copy())
        else:
            worth = False
        if problem.constraints is None or best <= enough or not worth:
            break
        values, (lower, upper) = problem.rows.apply(table), problem.sides
        slack = np.maximum(values - lower, 0.0), np.maximum(upper - values, 0.0)
        form = problem.rows.start, problem.rows.cell, problem.rows.value
        split_certificate.improve_row_prices(*form, *slack, reduced, table, problem.single[0], cap, rows)
    whole = np.zeros(problem.shape[1])
    whole[problem.kept] = chosen[0]
    return SplitDual(whole, np.ascontiguousarray(chosen[1].T))


def mended(problem: TopdownSplit, table: Floats) -> Floats:
    """Return a slightly infeasible table with its sums and violated constraints met; cells at 0 stay there.

    The change is the least in squares relative to the cells, clipped at 0, a few times over.
    """
    near = np.maximum(table, 0.0)
    if not near.size:
        return near
    if problem.sums is not None:
        empty = near.sum(axis=1) == 0.0
        near[empty] = problem.sums[empty, None] / near.shape[1]
    for _ in range(_MENDINGS):
        if problem.sums is not None:
            near *= (problem.sums / near.sum(axis=1))[:, None]
        if problem.constraints is None:
            break
        values, (lower, upper) = problem.rows.apply(near), problem.sides
        error = np.clip(values, lower, upper) - values
        if float(np.abs(error).max(initial=0.0)) <= _EXACT * problem.scale:
            break
        held = (error != 0.0) | (lower == upper)
        parent, rows = _weighted_prices(problem, near, np.zeros(near.shape[0]), error, held)
        near = np.maximum(near * (1.0 + parent[:, None] + problem.rows.adjoint(rows)), 0.0)
    return near


def _fitted_rows(problem: TopdownSplit, table: Floats, slopes: Floats) -> Floats:
    """Return the prices nu, 0 away from the sides, that minimise ``sum x (g - lambda - C' nu)^2`` with some lambda."""
    values, (lower, upper) = problem.rows.apply(table), problem.sides
    near = np.minimum(values - lower, upper - values) <= _NEAR * problem.scale
    moment = table * slopes
    total = moment.sum(axis=1) if problem.sums is not None else np.zeros(moment.shape[0])
    _, rows = _weighted_prices(problem, table, total, problem.rows.apply(moment), near)
    wrong = ((rows > 0.0) & np.isinf(lower)) | ((rows < 0.0) & np.isinf(upper))
    return np.where(wrong, 0.0, rows)


def _weighted_prices(
    problem: TopdownSplit, measure: Floats, sums: Floats, right: Floats, held: Any
) -> tuple[Floats, Floats]:
    """Solve ``A diag(measure) A' (lambda, nu) = (sums, right)``, A being the parent sums and the held rows of C.

    lambda is eliminated cell by cell; what is left is one dense system of all children's held rows, O(size^3).
    """
    from coco_opt.kernels import split_certificate

    form, summed = problem.rows, problem.sums is not None
    number = np.where(held, np.cumsum(held).reshape(held.shape) - 1, -1)
    size = int(held.sum())
    system = split_certificate.normal_matrix(
        form.column_start, form.row, form.column_value, number, size, measure, summed
    )
    total = measure.sum(axis=1)
    inverse = np.divide(1.0, total, out=np.zeros(total.size), where=total > 0.0)
    if summed:
        right = right - form.apply((inverse * sums)[:, None] * measure)
    nu = np.zeros(held.shape)
    nu[held] = _ridged(system, right[held])
    parent = np.zeros(total.size)
    if summed:
        parent = inverse * (sums - (measure * form.adjoint(nu)).sum(axis=1))
    return parent, nu


def _ridged(system: Floats, vector: Floats) -> Floats:
    """Solve a singular, consistent system by a small ridge and refinement; rows without anything get 0."""
    diagonal = system.diagonal().copy()
    used = diagonal > 0.0
    if not used.any():
        return np.zeros(vector.size)
    scale = np.where(used, 1.0 / np.sqrt(np.where(used, diagonal, 1.0)), 0.0)
    scaled = system * np.outer(scale, scale)
    scaled[~used, ~used] = 1.0
    inverse = np.linalg.inv(scaled + _RIDGE * np.eye(vector.size))
    solution = np.zeros(vector.size)
    for _ in range(3):
        solution = solution + inverse @ (scale * vector - scaled @ solution)
    out: Floats = scale * solution
    return out
