"""The same simulated tables end to end at 60,000 and 300,000 blocks: see ``tables``. Takes minutes and 3 GB."""

from __future__ import annotations

from pathlib import Path

from coco_experiments.bench.tables import SMALL, measured
from coco_experiments.outcome import Outcome, Reporter

NAME = "bench/tables_large"
SIZES = (60_000, 300_000)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Check, release and verify made states of 60,000 and 300,000 blocks (small: of some dozens)."""
    return measured(NAME, SMALL if small else SIZES, out, reporter)
