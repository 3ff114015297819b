"""What both losses of isotonic regression are timed on: every named instance, candidates taking turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coco_experiments.bench.instances import INSTANCES
from coco_experiments.bench.rows import Row
from coco_experiments.bench.timing import Timing, take_turns
from coco_experiments.outcome import Reporter
from coco_opt.array_types import Ints

Candidates = Callable[[Ints], dict[str, Callable[[], Any]]]


def over_instances(
    name: str,
    size: int,
    repeats: int,
    candidates: Candidates,
    rows_of: Callable[[str, Ints, dict[str, Timing]], list[Row]],
    disagreements: Callable[[str, Ints, dict[str, Timing]], list[str]],
    reporter: Reporter,
) -> tuple[list[Row], list[str]]:
    """Return the rows and the disagreements over all instances of ``size`` entries."""
    rows: list[Row] = []
    wrong: list[str] = []
    for done, (instance, make) in enumerate(INSTANCES.items(), 1):
        y = make(size)
        timings = take_turns(candidates(y), repeats)
        rows += rows_of(instance, y, timings)
        wrong += disagreements(instance, y, timings)
        reporter.progress(name, done, len(INSTANCES))
    return rows, wrong
