"""Random numbers for chains: one word of state, stepped by SplitMix64.

The problem: uniform, integer and gamma draws inside compiled chains, whose numbers follow from a first word alone. They
sample from public results and protect nothing.

1. Step the word by a constant, and scramble a copy of it: 64 random bits.
2. ``uniform``: the upper 53 bits, in the middle of their cell, so neither 0 nor 1 comes out.
3. ``gamma``: a squeezed cube of a normal draw, accepted or drawn again; a shape below 1 is raised by 1 and corrected.

Invariant: a chain's numbers follow from its first word alone. Cost: O(1) a draw, expected.
Source: Steele, Lea and Flood 2014 (SplitMix64); Marsaglia and Tsang 2000 (gamma); Box and Muller 1958 (normal).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place

Words = NDArray[np.uint64]


@compiled_in_place
def uniform(words: Words) -> float:
    """Return a number in (0, 1) and step the generator."""
    words[0] += np.uint64(0x9E3779B97F4A7C15)
    z = words[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (float(z >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@compiled_in_place
def below(words: Words, n: int) -> int:
    """Return an integer 0 .. n - 1; the probabilities are equal to one part in 2^53 / n."""
    return min(int(uniform(words) * n), n - 1)


@compiled_in_place
def gamma(words: Words, shape: float) -> float:
    """Return a gamma draw of scale 1 and shape > 0 (Marsaglia and Tsang 2000); it may underflow to 0."""
    boost = 1.0
    if shape < 1.0:
        boost = uniform(words) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    # A proposal is accepted with a probability above 0.95.
    while True:
        # A normal draw (Box and Muller 1958).
        x = math.sqrt(-2.0 * math.log(uniform(words))) * math.cos(2.0 * math.pi * uniform(words))
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(uniform(words)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return boost * d * v
