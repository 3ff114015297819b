"""Subspaces of functionals by orthonormal bases, the columns of (n, k) matrices; ranks by singular values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coco_opt.array_types import Floats

_RANK = 1e-9  # singular values below this part of the largest are zero; the matrices here are of small integers


def span(*columns: Floats) -> Floats:
    """Return a basis of what all columns (n, any) span; bases and columns of integers have clear ranks."""
    matrix = np.hstack(columns)
    if not matrix.shape[1]:
        return matrix
    scaled = matrix / np.maximum(np.linalg.norm(matrix, axis=0), np.finfo(np.float64).tiny)
    left, values, _ = np.linalg.svd(scaled, full_matrices=False)
    return np.ascontiguousarray(left[:, values > _RANK * max(float(values.max(initial=0.0)), 1.0)])


def complement(basis: Floats) -> Floats:
    """Return a basis of all that is orthogonal to a basis."""
    n, k = basis.shape
    if k in (0, n):
        return np.eye(n)[:, : n - k]
    return np.ascontiguousarray(np.linalg.qr(basis, mode="complete")[0][:, k:])


def shared(bases: Sequence[Floats]) -> Floats:
    """Return a basis of the intersection of subspaces, at least one."""
    if all(basis.shape[1] == basis.shape[0] for basis in bases):
        return bases[0]
    return complement(span(*(complement(basis) for basis in bases)))


def without(basis: Floats, part: Floats) -> Floats:
    """Return a basis of what of a subspace is orthogonal to a part of it."""
    if not part.shape[1]:
        return basis
    return basis @ complement(span(basis.T @ part))
