"""The posterior of ranges: errors by the number of cells, and how often intervals hold, against other estimators.

Data like those of Hay et al. 2010 (the user's own copies where there are any, else simulated ones), and small simulated
ones for more seeds, at three epsilons, with the fan-out that ``auto`` chooses. All estimators read the same noisy
counts. Seeds were fixed beforehand, and a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from time import process_time

import numpy as np

from coco_experiments.beyond.stored_results import StoredResults
from coco_experiments.hay2010.data import (
    NET_TRACE_SOURCE,
    SEARCH_LOGS_SOURCE,
    SOCIAL_NETWORK_SOURCE,
    generated,
    original_or_simulated,
)
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, write_csv
from coco_experiments.statistics import Mean, inside_by_ranks
from coco_opt.array_types import Ints
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.ranges import UniversalHistogram, Workload, choose_fan_out, measure_ranges
from coco_opt.ranges.estimating.posterior.release import mean_square
from coco_opt.ranges.estimating.universal import Estimator
from coco_opt.ranges.kind.simulated_data import generated_cells

NAME = "beyond/ranges_posterior"
EPSILONS = (Fraction(1), Fraction(1, 10), Fraction(1, 100))
SEEDS, FEW_SEEDS = tuple(range(2010, 2030)), (2010, 2011)
POSTERIOR: Estimator = "posterior"
ESTIMATORS: tuple[Estimator, ...] = (POSTERIOR, "nonnegative", "zeroed", "consistent")
COVERAGE = 0.9
PLACES = 2_000  # of ranges of a length whose intervals are looked at
NOTE = "Noise is seeded: NOT PRIVATE. Estimators share each seed's noise."
Findings = dict[tuple[str, str], list["Finding"]]


@dataclass(frozen=True, slots=True)
class Finding:
    """What the estimators made of one seed's noise: errors [estimators][lengths], and the posterior's intervals.

    ``absolute`` and ``squared`` are means over all ranges of a length; those of ``squared`` at last over all ranges.
    """

    absolute: list[list[float]]
    squared: list[list[float]]
    inside: list[float]
    width: list[float]
    linear_width: list[float]
    seconds: list[float]
    converged: bool


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure errors, coverage and seconds, and write them below ``out`` anew after every seed."""
    cases = {"clusters, 256 cells": (generated(256).values, SEEDS[:1])} if small else cases_of(data)
    stored = StoredResults(out / f"{NAME}_seeds.json")
    findings: Findings = {}
    runs = [(name, epsilon, seed) for seed in SEEDS for name in cases for epsilon in EPSILONS if seed in cases[name][1]]
    for done, (name, epsilon, seed) in enumerate(runs, 1):
        key = f"{name}, {epsilon}, {seed}"
        if key not in stored:
            stored[key] = asdict(found(cases[name][0], epsilon, seed))
        finding = Finding(**stored[key])
        if not finding.converged:
            reporter.note(f"{key}: the chains did not converge")
        findings.setdefault((name, str(epsilon)), []).append(finding)
        reporter.progress(NAME, done, len(runs))
    tables = (
        error_table(cases, findings, squared=False),
        error_table(cases, findings, squared=True),
        coverage_table(cases, findings),
    )
    files = [
        write_csv(out / f"{NAME}_{part}.csv", table)
        for part, table in zip(("absolute", "squared", "coverage"), tables, strict=True)
    ]
    for table in tables:
        reporter.table(table)
    return Outcome(tables, tuple(files), () if small else failures(findings))


def cases_of(folder: Path | None) -> dict[str, tuple[Ints, Sequence[int]]]:
    """Return true counts and seeds by the name of the data."""
    cases: dict[str, tuple[Ints, Sequence[int]]] = {
        "clusters, 512 cells": (generated(512).values, SEEDS),
        "humps, 512 cells": (generated_cells(512), SEEDS),
    }
    for source in (SOCIAL_NETWORK_SOURCE, SEARCH_LOGS_SOURCE, NET_TRACE_SOURCE):
        counts = original_or_simulated(source, folder)
        cases[counts.label] = counts.values, FEW_SEEDS
    return cases


def lengths_of(cells: int) -> list[int]:
    """Return lengths of ranges: powers of 4 below the number of cells."""
    return [4**power for power in range(9) if 4**power < cells]


