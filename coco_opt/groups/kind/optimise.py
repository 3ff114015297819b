"""``plan --optimise``: which questions, split and method a look-alike speaks for, and the lines that ask for them.

Buckets and split are chosen by formula (``coco_opt.groups.asked.optimised``), under the law of sizes of public data or,
without any, under two extreme ones; then every method is rehearsed on a part of the look-alike, several times. Nothing
private is read, and nothing is called better unless it is so beyond the error of the rehearsals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.groups.answers import max_size_of
from coco_opt.groups.asked.optimised import Growths, best_growths, even_law, mean_logarithm, steep_law
from coco_opt.groups.asked.predicted import Predictor, Regions
from coco_opt.groups.buckets import Buckets, Split
from coco_opt.groups.estimated.method import ONE_PROGRAM, Consistency, GroupsMethod
from coco_opt.groups.kind.look_alike import supposed_groups
from coco_opt.groups.kind.rehearsal import Questions, Rehearsal, cost_of_sizes, extrapolated, questions_of
from coco_opt.groups.queries import sensitivity
from coco_opt.privacy.planner import NoisePlan, Shares, best_shares, uniform_shares
from coco_opt.releases.kind import Figures, LookAlike, Plan
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.solvers import choices_of

FloatArray = NDArray[np.float64]

LEAST_RUNS = 3
_SPLITS = 60  # tried
_GAIN = 0.03  # of the mean logarithm of errors, for which another split is proposed
_BEYOND = 2.0  # standard errors
_READERS: tuple[Consistency, ...] = ("posterior", "joint", "matching")  # of buckets
_BUCKETS = ", buckets"

Candidates = Mapping[str, tuple[Questions, GroupsMethod]]


@dataclass(frozen=True, eq=False, slots=True)
class Optimised:
    """What was found: tables, notes, and the lines of a better configuration, none where none is."""

    tables: tuple[Figures, ...]
    notes: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    plain: Mapping[str, Any]


def optimised(
    plan: Plan, public: LookAlike | None, part: LookAlike, candidates: Candidates, runs: int, reporter: Reporter
) -> Optimised:
    """Search questions, split and method; ``candidates`` are the methods of the forecast, the configured one first."""
    chosen = _questions(plan, public, reporter)
    tables, notes, every = [], [], dict(candidates)
    growths: tuple[float, ...] = ()
    if chosen is None:
        notes.append(("Questions", 'buckets are chosen where every level is asked for the query "cumulative"'))
    else:
        tables.append(_predicted_figures(plan, chosen))
        growths = chosen.growths.growths
        notes.append(("Laws", f"supposed sizes: {' and '.join(chosen.laws)}"))
        if any(growths):
            method = next(iter(candidates.values()))[1]
            losses = {method.loss(level) for level in range(plan.asked.hierarchy.levels)}
            for name in _READERS:
                if name not in ONE_PROGRAM or len(losses) == 1:
                    every[name + _BUCKETS] = _with_buckets(plan, growths, method, name)
    runs = max(runs, LEAST_RUNS)
    errors = _rehearsed(plan, part, every, runs, reporter)
    tables.append(_rehearsed_figures(plan, errors))
    best, gain = _best(errors)
    notes.append(("Best method", _words(best, gain, next(iter(every)), runs)))
    lines = _lines(best, growths, chosen) if gain is not None else ()
    split = _split_lines(plan, chosen)
    plain = {
        "bucket_growth": list(growths),
        "rehearsed": {name: one.mean(axis=0).tolist() for name, one in errors.items()},
        "best_method": best if gain is not None else None,
        "best_split": None if chosen is None else [str(share) for share in chosen.shares],
    }
    return Optimised(tuple(tables), tuple(notes), (*lines, *split), plain)


@dataclass(frozen=True, eq=False, slots=True)
class _Chosen:
    """Questions by formula: the laws' names, cells, the best growths, the best split and its errors [laws, levels]."""

    laws: tuple[str, ...]
    cells: Growths
    growths: Growths
    shares: Shares
    split: FloatArray


def _questions(plan: Plan, public: LookAlike | None, reporter: Reporter) -> _Chosen | None:
    asked, questions, max_size = plan.asked, questions_of(plan), max_size_of(plan.asked)
    if set(questions.queries) != {"cumulative"} or any(isinstance(one, Split) for one in questions.buckets):
        return None
    tree, counts = asked.hierarchy, supposed_groups(plan)
    regions = np.diff(tree.level_start).astype(np.float64)
    alike = Regions(regions, max(float(counts[0]), 1.0) / regions)
    laws = {"most groups small (1/s^2)": steep_law(max_size), "all sizes alike": even_law(max_size)}
    if public is not None:
        dense = public.private.region(0).clamp(max_size).to_dense(max_size).astype(np.float64)
        laws = {public.words: dense / max(dense.sum(), 1.0)}
    predictors = [Predictor(alike, law) for law in laws.values()]
    given = [float(cost.amount / asked.cost.amount) for cost in questions.costs]
    with reporter.stage("Choosing buckets") as progress:
        able = [share > 0.0 for share in given]
        cells, best = best_growths(predictors, max_size, _variances(plan, given), able, progress)
    buckets = [Buckets.by_growth(max_size, growth) for growth in best.growths]

    def errors(shares: Sequence[float]) -> FloatArray:
        variances = _variances(plan, shares)
        return np.array([one.errors(buckets, variances) for one in predictors])

    with reporter.stage("Choosing a split"):
        starts = [uniform_shares(tree.levels)]
        shares = best_shares(lambda one: mean_logarithm(errors(one.tolist())), starts, _SPLITS)
    return _Chosen(tuple(laws), cells, best, shares, errors([float(share) for share in shares]))


