"""The noisy counts of a domain's intervals: integers up to and after the noise, which are then all that is known."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.errors import ProblemError
from coco_opt.privacy.budget import Neighbours, noise_scale
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.planner import geometric_variance
from coco_opt.ranges.domain import DomainTree

_MAX_COUNT = 2**53  # counts that floats hold exactly


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RangeMeasurement:
    """Noisy counts (nodes,) of the intervals of a domain, int64, read-only; 0 at a root that was not measured.

    ``scale`` is the noise's, ``epsilon`` what the measurement cost, ``private`` whether its noise is.
    """

    domain: DomainTree
    values: NDArray[np.int64]
    scale: Fraction
    epsilon: Fraction
    neighbours: Neighbours
    private: bool

    def __post_init__(self) -> None:
        if self.values.shape != (self.domain.tree.nodes,) or self.values.dtype != np.int64:
            raise ProblemError(f"a measurement of this domain is {self.domain.tree.nodes} int64 counts")
        self.values.setflags(write=False)

    @property
    def variance(self) -> float:
        """Return the variance of one count's double-geometric noise."""
        return geometric_variance(float(self.scale))

    @property
    def variances(self) -> NDArray[np.float64]:
        """Return the variance of every node's count (nodes,), infinite where it was not measured."""
        spread = np.full(self.domain.tree.nodes, self.variance)
        if self.domain.fan_out is None:
            spread[0] = np.inf
        return spread

    def __repr__(self) -> str:
        privacy = "private" if self.private else "NOT PRIVATE"
        return (
            f"RangeMeasurement({self.domain.cells:,} cells, fan-out {self.domain.fan_out}, height "
            f"{self.domain.height}, epsilon={self.epsilon}, noise of scale {self.scale}: {privacy})"
        )


def sensitivity(domain: DomainTree, neighbours: Neighbours) -> int:
    """Return the L1 sensitivity of all measured counts; a replaced entity changes two paths below the root."""
    if neighbours == "add_remove":
        return domain.sensitivity
    return max(1, 2 * (1 if domain.fan_out is None else domain.height - 1))


def measure_ranges(
    counts: ArrayLike,
    epsilon: Fraction,
    *,
    source: NoiseSource,
    fan_out: int | None = 16,
    neighbours: Neighbours = "add_remove",
    label: str = "domain",
) -> RangeMeasurement:
    """Return noisy counts of every interval over the cells' private counts (entities).

    With fan_out None only the cells are measured. Raises ProblemError for counts that are no nonnegative integers or
    noise that was already drawn under this label. O(cells).
    """
    cells = np.asarray(counts)
    domain = DomainTree(cells.size, fan_out)
    exact = domain.counts(cells)
    if (exact < 0).any() or (exact > _MAX_COUNT).any():
        raise ProblemError("counts must be nonnegative and sum to at most 2^53")
    scale = noise_scale(sensitivity(domain, neighbours), epsilon)
    first = 1 if fan_out is None else 0
    noisy = np.zeros_like(exact)
    noisy[first:] = source.stream(scale, measurement="ranges", region=label).add_to(exact[first:])
    return RangeMeasurement(domain, noisy, scale, epsilon, neighbours, source.private)
