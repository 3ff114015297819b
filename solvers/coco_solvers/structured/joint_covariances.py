"""The linear system of joint estimation from sums, eliminated region by region along the tree.

Increments h_j of a leaf's row with variances d_j (cells + 1) that are tied to their sum give its cumulative counts the
covariance of a bridge: S[a, b] = P_a Q_b / (P + Q) for cells a <= b, where P_a is the sum of d up to a and Q_b of
what follows b. A parent's row has the sum of its children's covariances. What is solved is

    (A S A' + diag(theta)) s = b

over the measurements of all regions, A being their sums over buckets. As in generalised least squares on a tree, every
region is conditioned on its own measurements and passes the rest up: S' = S - W' W with W = L^-1 A S and L L' = A S A'
+ diag(theta). A region's matrices have only the cells that its own buckets and those above it distinguish, so the work
is that of small dense products, and leaves of the same buckets are taken together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtri

from coco_opt.array_types import Floats, Ints
from coco_opt.problems.joint_sums import JointSums

_BATCH = 2_000_000  # numbers of one array over the leaves that are taken together
_ROUNDING = 1e-14  # of a squared deviation before it is conditioned: about what rounding leaves after it
_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class _Cells:
    """The cells that a region distinguishes: where they begin, and which begin a bucket, its own or from above."""

    begin: Ints
    own: Ints
    above: Ints


class TreeSystem:
    """The system of one problem; ``factor`` takes its coefficients, ``solve`` its right sides.

    ``leaves`` are the leaves with groups in them. Regions without groups, or of weight 0, have no answers in it.
    """

    def __init__(self, problem: JointSums, leaves: Ints) -> None:
        tree = problem.tree
        self._parent, self._first = tree.parent, np.append(0, np.cumsum(problem.begins.sum(axis=1)))
        self._cells = _distinct_cells(problem)
        alike: dict[int, list[int]] = {}
        for row, leaf in enumerate(leaves):
            alike.setdefault(id(self._cells[leaf]), []).append(row)
        widths = problem.widths.astype(np.float64)
        self._leaves = [
            _Leaves(self._cells[leaves[part[0]]], part, self._answers(leaves[part]), tree.parent[leaves[part]], widths)
            for rows in alike.values()
            for part in _parts(np.array(rows), self._cells[leaves[rows[0]]])
        ]
        some = (problem.groups > 0) & ~tree.is_leaf
        self._inner = [int(v) for v in np.flatnonzero(some) if self._cells[v].begin.size]
        self._factor: dict[int, Floats] = {}
        self._reach: dict[int, Floats] = {}

    def _answers(self, regions: Ints) -> Ints:
        """Return where the answers of regions of the same buckets stand, int64[regions, buckets]."""
        return np.asarray(self._first[regions][:, None] + np.arange(self._cells[regions[0]].own.size))

    @property
    def work(self) -> float:
        """Return about how many multiplications a factorisation takes."""
        leaves = sum(group.work for group in self._leaves)
        return leaves + sum(_work(self._cells[v]) + self._cells[v].begin.size ** 2 for v in self._inner)

    @property
    def numbers(self) -> float:
        """Return about how many numbers a factorisation keeps."""
        inner = sum(float(self._cells[v].begin.size) ** 2 for v in self._inner)
        return inner + sum(group.numbers for group in self._leaves)

    def factor(self, variances: Floats, theta: Floats) -> None:
        """Eliminate all regions: ``variances`` (leaves, cells + 1), ``theta`` [answers]; LinAlgError if it breaks."""
        below: dict[int, Floats] = {}
        spread: dict[int, Floats] = {}
        for group in self._leaves:
            for parent, covariance, deviations in group.factor(variances, theta):
                _add(below, parent, covariance)
                _add(spread, parent, deviations)
        for v in reversed(self._inner):
            cells, covariance, deviations = self._cells[v], below.pop(v), spread.pop(v)
            up = _stretch_sums(_stretch_sums(covariance, cells.above, 0), cells.above, 1)
            if v:
                _add(spread, int(self._parent[v]), _stretch_sums(deviations, cells.above, 0))
            if cells.own.size:
                bucket_covariance = _stretch_sums(covariance, cells.own, 0)
                own = _stretch_sums(bucket_covariance, cells.own, 1).copy()
                own.flat[:: len(own) + 1] += _ROUNDING * np.square(_stretch_sums(deviations, cells.own, 0))
                own.flat[:: len(own) + 1] += theta[self._first[v] : self._first[v + 1]]
                self._factor[v] = _inverse_factor(own)
                self._reach[v] = self._factor[v] @ _stretch_sums(bucket_covariance, cells.above, 1)
                up = up - self._reach[v].T @ self._reach[v]
            if v:
                _add(below, int(self._parent[v]), up)

    def solve(self, b: Floats) -> Floats:
        """Return the solution [answers], 0 for those that are not in the system."""
        below: dict[int, Floats] = {}
        for group in self._leaves:
            for parent, moved in group.hand_up(b):
                _add(below, parent, moved)
        mean: dict[int, Floats] = {}
        for v in reversed(self._inner):
            cells, moved = self._cells[v], below.pop(v)
            up = _stretch_sums(moved, cells.above, 0)
            if cells.own.size:
                residual = b[self._first[v] : self._first[v + 1]] - _stretch_sums(moved, cells.own, 0)
                mean[v] = self._factor[v] @ residual
                up = up + self._reach[v].T @ mean[v]
            if v:
                _add(below, int(self._parent[v]), up)
        s, prices = np.zeros(b.size), {-1: np.zeros(0)}
        for v in self._inner:
            cells, above = self._cells[v], prices.get(int(self._parent[v]), np.zeros(0))
            price = _over(above, cells.above, cells.begin.size)
            if cells.own.size:
                own = self._factor[v].T @ (mean[v] - self._reach[v] @ above)
                s[self._first[v] : self._first[v + 1]] = own
                price = price + _over(own, cells.own, cells.begin.size)
            prices[v] = price
        for group in self._leaves:
            group.hand_down(prices, s)
        return s


class _Leaves:
    """Leaves of the same buckets, whose ancestors' are the same too: all of their matrices in one array."""

    def __init__(self, cells: _Cells, rows: Ints, answers: Ints, parents: Ints, widths: Floats) -> None:
        self._cells, self._rows, self._answers, self._widths = cells, rows, answers, widths
        cut = np.flatnonzero(np.diff(parents)) + 1
        ends = zip(np.append(0, cut), np.append(cut, rows.size), strict=True)
        self._siblings = [(int(parents[a]), slice(int(a), int(z))) for a, z in ends]
        self._factor = self._reach = self._mean = np.zeros(0)

    @property
    def work(self) -> float:
        """Return about how many multiplications a factorisation takes."""
        return self._rows.size * (_work(self._cells) + self._cells.begin.size)

    @property
    def numbers(self) -> float:
        """Return how many numbers a factorisation keeps."""
        return float(self._rows.size) * self._cells.own.size * (self._cells.own.size + self._cells.above.size)

    def factor(self, variances: Floats, theta: Floats) -> Iterator[tuple[int, Floats, Floats]]:
        """Eliminate the leaves; yield the covariances handed to their parents, and the deviations before answers."""
        cells, size = self._cells, self._cells.begin.size
        if not size:
            return
        own_variances = variances[self._rows]
        left, right, within = self._bridges(own_variances, cells.begin)
        if cells.own.size:
            covariances = self._bucket_covariances(left, right, within)
            own = np.add.reduceat(covariances, cells.own, axis=2)
            step = np.arange(cells.own.size)
            own[:, step, step] = own[:, step, step] * (1.0 + _ROUNDING) + theta[self._answers]
            self._factor = np.array([_inverse_factor(matrix) for matrix in own])
            self._reach = self._factor @ _stretch_sums(covariances, cells.above, 2)
        if 0 < cells.above.size < size:
            left, right, within = self._bridges(own_variances, cells.begin[cells.above])
        for parent, siblings in self._siblings if cells.above.size else ():
            upper = np.triu(left[siblings].T @ right[siblings], 1)
            up = upper + upper.T
            up.flat[:: len(up) + 1] = within[siblings].sum(axis=0)
            if cells.own.size:
                reach = self._reach[siblings].reshape(-1, cells.above.size)
                up = up - reach.T @ reach
            yield parent, up, np.sqrt(within[siblings]).sum(axis=0)

    def _bridges(self, variances: Floats, begin: Ints) -> tuple[Floats, Floats, Floats]:
        """Return of the cells that begin at ``begin`` what multiplies to covariances with later cells, and variances.

        All terms are positive: no digits cancel, however far apart the variances are.
        """
        widths = self._widths
        before = widths * variances[:, :-1].cumsum(axis=1)
        after = widths * variances[:, :0:-1].cumsum(axis=1)[:, ::-1]
        after /= variances.sum(axis=1, keepdims=True)
        earlier = _earlier(before, begin)
        within = np.add.reduceat(after * (before + 2.0 * earlier), begin, axis=1)
        return np.add.reduceat(before, begin, axis=1), np.add.reduceat(after, begin, axis=1), within

    def _bucket_covariances(self, left: Floats, right: Floats, within: Floats) -> Floats:
        """Return the covariances of every leaf's buckets with its cells, float64[leaves, buckets, cells]."""
        own, size = self._cells.own, self._cells.begin.size
        bucket = np.repeat(np.arange(own.size), np.diff(own, append=size))
        side = np.sign(bucket - np.arange(own.size)[:, None])
        covariances = np.where(side > 0, np.add.reduceat(left, own, axis=1)[:, :, None] * right[:, None, :], 0.0)
        np.copyto(covariances, np.add.reduceat(right, own, axis=1)[:, :, None] * left[:, None, :], where=side < 0)
        later = _earlier(right[:, ::-1], np.append(0, size - own[:0:-1]))[:, ::-1]
        covariances[:, bucket, np.arange(size)] = _earlier(left, own) * right + within + left * later
        return covariances

    def hand_up(self, b: Floats) -> Iterator[tuple[int, Floats]]:
        """Condition the leaves on a right side; yield how much their parents' rows move by it."""
        cells = self._cells
        if not cells.own.size:
            for parent, _ in self._siblings if cells.above.size else ():
                yield parent, np.zeros(cells.above.size)
            return
        self._mean = (self._factor @ b[self._answers][:, :, None])[:, :, 0]
        for parent, siblings in self._siblings if cells.above.size else ():
            yield parent, self._reach[siblings].reshape(-1, cells.above.size).T @ self._mean[siblings].ravel()

    def hand_down(self, prices: dict[int, Floats], s: Floats) -> None:
        """Write the leaves' part of the solution, given the prices of the regions above them."""
        if not self._cells.own.size:
            return
        mean = self._mean.copy()
        for parent, siblings in self._siblings if self._cells.above.size else ():
            mean[siblings] -= self._reach[siblings] @ prices[parent]
        s[self._answers] = (self._factor.transpose(0, 2, 1) @ mean[:, :, None])[:, :, 0]


