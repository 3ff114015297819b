"""Nonnegative least squares under sums, face by face: a semismooth Newton method with projected conjugate gradients.

Over tables x [cells, children]::

    minimise  sum curvature (x - centre)^2 + sum_a weight (R x - target)_a^2
              + sum_k (stiff / 2) distance(C x, [low, high])_k^2
    subject to  x >= 0,  sum_j x_j = sums (if there are any),

with the rows of R and, after them, those of C in one sparse matrix stored by rows and by columns. A face fixes which
cells are 0 and which rows of C lie beyond their sides. On it the problem is linear.

1. Project x onto the present face (``_onto_face``).
2. Minimise on the face by conjugate gradients, preconditioned by the diagonal; a projection cell by cell keeps the sums
   (``_conjugate_gradients``).
3. Choose the rows of C that lie beyond their sides anew (``_choose_sides``).
4. Fix cells that came out negative, and free fixed ones whose reduced cost is negative (``_wrong_signs``).
5. Repeat until nothing changes. From a start near the optimum a few faces are enough; the method may cycle, which it
   reports: more curvature makes it converge.

Invariant: the sums hold after every step. Cost: O(entries x children) a step of conjugate gradients.
Source: primal-dual active sets, Hintermueller, Ito and Kunisch 2003; Hestenes and Stiefel 1952 (conjugate gradients).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled, compiled_in_place
from coco_opt.kernels.split_certificate import Matrix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_LOOSE = 0.1  # how much a face's equations are reduced at first, and tenfold more with every further face
_TIGHT = 1e-7
_PATIENCE = 6  # faces without fewer wrong signs until the method counts as cycling


class Measured(NamedTuple):
    """The measured rows R: weights and targets [rows of R, children]."""

    weight: Floats
    target: Floats


class Sides(NamedTuple):
    """The constraints' rows C, all [rows of C, children]: penalties, lower and upper sides."""

    stiff: Floats
    low: Floats
    high: Floats


class Own(NamedTuple):
    """The cells' own squares [cells, children]: curvature (x - centre)^2."""

    curvature: Floats
    centre: Floats


class Face(NamedTuple):
    """The projection onto a face: 1 / h at free cells [cells, children], 0 at fixed ones; 1 / its sums [cells].

    Without sums (``summed``) nothing is projected.
    """

    inverse: Floats
    share: Floats
    summed: bool


@compiled_in_place
def _apply(start: Ints, index: Ints, value: Floats, x: Floats, out: Floats) -> None:
    children = x.shape[1]
    # Children lie side by side: the inner loops run over them.
    for a in range(start.size - 1):
        for j in range(children):
            out[a, j] = 0.0
        for e in range(start[a], start[a + 1]):
            c, v = index[e], value[e]
            for j in range(children):
                out[a, j] += v * x[c, j]


@compiled_in_place
def _add_adjoint(start: Ints, index: Ints, value: Floats, y: Floats, out: Floats) -> None:
    children = y.shape[1]
    # Column by column, so that each entry of ``out`` is written by one column alone.
    for c in range(start.size - 1):
        for e in range(start[c], start[c + 1]):
            a, v = index[e], 2.0 * value[e]
            for j in range(children):
                out[c, j] += v * y[a, j]


@compiled
def _precondition(r: Floats, face: Face, z: Floats) -> float:
    """Write the projected ``r / h`` into z and return its product with r."""
    inverse, share, summed = face
    products = np.zeros(r.shape[1])  # one a child: a single sum would wait for itself at every step
    # Subtract the weighted mean of r, so that z changes no sum.
    for c in range(r.shape[0]):
        mean = 0.0
        if summed:
            for j in range(r.shape[1]):
                mean += inverse[c, j] * r[c, j]
            mean *= share[c]
        for j in range(r.shape[1]):
            z[c, j] = inverse[c, j] * (r[c, j] - mean)
            products[j] += z[c, j] * r[c, j]
    total = 0.0
    for j in range(products.size):
        total += products[j]
    return total


