"""What two neighbours lose exactly: from the answers in which they differ and the laws of the noise before these.

Noise is independent from answer to answer, so losses add up. Under geometric noise of scale s an answer that changes
by c loses at most |c| / s, and some answers lose as much; under discrete Gaussian noise of variance v it loses
c^2 / (2 v) in rho, which its Renyi divergences of whole orders reach (Canonne, Kamath and Steinke 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from coco_opt.audit.recording import Differing
from coco_opt.privacy import Cost, DiscreteGaussian, Epsilon, Geometric, Law, Rho
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import total
from coco_opt.privacy.loss_distributions import UncountableError, of_changes


def lost(cells: Sequence[Differing]) -> Composition:
    """Return what the noise of these answers lets through: exactly in epsilon or rho, rounded up as (epsilon, delta).

    Raises ProblemError for a law whose loss is not known.
    """
    changed = [(cell.question.law, abs(cell.second - cell.first)) for cell in cells]
    cost = total(_of_one(law, change) for law, change in changed)
    try:
        return Composition(cost, of_changes(changed))
    except UncountableError:
        return Composition(cost, None)


def _of_one(law: Law, change: int) -> Cost:
    if isinstance(law, Geometric):
        return Epsilon(change / law.scale)
    if isinstance(law, DiscreteGaussian):
        return Rho(Fraction(change * change) / (2 * law.squared_deviation))
    raise UncountableError(f"the privacy loss of {law} is not known")
