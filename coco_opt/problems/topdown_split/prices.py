"""Prices of a top-down split: the duality gap they certify, how to rebuild them, and how they repair sums.

Tables are [occupied cells, children] here, rows of C [rows, children].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.problem import MAX_INTEGER
from coco_opt.problems.topdown_split.data import SplitData, SplitDual

_RIDGE = 1e-11
_DENSE, _STEPS = 1_000, 1_000  # rows of a system that is inverted; steps of conjugate gradients on a larger system
_REFINEMENTS = 2
_MENDINGS = 4
_NOTHING = 1e-100  # people in a cell of all children, below which its sum is shared evenly
_NEAR = 1e-7  # the distance from a side, over the problem's scale, within which a row may have a price
_LAST = 4.0 * np.finfo(np.float64).eps  # relative error from rounding a number's parts
_UNUSED = 1e-9  # a cell's persons, over the problem's scale, that count as none when prices are fitted
_CLEAR = 1e-7, 1e-12  # by how much of a price and of all it pays for a contradiction must be more than rounding

EXACT = 1e-13  # an error of a constraint, over the problem's scale, that is not worth mending


def gradient(data: SplitData, table: Floats) -> Floats:
    """Return the objective's gradient [cells, children]."""
    return slopes(data, table, None)[0]


def slopes(data: SplitData, table: Floats, answers: Floats | None) -> tuple[Floats, float]:
    """Return the slopes [cells, children] under prices of residuals [answers, children], and what these prices cost.

    No objective w r^2 is below ``price r - price^2 / 4 w``: by so much more the gap at the residual r is that of the
    slopes alone. Answers to single cells keep their own price, 2 w r, as their curvature counts.
    """
    residual = data.queries.apply(table) - data.answers
    price, paid = 2.0 * data.weights * residual, 0.0
    if answers is not None:
        replaced = (np.diff(data.queries.start) > 1)[:, None] & (data.weights > 0.0)
        off = np.where(replaced, answers - price, 0.0)
        price = price + off
        paid = float(np.sum(np.divide(off**2, 4.0 * data.weights, out=np.zeros_like(off), where=replaced)))
    return data.queries.adjoint(price), paid


def gap(data: SplitData, table: Floats, parent: Floats, rows: Floats, answers: Floats | None = None) -> float:
    """Return the certified gap of a table under prices of the parent sums [cells], the rows of C and the residuals.

    Errors of a table's sums beyond rounding are paid for too. Infinite where a number is not finite. With prices of
    the residuals the best prices of the sums are tried as well.
    """
    steep, paid = slopes(data, table, answers)
    cap = caps(data, table)
    best = _gap_at(data, table, steep - parent[:, None] - data.rows.adjoint(rows), cap, parent, rows)
    if answers is not None and data.sums is not None:
        best = min(best, best_parent(data, table, steep, cap, rows)[2])
    return best + paid


def best_parent(
    data: SplitData, table: Floats, steep: Floats, cap: Floats, rows: Floats
) -> tuple[Floats, Floats, float]:
    """Return the parent sums' best prices under fixed prices of the rows, the reduced costs, and the gap.

    ``steep`` is the objective's ``gradient`` and ``cap`` the ``caps`` at the table.
    """
    from coco_opt.kernels import split_certificate

    reduced, parent = steep - data.rows.adjoint(rows), np.zeros(table.shape[0])
    if data.sums is not None:
        parent = split_certificate.parent_prices(reduced, table, data.single[0], data.sums)
        reduced -= parent[:, None]
    return parent, reduced, _gap_at(data, table, reduced, cap, parent, rows)


def _gap_at(data: SplitData, table: Floats, reduced: Floats, cap: Floats, parent: Floats, rows: Floats) -> float:
    from coco_opt.kernels import split_certificate

    if not np.isfinite(reduced).all():
        return np.inf
    total = float(split_certificate.cells_gap(reduced, table, data.single[0], cap))
    if data.sums is not None:
        off = np.abs(table.sum(axis=1) - data.sums) - _LAST * data.sums
        total += float(np.abs(parent) @ np.maximum(off, 0.0))
    if data.constraints is not None:
        total += float(split_certificate.sides_gap(rows, data.rows.apply(table), *data.sides))
    return total


def impossible(data: SplitData, prices: Floats) -> bool:
    """Return whether prices of the rows of C prove that no table meets the constraints (Farkas).

    No table, of 2^53 people at most where there is no parent, is then worth as much as the constraints require.
    """
    (lower, upper), priced = data.sides, data.rows.adjoint(np.ascontiguousarray(prices))
    paid = np.where(prices > 0.0, lower, upper)[prices != 0.0] * prices[prices != 0.0]
    best = priced.max(axis=1)
    worth = data.sums * best if data.sums is not None else np.array([MAX_INTEGER * best.max(initial=0.0)])
    clear = _CLEAR[0] * np.abs(prices).max(initial=0.0) + _CLEAR[1] * (np.abs(paid).sum() + np.abs(worth).sum())
    return bool(paid.sum() > worth.sum() + clear)


