"""The seconds and memory that a release takes, stage by stage, from public inputs and the time that planning took.

Seconds are those of the cores: wall time on an idle machine, or less where threads share the work. A stage that no kind
predicts is timed by constants, which were measured once and are scaled by how slow this machine's cores are
(``coco_opt.releases.clock.slowness``). Kernels count as compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from coco_opt.privacy.noise_distributions import DiscreteGaussian, Geometric, NoiseDistribution
from coco_opt.privacy.queries import DENSE
from coco_opt.releases.clock import slowness
from coco_opt.releases.kind import Forecast, Plan, ResourceCost

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
