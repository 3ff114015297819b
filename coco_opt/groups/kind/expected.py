"""The errors to expect of a release of groups, as a range by level, from public numbers or after a look.

The posterior's errors are predicted (``coco_opt.groups.measuring.predicted``), under each size distribution of the
family of ``assumed_distributions`` or under the distribution that a look suggests. Another method is rehearsed on part
of simulated data, under a few distributions of the family.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.kind.rehearsal import (
    LevelQueries,
    Rehearsal,
    branches_within,
    extrapolated,
)
from coco_opt.groups.kind.simulated_data import assumed_groups, numbers_words, simulated_data_of
from coco_opt.groups.look import distribution_of_look, is_look
from coco_opt.groups.measuring.automatic import assumed_distributions, grid_growth
from coco_opt.groups.measuring.predicted import Predictor, Regions, range_of
from coco_opt.groups.noisy_measurements import buckets_of, max_size_of, size_queries
from coco_opt.groups.queries import GROUPS, sensitivity
from coco_opt.privacy import Measurement, MeasurementPlan
from coco_opt.privacy.planner import NoisePlan, uniform_shares
from coco_opt.releases.kind import Plan, SimulatedData

_REHEARSED: Final = ("steep, 70 % empty", "heavy tail (1/s)", "geometric")
_BELOW, _ABOVE = 2.5, 1.5  # factors by which errors may lie outside those rehearsed: data of few sizes err less


@dataclass(frozen=True, eq=False, slots=True)
class ExpectedErrors:
    """The least and largest mean distance of a region (entities) to expect by level, float64[levels], root first."""

    low: Floats
    high: Floats
    words: str


def is_predictable(plan: Plan) -> bool:
    """Return whether a formula predicts the planned release: the posterior of cumulative counts at every level."""
    queries = {query.name for query in plan.measurement_plan.queries}
    return plan.config.method.consistency == "posterior" and not queries & {"ranks", "split", "sizes"}


def distributions_of(plan: Plan) -> tuple[dict[str, Floats], str]:
    """Return the size distributions that a plan's errors are predicted under, by name, and words about them."""
    if plan.also:
        return {"look": distribution_of_look(plan.also[0])}, "the size distribution that the look suggests"
    family = assumed_distributions(max_size_of(plan.measurement_plan))
    return family, f"{len(family)} size distributions, from steep to flat"


def predicted_errors(plan: Plan) -> ExpectedErrors:
    """Return the range of the posterior's errors, from the formula; ``is_predictable`` must hold."""
    distributions, words = distributions_of(plan)
    grid = grid_growth(len(distributions))  # as the choice's, so that both state the same errors
    groups, measured = assumed_groups(plan), plan.measurement_plan
    errors = [_predicted(measured, groups, each, grid)[0] for each in distributions.values()]
    return ExpectedErrors(*range_of(np.array(errors)), f"predicted under {words}, with {numbers_words(plan)}")


def errors_and_even(measurement: Measurement) -> Floats | None:
    """Return the posterior's errors by level under the look's distribution, and with an even allocation, [2, levels].

    None without a look, or where a level was not measured by cumulative counts.
    """
    plan = measurement.measurement_plan
    looks = [further for further in measurement.also if is_look(further.measurement_plan)]
    cumulative = [query.level for query in plan.queries if query.name in ("cumulative", "buckets")]
    if not looks or sorted(cumulative) != list(range(plan.hierarchy.levels)):
        return None
    return _predicted(plan, plan.per_region[GROUPS], distribution_of_look(looks[0]), grid_growth(1), even=True)


def _predicted(plan: MeasurementPlan, groups: Ints, sizes: Floats, grid: float, *, even: bool = False) -> Floats:
    """Return the posterior's errors [1 or 2, levels] as planned, and with the same buckets and an ``even`` allocation.

    ``sizes`` are the probabilities of group sizes.
    """
    levels = range(plan.hierarchy.levels)
    measured = {query.level: float(query.distribution.variance) for query in size_queries(plan)}
    variances = [np.array([measured.get(level, np.inf) for level in levels])]
    if even:
        noise = NoisePlan(plan.cost, (sensitivity("cumulative", plan.neighbours),) * len(levels))
        variances.append(noise.variances(uniform_shares(len(levels))))
    buckets = [buckets_of(plan, level) or Buckets.cells(max_size_of(plan)) for level in levels]
    predictor = Predictor(Regions.of(plan.hierarchy, groups), sizes, grid)
    return np.array([predictor.errors(buckets, each) for each in variances])


def rehearsed_errors(
    plan: Plan, queries: LevelQueries, method: GroupsMethod, answers: int, solvers: SolverChoices
) -> tuple[ExpectedErrors, SimulatedData, float]:
    """Return the range of a method's errors over rehearsals of about ``answers`` noisy answers in all.

    Also the part of the data that was rehearsed, and the seconds of a release of it.
    """
    family, _ = distributions_of(plan)
    chosen = {name: each for name, each in family.items() if plan.also or name.startswith(_REHEARSED)}
    branches = branches_within(plan, answers // len(chosen))
    errors, seconds, parts = [], 0.0, []
    for probabilities in chosen.values():
        parts.append(simulated_data_of(plan, branches, probabilities))
        rehearsal = Rehearsal(parts[-1])
        seconds = max(seconds, rehearsal.seconds(queries, method, solvers, 0.1))
        each = rehearsal.errors(queries, method, 1, solvers)[0]
        errors.append(extrapolated(each, rehearsal.hierarchy, plan.measurement_plan.hierarchy))
    low, high = np.min(errors, axis=0) / _BELOW, np.max(errors, axis=0) * _ABOVE
    words = f"rehearsed on simulated data of {len(chosen)} size distributions, with {numbers_words(plan)}"
    return ExpectedErrors(low, high, words), parts[0], seconds