def caps(data: SplitData, table: Floats) -> Floats:
    """Return each cell's upper bound in any better table: the parent's count, else the bound from answers and C."""
    if data.sums is not None:
        return np.repeat(data.sums[:, None], table.shape[1], axis=1)
    residual = data.queries.apply(table) - data.answers
    cost = float(np.einsum("ij,ij,ij->", data.weights, residual, residual))
    reach = np.sqrt(np.divide(cost, data.weights, out=np.full(residual.shape, np.inf), where=data.weights > 0.0))
    best = np.full(table.shape, np.inf)
    for rows, most in ((data.queries, data.answers + reach), (data.rows, data.sides[1])):
        owner = rows.owner
        usable = (np.bincount(owner[rows.value <= 0.0], minlength=rows.shape[0]) == 0)[owner]
        np.minimum.at(best, rows.cell[usable], np.maximum(most[owner], 0.0)[usable] / rows.value[usable, None])
    most_of_all: Floats = np.maximum(best, table)
    return most_of_all


def rebuilt(data: SplitData, table: Floats) -> SplitDual:
    """Return prices for a table: those of the rows that fit its slopes best, then the best of the parent sums."""
    steep, cap = gradient(data, table), caps(data, table)
    rows = np.zeros((data.rows.shape[0], table.shape[1]))
    if data.constraints is not None:
        rows = _fitted_rows(data, np.maximum(table, 0.0), steep)
    all_cells = np.zeros(data.shape[1])
    all_cells[data.occupied_cells] = best_parent(data, table, steep, cap, rows)[0]
    return SplitDual(all_cells, np.ascontiguousarray(rows.T))


def fitted_answers(data: SplitData, table: Floats) -> Floats:
    """Return prices of the residuals [answers, children], near a table's, under which its cells in use cost nothing.

    They are those at the least squares over these cells alone: prices of a point err in first order of its distance
    from the optimum, these in none once the cells are those of the optimum. Without parent sums they are shifted along
    the weights until no cell has a negative cost.
    """
    from scipy.sparse.linalg import LinearOperator, lsmr

    root, used, form = np.sqrt(data.weights), table > _UNUSED * data.scale, data.queries
    holders = np.maximum(used.sum(axis=1), 1)

    def tangent(change: Floats) -> Floats:
        change = np.where(used, change.reshape(table.shape), 0.0)
        return change if data.sums is None else np.where(used, change - (change.sum(axis=1) / holders)[:, None], 0.0)

    image = LinearOperator(
        (root.size, table.size),
        matvec=lambda change: (root * form.apply(tangent(change))).ravel(),
        rmatvec=lambda prices: tangent(form.adjoint(root * prices.reshape(root.shape))).ravel(),
    )
    residual = root * (form.apply(table) - data.answers)
    for _ in range(_REFINEMENTS):
        change = lsmr(image, -residual.ravel(), atol=_LAST, btol=_LAST, conlim=0.0, maxiter=_STEPS)[0]
        residual += (image @ change).reshape(root.shape)
    prices: Floats = 2.0 * root * residual
    if data.sums is None:
        short, cover = -form.adjoint(prices).min(axis=0), form.adjoint(data.weights).min(axis=0)
        prices += data.weights * np.divide(np.maximum(short, 0.0), cover, out=np.zeros_like(short), where=cover > 0.0)
    return prices


def mended(data: SplitData, table: Floats) -> Floats:
    """Return a slightly infeasible table with its sums and violated constraints met; cells at 0 stay there.

    The change is the least in squares relative to the cells, clipped at 0, a few times over.
    """
    near = np.maximum(table, 0.0)
    if not near.size:
        return near
    for _ in range(_MENDINGS):
        if data.sums is not None:
            now = near.sum(axis=1)
            empty = now < _NOTHING
            near[empty], now[empty] = 1.0, near.shape[1]
            near *= (data.sums / now)[:, None]
        if data.constraints is None:
            break
        values, (lower, upper) = data.rows.apply(near), data.sides
        error = np.clip(values, lower, upper) - values
        if float(np.abs(error).max(initial=0.0)) <= EXACT * data.scale:
            break
        active = (error != 0.0) | (lower == upper)
        parent, rows = _weighted_prices(data, near, np.zeros(near.shape[0]), error, active)
        near = np.maximum(near * (1.0 + parent[:, None] + data.rows.adjoint(rows)), 0.0)
    return near


