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

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled, compiled_in_place

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_LOOSE = 0.1  # how much a face's equations are reduced at first, and tenfold more with every further face
_TIGHT = 1e-7
_PATIENCE = 6  # faces without fewer wrong signs until the method counts as cycling


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
def _precondition(r: Floats, inverse: Floats, share: Floats, summed: bool, z: Floats) -> float:
    """Write the projected ``r / h`` into z and return its product with r; ``inverse`` is 0 at fixed cells."""
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
def _onto_face(x: Floats, free: Flags, h: Floats, sums: Floats, inverse: Floats, share: Floats) -> None:
    """Fix the cells that are not free at 0 and spread the missing part of the sums over the free ones."""
    summed = sums.size > 0
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
def _choose_sides(
    product: Floats, measured_rows: int, stiff: Floats, low: Floats, high: Floats, used: Floats, aim: Floats
) -> int:
    """Aim each row of C at the side that it exceeds, with weight 0 if it exceeds none; return how many changed."""
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
def _descent(
    column_start: Ints,
    row: Ints,
    column_value: Floats,
    product: Floats,
    used: Floats,
    aim: Floats,
    curvature: Floats,
    centre: Floats,
    x: Floats,
    out: Floats,
) -> None:
    """Write minus the gradient at x, whose rows are ``product``, which is overwritten."""
    # The cells' own curvature, then the rows' residuals.
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[c, j] = -2.0 * curvature[c, j] * (x[c, j] - centre[c, j])
    for a in range(product.shape[0]):
        for j in range(product.shape[1]):
            product[a, j] = -used[a, j] * (product[a, j] - aim[a, j])
    _add_adjoint(column_start, row, column_value, product, out)


@compiled
def _conjugate_gradients(
    start: Ints,
    cell: Ints,
    value: Floats,
    column_start: Ints,
    row: Ints,
    column_value: Floats,
    used: Floats,
    curvature: Floats,
    inverse: Floats,
    share: Floats,
    summed: bool,
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
    rz = _precondition(r, inverse, share, summed, z)
    d, stop = z.copy(), max(energy, loose * loose * rz)
    # r is minus the gradient, z the preconditioned r, d the direction; directions are conjugate.
    for step in range(max_steps):
        if not rz > stop:
            return step, rz
        _apply(start, cell, value, d, product)
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
        _add_adjoint(column_start, row, column_value, product, bent)
        length = rz / bend
        # Move to the least point along d.
        for c in range(n):
            for j in range(children):
                x[c, j] += length * d[c, j]
                r[c, j] -= length * bent[c, j]
        before, rz = rz, _precondition(r, inverse, share, summed, z)
        keep = rz / before
        # The next direction (Fletcher and Reeves 1964).
        for c in range(n):
            for j in range(children):
                d[c, j] = z[c, j] + keep * d[c, j]
    return max_steps, rz


@compiled
def _diagonal(column_start: Ints, row: Ints, column_value: Floats, weight: Floats, curvature: Floats) -> Floats:
    """Return the Hessian's diagonal without the rows of C, 1 where it is 0."""
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
def _wrong_signs(
    x: Floats, g: Floats, free: Flags, h: Floats, inverse: Floats, share: Floats, summed: bool, least: float
) -> int:
    """Fix the negative free cells, free the fixed ones that would gain, and return how many these are.

    ``g`` is minus the gradient.
    """
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
    start: Ints,
    cell: Ints,
    value: Floats,
    column_start: Ints,
    row: Ints,
    column_value: Floats,
    weight: Floats,
    target: Floats,
    stiff: Floats,
    low: Floats,
    high: Floats,
    curvature: Floats,
    centre: Floats,
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
    children, rows, measured_rows, summed = x.shape[1], start.size - 1, weight.shape[0], sums.size > 0
    product, used, aim = np.zeros((rows, children)), np.zeros((rows, children)), np.zeros((rows, children))
    for a in range(measured_rows):  # assigning slices would take numba five seconds to compile
        for j in range(children):
            used[a, j], aim[a, j] = weight[a, j], target[a, j]
    h = _diagonal(column_start, row, column_value, weight, curvature)
    inverse, share, r = np.zeros(x.shape), np.zeros(x.shape[0]), np.zeros(x.shape)
    fewest, waited, steps, loose, wrong = x.size + used.size + 1, 0, 0, _LOOSE, 0
    _apply(start, cell, value, x, product)
    _choose_sides(product, measured_rows, stiff, low, high, used, aim)
    # Solve on the face, then see which sides and signs are wrong.
    for face in range(max_faces):
        _onto_face(x, free, h, sums, inverse, share)
        _apply(start, cell, value, x, product)
        _descent(column_start, row, column_value, product, used, aim, curvature, centre, x, r)
        done, left = _conjugate_gradients(
            start, cell, value, column_start, row, column_value, used, curvature,
            inverse, share, summed, loose, energy, max_steps - steps, x, r, product,
        )  # fmt: skip
        steps += done
        _apply(start, cell, value, x, product)
        wrong = _choose_sides(product, measured_rows, stiff, low, high, used, aim)
        _descent(column_start, row, column_value, product, used, aim, curvature, centre, x, r)
        wrong += _wrong_signs(x, r, free, h, inverse, share, summed, least)
        if wrong == 0 and (left <= energy or done == 0):
            return 0, face + 1, steps
        loose = max(_TIGHT, 0.1 * loose) if wrong else 0.0
        waited = 0 if wrong < fewest else waited + 1
        fewest = min(fewest, wrong)
        if waited > _PATIENCE or steps >= max_steps:
            return wrong, face + 1, steps
    return wrong, max_faces, steps