def found(truth: Ints, epsilon: Fraction, seed: int) -> Finding:
    """Return what all estimators make of one seed's noise."""
    cost, cells = Epsilon(epsilon), truth.size
    fan_out = choose_fan_out(cells, cost)
    measurement = measure_ranges(truth, cost, source=SeededNoise(seed), fan_out=fan_out)
    exact, workload = np.concatenate([[0], np.cumsum(truth)]), Workload.of(cells)
    absolute, squared, seconds, fits = [], [], [], {}
    for estimator in ESTIMATORS:
        start = process_time()
        fits[estimator] = UniversalHistogram.fit(measurement, estimator)
        seconds.append(process_time() - start)
        away = np.concatenate([[0.0], np.cumsum(fits[estimator].cells)]) - exact
        of_lengths = [away[length:] - away[:-length] for length in lengths_of(cells)]
        absolute.append([float(np.abs(error).mean()) for error in of_lengths])
        squared.append([*(float(np.square(error).mean()) for error in of_lengths), mean_square(away, workload)])
    histogram = fits[POSTERIOR]
    posterior = histogram.posterior
    assert posterior is not None
    rng, rows = np.random.default_rng(seed), []
    for length in lengths_of(cells):
        begin = rng.integers(0, cells - length + 1, PLACES)
        end = begin + length
        ends = histogram.intervals(begin, end, COVERAGE)
        drawn = posterior.draws.answers(begin, end)
        inside = inside_by_ranks(np.sort(drawn, axis=1), (exact[end] - exact[begin])[:, None], COVERAGE)
        # What a normal interval around the unbiased estimate holds, cut at 0.
        linear = fits["consistent"].ranges(begin, end)
        reach = 1.645 * linear.standard_error
        cut = np.maximum(linear.estimate + reach, 0.0) - np.maximum(linear.estimate - reach, 0.0)
        rows.append((float(inside.mean()), float((ends.upper - ends.lower).mean()), float(cut.mean())))
    inside_all, width, linear_width = (list(column) for column in zip(*rows, strict=True))
    return Finding(absolute, squared, inside_all, width, linear_width, seconds, posterior.sampled.converged)


def error_table(cases: Mapping[str, tuple[Ints, Sequence[int]]], findings: Findings, *, squared: bool) -> Table:
    """Return a row for each data set, epsilon and length: errors, and the posterior's over those of the others."""
    rows: list[tuple[Cell, ...]] = []
    for (name, epsilon), each in findings.items():
        errors = np.array([finding.squared if squared else finding.absolute for finding in each])
        lengths = [f"{length:,}" for length in lengths_of(cases[name][0].size)]
        for place, length in enumerate([*lengths, "all"] if squared else lengths):
            own = errors[:, :, place]
            means = np.sqrt(own.mean(axis=0)) if squared else own.mean(axis=0)
            less = Mean.of((own[:, 0] - own[:, 1]).tolist())
            share = None if less.standard_error is None else less.value / less.standard_error
            ratios = (float(means[0] / means[1]), float(means[0] / means[1:].min()))
            rows.append((name, epsilon, length, *means.tolist(), *ratios, share, less.runs))
    columns = ("data", "epsilon", "cells of a range", *ESTIMATORS, "times nonnegative", "times the best of the others")
    title = "root mean squared error" if squared else "mean absolute error"
    paired = ("difference from nonnegative, in standard errors", "runs")
    return Table(f"{title} of a range (entities)", (*columns, *paired), tuple(rows), (NOTE,))


def coverage_table(cases: Mapping[str, tuple[Ints, Sequence[int]]], findings: Findings) -> Table:
    """Return how often intervals hold the true counts, their mean widths, and seconds."""
    rows: list[tuple[Cell, ...]] = []
    for (name, epsilon), each in findings.items():
        for place, length in enumerate(lengths_of(cases[name][0].size)):
            share = Mean.of([100.0 * finding.inside[place] for finding in each])
            widths = (float(np.mean([row[place] for row in column])) for column in zip(*_widths(each), strict=True))
            rows.append((name, epsilon, length, share.value, share.standard_error, *widths, share.runs))
    seconds = [
        f"{name} {float(np.mean([finding.seconds[0] for finding in findings[name, str(EPSILONS[0])]])):.3g}"
        for name in cases
    ]
    columns = ("data", "epsilon", "cells of a range", "% inside, ties split", "standard error")
    notes = (NOTE, f"Processor seconds of a posterior, epsilon 1: {'; '.join(seconds)}.")
    title = f"intervals of {100 * COVERAGE:g} % of the posterior, and widths of the linear estimate's cut at 0"
    return Table(title, (*columns, "mean width", "linear width", "runs"), tuple(rows), notes)


def _widths(each: Sequence[Finding]) -> list[tuple[list[float], list[float]]]:
    return [(finding.width, finding.linear_width) for finding in each]


def failures(findings: Findings) -> tuple[str, ...]:
    """Return where the posterior's mean square error over all ranges is not the least."""
    lines = []
    for (name, epsilon), each in findings.items():
        errors = np.sqrt(np.array([finding.squared for finding in each])[:, :, -1].mean(axis=0))
        if errors[0] >= errors[1:].min():
            lines.append(
                f"{name}, epsilon {epsilon}: the posterior errs by {errors[0]:.3g}, another by {errors[1:].min():.3g}"
            )
    return tuple(lines)
