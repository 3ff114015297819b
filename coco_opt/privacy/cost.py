"""What a measurement costs, as a value: an exact amount in its unit, and the noise that it buys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from coco_opt.errors import InputError, ProblemError
from coco_opt.privacy.accounting import (
    RENYI_ORDERS,
    epsilon_of_rho,
    gaussian_variance,
    renyi_of_epsilon,
    renyi_of_rho,
    rho_of_epsilon,
)
from coco_opt.privacy.budget import Unit, noise_scale, split, stated_fraction
from coco_opt.privacy.directed_rounding import round_above
from coco_opt.privacy.noise_distributions import DiscreteGaussian, Geometric, NoiseDistribution

DELTA = Fraction(1, 10**6)
"""The delta at which a rho is stated as an epsilon where the user names none."""
_SHOWN_DIGITS = 6
_READABLE = 10**6  # the largest denominator of a delta that is shown as a fraction


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """By how much neighbours change all answers of a level: in L1 norm, and in squared L2 norm."""

    l1: int
    l2_squared: int

    def __post_init__(self) -> None:
        if self.l1 < 1 or self.l2_squared < 1:
            raise ProblemError("a query has a sensitivity of at least 1")

    def of_rows(self, rows: int) -> Sensitivity:
        """Return by how much changing so many rows changes the answers: norms add up, so their squares grow by rows^2.

        The bound is reached where all rows change the same answer.
        """
        return Sensitivity(self.l1 * rows, self.l2_squared * rows * rows)


@dataclass(frozen=True)
class Cost(ABC):
    """An exact amount of a unit, at least 0; costs of one unit add up, over levels and queries.

    1 / nominal variance of the noise that an amount buys grows with ``amount ** precision_power``.
    """

    amount: Fraction

    unit: ClassVar[Unit]
    precision_power: ClassVar[int]

    def __post_init__(self) -> None:
        stated: object = self.amount
        if isinstance(stated, float):
            raise ProblemError(f'a float is no exact cost in {self.unit}: write a string, such as "{stated}" or "1/3"')
        amount = Fraction(self.amount)
        if amount < 0:
            raise ProblemError(f"a cost in {self.unit} must not be negative")
        object.__setattr__(self, "amount", amount)

    @abstractmethod
    def distribution(self, sensitivity: Sensitivity) -> NoiseDistribution:
        """Return the noise that this cost buys for a query; raise ProblemError for a cost of 0."""

    @abstractmethod
    def implied(self, delta: Fraction | None = None) -> dict[str, Any]:
        """Return plain values of what the guarantee says in other languages, each rounded in the safe direction."""

    @abstractmethod
    def epsilon(self, delta: Fraction = DELTA) -> Fraction:
        """Return the epsilon that the guarantee implies at ``delta``, rounded up; exact for pure epsilon."""

    def guarantee(self, delta: Fraction | None = None) -> tuple[Fraction, Fraction]:
        """Return the epsilon at ``delta`` (a millionth where it is None), and that delta; 0 for pure epsilon."""
        return self.epsilon(delta or DELTA), delta or DELTA

    @abstractmethod
    def meaning(self, delta: Fraction | None = None) -> str:
        """Return in a few words what else the cost means."""

    def shared(self, shares: Sequence[str | int | Fraction]) -> tuple[Self, ...]:
        """Return this cost times each share.

        Parameters
        ----------
        shares : sequence of str, int or Fraction
            Shares such as "1/3" that sum to exactly 1.

        Returns
        -------
        tuple of costs
            One cost for each share, in the same unit.

        Raises
        ------
        ProblemError
            The shares do not sum to exactly 1.

        Examples
        --------
        >>> from fractions import Fraction
        >>> from coco_opt import Epsilon
        >>> [str(cost.amount) for cost in Epsilon(Fraction(1)).shared(["2/3", "1/3"])]
        ['2/3', '1/3']
        """
        return tuple(type(self)(part) for part in split(self.amount, shares))

    def __add__(self, other: Cost) -> Self:
        if type(other) is not type(self):
            raise ProblemError(f"a cost in {self.unit} and one in {other.unit} do not add up")
        return type(self)(self.amount + other.amount)

    def __mul__(self, share: Fraction | int) -> Self:
        return type(self)(self.amount * share)

    def __bool__(self) -> bool:
        return self.amount > 0

    def as_dict(self) -> dict[str, str]:
        """Return plain values for files, read back by ``cost_of``."""
        return {self.unit: str(self.amount)}

    def __str__(self) -> str:
        return f"{self.unit} = {self.amount}"


@dataclass(frozen=True)
class Epsilon(Cost):
    """Pure epsilon-differential privacy; buys double-geometric noise.

    Parameters
    ----------
    amount : Fraction
        Epsilon, at least 0. A float is refused, because it is not exact: ``Fraction("0.1")`` is.

    Raises
    ------
    ProblemError
        The amount is a float or negative.

    Notes
    -----
    Amounts add up over levels and queries.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import Epsilon
    >>> leaf, root = Epsilon(Fraction(1)).shared(["3/4", "1/4"])
    >>> leaf + root == Epsilon(Fraction(1))
    True
    """

    unit = "epsilon"
    precision_power = 2

    def distribution(self, sensitivity: Sensitivity) -> Geometric:
        """Return geometric noise of scale L1 sensitivity / epsilon."""
        return Geometric(noise_scale(sensitivity.l1, self.amount))

    def implied(self, delta: Fraction | None = None) -> dict[str, Any]:
        """Return rho and Renyi divergences."""
        renyi = {str(order): str(renyi_of_epsilon(self.amount, order)) for order in RENYI_ORDERS}
        return {"rho": str(rho_of_epsilon(self.amount)), "renyi": renyi}

    def epsilon(self, delta: Fraction = DELTA) -> Fraction:
        """Return the amount: it holds at every delta."""
        return self.amount

    def guarantee(self, delta: Fraction | None = None) -> tuple[Fraction, Fraction]:
        """Return the amount and 0."""
        return self.amount, Fraction(0)

    def meaning(self, delta: Fraction | None = None) -> str:
        """Return the zCDP that it implies."""
        return f"zCDP rho = {self.implied()['rho']}"


@dataclass(frozen=True)
class Rho(Cost):
    """Zero-concentrated differential privacy; buys discrete Gaussian noise.

    Parameters
    ----------
    amount : Fraction
        Rho, at least 0. A float is refused, because it is not exact: ``Fraction("0.1")`` is.

    Raises
    ------
    ProblemError
        The amount is a float or negative.

    Notes
    -----
    Amounts add up over levels and queries. ``epsilon(delta)`` is the epsilon that the amount implies, an upper bound.
    Source: Bun and Steinke 2016.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import Rho
    >>> float(Rho(Fraction(1, 2)).epsilon(Fraction(1, 10**6))) < 6
    True
    """

    unit = "rho"
    precision_power = 1

    def distribution(self, sensitivity: Sensitivity) -> DiscreteGaussian:
        """Return discrete Gaussian noise of variance squared L2 sensitivity / (2 rho)."""
        return DiscreteGaussian(gaussian_variance(sensitivity.l2_squared, self.amount))

    def implied(self, delta: Fraction | None = None) -> dict[str, Any]:
        """Return (epsilon, delta) by the tight conversion, and Renyi divergences."""
        stated_delta = delta or DELTA
        pair = {"epsilon": str(self.epsilon(stated_delta)), "delta": str(stated_delta), "conversion": "tight"}
        return {**pair, "renyi": {str(order): str(renyi_of_rho(self.amount, order)) for order in RENYI_ORDERS}}

    def epsilon(self, delta: Fraction = DELTA) -> Fraction:
        """Return the epsilon at ``delta`` (Canonne, Kamath and Steinke 2020, corollary 13)."""
        return epsilon_of_rho(self.amount, delta)

    def meaning(self, delta: Fraction | None = None) -> str:
        """Return the epsilon at a delta, rounded up."""
        stated_delta = delta or DELTA
        return f"zCDP: {pair_words(self.epsilon(stated_delta), stated_delta)}"


COSTS: Mapping[str, type[Epsilon] | type[Rho]] = {cost.unit: cost for cost in (Epsilon, Rho)}


def pair_words(epsilon: Fraction, delta: Fraction, digits: int = _SHOWN_DIGITS) -> str:
    """Return the words for a pair that holds, its epsilon rounded up."""
    shown = str(delta) if delta.denominator <= _READABLE else f"{float(delta):g}"
    return f"epsilon at most {float(round_above(epsilon, digits)):g} at delta = {shown}"


def cost_of(plain: Mapping[str, Any]) -> Cost:
    """Return the cost that ``as_dict`` wrote; raise InputError (unknown-cost) for anything else."""
    for unit, kind in COSTS.items():
        amount = stated_fraction(plain.get(unit))
        if amount is not None:
            return kind(amount)
    raise InputError("unknown-cost", f"a cost is stated in {' or '.join(COSTS)}, as a fraction in a string")


def cost_together(costs: Iterable[Cost]) -> Cost:
    """Return what noise of several distributions costs in total: the sum in one unit, else in rho.

    An answer of pure epsilon costs a rho of epsilon^2 / 2 (Bun and Steinke 2016, propositions 1.4 and 1.7).
    """
    listed = list(costs)
    return total(listed if len({cost.unit for cost in listed}) == 1 else [in_rho(cost) for cost in listed])


def in_rho(cost: Cost) -> Rho:
    """Return the rho that a cost implies."""
    return cost if isinstance(cost, Rho) else Rho(cost.amount**2 / 2)


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs of one unit; raise ProblemError without any or for several units."""
    listed = list(costs)
    if not listed:
        raise ProblemError("no query has noise, so there is no cost to add up")
    result = listed[0]
    for cost in listed[1:]:
        result = result + cost
    return result
