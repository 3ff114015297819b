"""What is stated of a measurement without its answers: which it is, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

from coco_opt.privacy.cost import Cost, cost_together
from coco_opt.privacy.queries import LevelQuery


@dataclass(frozen=True, slots=True)
class MeasurementRecord:
    """A measurement by its digests, and what counts of it where its answers are not read.

    ``digest`` is that of its plan, ``content`` that of its plan and its answers; ``noise``, ``private`` and ``receipt``
    are as in ``Measurement``.
    """

    digest: str
    content: str
    noise: str
    private: bool
    receipt: str
    queries: tuple[LevelQuery, ...]

    @property
    def cost(self) -> Cost:
        """Return what the measurement cost."""
        return cost_together(query.cost for query in self.queries if query.cost is not None)
