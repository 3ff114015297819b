"""Tasks that workers can import, and executors for tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, Place
from coco_opt.execution import Executor, Shared
from coco_opt.execution.elsewhere import Elsewhere, Part, run_part


class ByFiles(Elsewhere):
    """Hands everything on by path as processes do, and runs it here, last part first, every other part twice."""

    name = "by files"

    def start(self, ready: Callable[[], object]) -> None:
        """Do nothing."""

    def run(self, parts: Sequence[Part]) -> Iterator[int]:
        for part in reversed(parts):
            for _ in range(1 + part.place % 2):
                yield run_part(part)

    def stop(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Scaled:
    factor: Shared[Any]

    def __call__(self, item: int) -> Any:
        return item * self.factor.value


@dataclass(frozen=True)
class KillsOnce:
    """Runs a task, but kills its process before one item, the first time that this comes up."""

    task: Callable[[Any], Any]
    item: Any
    mark: Path

    def __call__(self, item: Any) -> Any:
        if item == self.item and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.task(item)


class Killing:
    """An executor of which a worker is killed in the middle of its last map of several."""

    def __init__(self, executor: Executor, folder: Path, maps: int) -> None:
        self.executor, self.mark, self.left = executor, folder / "killed", maps

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executor, name)

    def map(self, task: Any, items: Sequence[Any], done: Any = None) -> list[Any]:
        self.left -= 1
        used = task if self.left else KillsOnce(task, items[len(items) // 2], self.mark)
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