def _fitted_rows(data: SplitData, table: Floats, slopes: Floats) -> Floats:
    """Return the prices nu, 0 away from the sides, that minimise ``sum x (g - lambda - C' nu)^2`` with some lambda."""
    values, (lower, upper) = data.rows.apply(table), data.sides
    near = np.minimum(values - lower, upper - values) <= _NEAR * data.scale
    moment = table * slopes
    total = moment.sum(axis=1) if data.sums is not None else np.zeros(moment.shape[0])
    _, rows = _weighted_prices(data, table, total, data.rows.apply(moment), near)
    wrong = ((rows > 0.0) & np.isinf(lower)) | ((rows < 0.0) & np.isinf(upper))
    return np.where(wrong, 0.0, rows)


def _weighted_prices(
    data: SplitData, measure: Floats, sums: Floats, right: Floats, active: Any
) -> tuple[Floats, Floats]:
    """Solve ``A diag(measure) A' (lambda, nu) = (sums, right)``, A being the parent sums and the active rows of C.

    lambda is eliminated cell by cell; what is left is one system of all children's active rows, dense, O(size^3), up to
    a thousand of them and by conjugate gradients beyond. Rows without weight, such as those of facilities that are not
    there, have the price 0.
    """
    from coco_opt.kernels import split_certificate

    form, summed = data.rows, data.sums is not None
    weight = split_certificate.products(form.start, form.cell, form.value**2, measure)
    active = active & (weight > 0.0)
    total = measure.sum(axis=1)
    inverse = np.divide(1.0, total, out=np.zeros(total.size), where=total > 0.0)
    if summed:
        right = right - form.apply((inverse * sums)[:, None] * measure)
    if active.sum() <= _DENSE:
        nu = _by_inverse(data, measure, right, active, weight)
    else:
        nu = _by_gradients(data, measure, inverse, np.where(active, right, 0.0), active, weight)
    if not summed:
        return np.zeros(total.size), nu
    return inverse * (sums - np.einsum("cj,cj->c", measure, form.adjoint(nu))), nu


def _by_inverse(data: SplitData, measure: Floats, right: Floats, active: Any, weight: Floats) -> Floats:
    from coco_opt.kernels import split_certificate

    form, nu = data.rows, np.zeros(active.shape)
    number, summed = np.where(active, np.cumsum(active).reshape(active.shape) - 1, -1), data.sums is not None
    system = split_certificate.normal_matrix(
        form.column_start, form.row, form.column_value, number, int(active.sum()), measure, summed
    )
    # A row whose cells belong to one child alone has no weight once the sums have theirs: only rounding is left.
    nu[active] = _solve_with_ridge(system, right[active], _LAST * weight[active])
    return nu


def _by_gradients(
    data: SplitData, measure: Floats, inverse: Floats, right: Floats, active: Any, weight: Floats
) -> Floats:
    """Solve the system by conjugate gradients over its diagonal without the sums; O(entries x children) a step."""
    from scipy.sparse.linalg import LinearOperator, cg

    form, size = data.rows, active.size

    def product(flat: Floats) -> Floats:
        priced = form.adjoint(flat.reshape(active.shape))
        if data.sums is not None:
            priced -= (inverse * np.einsum("cj,cj->c", measure, priced))[:, None]
        return np.where(active, form.apply(measure * priced), 0.0).ravel()

    diagonal = weight.ravel()
    scale = np.divide(1.0, diagonal, out=np.zeros(size), where=diagonal > 0.0)
    system, preconditioner = (LinearOperator((size, size), matvec=image) for image in (product, lambda r: scale * r))
    with np.errstate(over="ignore", invalid="ignore"):  # of a nearly singular system
        nu, _ = cg(system, right.ravel(), rtol=_RIDGE, maxiter=_STEPS, M=preconditioner)
    return np.where(np.isfinite(nu), nu, 0.0).reshape(active.shape)


def _solve_with_ridge(system: Floats, vector: Floats, rounding: Floats) -> Floats:
    """Solve a singular, consistent system by a small ridge and refinement; rows of no more than rounding get 0."""
    diagonal = np.maximum(system.diagonal(), 0.0)
    scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros(vector.size), where=diagonal > rounding)
    scaled, right = system * (scale[:, None] * scale), scale * vector
    ridged = scaled.copy()
    ridged.flat[:: vector.size + 1] = 1.0 + _RIDGE
    inverse = np.linalg.inv(ridged)
    solution = inverse @ right
    for _ in range(_REFINEMENTS):
        solution += inverse @ (right - scaled @ solution)
    out: Floats = scale * solution
    return out
