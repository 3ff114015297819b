"""What a release will cost and how far off it will be, before it is made: budgets, splits, errors, time and memory.

Reads the configuration and the public tables, or a look-alike the user names; never the private table. Stages linear
in the noise are computed exactly, the others simulated on the look-alike with seeded noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import InputError, Place
from coco_opt.groups import GroupsMethod, estimate_groups
from coco_opt.groups.consistency import sum_of_leaves
from coco_opt.groups.release import CONSISTENCIES, ONE_PROGRAM, Consistency
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Measurements, Query, SeededNoise, measure_hierarchy
from coco_opt.privacy.mechanism import amount_of, unit_of
from coco_opt.privacy.planner import (
    LINEAR_STAGES,
    NoisePlan,
    Prediction,
    Shares,
    best_shares,
    named_splits,
    plan_linear,
)
from coco_opt.runs.plan import ReleasePlan, plan_release
from coco_opt.runs.release import errors_by_level
from coco_opt.runs.reporter import Reporter, Silent
from coco_opt.runs.settings import Settings
from coco_opt.tables import read_sizes

_SEED = 20100901  # of the look-alike and its noise: the same plan every time
_MADE_POWER = 2.0
_WORK = 40_000_000  # cells simulated in the search for a split
_SEARCHES = (12, 60)
_COPIES = 4  # of the largest level's cells in memory at once: counts, noise, noisy values, fit
_NANOSECONDS = {  # a draw at scale or deviation 10
    "geometric": {"secure": 6.0, "opendp": 8500.0, "seeded": 20.0},
    "discrete_gaussian": {"secure": 8.0, "opendp": 13000.0, "seeded": 8.0},
}

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class LookAlike:
    """Public data a release is rehearsed on: true histograms in the hierarchy's order, and in words what they are."""

    hierarchy: Hierarchy
    histograms: Sequence[CountOfCounts]
    words: str

    @property
    def group_counts(self) -> NDArray[np.int64]:
        """Return the number of groups of every region."""
        return np.array([one.groups for one in self.histograms], dtype=np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Forecast:
    """A release's predicted cost and error; ``cells`` are measured noisy numbers by level, root first.

    ``seconds`` is noise and post-processing, scaled from the rehearsal by the number of cells; ``memory`` and
    ``sealed`` are bytes.
    """

    plan: ReleasePlan
    look_alike: str
    cells: tuple[int, ...]
    predictions: tuple[Prediction, ...]
    seconds: float
    memory: int
    sealed: int

    @property
    def best(self) -> Prediction:
        """Return the prediction of the smallest total error among the configured method's."""
        method = self.plan.method.consistency
        return min(
            (one for one in self.predictions if not one.exact and one.method == method), key=lambda one: one.total
        )


def forecast(
    settings: Settings, like: Path | None = None, *, runs: int = 3, reporter: Reporter | None = None
) -> Forecast:
    """Predict a release; ``like`` is a table of sizes with as many levels, made public by its owner.

    Raises ConfigError, InputError, ProblemError; deterministic but for ``seconds``.
    """
    told = Silent() if reporter is None else reporter
    with told.stage("Reading the public tables"):
        plan = plan_release(settings)
        public = made_look_alike(plan) if like is None else read_look_alike(like, plan)
    cells = count_cells(plan.queries, plan.hierarchy, plan.group_counts, settings.groups.max_size)
    noise = NoisePlan(unit_of(plan.mechanism), amount_of(plan.budget), plan.queries, plan.budget.neighbours)
    exact = [one for stage in LINEAR_STAGES for one in plan_linear(plan.hierarchy, noise, cells, stage)]
    with told.stage("Rehearsing"):
        rehearsal = _Rehearsal(plan, public, runs)
        simulated = _simulate(rehearsal, cells)
    used = [count for count, amount in zip(cells, plan.budget.levels, strict=True) if amount]
    rehearsed = sum(count_cells(plan.queries, public.hierarchy, public.group_counts, settings.groups.max_size))
    seconds = rehearsal.fit_seconds() / max(rehearsed, 1) * sum(used) + _noise_seconds(plan, sum(used))
    return Forecast(
        plan=plan,
        look_alike=public.words,
        cells=cells,
        predictions=(*exact, *simulated),
        seconds=seconds,
        memory=8 * (sum(used) + _COPIES * max(used)),
        sealed=8 * sum(used),
    )


def _noise_seconds(plan: ReleasePlan, cells: int) -> float:
    return _NANOSECONDS[plan.mechanism][plan.source.name] * 1e-9 * cells


def count_cells(
    queries: Sequence[Query], hierarchy: Hierarchy, group_counts: NDArray[np.int64], max_size: int
) -> tuple[int, ...]:
    """Return the noisy numbers a level needs, root first: K + 1, K or G a region for naive, cumulative, rank."""
    counted = []
    for level, query in enumerate(queries):
        regions = hierarchy.level_range(level)
        fixed = {"naive": max_size + 1, "cumulative": max_size}.get(query)
        groups = int(group_counts[regions.start : regions.stop].sum())
        counted.append(groups if fixed is None else fixed * len(regions))
    return tuple(max(count, 1) for count in counted)


def made_look_alike(plan: ReleasePlan) -> LookAlike:
    """Make data of the public shape: the true numbers of groups, sizes s with probability in proportion to 1/s^2."""
    largest = plan.settings.groups.max_size
    chances = np.arange(1, largest + 1, dtype=np.float64) ** -_MADE_POWER
    chances /= chances.sum()
    rng = np.random.default_rng(_SEED)
    leaves = plan.hierarchy.leaves
    dense = (rng.multinomial(int(plan.group_counts[leaf]), chances) for leaf in leaves)
    made = [CountOfCounts.from_dense(np.concatenate([[0], counts]).astype(np.int64)) for counts in dense]
    histograms = sum_of_leaves(plan.hierarchy, made)
    words = "made data: the public numbers of groups, sizes s with probability in proportion to 1/s^2"
    return LookAlike(plan.hierarchy, histograms, words)


def read_look_alike(path: Path, plan: ReleasePlan) -> LookAlike:
    """Read public data like the private: a table of sizes with as many levels. Raises InputError, ConfigError."""
    counts = read_sizes(path, plan.settings.data.root if plan.hierarchy.levels == 1 else None)
    if counts.hierarchy.levels != plan.hierarchy.levels:
        message = f"has {counts.hierarchy.levels} levels, but the data to release have {plan.hierarchy.levels}"
        raise InputError("other-levels", message, Place(path.name))
    return LookAlike(counts.hierarchy, counts.histograms(), f"the look-alike {path.name}")


class _Rehearsal:
    """Releases of a look-alike under the same few seeds for every split, so that splits compare."""

    def __init__(self, plan: ReleasePlan, public: LookAlike, runs: int) -> None:
        self.plan, self._public, self._runs = plan, public, runs
        self._largest = plan.settings.groups.max_size
        self._truth = [one.clamp(self._largest) for one in public.histograms]
        self._fit_seconds = 0.0
        self.levels = plan.hierarchy.levels

    def errors(
        self, shares: Sequence[float | Fraction], consistency: Consistency, *, redraw: bool = True
    ) -> FloatArray:
        """Return the mean error of each level, float64[levels], with a consistency method and shares.

        Without ``redraw`` bootstrap variances, twenty times the work, are replaced by those of the formula.
        """
        method = replace(self.plan.method, consistency=consistency)
        method = method if redraw else replace(method, variances="formula")
        return np.asarray(np.mean([self._one(shares, method, _SEED + run) for run in range(self._runs)], axis=0))

    def fit_seconds(self) -> float:
        """Return the seconds one fit of the configured method takes, by the configured solvers."""
        if self.plan.solvers:
            measurements, start = self._measured(self.plan.settings.budget_shares(self.levels), _SEED), perf_counter()
            estimate_groups(measurements, self.plan.method, SolverChoices(dict(self.plan.solvers)))
            self._fit_seconds = perf_counter() - start
        return self._fit_seconds

    def _one(self, shares: Sequence[float | Fraction], method: GroupsMethod, seed: int) -> FloatArray:
        measurements = self._measured(shares, seed)
        start = perf_counter()
        # The fast exact solvers, whichever are configured: the optimum is the same, and many fits are made.
        result = estimate_groups(measurements, method, SolverChoices())
        if method == self.plan.method:
            self._fit_seconds = perf_counter() - start
        return np.array(errors_by_level(self._public.hierarchy, self._truth, result.histograms))

    def _measured(self, shares: Sequence[float | Fraction], seed: int) -> Measurements:
        plan, public = self.plan, self._public
        amounts = [amount_of(plan.budget) * _short(share) for share in shares]
        pure = plan.mechanism == "geometric"
        return measure_hierarchy(
            self._truth,
            public.hierarchy,
            public.group_counts,
            queries=plan.queries,
            losses=plan.method.losses,
            epsilons=amounts if pure else None,
            rhos=None if pure else amounts,
            max_size=self._largest,
            neighbours=plan.budget.neighbours,
            source=SeededNoise(seed),
        )

    def searches(self) -> int:
        """Return how many splits to try, from the size of the look-alike alone."""
        plan, public = self.plan, self._public
        cells = sum(count_cells(plan.queries, public.hierarchy, public.group_counts, self._largest))
        return max(_SEARCHES[0], min(_SEARCHES[1], _WORK // (cells * self._runs)))


def _short(share: float | Fraction) -> Fraction:
    return share if isinstance(share, Fraction) else Fraction(share).limit_denominator(10**6)


def _simulate(rehearsal: _Rehearsal, cells: Sequence[int]) -> list[Prediction]:
    """Return simulated predictions: every consistency method, and for the configured one a planned split.

    Methods that fit all regions in one program, seconds a run where the others take milliseconds, are simulated only
    where they are configured, and their split is not searched for.
    """
    splits = named_splits(cells)
    configured = rehearsal.plan.method.consistency
    found: list[Prediction] = []
    for consistency in (configured, *(one for one in CONSISTENCIES if one not in (configured, *ONE_PROGRAM))):
        if consistency == "bottom_up":
            leaves = (*(Fraction(0),) * (rehearsal.levels - 1), Fraction(1))
            found.append(_predicted(rehearsal, consistency, "leaves", leaves))
            continue
        for name, shares in splits.items():
            found.append(_predicted(rehearsal, consistency, name, shares))
        if consistency == configured and configured not in ONE_PROGRAM:
            found.append(_predicted(rehearsal, consistency, "planned", _planned(rehearsal, consistency, splits)))
    return found


def _planned(rehearsal: _Rehearsal, consistency: Consistency, splits: dict[str, Shares]) -> Shares:
    def error(shares: FloatArray) -> float:
        return float(rehearsal.errors(shares.tolist(), consistency, redraw=False).sum())

    return best_shares(error, list(splits.values()), rehearsal.searches())


def _predicted(rehearsal: _Rehearsal, consistency: Consistency, split: str, shares: Shares) -> Prediction:
    errors = rehearsal.errors(shares, consistency)
    return Prediction(consistency, split, shares, tuple(errors.tolist()), exact=False)