def _distinct_cells(problem: JointSums) -> list[_Cells]:
    """Return every region's cells; regions whose own and upper buckets are the same share one value."""
    shared: dict[tuple[bytes, bytes], _Cells] = {}
    cells: list[_Cells] = []
    measured = (problem.weights > 0.0) & (problem.groups > 0)
    for v, up in enumerate(problem.tree.parent):
        above = cells[up].begin if v else _NOTHING
        own = np.flatnonzero(problem.begins[v]) if measured[v] else _NOTHING
        key = above.tobytes(), own.tobytes()
        if key not in shared:
            begin = np.union1d(above, own)
            shared[key] = _Cells(begin, np.searchsorted(begin, own), np.searchsorted(begin, above))
        cells.append(shared[key])
    return cells


def _parts(rows: Ints, cells: _Cells) -> list[Ints]:
    """Return leaves of the same cells in parts whose arrays are not too large."""
    each = max(cells.own.size, 1) * max(cells.begin.size, 1)
    return np.array_split(rows, min(rows.size, 1 + rows.size * each // _BATCH))


def _work(cells: _Cells) -> float:
    own, above = float(cells.own.size), float(cells.above.size)
    return own * (own * own + own * above + above * above) + above * above


def _inverse_factor(matrix: Floats) -> Floats:
    """Return the inverse of a positive definite matrix's lower Cholesky factor."""
    return np.asarray(dtrtri(cholesky(matrix, lower=True, check_finite=False), lower=1)[0])


def _add(sums: dict[int, Floats], key: int, values: Floats) -> None:
    sums[key] = sums[key] + values if key in sums else values


def _stretch_sums(values: Floats, begin: Ints, axis: int) -> Floats:
    """Return the sums over the stretches that begin at ``begin`` along an axis."""
    return values if begin.size == values.shape[axis] else np.add.reduceat(values, begin, axis=axis)


def _over(values: Floats, begin: Ints, size: int) -> Floats:
    """Return values of stretches at every cell of theirs, zeros where there is no stretch."""
    return np.repeat(values, np.diff(begin, append=size)) if begin.size else np.zeros(size)


def _earlier(values: Floats, begin: Ints) -> Floats:
    """Return the sums of what stands before each cell in its stretch, along rows."""
    before = values.cumsum(axis=1) - values
    return before - np.repeat(before[:, begin], np.diff(begin, append=values.shape[1]), axis=1)
