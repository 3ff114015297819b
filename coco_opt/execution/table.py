"""The table of executors, found by name as solvers are: an executor is one file and one row.

A package outside this repository adds rows of its own through the entry-point group ``coco_opt.executors``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from coco_opt.errors import MissingPackageError, WorkerError
from coco_opt.execution.executor import Executor
from coco_opt.plugins import all_rows, loaded, near

GROUP = "coco_opt.executors"


@dataclass(frozen=True, slots=True)
class ExecutorRow:
    """One row of a table of executors; it describes an executor without importing it.

    ``target`` is ``"module:Class"``, which takes ``workers`` and the ``options`` named (``scratch``, ``address``).
    """

    name: str
    target: str
    summary: str
    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    extra: str | None = None

    @property
    def installed(self) -> bool:
        """Return whether the packages it needs can be found (they are not imported)."""
        return all(find_spec(package) is not None for package in self.packages)

    def check(self) -> None:
        """Raise MissingPackageError where a package that it needs is absent."""
        for package in self.packages:
            if find_spec(package) is None:
                raise MissingPackageError(package, f"executor {self.name!r}", self.extra)

    def open(self, workers: int, **options: Any) -> Executor:
        """Return an executor; MissingPackageError where its package is absent, WorkerError for an option it lacks.

        Options that are None are left out.
        """
        arguments = {name: value for name, value in options.items() if value is not None}
        for name in arguments:
            if name not in self.options:
                raise WorkerError(f"executor {self.name!r} takes no {name}: leave engine.{name} out")
        self.check()
        return cast(Executor, loaded(self.target)(workers, **arguments))


EXECUTORS = (
    ExecutorRow("threads", "coco_opt.execution.executor:Threads", "threads of this process"),
    ExecutorRow("processes", "coco_opt.execution.processes:Processes", "processes of this machine", ("scratch",)),
    ExecutorRow(
        "dask",
        "coco_opt.execution.cluster:Dask",
        "a Dask cluster: one made here, or a running one by its address",
        ("scratch", "address"),
        ("dask", "distributed"),
        "dask",
    ),
)


@cache
def executor_rows() -> tuple[ExecutorRow, ...]:
    """Return every row, built-in first; a third party's table that cannot be loaded is left out with a warning.

    Raises WorkerError where two rows have one name.
    """
    return all_rows(GROUP, EXECUTORS, "executor", WorkerError)


def executor_row(name: str) -> ExecutorRow:
    """Return the row of a name; WorkerError naming the nearest."""
    rows = {row.name: row for row in executor_rows()}
    if name not in rows:
        raise WorkerError(f"no executor is called {name!r}{near(name, rows)}")
    return rows[name]


def open_executor(
    name: str = "threads", workers: int = 1, *, scratch: Path | None = None, address: str | None = None
) -> Executor:
    """Return an executor by name, to be used as a context manager.

    Raises WorkerError and MissingPackageError.
    """
    return executor_row(name).open(workers, scratch=scratch, address=address)