def _variances(plan: Plan, shares: Sequence[float]) -> FloatArray:
    """Return the noise of an answer at each level, float64[levels], infinite where the share is 0."""
    levels = len(shares)
    noise = NoisePlan(cost_of_sizes(plan), (sensitivity("cumulative", plan.asked.neighbours),) * levels)
    return noise.variances(shares)


def _with_buckets(
    plan: Plan, growths: Sequence[float], method: GroupsMethod, name: Consistency
) -> tuple[Questions, GroupsMethod]:
    max_size, questions = max_size_of(plan.asked), questions_of(plan)
    buckets = tuple(Buckets.by_growth(max_size, growth) if growth else None for growth in growths)
    return replace(questions, buckets=buckets), replace(method, consistency=name, intervals=0.0)


def _rehearsed(
    plan: Plan, part: LookAlike, candidates: Candidates, runs: int, reporter: Reporter
) -> dict[str, FloatArray]:
    """Return the errors float64[runs, levels] of every candidate, extrapolated to the whole."""
    rehearsal, solvers = Rehearsal(part), choices_of(plan.config)
    found = {}
    with reporter.stage("Rehearsing every method") as progress:
        for done, (name, (questions, method)) in enumerate(candidates.items()):
            progress(done, len(candidates))
            errors = rehearsal.errors(questions, method, runs, solvers)
            found[name] = np.array([extrapolated(one, rehearsal.hierarchy, plan.asked.hierarchy) for one in errors])
    return found


def _best(errors: Mapping[str, FloatArray]) -> tuple[str, FloatArray | None]:
    """Return the candidate of the least mean logarithm, and its gain on the first one run by run.

    The gain is None where it is not beyond twice its standard error: then the first candidate, which is configured,
    stays.
    """
    first = next(iter(errors))
    logs = {name: np.log(np.maximum(one, 1e-12)).mean(axis=1) for name, one in errors.items()}
    best = min(logs, key=lambda name: float(logs[name].mean()))
    gain = logs[first] - logs[best]
    beyond = _BEYOND * float(gain.std(ddof=1)) / gain.size**0.5
    return (best, gain) if best != first and float(gain.mean()) > beyond else (first, None)


def _words(best: str, gain: FloatArray | None, configured: str, runs: int) -> str:
    if gain is None:
        return f"{configured}, as configured: none is better beyond the error of {runs} rehearsals"
    less = -100.0 * float(np.expm1(-gain.mean()))
    error = 100.0 * float(gain.std(ddof=1)) / gain.size**0.5
    return f"{best}: {less:.0f} % less error on the mean of levels than {configured}, give or take {error:.0f} %"


def _lines(best: str, growths: tuple[float, ...], chosen: _Chosen | None) -> tuple[str, ...]:
    consistency = f'consistency = "{best.removesuffix(_BUCKETS)}"'
    if not best.endswith(_BUCKETS) or chosen is None:
        return ("[groups]", consistency)
    return ("[groups]", consistency, f"bucket_growth = [{', '.join(f'{growth:g}' for growth in growths)}]")


def _split_lines(plan: Plan, chosen: _Chosen | None) -> tuple[str, ...]:
    """Return the split's lines where it is predicted to be better on the mean of levels, and what it does to each."""
    if chosen is None or mean_logarithm(chosen.growths.errors) - mean_logarithm(chosen.split) < _GAIN:
        return ()
    times = np.exp(np.log(chosen.split / chosen.growths.errors).mean(axis=0)).tolist()
    effect = ", ".join(f"{name} x {factor:.2f}" for name, factor in zip(plan.asked.levels, times, strict=True))
    shares = ", ".join(f'"{share}"' for share in chosen.shares)
    return ("[privacy]", f"split = [{shares}]   # predicted errors: {effect}")


def _predicted_figures(plan: Plan, chosen: _Chosen) -> Figures:
    words = ", ".join(f"{growth:g}" for growth in chosen.growths.growths)
    asked = {
        "cells": chosen.cells.errors,
        f"buckets of growth {words}": chosen.growths.errors,
        "the same, best split": chosen.split,
    }
    rows = tuple(
        (question, law, *(f"{value:.4g}" for value in errors[place]))
        for place, law in enumerate(chosen.laws)
        for question, errors in asked.items()
    )
    title = "Mean distance of a region (entities) by the posterior: by formula, for comparison"
    return Figures(title, ("questions", "sizes", *plan.asked.levels), rows, numeric=2)


def _rehearsed_figures(plan: Plan, errors: Mapping[str, FloatArray]) -> Figures:
    rows = tuple(
        (name, *(f"{mean:.4g} +- {error:.2g}" for mean, error in zip(one.mean(axis=0), _spread(one), strict=True)))
        for name, one in errors.items()
    )
    title = f"Mean distance of a region (entities): rehearsed {len(next(iter(errors.values())))} times"
    return Figures(title, ("method", *plan.asked.levels), rows)


def _spread(errors: FloatArray) -> FloatArray:
    return np.asarray(errors.std(axis=0, ddof=1) / len(errors) ** 0.5)
