"""The post-processing that turns a measurement of groups into histograms: losses, consistency, rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from coco_opt.errors import ProblemError
from coco_opt.estimators import estimator_row
from coco_opt.groups.estimating.estimators import FitOptions, check_choice
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.kernels.merging import Merge, Rounding
from coco_opt.problems.isotonic import TieRule

Consistency = str
"""The name of a row of the table of estimators (``coco_opt.estimators``)."""
VarianceRule = Literal["formula", "bootstrap"]
ONE_PROGRAM: tuple[Consistency, ...] = ("joint", "convex")
"""The methods that fit all regions in one program: they are slower and need one loss."""
SLOW: tuple[Consistency, ...] = ("posterior", *ONE_PROGRAM)
"""The methods that take seconds where the others take milliseconds."""


@dataclass(frozen=True, slots=True)
class GroupsMethod:
    """The post-processing of a groups release: the losses, and how regions are made to agree.

    Parameters
    ----------
    losses : {"l1", "l2"} or tuple of them, default "l1"
        The loss of all levels, or one for each level, root first. "l1" fits geometric noise, "l2" Gaussian noise.
    ties : {"upper", "lower", "midpoint"}, default "upper"
        Which of several optima of "l1" is taken.
    consistency : str, default "posterior"
        How regions are made to agree: "posterior", "joint", "matching", "convex", "bottom_up", "none", or an estimator
        that a package adds to the table of ``coco_opt.estimators``. "posterior" reads no loss.
    merge : {"weighted", "average"}, default "weighted"
        How "matching" merges the groups of parent and children.
    rounding : {"half_up", "half_even", "half_down"}, default "half_up"
        How merged sizes are rounded.
    variances : {"formula", "bootstrap"}, default "formula"
        The weights of "matching" with "weighted": section 5.1 of the paper, or about twenty more fits a region, redrawn
        from seeds that anyone can compute. Other methods read no variances.
    intervals : float, default 0
        The coverage of intervals, below 1; 0 for none. Only "posterior" gives intervals.
    unbiased : bool, default False
        Also return signed, unbiased counts of every measured region, whatever the method.
    seconds : float, default infinite
        About how long "posterior" may draw where regions have not converged: a number of sweeps, computed from the
        number of answers, so that the result does not depend on the machine.

    Raises
    ------
    ProblemError
        A choice is unknown, or the choices exclude each other.

    Notes
    -----
    Source: Kuo et al. 2018, sections 4 and 5 ("matching"); Fioretto et al. 2021 ("convex").

    Examples
    --------
    >>> from coco_opt import GroupsMethod
    >>> GroupsMethod(consistency="posterior", intervals=0.9).loss(0)
    'l1'
    """

    losses: Loss | tuple[Loss, ...] = "l1"
    ties: TieRule = "upper"
    consistency: Consistency = "posterior"
    merge: Merge = "weighted"
    rounding: Rounding = "half_up"
    variances: VarianceRule = "formula"
    intervals: float = 0.0
    unbiased: bool = False
    seconds: float = math.inf

    def __post_init__(self) -> None:
        estimator_row("groups", self.consistency)
        check_choice("merge", self.merge, get_args(Merge))
        check_choice("variances", self.variances, get_args(VarianceRule))
        if not self.seconds > 0.0:
            raise ProblemError("seconds is how long the posterior may draw: a number above 0")
        for loss in {self.losses} if isinstance(self.losses, str) else set(self.losses):
            FitOptions(loss, self.ties, self.rounding)
        if not 0.0 <= self.intervals < 1.0 or (self.intervals and self.consistency != "posterior"):
            raise ProblemError("intervals have a coverage from 0 (none) to below 1, and only 'posterior' gives any")
        if self.consistency in ONE_PROGRAM and not isinstance(self.losses, str) and len(set(self.losses)) > 1:
            name = "joint estimation" if self.consistency == "joint" else "the convex program"
            raise ProblemError(f"{name} fits all levels with one loss: give every level the same")

    def fit_options(self, level: int) -> FitOptions:
        """Return how the regions of one level are fitted."""
        return FitOptions(self.loss(level), self.ties, self.rounding)

    def loss(self, level: int) -> Loss:
        """Return the loss of one level."""
        return self.losses if isinstance(self.losses, str) else self.losses[level]

    @property
    def redraws(self) -> bool:
        """Return whether every region is fitted again to redrawn noise, for bootstrap variances that are used."""
        return self.variances == "bootstrap" and self.consistency == "matching" and self.merge == "weighted"


def joint_seconds(answers: float) -> float:
    """Return about how many seconds joint estimation of so many answers takes, as measured on Hawaii's blocks."""
    return answers * 2e-5


def needed_levels(consistency: Consistency, levels: int) -> tuple[int, ...]:
    """Return the levels whose answers a consistency method needs."""
    needs = estimator_row("groups", consistency).needs
    return () if needs == "any" else (levels - 1,) if needs == "leaves" else tuple(range(levels))
