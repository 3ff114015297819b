"""Does merging improve with better variances? The paper's formulas, a parametric bootstrap, and the errors really made.

All four merges of a row read the same measurements and matchings start from the same estimates. "oracle" knows the
squared error of every run, which no release can; "average" uses no variances. The bootstrap reads noisy answers only,
so it costs no budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.draws import Draws, Levels, errors_by_level, split_evenly
from coco_experiments.kuo2018.methods import queries_of
from coco_experiments.kuo2018.sweep import BARS, SEEDED, SEEDS, SMALL_SEEDS, level_figure, means_of
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_experiments.statistics import Mean
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMeasurements, GroupsMethod
from coco_opt.groups.estimating.bootstrap import REPLICATES, bootstrap_variances, squared_errors, with_errors
from coco_opt.groups.estimating.consistency import matching
from coco_opt.groups.estimating.estimates import SizeEstimate
from coco_opt.groups.estimating.estimators import estimate
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurement

NAME = "kuo2018/variances"
EPSILON = Fraction(1)
TAXI_RUNS, HAWAII_RUNS = 5, 2  # every region is fitted again once a replicate
SMALL_REPLICATES = 5
COLUMNS = ("data", "combination", "variances", "level", "measured", "standard error", "runs", "times the paper's")

Means = dict[str, tuple[Mean, ...]]
Histograms = tuple[CountOfCounts, ...]
Variances = Literal["paper", "bootstrap", "oracle", "average"]
VARIANCES: tuple[Variances, ...] = get_args(Variances)


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


def choices_of(levels: int) -> list[tuple[str, ...]]:
    """Return the combinations compared: one estimator on all levels, and both."""
    return [("Hc",) * levels, ("Hg",) * levels, ("Hc",) * (levels - 1) + ("Hg",)]


def compare(case: Case, choice: Sequence[str], seeds: Sequence[int], replicates: int) -> Means:
    """Return the mean errors by level of Algorithm 1 with each kind of variances."""
    losses: dict[str, Loss] = {"Hc": "l1", "Hg": "l2"}
    method = GroupsMethod(tuple(losses[name] for name in choice), consistency="matching")
    runs: dict[str, list[Levels]] = {name: [] for name in VARIANCES}
    for seed in seeds:
        noisy = Draws(case, seed).measurement(queries_of(choice), split_evenly(EPSILON, case.levels))
        rng = np.random.default_rng(seed)
        for name, values in compare_variances(noisy, case.truth, method, rng=rng, replicates=replicates).items():
            runs[name].append(errors_by_level(case, values))
    return {name: means_of(values) for name, values in runs.items()}


def rows_of(case: Case, choice: Sequence[str], means: Means) -> list[tuple[Cell, ...]]:
    """Return one row a kind of variances and level."""
    combination = " x ".join(choice)
    return [
        (
            case.name,
            combination,
            name,
            level,
            mean.value,
            mean.standard_error,
            mean.runs,
            mean.value / means["paper"][level].value if means["paper"][level].value else None,
        )
        for name, levels in means.items()
        for level, mean in enumerate(levels)
    ]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/variances`` as CSV, PNG and PDF; small: two seeds on simulated data."""
    if small:
        plans = [(small_cases(150)[0], SMALL_SEEDS)]
    else:
        plans = [(taxi_case(data, 5_000), SEEDS[:TAXI_RUNS]), (hawaii_case(data), SEEDS[:HAWAII_RUNS])]
    replicates = SMALL_REPLICATES if small else REPLICATES
    rows: list[tuple[Cell, ...]] = []
    drawn: dict[str, Means] = {}
    for case, seeds in plans:
        choices = choices_of(case.levels)
        for done, choice in enumerate(choices, 1):
            means = compare(case, choice, seeds, replicates)
            rows += rows_of(case, choice, means)
            drawn[f"{case.name}, {' x '.join(choice)}"] = means
            reporter.progress(f"{NAME} {case.name}", done, len(choices))
    notes = (SEEDED, BARS, f"Total epsilon 1, split evenly; {replicates} bootstrap replicates a region.")
    table = Table("Algorithm 1 with four kinds of variances: mean distance a region", COLUMNS, tuple(rows), notes)
    return publish(NAME, {"": table}, out, reporter, files=level_figure(out / NAME, drawn))