@compiled_in_place
def _onto_face(x: Floats, free: Flags, h: Floats, sums: Floats, face: Face) -> None:
    """Fix the cells that are not free at 0 and spread the missing part of the sums over the free ones."""
    inverse, share, summed = face
    # What is missing of a cell's sum goes to its free children in the ratio of their inverse diagonal.
    for c in range(x.shape[0]):
        total, lacking = 0.0, sums[c] if summed else 0.0
        for j in range(x.shape[1]):
            inverse[c, j] = 1.0 / h[c, j] if free[c, j] else 0.0
            if not free[c, j]:
                x[c, j] = 0.0
            total += inverse[c, j]
            lacking -= x[c, j]
        share[c] = 1.0 / total if total > 0.0 else 0.0
        if summed:
            for j in range(x.shape[1]):
                x[c, j] += inverse[c, j] * share[c] * lacking


@compiled_in_place
def _choose_sides(product: Floats, measured_rows: int, sides: Sides, used: Floats, aim: Floats) -> int:
    """Aim each row of C at the side that it exceeds, with weight 0 if it exceeds none; return how many changed."""
    stiff, low, high = sides
    changed = 0
    # A row within its sides has no weight; one beyond a side aims at it.
    for k in range(product.shape[0] - measured_rows):
        for j in range(product.shape[1]):
            now = product[measured_rows + k, j]
            near = min(max(now, low[k, j]), high[k, j])
            weight = 0.5 * stiff[k, j] if near != now or low[k, j] == high[k, j] else 0.0
            if weight != used[measured_rows + k, j] or (weight > 0.0 and near != aim[measured_rows + k, j]):
                changed += 1
            used[measured_rows + k, j], aim[measured_rows + k, j] = weight, near
    return changed


@compiled_in_place
def _descent(rows: Matrix, own: Own, product: Floats, used: Floats, aim: Floats, x: Floats, out: Floats) -> None:
    """Write minus the gradient at x, whose rows are ``product``, which is overwritten."""
    curvature, centre = own
    # The cells' own curvature, then the rows' residuals.
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[c, j] = -2.0 * curvature[c, j] * (x[c, j] - centre[c, j])
    for a in range(product.shape[0]):
        for j in range(product.shape[1]):
            product[a, j] = -used[a, j] * (product[a, j] - aim[a, j])
    _add_adjoint(rows.column_start, rows.row, rows.column_value, product, out)


@compiled
def _conjugate_gradients(
    rows: Matrix,
    used: Floats,
    curvature: Floats,
    face: Face,
    loose: float,
    energy: float,
    max_steps: int,
    x: Floats,
    r: Floats,
    product: Floats,
) -> tuple[int, float]:
    """Move x on its face until the residual r has fallen by ``loose`` or below ``energy``; return steps and energy."""
    n, children = x.shape
    z, bent, bends = np.empty((n, children)), np.empty((n, children)), np.empty(children)
    rz = _precondition(r, face, z)
    d, stop = z.copy(), max(energy, loose * loose * rz)
    # r is minus the gradient, z the preconditioned r, d the direction; directions are conjugate.
    for step in range(max_steps):
        if not rz > stop:
            return step, rz
        _apply(rows.start, rows.cell, rows.value, d, product)
        for j in range(children):
            bends[j] = 0.0
        # The curvature along d: of the rows ...
        for a in range(product.shape[0]):
            for j in range(children):
                force = used[a, j] * product[a, j]
                bends[j] += 2.0 * force * product[a, j]
                product[a, j] = force
        # ... and of the cells.
        for c in range(n):
            for j in range(children):
                bent[c, j] = 2.0 * curvature[c, j] * d[c, j]
                bends[j] += bent[c, j] * d[c, j]
        bend = 0.0
        for j in range(children):
            bend += bends[j]
        if not bend > 0.0:
            return step, rz
        _add_adjoint(rows.column_start, rows.row, rows.column_value, product, bent)
        length = rz / bend
        # Move to the least point along d.
        for c in range(n):
            for j in range(children):
                x[c, j] += length * d[c, j]
                r[c, j] -= length * bent[c, j]
        before, rz = rz, _precondition(r, face, z)
        keep = rz / before
        # The next direction, conjugate to the ones before.
        for c in range(n):
            for j in range(children):
                d[c, j] = z[c, j] + keep * d[c, j]
    return max_steps, rz


