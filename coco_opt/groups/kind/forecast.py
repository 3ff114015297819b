"""How far off a release of groups will be, before it is made: by level, method and split, from public facts alone.

Stages linear in the noise are computed exactly; the others are simulated on a look-alike with seeded noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.groups.answers import max_size_of
from coco_opt.groups.asked.measure import asked_of, measured
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimated.baselines import errors_by_level
from coco_opt.groups.estimated.estimate import CONSISTENCIES, SLOW, Consistency, GroupsMethod, estimate_groups
from coco_opt.groups.kind.look_alike import SEED, made_look_alike, read_look_alike
from coco_opt.groups.kind.method import method_of
from coco_opt.groups.kind.plan import buckets_of, queries_of
from coco_opt.groups.queries import GROUPS, Query, cells, sensitivity
from coco_opt.privacy import Asked, Cost, DiscreteGaussian, Geometric, Law, Measurement, SeededNoise
from coco_opt.privacy.planner import (
    LINEAR_STAGES,
    NoisePlan,
    Prediction,
    Shares,
    best_shares,
    named_splits,
    plan_linear,
)
from coco_opt.releases.kind import Figures, Forecast, LookAlike, Plan
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.solvers import choices_of, solvers_of

_WORK = 40_000_000  # cells simulated in the search for a split
_SEARCHES = (12, 60)
_BYTES = 8
_TABLES: Mapping[Consistency, int] = {"posterior": 45, "joint": 16, "convex": 10}  # of regions x sizes in memory
_NANOSECONDS: Mapping[type[Law], Mapping[str, float]] = {  # a draw at scale or deviation 10
    Geometric: {"secure": 6.0, "opendp": 8500.0, "seeded": 20.0},
    DiscreteGaussian: {"secure": 8.0, "opendp": 13000.0, "seeded": 8.0},
}

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Predicted:
    """The predictions of methods and splits, what they were simulated on, and the seconds of noise and estimation."""

    look_alike: str
    method: Consistency
    predictions: tuple[Prediction, ...]
    seconds: float

    @property
    def best(self) -> Prediction:
        """Return the prediction of the smallest total error among the configured method's."""
        return min(
            (one for one in self.predictions if not one.exact and one.method == self.method), key=lambda one: one.total
        )


def forecast_groups(plan: Plan, public: Path | None, runs: int, reporter: Reporter) -> Forecast:
    """Predict a release; ``public`` is a table of sizes with as many levels, made public by its owner.

    Raises InputError, ProblemError; deterministic but for the seconds.
    """
    found = predicted(plan, public, runs, reporter)
    simulated = _figures("Mean earth mover's distance of a region (entities): simulated", found, plan, exact=False)
    exact = _figures("Noise left in a cell after a linear stage, root mean square: exact", found, plan, exact=True)
    return Forecast(
        tables=(exact, simulated) if exact.rows else (simulated,),
        plain=_plain(found),
        notes=(
            ("Simulated on", found.look_alike),
            ("Best split", f"split = [{_shares(found.best)}]  ({found.best.split}, for {found.best.method})"),
        ),
        seconds=found.seconds,
        memory=_memory(plan, found.method),
    )


def predicted(plan: Plan, public: Path | None, runs: int, reporter: Reporter) -> Predicted:
    """Return the predictions that ``forecast_groups`` shows; ``runs`` simulated releases each."""
    like = made_look_alike(plan) if public is None else read_look_alike(plan, public)
    levels = plan.asked.hierarchy.levels
    queries, buckets = queries_of(plan.config, levels), buckets_of(plan.config, levels)
    counts = count_cells(plan.asked, queries, buckets)
    # Answers of unlike buckets do not add up along the tree: no linear stage has a cell's noise to predict.
    stages = () if any(buckets) else LINEAR_STAGES
    noise = NoisePlan(plan.asked.cost, tuple(sensitivity(query, plan.asked.neighbours) for query in queries))
    exact = [one for stage in stages for one in plan_linear(plan.asked.hierarchy, noise, counts, stage)]
    with reporter.stage("Rehearsing"):
        rehearsal = _Rehearsal(plan, like, runs)
        simulated = _simulate(rehearsal, counts)
    used = sum(counts[question.level] for question in plan.asked.questions)
    rehearsed = sum(count_cells(like.plan.asked, queries, buckets))
    seconds = rehearsal.fit_seconds() / rehearsed * used + _noise_seconds(plan, counts)
    return Predicted(like.words, rehearsal.method.consistency, (*exact, *simulated), seconds)


