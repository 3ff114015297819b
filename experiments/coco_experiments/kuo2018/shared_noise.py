"""The same noise in every region: NOT PRIVATE, not even under parallel composition; it exists to reproduce a table.

The paper's published Table 4 is what one seed for all regions gives. Two regions with the same noise reveal the exact
difference of their counts, so this source lives in the experiments and no release can name it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from coco_opt.privacy import SeededNoise
from coco_opt.privacy.noise import NoiseStream

LABEL = "NOT PRIVATE, not even in parallel composition: the differences of regions are exact"


class SharedNoise:
    """Give every region one and the same noise, in a scale of its own; NOT PRIVATE."""

    name: ClassVar[str] = "shared by all regions"
    private: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        """Open the seed's noise from its beginning, whatever the region is."""
        return SeededNoise(self.seed).stream(scale, measurement=measurement, region="every region")

    def __repr__(self) -> str:
        return f"SharedNoise(seed={self.seed}) ({LABEL})"