@compiled
def _diagonal(rows: Matrix, weight: Floats, curvature: Floats) -> Floats:
    """Return the Hessian's diagonal without the rows of C, 1 where it is 0."""
    column_start, row, column_value = rows.column_start, rows.row, rows.column_value
    cells, children = curvature.shape
    h = np.empty((cells, children))
    for c in range(cells):
        for j in range(children):
            h[c, j] = 2.0 * curvature[c, j]
        # Rows of C are left out: which of them weigh changes from face to face.
        for e in range(column_start[c], column_start[c + 1]):
            if row[e] < weight.shape[0]:
                bent = 2.0 * (column_value[e] * column_value[e])
                for j in range(children):
                    h[c, j] += bent * weight[row[e], j]
        for j in range(children):
            if h[c, j] <= 0.0:
                h[c, j] = 1.0
    return h


@compiled_in_place
def _wrong_signs(x: Floats, g: Floats, free: Flags, h: Floats, face: Face, least: float) -> int:
    """Fix the negative free cells, free the fixed ones that would gain, and return how many these are.

    ``g`` is minus the gradient.
    """
    inverse, share, summed = face
    wrong = 0
    for c in range(x.shape[0]):
        price, any_free = 0.0, False
        if summed:
            for j in range(x.shape[1]):
                price += inverse[c, j] * g[c, j]
            price *= share[c]
        # The reduced cost of a fixed cell is its gradient less the price of its sum.
        for j in range(x.shape[1]):
            if free[c, j] and x[c, j] < -least:
                free[c, j] = False
                wrong += 1
            elif not free[c, j] and g[c, j] - price > least * h[c, j]:
                free[c, j] = True
                wrong += 1
            any_free = any_free or free[c, j]
        # Some child must be free to hold the cell's sum.
        if summed and not any_free:
            for j in range(x.shape[1]):
                free[c, j] = True
    return wrong


@compiled
def descend(
    rows: Matrix,
    measured: Measured,
    sides: Sides,
    own: Own,
    sums: Floats,
    x: Floats,
    free: Flags,
    least: float,
    energy: float,
    max_faces: int,
    max_steps: int,
) -> tuple[int, int, int]:
    """Improve x and ``free`` in place; return wrong signs left, faces and steps of conjugate gradients.

    ``sums`` is empty where there are none. Signs within ``least`` of 0 count as right. The last face is solved until
    the squared residual in the diagonal's inverse is at most ``energy``.
    """
    children, measured_rows = x.shape[1], measured.weight.shape[0]
    shape = rows.start.size - 1, children
    product, used, aim = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for a in range(measured_rows):  # assigning slices would take numba five seconds to compile
        for j in range(children):
            used[a, j], aim[a, j] = measured.weight[a, j], measured.target[a, j]
    h = _diagonal(rows, measured.weight, own.curvature)
    face, r = Face(np.zeros(x.shape), np.zeros(x.shape[0]), sums.size > 0), np.zeros(x.shape)
    fewest, waited, steps, loose, wrong = x.size + used.size + 1, 0, 0, _LOOSE, 0
    _apply(rows.start, rows.cell, rows.value, x, product)
    _choose_sides(product, measured_rows, sides, used, aim)
    # Solve on the face, then see which sides and signs are wrong.
    for number in range(max_faces):
        _onto_face(x, free, h, sums, face)
        _apply(rows.start, rows.cell, rows.value, x, product)
        _descent(rows, own, product, used, aim, x, r)
        limits = loose, energy, max_steps - steps
        done, left = _conjugate_gradients(rows, used, own.curvature, face, *limits, x, r, product)
        steps += done
        _apply(rows.start, rows.cell, rows.value, x, product)
        wrong = _choose_sides(product, measured_rows, sides, used, aim)
        _descent(rows, own, product, used, aim, x, r)
        wrong += _wrong_signs(x, r, free, h, face, least)
        if wrong == 0 and (left <= energy or done == 0):
            return 0, number + 1, steps
        # More exact with every face; with all signs right only the energy is left to reach.
        loose = max(_TIGHT, 0.1 * loose) if wrong else 0.0
        waited = 0 if wrong < fewest else waited + 1
        fewest = min(fewest, wrong)
        if waited > _PATIENCE or steps >= max_steps:
            return wrong, number + 1, steps
    return wrong, max_faces, steps
