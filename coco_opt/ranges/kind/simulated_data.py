"""Simulated counts over a public domain, to compare solvers and to audit without reading the private values."""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Ints

_SEED = 2010
_ENTITIES = 40  # a cell, on average


def generated_cells(cells: int) -> Ints:
    """Return counts int64 (cells,): two humps over a thin ground with gaps; the same for each number of cells."""
    rng = np.random.default_rng([_SEED, cells])
    position = (np.arange(cells) + 0.5) / cells
    humps = np.exp(-(((position - 0.3) / 0.08) ** 2)) + 0.5 * np.exp(-(((position - 0.7) / 0.15) ** 2))
    weights = humps + 0.02 * (rng.random(cells) < 0.5)
    counts: Ints = rng.poisson(_ENTITIES * cells * weights / weights.sum()).astype(np.int64)
    return counts
