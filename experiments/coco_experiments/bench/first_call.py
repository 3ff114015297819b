"""The first thing a newcomer runs: the demo with an empty cache of kernels, and the same once they are there."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from coco_experiments.bench.apart import apart
from coco_experiments.bench.rows import Bench, Benchmark

EMPTY, THERE = "demo, empty cache of kernels", "demo, kernels on disk"
LIMIT = 12.0


def demo(folder: str) -> int:
    """Run ``coco-opt demo`` into a new folder; return its exit code."""
    from coco_opt.cli import main

    return main(["demo", "--out", folder, "--json"])


def measure(bench: Bench) -> str:
    """Time the demo twice in processes of their own, with a cache folder that is empty at first (small: the same)."""
    with TemporaryDirectory() as temporary:
        cache = Path(temporary, "cache")
        for what, limit in bench.over({EMPTY: LIMIT, THERE: None}.items()):
            start = perf_counter()
            folder, environment = str(Path(temporary, what.replace(" ", "_"))), {"NUMBA_CACHE_DIR": str(cache)}
            call = apart("coco_experiments.bench.first_call:demo", folder, environment=environment)
            seconds = perf_counter() - start
            bench.row("the demo", what, 0, seconds, limit=limit, cpu=call.cpu, peak=call.peak)
            if call.value != 0:
                bench.wrong.append(f"{what}: exit code {call.value}")
        if not any(cache.rglob("*.nbc")):
            bench.wrong.append("no kernel was compiled into the cache folder")
    return "The first call: one run each"


NOTES = ("Seconds from the start of Python to its end; the cores' seconds are those of the demo and its helpers.",)
FIRST_CALL = Benchmark("bench/first_call", measure, NOTES)
