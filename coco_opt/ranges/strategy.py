"""Choose how finely ranges are measured: even fan-outs by formula, or trees and shares of each level by search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count, pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy import Cost, Neighbours
from coco_opt.privacy.planner import rounded_shares
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.interval_counts import Precision, noise_of
from coco_opt.ranges.workload import Workload

_PRIMES = (2, 3, 5, 7)
_WIDTHS = 160  # widths that are weighed at most
_ROOT_SHARE = 2 / 3  # of an equal share
_LOWEST = -25.0  # logarithm of a share over the largest while searching: variances stay finite
_EXACT = 2_048  # cells up to which every tree's exact error is computed
_COMPARED = 1 << 17  # cells up to which the best tree is compared with the best of a single fan-out
_UNMEASURED = 7.0  # of logarithms: a thousandth
_LEAST_SHARE = 0.002  # a level that would get less is left out; planned shares are thousandths


@dataclass(frozen=True, slots=True)
class OptimisedTree:
    """A fan-out for each level above the cells and a share of the budget for each level, the root first.

    ``shares`` are None for a tree of one fan-out (None: cells alone) whose counts are one query.
    """

    fan_out: int | tuple[int, ...] | None
    shares: tuple[Fraction, ...] | None


def optimised_tree(
    workload: Workload, cost: Cost, *, neighbours: Neighbours = "add_remove", nonnegative: bool = False
) -> OptimisedTree:
    """Return the tree of least expected squared error over a workload, from public numbers; O(cells) a width.

    The best of those considered: the shortest path over widths, and trees of a single fan-out without the levels that
    get no budget. Exact for Gaussian noise where widths divide the domain. Where estimates will be made
    ``nonnegative``, the count of the whole domain has two thirds of an equal share at least: where most cells are
    empty, the bias of such estimates adds up over the domain unless that count is known.

    Trees without shares are better where entities are replaced and levels are few, as the count of the whole domain
    costs nothing in them, and where integer noise nearly vanishes.
    """
    power = cost.precision_power
    # A replaced entity changes two counts of a level, and one at most at the root.
    squares = _Squares(workload, power, nonnegative, 2.0**power if neighbours == "replace" else 1.0)
    evaluated = [(_tree(widths, shares), error) for widths, shares, error in map(squares.thinned, _candidates(squares))]
    best = min(evaluated, key=lambda tree: tree[1])[0]
    if workload.cells > _COMPARED:
        return best
    if workload.cells <= _EXACT:  # where padding weighs most, errors of all are those of the trees themselves
        trees, fan_outs = [tree for tree, _ in evaluated], [k for k in FAN_OUTS if k < workload.cells]
        fan_outs.append(max(2, workload.cells))
    else:
        trees, single = [best], choose_fan_out(workload.cells, cost, neighbours=neighbours)
        fan_outs = [] if single is None else [single]
    trees += [OptimisedTree(fan_out, None) for fan_out in fan_outs]
    if not nonnegative:  # else the count of the whole domain is needed
        trees.append(OptimisedTree(None, None))
    return min(trees, key=lambda tree: _expected_error(tree, workload, cost, neighbours))


def _tree(widths: Sequence[int], shares: Floats) -> OptimisedTree:
    return OptimisedTree(tuple(above // below for above, below in pairwise(widths)), rounded_shares(shares))


def _expected_error(tree: OptimisedTree, workload: Workload, cost: Cost, neighbours: Neighbours) -> float:
    domain = DomainTree(workload.cells, tree.fan_out, shares=tree.shares)
    return workload.variance(Precision(domain, noise_of(domain, cost, neighbours)))


@dataclass(frozen=True, eq=False)
class _Squares:
    """The workload's squared norm on constant blocks of each width, and what follows for trees. Widths: root first."""

    workload: Workload
    power: int
    nonnegative: bool
    root: float = 1.0  # the precision of the root's count over that of another with the same share
    _known: dict[int, float] = field(default_factory=dict, init=False)

    @property
    def cells(self) -> int:
        return self.workload.cells

    def on_blocks(self, width: int) -> float:
        """Return the squared norm of the workload projected on vectors that are constant on blocks of a width."""
        if width not in self._known:
            self._known[width] = self.workload.overlaps(width) / width
        return self._known[width]

    def by_level(self, widths: Sequence[int]) -> Floats:
        norms = np.array([self.on_blocks(width) for width in widths])
        return np.maximum(np.diff(norms, prepend=0.0), 0.0)

    def step(self, above: int, below: int) -> float:
        """Return what a level of width ``below`` under a level of width ``above`` adds to the length of a path."""
        square = max(self.on_blocks(below) - self.on_blocks(above), 0.0)
        if self.power == 1:
            return float(np.sqrt(square * (1 / below - 1 / above)))
        return float(np.cbrt(square / below))

    def error(self, widths: Sequence[int], shares: Floats) -> float:
        """Return the sum of squared errors where a share of 1 buys a precision of 1."""
        precision = np.cumsum((self._sizes(widths) * shares**self.power)[::-1])[::-1]
        return float((self.by_level(widths) / precision).sum())

    def _sizes(self, widths: Sequence[int]) -> Floats:
        """Return what a share of 1 for each level adds to the precision of sums of its blocks."""
        return np.array([widths[0] * self.root, *widths[1:]], np.float64)

    def thinned(self, widths: Sequence[int]) -> tuple[tuple[int, ...], Floats, float]:
        """Return the widths without levels that get almost no budget, the best shares of the others, and the error.

        The root and the cells stay.
        """
        while True:
            shares = self.shares(widths)
            is_measured = (shares >= _LEAST_SHARE) | (np.arange(len(widths)) == 0) | (np.array(widths) == 1)
            if is_measured.all():
                shares = np.array([float(share) for share in rounded_shares(shares)])
                return tuple(widths), shares, self.error(widths, shares)
            widths = [width for width, measured in zip(widths, is_measured, strict=True) if measured]
            widths[0] = -(-self.cells // widths[1]) * widths[1]

    def shares(self, widths: Sequence[int]) -> Floats:
        """Return the best shares of the levels; they sum to 1."""
        from scipy.optimize import minimize

        squares, sizes, power = self.by_level(widths), self._sizes(widths), self.power
        least = np.zeros(sizes.size)
        least[0] = _ROOT_SHARE / sizes.size if self.nonnegative and sizes.size > 1 else 0.0

        def shares_of(logarithms: Floats) -> Floats:
            weights = np.exp(np.maximum(logarithms - logarithms.max(), _LOWEST))
            return np.asarray(weights / weights.sum())

        def error(logarithms: Floats) -> tuple[float, Floats]:
            free = shares_of(logarithms)
            parts = least + (1 - least[0]) * free
            precision = np.cumsum((sizes * parts**power)[::-1])[::-1]
            total = float((squares / precision).sum())
            slope = -np.cumsum(squares / precision**2) * sizes * power * parts ** (power - 1) / total
            return float(np.log(total)), (1 - least[0]) * free * (slope - slope @ free)

        rule = np.log(np.maximum(squares / sizes, 1e-12 * squares.max())) / (power + 1)
        rootless = np.concatenate([[rule.max() - _UNMEASURED], rule[1:]])  # with epsilon a minimum of its own
        starts = [np.zeros(sizes.size), rule, rootless]
        solved: list[Any] = [minimize(error, start, jac=True, method="L-BFGS-B") for start in starts]
        best = min(solved, key=lambda result: result.fun)
        return np.asarray(least + (1 - least[0]) * shares_of(cast("Floats", best.x)))


def _candidates(squares: _Squares) -> Iterator[tuple[int, ...]]:
    """Yield widths of the levels of trees, root first."""
    cells = squares.cells
    if cells == 1:
        yield (1,)
        return
    yield _shortest_path(squares, _widths(cells))
    # The smallest fan-out of every number of levels: with Laplace noise, few levels of one fan-out are near the best.
    for levels in range(1, (cells - 1).bit_length() + 1):
        fan_out = next(k for k in count(max(2, round(cells ** (1 / levels)) - 1)) if k**levels >= cells)
        if fan_out ** (levels - 1) < cells:  # else fewer levels have the same fan-out
            yield tuple(fan_out**level for level in reversed(range(levels + 1)))


def _widths(cells: int) -> list[int]:
    """Return widths below the domain whose prime factors are small, rising; the first primes alone where many are."""
    for primes in (_PRIMES[:length] for length in range(len(_PRIMES), 0, -1)):
        widths = {1}
        for prime in primes:
            widths |= {width * prime**power for width in widths for power in range(cells.bit_length())}
            widths = {width for width in widths if width < cells}
        if len(widths) <= _WIDTHS:
            break
    return sorted(widths)


def _shortest_path(squares: _Squares, widths: Sequence[int]) -> tuple[int, ...]:
    """Return the widths, root first, whose steps from the root to the cells are the shortest in all."""
    cells = squares.cells
    length: dict[int, float] = {}
    above: dict[int, int] = {}
    for width in reversed(widths):
        from_root = {cells: squares.step(cells, width)}
        steps = {wider: length[wider] + squares.step(wider, width) for wider in length if wider % width == 0}
        reached: Mapping[int, float] = {**from_root, **steps}
        above[width] = min(reached, key=lambda wider: reached[wider])
        length[width] = reached[above[width]]
    path = [1]
    while path[-1] < cells:
        path.append(above[path[-1]])
    path[-1] = -(-cells // path[-2]) * path[-2]
    return tuple(path[::-1])


__all__ = ["OptimisedTree", "optimised_tree"]

FAN_OUTS: tuple[int, ...] = (2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 64)
_PLACES = 64
_FEW = 16  # cells, over which a bias does not add up to much
_CLEARLY = 2 / 3  # cells alone are chosen below this share of the best tree's predicted standard error


@dataclass(frozen=True, slots=True)
class PredictedError:
    """The mean variance of H-bar over a workload of ranges for one fan-out (None: cells only)."""

    fan_out: int | None
    height: int
    mean_variance: float


def predict_errors(
    cells: int,
    cost: Cost,
    *,
    fan_outs: Sequence[int | None] = (None, *FAN_OUTS),
    ranges: tuple[ArrayLike, ArrayLike] | None = None,
    neighbours: Neighbours = "add_remove",
) -> tuple[PredictedError, ...]:
    """Return the predicted error of each fan-out, least first, for ranges begin:end.

    ``cost`` is that of the whole tree. The default workload has sizes 2^i at places spread evenly. Needs public
    numbers only. O(cells) a fan-out.
    """
    if not fan_outs:
        raise ProblemError("give at least one fan-out to choose from")
    begin, end = _spread(cells) if ranges is None else ranges
    if np.size(begin) == 0:
        raise ProblemError("give at least one range to predict errors of")
    rows = []
    for fan_out in fan_outs:
        domain = DomainTree(cells, fan_out)
        spread = Precision(domain, noise_of(domain, cost, neighbours)).ranges(begin, end)
        rows.append(PredictedError(fan_out, domain.height, float(spread.mean())))
    return tuple(sorted(rows, key=lambda row: row.mean_variance))


def choose_fan_out(
    cells: int,
    cost: Cost,
    *,
    ranges: tuple[ArrayLike, ArrayLike] | None = None,
    neighbours: Neighbours = "add_remove",
) -> int | None:
    """Return the fan-out of least predicted error, None where measuring the cells alone is clearly best.

    The prediction is that of the unbiased estimate. Made nonnegative, cells measured alone are biased where most are
    empty, and over long ranges the bias adds up (to ten times a tree's error at 1,024 cells), while the intervals of a
    tree bound it. So on more than a few cells a tree is chosen unless the cells' predicted standard error is below two
    thirds of its own.
    """
    predicted = predict_errors(cells, cost, ranges=ranges, neighbours=neighbours)
    trees = [row for row in predicted if row.fan_out is not None]
    alone = next((row.mean_variance for row in predicted if row.fan_out is None), np.inf)
    worth = 1.0 if cells <= _FEW else _CLEARLY**2
    if not trees or alone < worth * trees[0].mean_variance:
        return None
    return trees[0].fan_out


def evenly(cells: int, size: int) -> tuple[Ints, Ints]:
    """Return 64 ranges begin:end of ``size`` cells at places spread evenly; a place may occur twice."""
    places = np.unique(np.linspace(0, cells - size, _PLACES).astype(np.int64))
    begin = np.resize(places, _PLACES)
    return begin, begin + size


def _spread(cells: int) -> tuple[Ints, Ints]:
    sizes = [1 << power for power in range(cells.bit_length())]
    begins, ends = zip(*(evenly(cells, size) for size in sizes), strict=True)
    return np.concatenate(begins), np.concatenate(ends)
