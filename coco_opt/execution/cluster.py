"""A Dask cluster: made for the work on this machine, or running already and known by its address."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from importlib import import_module
from pathlib import Path
from typing import Any

from coco_opt.errors import WorkerError
from coco_opt.execution.remote import STORED_MEMORY, Elsewhere, Ended, Part, run_part

SECONDS = 30
"""How long a running cluster may take to answer."""


class Dask(Elsewhere):
    """Tasks of a Dask cluster: ``workers`` processes of this machine or, with ``address``, those of a running cluster.

    Dask runs the tasks of a worker that died on another. Workers of other machines need the same version of coco-opt
    and a ``scratch`` folder; they see it, and the measurement's folder, under the same paths.
    """

    name = "dask"

    def __init__(self, workers: int = 2, scratch: Path | None = None, address: str | None = None) -> None:
        super().__init__(workers, scratch)
        self._address = address
        self._cluster: Any = None
        self._client: Any = None
        self._warming: list[Any] = []  # futures that are let go are given up

    def start(self, ready: Callable[[], object]) -> None:
        """Connect, or start a local cluster, and have its workers call ``ready``."""
        client = self._connect()
        self._warming = [
            client.submit(_call, ready, workers=[worker], pure=False, key=f"coco-opt-warm-{os.urandom(6).hex()}")
            for worker in client.nthreads()
        ]

    def run(self, parts: Sequence[Part], ended: Ended) -> None:
        """Run parts, and those that follow from a part that has ended."""
        distributed = import_module("dask.distributed")
        client = self._connect()
        places: dict[Any, int] = {}

        def submit_parts(more: Sequence[Part]) -> list[Any]:
            # Names of their own: equal names would be taken for work that is done already.
            keys = [f"coco-opt-{part.work.parent.name}-{part.place}-{os.urandom(6).hex()}" for part in more]
            futures: list[Any] = client.map(run_part, list(more), key=keys, pure=False, retries=2)
            places.update(zip(futures, (part.place for part in more), strict=True))
            return futures

        failure = ""
        try:
            # That a task ended well says which result lies in its file: nothing is fetched from the worker.
            running = distributed.as_completed(submit_parts(parts), loop=client.loop)
            for future in running:
                if future.status != "finished":
                    future.result()
                more = ended(places[future])
                if more:
                    running.update(submit_parts(more))
        except distributed.KilledWorker:
            failure = (
                "Dask gave a task up whose workers died again and again: killed, or out of memory (use fewer "
                "engine.workers)"
            )
        except CancelledError:
            failure = "the connection to the Dask scheduler was lost: start it again, and run the same command again"
        finally:
            client.cancel(list(places))
        if failure:
            raise WorkerError(failure)

    def stop(self) -> None:
        """Leave the cluster, and end it where it was made here."""
        self._warming = []
        if self._client is not None:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        self._client = self._cluster = None

    def _local(self, distributed: Any) -> Any:
        """Return a new cluster of this machine."""
        config = import_module("dask").config
        # Keys of its own: whoever else is on this machine could have its workers run anything.
        with config.set(_quicker(config)):
            return distributed.LocalCluster(
                n_workers=self.workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",
                security=True,
            )

    def _connect(self) -> Any:
        if self._client is not None:
            return self._client
        distributed = import_module("dask.distributed")
        where = self._address
        if where is None:
            where = self._cluster = self._local(distributed)
        failed = False
        try:
            self._client = distributed.Client(where, timeout=SECONDS, set_as_default=False)
        except (OSError, ValueError):
            failed = True
        if failed or self._client is None:
            raise WorkerError(f"no Dask scheduler answers at {self._address}: start one, or leave engine.address out")
        if self._address is not None:
            self.workers = max(1, len(self._client.nthreads()))
        return self._client


def _quicker(config: Any) -> dict[str, Any]:
    """Return what is set otherwise than by default in a cluster made here.

    Workers would give memory back to the system whenever 64 KB are free: nearly twice the processor's time. And they
    would look every 10 ms where they are.
    """
    environment = {**config.get("distributed.nanny.pre-spawn-environ", {}), **STORED_MEMORY}
    return {"distributed.nanny.pre-spawn-environ": environment, "distributed.worker.profile.enabled": False}


def _call(ready: Callable[[], object]) -> None:
    ready()
