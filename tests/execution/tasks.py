"""Tasks that workers can import, and executors for tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, Place
from coco_opt.execution import Executor, Shared
from coco_opt.execution.remote import Elsewhere, Ended, Part, run_part


class ByFiles(Elsewhere):
    """Hands everything on by path as processes do, and runs it here, latest part first, every other part twice."""

    name = "by files"

    def start(self, ready: Callable[[], object]) -> None:
        """Do nothing."""

    def run(self, parts: Sequence[Part], ended: Ended) -> None:
        waiting = list(parts)
        while waiting:
            part = waiting.pop()
            for _ in range(1 + part.place % 2):
                run_part(part)
            waiting += ended(part.place)

    def stop(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Scaled:
    factor: Shared[Any]

    def __call__(self, item: int) -> Any:
        return item * self.factor.value


@dataclass(frozen=True)
class Equals:
    item: Any

    def __call__(self, item: Any) -> bool:
        return bool(item == self.item)


@dataclass(frozen=True)
class Splits:
    """Of the tasks that split tables, those of some region or of later ones."""

    region: int

    def __call__(self, item: Any) -> bool:
        return bool(item[0].start >= self.region)


@dataclass(frozen=True)
class KillsOnce:
    """Runs a task, but kills its process before a chosen item, the first time that one comes up."""

    task: Callable[[Any], Any]
    chosen: Callable[[Any], bool]
    mark: Path

    def __call__(self, item: Any) -> Any:
        if self.chosen(item) and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.task(item)


class Killing:
    """An executor of which a worker is killed in its last map of several: before a chosen item, or in the middle."""

    def __init__(self, executor: Executor, folder: Path, maps: int, chosen: Callable[[Any], bool] | None = None):
        self.executor, self.mark, self.left, self.chosen = executor, folder / "killed", maps, chosen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executor, name)

    def map(self, task: Any, items: Sequence[Any], done: Any = None) -> list[Any]:
        self.left -= 1
        used = task if self.left else KillsOnce(task, self.chosen or Equals(items[len(items) // 2]), self.mark)
        return self.executor.map(used, items, done)


def negated(item: int) -> int:
    return -item


def always_dies(item: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return item


def fails_at_three(item: int) -> int:
    if item == 3:
        raise InputError("negative-size", "is negative", Place("sizes.csv", 7, "size"))
    return item


def breaks(item: int) -> int:
    raise ZeroDivisionError("of the worker")


def pid_after(item: float) -> int:
    time.sleep(item)
    return os.getpid()


def threads_of_readers(_: object) -> int:
    """Return how many threads read Parquet files in this process."""
    import pyarrow as pa

    return int(pa.cpu_count())
