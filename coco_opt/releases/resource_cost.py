"""The seconds and memory that a release takes: measured stage by stage, and predicted from public inputs.

Seconds are those of the cores: wall time on an idle machine, or less where threads share the work. A stage that no kind
predicts is timed by constants, which were measured once and are scaled by how slow this machine's cores are
(``slowness``). Kernels count as compiled.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from time import perf_counter, process_time

from coco_opt.privacy.noise_distributions import DiscreteGaussian, Geometric, NoiseDistribution
from coco_opt.privacy.queries import DENSE
from coco_opt.releases.kind import Forecast, Plan, ResourceCost

_STEPS = 300_000
_REFERENCE = 0.034  # seconds of that many steps on the machine on which stages were measured


class Clock:
    """The wall seconds of each stage. They depend on private data and go to the private record only."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        """Record the seconds since the last lap under a name, and return freed memory to the system.

        Allocators keep it, and the next stage needs blocks of other sizes.
        """
        arrow = sys.modules.get("pyarrow")
        if arrow is not None:
            arrow.default_memory_pool().release_unused()
        with suppress(OSError, AttributeError, TypeError):  # glibc's, where there is one
            ctypes.CDLL(None).malloc_trim(0)
        now = perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now


@cache
def slowness() -> float:
    """Return how many times slower a core of this machine is than a core of the reference machine; measured once."""
    start, total = process_time(), 0
    for step in range(_STEPS):
        total += step * step % 7
    return (process_time() - start) / _REFERENCE


BYTES = 8
_START = 1.0  # the interpreter and its imports
_MEASURE = 1.2  # ledger, keys, the sampler's tables, what they import
_SEAL = 1e-8  # an answer packed, written, hashed, and read back
_BASE = 330_000_000  # bytes of the interpreter and its packages
_PACKED = 0.4  # bytes of an answer beyond ``DENSE``: these are read in parts from the sealed files
_PART, _PART_BYTES = 1 << 20, 90  # answers written in one part, and the bytes of each while it is written
_NANOSECONDS: Mapping[type[NoiseDistribution], Mapping[str, float]] = {  # a draw at scale or deviation 10
    Geometric: {"secure": 6.0, "opendp": 8500.0, "seeded": 20.0},
    DiscreteGaussian: {"secure": 8.0, "opendp": 13000.0, "seeded": 8.0},
}
_NOTHING = ResourceCost(0.0)


def stages_of(plan: Plan, predicted: Forecast, public: float) -> dict[str, ResourceCost] | None:
    """Return the stages of a release by name; None where its kind does not predict the estimation.

    ``public`` is how many seconds of the cores reading the public tables just took.
    """
    if predicted.estimating is None:
        return None
    answers = plan.measurement_plan.answers
    reading, querying = predicted.reading or _NOTHING, predicted.querying or _NOTHING
    writing, slow = predicted.writing or _NOTHING, slowness()
    estimating = predicted.estimating
    measuring = slow * (_MEASURE + _SEAL * answers) + querying.seconds + slow * _noise_seconds(plan)
    sealing = _PART_BYTES * min(answers, _PART) + querying.memory
    answer_bytes = BYTES * min(answers, DENSE) + round(_PACKED * max(answers - DENSE, 0))
    return {
        "start": ResourceCost(slow * _START, _BASE),
        "read": ResourceCost(public + reading.seconds, _BASE + reading.memory),
        "measure": ResourceCost(measuring, _BASE + answer_bytes + sealing),
        "estimate": replace(estimating, memory=_BASE + answer_bytes + estimating.memory),
        "write": ResourceCost(writing.seconds, _BASE + answer_bytes + writing.memory),
    }


def _noise_seconds(plan: Plan) -> float:
    """Return the seconds that drawing the noise takes, at the speed of the configured source."""
    measurement_plan, source = plan.measurement_plan, plan.config.privacy.noise
    return sum(
        float(measurement_plan.answers_to(query)[0]) * _NANOSECONDS[type(query.distribution)][source] * 1e-9
        for query in measurement_plan.queries
        if not query.exact
    )
