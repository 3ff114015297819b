"""What is known of a region's table from its subtree, as matrices: equal for subtrees of one shape.

Functionals of a table x are vectors over the coordinates, all of which are determined in every region by what was
measured at it and below: by the answers of a leaf alone. Some, F_v, are so exactly, by constraints. Of the rest the
subtree gives means and a covariance S_v. The children's tables are independent, so what they say of their sum is

    P = sum_c S_c,   exact on   F = intersection of the F_c.

With V orthogonal to F, K = V (V' P V)^-1 V' (0 in a leaf), and the own answers y = Q x + noise of precision W, the
region has

    S_v = B (B' (K + Q' W Q) B)^-1 B',   B orthogonal to F_v,   F_v = span(F, E')

where E x = e are its own constraints: information of infinite weight, met before anything else is estimated (Kalman
filter up, Rauch, Tung and Striebel smoother down, on a tree; Chou, Willsky and Benveniste 1994).

Subspaces of functionals by orthonormal bases, the columns of (n, k) matrices; ranks by singular values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from coco_opt.array_types import Flags, Floats
from coco_opt.errors import ProblemError


class UndeterminedError(ProblemError):
    """The answers of some leaf do not determine all that was measured anywhere."""


@dataclass(frozen=True, eq=False)
class Structure:
    """Bases of what is exact, before (``fixed``) and after (``exact``) a region's own ``constraints``.

    ``constraints`` (constraints, coordinates) are exact functionals; ``prior`` is V and ``noisy`` B.
    """

    constraints: Floats
    fixed: Floats
    exact: Floats
    prior: Floats
    noisy: Floats

    @cached_property
    def settled(self) -> tuple[Floats, Floats]:
        """Return the maps of the constraints' values and of the children's sum to the part of the table they fix."""
        rows = np.vstack([self.constraints, self.fixed.T])
        inverse = np.linalg.pinv(rows, rcond=1e-11)
        return inverse[:, : len(self.constraints)], inverse[:, len(self.constraints) :] @ self.fixed.T


@dataclass(frozen=True, eq=False)
class Shape:
    """A subtree up to its answers: ``covariance`` S, ``gain`` K; the children's shapes and how many of each.

    ``kind`` is that of the precisions of the answers about the region's table.
    """

    kind: int
    structure: Structure
    covariance: Floats
    gain: Floats
    children: tuple[tuple[int, int], ...]


@dataclass(eq=False)
class Shapes:
    """The shapes met so far; ``information`` [kinds] is Q' W Q and ``queries`` [kinds] a basis of the rows of Q.

    ``constraints`` [levels] are the rows of E.
    """

    information: Sequence[Floats]
    queries: Sequence[Floats]
    constraints: Sequence[Floats]
    most: int
    shapes: list[Shape] = field(default_factory=list)
    _structures: list[Structure] = field(default_factory=list)
    _structure_at: dict[tuple[int, int, bytes, frozenset[int]], int] = field(default_factory=dict)
    _shape_at: dict[tuple[int, tuple[tuple[int, int], ...]], int] = field(default_factory=dict)
    _structure_of: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Return the number of coordinates."""
        return int(self.information[0].shape[0])

    def at(self, level: int, kind: int, exact: Flags, children: Sequence[int]) -> int:
        """Return the number of a subtree's shape.

        ``kind`` is the region's; ``exact`` are the constraints of the level that hold in it,
        ``children`` its children's shapes. Raises MemoryError beyond ``most`` shapes, and UndeterminedError.
        """
        counted = tuple(sorted(Counter(children).items()))
        structures = frozenset(self._structure_of[child] for child, _ in counted)
        key = (level, kind, exact.tobytes(), structures)
        if key not in self._structure_at:
            self._structure_at[key] = len(self._structures)
            self._structures.append(self._structure(level, kind, exact, structures))
        structure = self._structure_at[key]
        if (structure, counted) not in self._shape_at:
            if len(self.shapes) >= self.most:
                raise MemoryError
            self._shape_at[structure, counted] = len(self.shapes)
            self.shapes.append(self._shape(kind, self._structures[structure], counted))
            self._structure_of.append(structure)
        return self._shape_at[structure, counted]

    def _structure(self, level: int, kind: int, exact: Flags, below: frozenset[int]) -> Structure:
        constraints, size = self.constraints[level][exact], self.size
        fixed, prior = np.zeros((size, 0)), np.zeros((size, 0))
        if below:
            fixed = shared([self._structures[place].exact for place in sorted(below)])
            prior = complement(fixed)
        elif span(fixed, self.queries[kind], constraints.T).shape[1] < size:
            raise UndeterminedError("what was measured does not determine the tables of every region: leave out full")
        after = span(fixed, constraints.T)
        return Structure(constraints, fixed, after, prior, complement(after))

    def _shape(self, kind: int, structure: Structure, children: tuple[tuple[int, int], ...]) -> Shape:
        gain = np.zeros((self.size, self.size))
        if structure.prior.shape[1]:
            summed = self.sum_of(children)
            gain = structure.prior @ _inverse(structure.prior.T @ summed @ structure.prior) @ structure.prior.T
        noisy = structure.noisy
        precision = noisy.T @ (gain + self.information[kind]) @ noisy
        return Shape(kind, structure, noisy @ _inverse(precision) @ noisy.T, gain, children)

    def sum_of(self, children: tuple[tuple[int, int], ...]) -> Floats:
        """Return P, the sum of the children's covariances."""
        out = np.zeros((self.size, self.size))
        for child, count in children:
            out += count * self.shapes[child].covariance
        return out


def _inverse(matrix: Floats) -> Floats:
    """Return the inverse of a positive definite matrix, its rows and columns scaled first."""
    if not matrix.size:
        return matrix
    scale = 1.0 / np.sqrt(np.diag(matrix))
    inverse = np.linalg.inv(matrix * np.outer(scale, scale))
    inverse = 0.5 * (inverse + inverse.T)
    return np.asarray(inverse * np.outer(scale, scale))


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
