"""The two mechanisms a release can use: what each is charged in, the law of its noise, and how that is drawn.

``geometric``: the double-geometric law, charged in pure epsilon, described by its scale. ``discrete_gaussian``: the
discrete Gaussian law, charged in rho (zCDP), described by its variance, for its deviation need not be a fraction.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Literal, get_args

from coco_opt.errors import ProblemError
from coco_opt.privacy.accounting import ConcentratedBudget, gaussian_variance, squared_sensitivity
from coco_opt.privacy.budget import Neighbours, PureBudget, Query, noise_scale, sensitivity
from coco_opt.privacy.ledger_chain import Unit
from coco_opt.privacy.noise import NoiseSource, NoiseStream, check_scale, check_variance, root_at_least

Mechanism = Literal["geometric", "discrete_gaussian"]
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
Budget = PureBudget | ConcentratedBudget


def check_mechanism(mechanism: str) -> None:
    """Raise ProblemError for an unknown name."""
    if mechanism not in MECHANISMS:
        raise ProblemError(f"unknown mechanism {mechanism!r}: use one of {', '.join(MECHANISMS)}")


def unit_of(mechanism: Mechanism) -> Unit:
    """Return what a mechanism is charged in."""
    return "epsilon" if mechanism == "geometric" else "rho"


def mechanism_of(budget: Budget) -> Mechanism:
    """Return the mechanism whose unit a budget is in."""
    return "geometric" if isinstance(budget, PureBudget) else "discrete_gaussian"


def amount_of(budget: Budget) -> Fraction:
    """Return a whole budget in its unit."""
    return budget.epsilon if isinstance(budget, PureBudget) else budget.rho


def noise_parameter(mechanism: Mechanism, query: Query, neighbours: Neighbours, amount: Fraction) -> Fraction:
    """Return the scale (geometric) or variance (discrete Gaussian) of noise that costs ``amount``.

    Raises ProblemError for an amount of zero or less, and for unknown names.
    """
    if mechanism == "geometric":
        return noise_scale(sensitivity(query, neighbours), amount)
    return gaussian_variance(squared_sensitivity(query, neighbours), amount)


def check_parameter(mechanism: Mechanism, parameter: Fraction) -> None:
    """Raise ProblemError for noise so wide that counts plus noise may leave int64."""
    if mechanism == "geometric":
        check_scale(parameter)
    else:
        check_variance(parameter)


def spread(mechanism: Mechanism, parameter: Fraction) -> Fraction:
    """Return the scale, or a bound on the deviation: noise beyond 64 of them has probability below 1e-27."""
    return parameter if mechanism == "geometric" else root_at_least(parameter)


def check_source(source: NoiseSource, mechanism: Mechanism) -> None:
    """Raise ProblemError where a source does not draw a mechanism's noise."""
    if mechanism != "geometric" and not callable(getattr(source, "gaussian_stream", None)):
        raise ProblemError(f"noise {source.name!r} draws no discrete Gaussian: use another source")


def open_stream(
    source: NoiseSource, mechanism: Mechanism, parameter: Fraction, *, measurement: str, region: str
) -> NoiseStream:
    """Open the noise of one region's measurement; raise ProblemError when it was opened before."""
    if mechanism == "geometric":
        return source.stream(parameter, measurement=measurement, region=region)
    check_source(source, mechanism)
    opened: Callable[..., NoiseStream] = source.gaussian_stream  # type: ignore[attr-defined]
    return opened(parameter, measurement=measurement, region=region)
