"""The two losses of joint estimation; the problem itself is stated in ``coco_opt.problems.joint.problem``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coco_opt.forms import LinearProgram, QuadraticProgram
from coco_opt.problems.joint.problem import JointFit


@dataclass(frozen=True, eq=False, init=False)
class JointL1(JointFit):
    """Joint estimation of all regions in absolute values, p = 1: ``JointL1(tree, y, groups, weights, cell_weights)``.

    Minimise sum_v w_v sum_i u_i |x_v[i] - y_v[i]|^1 over tables x_v that are nondecreasing in i, between 0 and
    groups_v, and sum to their parent's table.

    Parameters
    ----------
    tree : Tree or array_like, shape (regions,)
        The tree of regions, or its parent array.
    y : array_like, shape (regions, cells)
        Noisy cumulative counts, in groups; finite.
    groups : array_like of int, shape (regions,)
        The number of groups of each region; a parent's is the sum of its children's.
    weights : array_like, shape (regions,), or float, default 1
        Nonnegative weights, 1 / scale of the noise for maximum likelihood; 0 for a region that was not measured.
    cell_weights : array_like, shape (cells,), or float, default 1
        Positive weights u of the cells.

    Raises
    ------
    ProblemError
        The arrays are not like this.

    Notes
    -----
    Values are float64 (regions, cells). Optima are not unique. The fast solver uses alternating directions, to a
    certified gap of 1e-4.

    Examples
    --------
    >>> from coco_opt import JointL1, solve
    >>> solve(JointL1([-1, 0, 0], [[1, 3], [0, 2], [0, 1]], [4, 2, 2])).objective <= 1
    True
    """

    kind: ClassVar[str] = "joint_l1"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram,)
    squares: ClassVar[bool] = False


@dataclass(frozen=True, eq=False, init=False)
class JointL2(JointFit):
    """Joint estimation of all regions in least squares, p = 2: ``JointL2(tree, y, groups, weights, cell_weights)``.

    Minimise sum_v w_v sum_i u_i |x_v[i] - y_v[i]|^2 over tables x_v that are nondecreasing in i, between 0 and
    groups_v, and sum to their parent's table.

    Parameters
    ----------
    tree : Tree or array_like, shape (regions,)
        The tree of regions, or its parent array.
    y : array_like, shape (regions, cells)
        Noisy cumulative counts, in groups; finite.
    groups : array_like of int, shape (regions,)
        The number of groups of each region; a parent's is the sum of its children's.
    weights : array_like, shape (regions,), or float, default 1
        Nonnegative weights, 1 / variance of the noise for maximum likelihood; 0 for a region that was not measured.
    cell_weights : array_like, shape (cells,), or float, default 1
        Positive weights u of the cells.

    Raises
    ------
    ProblemError
        The arrays are not like this.

    Notes
    -----
    Values are float64 (regions, cells). The fast solver uses alternating directions, to a certified gap of 1e-4.

    Examples
    --------
    >>> from coco_opt import JointL2, solve
    >>> solve(JointL2([-1, 0, 0], [[1, 3], [0, 2], [0, 1]], [4, 2, 2])).objective <= 1
    True
    """

    kind: ClassVar[str] = "joint_l2"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)
    squares: ClassVar[bool] = True
