"""The exact privacy loss of two neighbours, from the answers in which they differ and the distributions of their noise.

Noise is independent from answer to answer, so losses add up. Under geometric noise of scale s an answer that changes
by c loses at most |c| / s, and some answers lose as much; under discrete Gaussian noise of variance v it loses
c^2 / (2 v) in rho, which its Renyi divergences of integer orders reach (Canonne, Kamath and Steinke 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from coco_opt.audit.recording import Differing
from coco_opt.privacy import Cost, DiscreteGaussian, Epsilon, Geometric, NoiseDistribution, Rho
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import total
from coco_opt.privacy.loss_distributions import UncountableError, of_changes


def lost(cells: Sequence[Differing]) -> Composition:
    """Return the privacy loss of these noisy answers: exactly in epsilon or rho, rounded up as (epsilon, delta).

    Raises ProblemError for a noise distribution whose loss is not known.
    """
    changed = [(cell.query.distribution, abs(cell.second - cell.first)) for cell in cells]
    cost = total(_answer_loss(distribution, change) for distribution, change in changed)
    try:
        return Composition(cost, of_changes(changed))
    except UncountableError:
        return Composition(cost, None)


def _answer_loss(distribution: NoiseDistribution, change: int) -> Cost:
    if isinstance(distribution, Geometric):
        return Epsilon(change / distribution.scale)
    if isinstance(distribution, DiscreteGaussian):
        return Rho(Fraction(change * change) / (2 * distribution.squared_deviation))
    raise UncountableError(f"the privacy loss of {distribution} is not known")
