"""Ties in roundings, decided by a hash: no child and no cell is favoured for its place, or in every release.

Which of several cells with the same fraction is rounded up must not depend on positions: the first child would gain in
every cell. A fixed hash would favour the same regions in every release. So fractions within a solver's precision of
each other are ordered by a hash of what was measured, the region, the cell and the pass.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.privacy.measurement import Measurement

Bits = NDArray[np.uint64]

PRECISION = 1e-6  # people; a solver's numbers this near an integer, or each other, are not distinguished
_READ = 1 << 12  # answers to each query that make the seed
_STEP, _FIRST, _SECOND = (np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def seed_of(measurement: Measurement) -> int:
    """Return a seed from the queries and from the first answers to every query of every level.

    The same measurement has the same one, on any machine. Two measurements of the same data have different seeds,
    because their noise differs in thousands of answers: so nobody is favoured in every release. Within one, the seed
    says nothing of a region or a cell; which of them gain is for ``Ties`` to spread, and does not depend on whose
    answers made the seed. All this is post-processing: privacy does not depend on it. O(queries) time and memory.
    """
    code = hashlib.sha256(f"coco-opt rounding {measurement.identity}".encode())
    for query_answers in (answers for each in measurement.every for answers in each.answers):
        code.update(
            np.ascontiguousarray(query_answers.read(0, min(int(query_answers.offsets[-1]), _READ)), dtype="<i8").data
        )
    return int.from_bytes(code.digest()[:8], "little")


@dataclass(frozen=True, slots=True)
class Ties:
    """Distinguishes numbers that are equal to a solver's precision; ``seed`` is a number of 64 bits."""

    seed: int

    def broken(self, x: Floats, first: int, number: int) -> Floats:
        """Return tables [children, cells] whose fractions are moved by less than half of ``PRECISION``, both ways.

        ``first`` is the first child's region and ``number`` that of the pass. Numbers within ``PRECISION`` of a whole
        one become it, so no number moves past one.
        """
        nearest = np.rint(x)
        near_integer = np.abs(x - nearest) <= PRECISION
        children, cells = x.shape
        with np.errstate(over="ignore"):
            start = _mixed(_mixed(np.full(1, self.seed, np.uint64)) + np.uint64(number))
            regions = _stepped(start, first, first + children)
            bits = _stepped(regions[:, None], 0, cells)
        moved = x + PRECISION * ((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5)
        return np.maximum(np.where(near_integer, nearest, moved), 0.0)

    def number(self, first: int, number: int) -> int:
        """Return a seed of 63 bits for a pass of the children from region ``first`` on."""
        with np.errstate(over="ignore"):
            start = _mixed(_mixed(np.full(1, self.seed, np.uint64)) + np.uint64(number))
            return int(_stepped(start, first, first + 1)[0] >> np.uint64(1))


def _stepped(state: Bits, begin: int, end: int) -> Bits:
    """Return the numbers begin + 1 to end of the generators that start from some states, in the last axis."""
    steps: Bits = np.multiply(_STEP, np.arange(begin + 1, end + 1, dtype=np.uint64), dtype=np.uint64)
    return _mixed(np.add(state, steps, dtype=np.uint64))


def _mixed(state: Bits) -> Bits:
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014) of each number."""
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
