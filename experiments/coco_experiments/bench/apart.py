"""Run what is measured in a process of its own, which tells its seconds, its cores' seconds and its largest memory."""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Apart:
    """One run: wall seconds and seconds of all cores of the call alone, peak MB of its whole process, what it returned.

    Processes that the call starts and waits for are in the cores' seconds, not in the memory. Starting Python and
    importing the module are in the memory and not in the seconds; what the call imports is in both.
    """

    seconds: float
    cpu: float
    peak: float
    value: Any


def clocked(call: Callable[[], T]) -> tuple[float, float, T]:
    """Return wall seconds, CPU seconds of this process and the value of one call."""
    start, used = perf_counter(), process_time()
    value = call()
    return perf_counter() - start, process_time() - used, value


def apart(target: str, *arguments: Any, environment: Mapping[str, str] | None = None) -> Apart:
    """Call ``target`` ("module:function") with JSON-able arguments in a new process and return what it took.

    ``environment`` is added to this process's. RuntimeError, with the last line of what it said, where it fails.
    """
    command = [sys.executable, "-m", __name__, target, json.dumps(arguments)]
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{target} failed: {done.stderr.strip().rpartition(chr(10))[2]}")
    return Apart(**json.loads(done.stdout.rpartition("\0")[2]))


def typical(runs: list[Apart]) -> Apart:
    """Return medians over runs, but the largest memory, and what the last run returned."""
    seconds, cpu = (median(getattr(run, name) for run in runs) for name in ("seconds", "cpu"))
    return Apart(seconds, cpu, max(run.peak for run in runs), runs[-1].value)


def peak_megabytes() -> float:
    """Return the peak resident memory of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says counts the parent's memory until it runs another program
        (line,) = [entry for entry in status.read_text(encoding="utf-8").splitlines() if entry.startswith("VmHWM")]
        return int(line.split()[1]) / 1e3
    peak: Any = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (1e6 if sys.platform == "darwin" else 1e3)


def _helpers_seconds() -> float:
    """Return the cores' seconds of processes that this process started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _main(target: str, arguments: str) -> None:
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    helped = _helpers_seconds()
    seconds, cpu, value = clocked(lambda: function(*json.loads(arguments)))
    cpu += _helpers_seconds() - helped
    # A zero byte stands before the answer, whatever was printed until then.
    sys.stdout.write("\0" + json.dumps(asdict(Apart(seconds, cpu, peak_megabytes(), value))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
