"""What a release takes, stage by stage: seconds and memory, from public facts and what planning it took.

Seconds are those of the cores: what a clock shows on an idle machine, or less where threads share the work. A stage
that no kind knows more of is timed by constants, measured once and scaled by how slow this machine's cores are
(``coco_opt.releases.clock.slowness``). Kernels count as compiled.
"""

from __future__ import annotations

from collections.abc import Mapping

from coco_opt.privacy.answers import DENSE, offsets_of
from coco_opt.privacy.laws import DiscreteGaussian, Geometric, Law
from coco_opt.releases.clock import slowness
from coco_opt.releases.kind import Expense, Forecast, Plan

BYTES = 8
_START = 1.0  # the interpreter and its imports
_MEASURE = 1.2  # ledger, keys, the sampler's tables, what they import
_SEAL = 1e-8  # an answer packed, written, hashed, and read back
_BASE = 330_000_000  # bytes of the interpreter and its packages
_PACKED = 0.4  # bytes of an answer beyond ``DENSE``: they are read piece by piece from where they are sealed
_PART, _PART_BYTES = 1 << 20, 90  # answers written at once, and the bytes of one meanwhile
_NANOSECONDS: Mapping[type[Law], Mapping[str, float]] = {  # a draw at scale or deviation 10
    Geometric: {"secure": 6.0, "opendp": 8500.0, "seeded": 20.0},
    DiscreteGaussian: {"secure": 8.0, "opendp": 13000.0, "seeded": 8.0},
}
_NOTHING = Expense(0.0)


def stages_of(plan: Plan, predicted: Forecast, public: float) -> dict[str, Expense] | None:
    """Return the stages of a release by name; None where its kind does not predict the estimation.

    ``public`` are the cores' seconds that reading the public tables took just now.
    """
    if predicted.estimating is None:
        return None
    answers, reading, asking = count_answers(plan), predicted.reading or _NOTHING, predicted.asking or _NOTHING
    writing, slow = predicted.writing or _NOTHING, slowness()
    measuring = slow * (_MEASURE + _SEAL * answers) + asking.seconds + slow * _noise_seconds(plan)
    sealing = _PART_BYTES * min(answers, _PART) + asking.memory
    held = BYTES * min(answers, DENSE) + round(_PACKED * max(answers - DENSE, 0))
    return {
        "start": Expense(slow * _START, _BASE),
        "read": Expense(public + reading.seconds, _BASE + reading.memory),
        "measure": Expense(measuring, _BASE + held + sealing),
        "estimate": Expense(predicted.estimating.seconds, _BASE + held + predicted.estimating.memory),
        "write": Expense(writing.seconds, _BASE + held + writing.memory),
    }


def count_answers(plan: Plan) -> int:
    """Return the number of answers to all questions."""
    asked = plan.asked
    return sum(int(offsets_of(one, asked.hierarchy, asked.per_region)[-1]) for one in asked.questions)


def _noise_seconds(plan: Plan) -> float:
    """Return the seconds of drawing, at the speed of the configured source."""
    asked, source = plan.asked, plan.config.privacy.noise
    drawn = [one for one in asked.questions if not one.exact]
    draws = ((offsets_of(one, asked.hierarchy, asked.per_region)[-1], _NANOSECONDS[type(one.law)]) for one in drawn)
    return sum(float(count) * nanoseconds[source] * 1e-9 for count, nanoseconds in draws)
