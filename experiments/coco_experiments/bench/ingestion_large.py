"""The reading of three tables of 100 million entities in 40 million groups, compared with DuckDB's: see ``ingestion``.

In one file and in a folder of 64. It takes fifteen minutes and 15 GB of disk.
"""

from __future__ import annotations

from pathlib import Path

from coco_experiments.bench.ingestion import LEAVES, SMALL, SMALL_LEAVES, Case, measured
from coco_experiments.outcome import Outcome, Reporter

NAME = "bench/ingestion_large"
LARGE = tuple(Case(100_000_000, texts, repeats=1, parts=parts) for texts in (False, True) for parts in (1, 64))


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Time the reading of simulated tables of 100 million entities, integer ids and texts (small: 20,000)."""
    return measured(NAME, SMALL if small else LARGE, SMALL_LEAVES if small else LEAVES, out, reporter)
