"""The first thing a newcomer runs: the demo with an empty cache of kernels, and the same once they are there."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from coco_experiments.bench.apart import apart
from coco_experiments.bench.rows import Row, finish
from coco_experiments.outcome import Outcome, Reporter

NAME = "bench/first_call"
EMPTY, THERE = "demo, empty cache of kernels", "demo, kernels on disk"
LIMIT = 12.0


def demo(folder: str) -> int:
    """Run ``coco-opt demo`` into a new folder; return its exit code."""
    from coco_opt.cli import main

    return main(["demo", "--out", folder, "--json"])


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Time the demo twice in processes of their own, with a cache folder that is empty at first (small: the same)."""
    rows, wrong = [], []
    with TemporaryDirectory() as temporary:
        cache = Path(temporary, "cache")
        for done, (what, limit) in enumerate({EMPTY: LIMIT, THERE: None}.items(), 1):
            start = perf_counter()
            call = apart(
                "coco_experiments.bench.first_call:demo",
                str(Path(temporary, f"demo{done}")),
                environment={"NUMBA_CACHE_DIR": str(cache)},
            )
            seconds = perf_counter() - start
            rows.append(Row("the demo", what, 0, seconds, limit=limit, cpu=call.cpu, peak=call.peak))
            if call.value != 0:
                wrong.append(f"{what}: exit code {call.value}")
            reporter.progress(NAME, done, 2)
        if not any(cache.rglob("*.nbc")):
            wrong.append("no kernel was compiled into the cache folder")
    notes = ["Seconds from the start of Python to its end; the cores' seconds are those of the demo and its helpers."]
    return finish(NAME, "The first call: one run each", rows, notes, wrong, out, reporter)
