"""A call of the command line watched from outside: wall and processor seconds and the largest memory of every stage.

Stages are the lines that the program says on standard error while it works. Memory is that of the process alone, as
Linux counts it (``/proc``); elsewhere only seconds of the whole are known. It counts pages of files that are mapped,
which the system can have back; anonymous memory is what it cannot, and is looked at every few milliseconds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Any

START = "start"
"""What comes before the first line: the interpreter, imports and the configuration."""

_MEGA = 1e6
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAUSE = 0.01  # seconds between two looks at a process
_PROGRESS = re.compile(r": \d+ % done|^ *\d+ s: ")


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage took: seconds of the wall and of all threads, and the largest memory in MB meanwhile."""

    name: str
    seconds: float
    cpu: float
    peak: float


@dataclass(frozen=True, slots=True)
class Watched:
    """A whole call: its stages, and what the system says of it at its end, with the processes it started.

    ``anonymous`` is the largest memory in MB that no file holds, of the process alone.
    """

    stages: tuple[Stage, ...]
    seconds: float
    cpu: float
    peak: float
    output: str
    anonymous: float = 0.0


def watched(arguments: Sequence[str], folder: Path) -> Watched:
    """Run ``coco-opt`` with arguments in a folder. Raises RuntimeError, with what it said, where it fails."""
    command = [sys.executable, "-m", "coco_opt", *arguments]
    said: list[str] = []
    marks = [_Mark(START, perf_counter(), 0.0, 0.0)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert child.stdout is not None
        output = child.stdout
        outputs: list[str] = []
        reader = Thread(target=lambda: outputs.append(output.read()))
        reader.start()
        seen, ended = _Anonymous(child.pid), Event()
        watcher = Thread(target=seen.watch, args=(ended,))
        watcher.start()
        for line in child.stderr:
            said.append(line)
            if not _PROGRESS.search(line):
                marks.append(_Mark(line.strip(), perf_counter(), *_used(child.pid)))
                _forget_peak(child.pid)
        reader.join()
        ended.set()
        watcher.join()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"coco-opt {' '.join(arguments)} failed: {''.join(said)[-2000:]}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / _MEGA
    marks.append(_Mark("", perf_counter(), usage.ru_utime + usage.ru_stime, 0.0))
    stages = tuple(
        Stage(mark.name, after.at - mark.at, after.cpu - mark.cpu, after.peak) for mark, after in pairwise(marks)
    )
    return Watched(stages, marks[-1].at - marks[0].at, marks[-1].cpu, peak, outputs[0], seen.most)


class _Anonymous:
    """The largest anonymous memory of a process, in MB, as often as it is looked at."""

    def __init__(self, process: int) -> None:
        self.most = 0.0
        self._process = process

    def watch(self, ended: Event) -> None:
        """Look until the event comes."""
        while not ended.wait(_PAUSE):
            self.most = max(self.most, _memory(self._process, "RssAnon"))


@dataclass(frozen=True, slots=True)
class _Mark:
    """The begin of a stage: when, the processor's seconds until then, and the largest memory of the stage before."""

    name: str
    at: float
    cpu: float
    peak: float


def _used(process: int) -> tuple[float, float]:
    """Return the processor's seconds of a process, and its largest memory in MB since it was last asked."""
    with suppress(OSError, ValueError, IndexError):
        # The second field is a name in parentheses, which may hold spaces.
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS, _memory(process, "VmHWM")
    return 0.0, 0.0


def _memory(process: int, kind: str) -> float:
    """Return a line of what Linux says of a process's memory, in MB; 0 where it says nothing."""
    with suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
        return sum(int(line.split()[1]) * 1024 / _MEGA for line in status.splitlines() if line.startswith(kind))
    return 0.0


def _forget_peak(process: int) -> None:
    """Let the kernel count a process's largest memory anew."""
    with suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5", encoding="utf-8")


def toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the sections of a configuration of simulated data as a file; tables within a section are inline."""

    def value(setting: Any) -> str:
        if isinstance(setting, Mapping):
            return "{" + ", ".join(f"{key} = {value(entry)}" for key, entry in setting.items()) + "}"
        if isinstance(setting, list):
            return "[" + ", ".join(map(value, setting)) + "]"
        return json.dumps(setting)

    lines = ["# Simulated data and seeded noise: NOT PRIVATE"]
    for name, keys in sections.items():
        lines += [f"[{name}]", *(f"{key} = {value(setting)}" for key, setting in keys.items())]
    return "\n".join([*lines, ""])