def count_cells(asked: Asked, queries: Sequence[Query], buckets: Sequence[Buckets | None]) -> tuple[int, ...]:
    """Return the noisy numbers that each level's query needs, root first; at least one."""
    counted = []
    for level, (query, sums) in enumerate(zip(queries, buckets, strict=True)):
        regions, groups = asked.hierarchy.level_range(level), asked.per_region[GROUPS]
        if sums is not None:
            counted.append(max(sums.count * len(regions), 1))
            continue
        each = (cells(query, max_size_of(asked), int(groups[region])) for region in regions)
        counted.append(max(sum(each), 1))
    return tuple(counted)


def _noise_seconds(plan: Plan, counts: Sequence[int]) -> float:
    """Return the seconds of drawing, at the speed of the configured source."""
    source = plan.config.privacy.noise
    draws = ((counts[one.level], _NANOSECONDS[type(one.law)][source]) for one in plan.asked.questions)
    return sum(count * nanoseconds * 1e-9 for count, nanoseconds in draws)


def _memory(plan: Plan, consistency: Consistency) -> int | None:
    tables = _TABLES.get(consistency)
    return None if tables is None else tables * _BYTES * plan.asked.hierarchy.regions * max_size_of(plan.asked)


class _Rehearsal:
    """Releases of a look-alike under the same few seeds for every split, so that splits compare."""

    def __init__(self, plan: Plan, like: LookAlike, runs: int) -> None:
        self.plan, self._asked, self._runs = plan, like.plan.asked, runs
        self.method = method_of(plan.config, plan.asked)
        self._truth = [one.clamp(max_size_of(self._asked)) for one in like.private.histograms()]
        self._fit_seconds = 0.0
        self.levels = plan.asked.hierarchy.levels
        self.bucketed = any(buckets_of(plan.config, self.levels))

    def errors(
        self, shares: Sequence[float | Fraction], consistency: Consistency, *, redraw: bool = True
    ) -> FloatArray:
        """Return the mean error of each level, float64[levels], with a consistency method and shares.

        Without ``redraw`` bootstrap variances, twenty times the work, are replaced by those of the formula.
        """
        method = self.method if consistency == self.method.consistency else self._other(consistency)
        method = method if redraw else replace(method, variances="formula")
        return np.asarray(np.mean([self._one(shares, method, SEED + run) for run in range(self._runs)], axis=0))

    def _other(self, consistency: Consistency) -> GroupsMethod:
        return replace(self.method, consistency=consistency, intervals=0.0)

    def fit_seconds(self) -> float:
        """Return the seconds one fit of the configured method takes, by the configured solvers."""
        if solvers_of(self.plan.config):
            costs = self.plan.config.levels_cost(self.levels)
            measurement, start = self._measured(costs, SEED), perf_counter()
            estimate_groups(measurement, self.method, choices_of(self.plan.config))
            self._fit_seconds = perf_counter() - start
        return self._fit_seconds

    def _one(self, shares: Sequence[float | Fraction], method: GroupsMethod, seed: int) -> FloatArray:
        measurement = self._measured([self.plan.asked.cost * _short(share) for share in shares], seed)
        start = perf_counter()
        # The fast exact solvers, whichever are configured: the optimum is the same, and many fits are made.
        result = estimate_groups(measurement, method, SolverChoices())
        if method == self.method:
            self._fit_seconds = perf_counter() - start
        return errors_by_level(self._asked.hierarchy, result.histograms, self._truth)

    def _measured(self, costs: Sequence[Cost], seed: int) -> Measurement:
        asked = asked_of(
            self._asked.hierarchy,
            self._asked.per_region[GROUPS],
            queries=queries_of(self.plan.config, self.levels),
            costs=costs,
            max_size=max_size_of(self._asked),
            neighbours=self._asked.neighbours,
            buckets=buckets_of(self.plan.config, self.levels),
        )
        return measured(asked, self._truth, SeededNoise(seed))

    def searches(self) -> int:
        """Return how many splits to try, from the size of the look-alike alone."""
        config = self.plan.config
        work = sum(count_cells(self._asked, queries_of(config, self.levels), buckets_of(config, self.levels)))
        return max(_SEARCHES[0], min(_SEARCHES[1], _WORK // (work * self._runs)))


def _short(share: float | Fraction) -> Fraction:
    return share if isinstance(share, Fraction) else Fraction(share).limit_denominator(10**6)


def _simulate(rehearsal: _Rehearsal, counts: Sequence[int]) -> list[Prediction]:
    """Return simulated predictions: every consistency method, and for the configured one a planned split.

    Methods that take seconds a run where the others take milliseconds are simulated only where they are configured, and
    their split is not searched for. Buckets are read by the posterior alone.
    """
    splits = named_splits(counts)
    configured = rehearsal.method.consistency
    found: list[Prediction] = []
    others = () if rehearsal.bucketed else [one for one in CONSISTENCIES if one not in (configured, *SLOW)]
    for consistency in (configured, *others):
        if consistency == "bottom_up":
            leaves = (*(Fraction(0),) * (rehearsal.levels - 1), Fraction(1))
            found.append(_predicted(rehearsal, consistency, "leaves", leaves))
            continue
        if consistency == "posterior":
            splits = {"as configured": _configured(rehearsal.plan)}
        for name, shares in splits.items():
            found.append(_predicted(rehearsal, consistency, name, shares))
        if consistency == configured and configured not in SLOW:
            found.append(_predicted(rehearsal, consistency, "planned", _planned(rehearsal, consistency, splits)))
    return found


def _configured(plan: Plan) -> Shares:
    costs = plan.config.levels_cost(plan.asked.hierarchy.levels)
    return tuple(cost.amount / plan.asked.cost.amount for cost in costs)


def _planned(rehearsal: _Rehearsal, consistency: Consistency, splits: dict[str, Shares]) -> Shares:
    def error(shares: FloatArray) -> float:
        return float(rehearsal.errors(shares.tolist(), consistency, redraw=False).sum())

    return best_shares(error, list(splits.values()), rehearsal.searches())


def _predicted(rehearsal: _Rehearsal, consistency: Consistency, split: str, shares: Shares) -> Prediction:
    errors = rehearsal.errors(shares, consistency)
    return Prediction(consistency, split, shares, tuple(errors.tolist()), exact=False)


def _shares(one: Prediction) -> str:
    return ", ".join(f'"{share}"' for share in one.shares)


def _figures(title: str, found: Predicted, plan: Plan, *, exact: bool) -> Figures:
    header = ("method", "split", "shares", *plan.asked.levels, "sum")
    rows = (
        (
            one.method,
            one.split,
            " ".join(f"{float(share):.3f}" for share in one.shares),
            *(f"{error:.4g}" for error in (*one.errors, one.total)),
        )
        for one in found.predictions
        if one.exact == exact
    )
    return Figures(title, header, tuple(rows), numeric=3)


def _plain(found: Predicted) -> dict[str, Any]:
    return {
        "look_alike": found.look_alike,
        "predictions": [
            {
                "method": one.method,
                "split": one.split,
                "shares": [str(share) for share in one.shares],
                "errors": list(one.errors),
                "exact": one.exact,
            }
            for one in found.predictions
        ],
        "best_split": [str(share) for share in found.best.shares],
    }
