"""Does merging improve with better variances? The paper's formulas, a parametric bootstrap, and the errors really made.

All four merges of a row read the same measurements and matchings start from the same estimates. "oracle" knows the
squared error of every run, which no release can; "average" uses no variances. The bootstrap reads noisy answers only,
so it costs no budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from coco_experiments.groups import BARS, SEEDED, Case, Levels, evenly, level_figure, means_of
from coco_experiments.kuo2018.cases import TAXI_MAX_SIZE, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.methods import queries_of
from coco_experiments.kuo2018.sweep import SEEDS, SMALL_SEEDS
from coco_experiments.outcome import Record, Table
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMeasurements, GroupsMethod
from coco_opt.groups.estimating.bootstrap import REPLICATES, bootstrap_variances, squared_errors, with_errors
from coco_opt.groups.estimating.estimates import SizeEstimate
from coco_opt.groups.estimating.estimators import estimate
from coco_opt.groups.estimating.subtrees import matching
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurement

EPSILON = Fraction(1)
TAXI_RUNS, HAWAII_RUNS = 5, 2  # every region is fitted again once a replicate
SMALL_REPLICATES = 5

Histograms = tuple[CountOfCounts, ...]
Variances = Literal["paper", "bootstrap", "oracle", "average"]
KINDS: tuple[Variances, ...] = get_args(Variances)


def compare_variances(
    measurement: Measurement,
    truth: Sequence[CountOfCounts],
    method: GroupsMethod,
    *,
    rng: np.random.Generator,
    replicates: int = REPLICATES,
) -> dict[Variances, Histograms]:
    """Return what Algorithm 1 makes of one measurement with each kind of variances.

    "paper": section 5.1; "bootstrap": of redrawn noise; "oracle": the squared error each run really made, which
    reads the ``truth`` and is more than any variance could know; "average": none, sizes are averaged. Every level must
    be measured (ProblemError). O(regions x replicates x a fit).
    """
    answers, solvers = GroupsMeasurements(measurement), SolverChoices()
    paper, booted = [], []
    for region, level in enumerate(measurement.hierarchy.level.tolist()):
        answer, options = answers[region], method.fit_options(level)
        paper.append(estimate(answer, options, solvers))
        booted.append(bootstrap_variances(answer, paper[-1], options, solvers, rng=rng, replicates=replicates))
    oracle = [with_errors(fit, squared_errors(fit, true), 1) for fit, true in zip(paper, truth, strict=True)]

    def merged(estimates: Sequence[SizeEstimate], merge: Literal["weighted", "average"]) -> Histograms:
        return tuple(matching(measurement.hierarchy, estimates, solvers, merge=merge, rounding=method.rounding))

    return {
        "paper": merged(paper, "weighted"),
        "bootstrap": merged(booted, "weighted"),
        "oracle": merged(oracle, "weighted"),
        "average": merged(paper, "average"),
    }


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """A case, an estimator a level, and the bootstrap's replicates a region."""

    case: Case
    choice: tuple[str, ...]
    replicates: int

    @property
    def combination(self) -> str:
        """Return the estimators in words."""
        return " x ".join(self.choice)


def measure(setting: Setting, seed: int) -> dict[Variances, Levels]:
    """Return the errors by level of Algorithm 1 with each kind of variances."""
    case, choice = setting.case, setting.choice
    losses: dict[str, Loss] = {"Hc": "l1", "Hg": "l2"}
    method = GroupsMethod(tuple(losses[name] for name in choice), consistency="matching")
    noisy = case.measured(seed, evenly(EPSILON, case.levels), queries_of(choice))
    rng = np.random.default_rng(seed)
    found = compare_variances(noisy, case.truth, method, rng=rng, replicates=setting.replicates)
    return {name: case.errors(histograms) for name, histograms in found.items()}


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return the cases by one estimator on all levels, and both."""
    if small:
        cases = [(small_cases(150)[0], SMALL_SEEDS)]
    else:
        cases = [(taxi_case(data, TAXI_MAX_SIZE), SEEDS[:TAXI_RUNS]), (hawaii_case(data), SEEDS[:HAWAII_RUNS])]
    replicates = SMALL_REPLICATES if small else REPLICATES
    return [
        (Setting(case, choice, replicates), seeds)
        for case, seeds in cases
        for choice in (("Hc",) * case.levels, ("Hg",) * case.levels, ("Hc",) * (case.levels - 1) + ("Hg",))
    ]


def report(results: Sequence[Runs[Setting, dict[Variances, Levels]]], path: Path) -> Report:
    """Return one row a case, combination, kind of variances and level."""
    rows, drawn = list[Record](), dict[str, dict[str, Sequence[Mean]]]()
    for runs in results:
        setting = runs.case
        means: dict[str, Sequence[Mean]] = {name: means_of(found[name] for found in runs.found) for name in KINDS}
        drawn[f"{setting.case.name}, {setting.combination}"] = means
        for name, (level, mean) in product(KINDS, enumerate(means["paper"])):
            key: Record = {"data": setting.case.name, "combination": setting.combination, "variances": name}
            error, paper = means[name][level], mean.value
            times = error.value / paper if paper else None
            rows.append({**key, "level": level, **error.cells(), "runs": error.runs, "times the paper's": times})
    replicates = results[0].case.replicates
    notes = (SEEDED, BARS, f"Total epsilon 1, split evenly; {replicates} bootstrap replicates a region.")
    table = Table.of("Algorithm 1 with four kinds of variances: mean distance a region", rows, notes)
    return Report({"": table}, level_figure(path, drawn))


VARIANCES = Study("kuo2018/variances", plan, measure, report)
