"""The posterior of ranges: errors by the number of cells, and how often intervals hold, against other estimators.

Data like those of Hay et al. 2010 (the user's own copies where there are any, else simulated ones), and small simulated
ones for more seeds, at three epsilons, with the fan-out that ``auto`` chooses. All estimators read the same noisy
counts. Seeds were fixed beforehand, and a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from coco_experiments.hay2010.data import (
    NET_TRACE_SOURCE,
    SEARCH_LOGS_SOURCE,
    SOCIAL_NETWORK_SOURCE,
    generated,
    original_or_simulated,
)
from coco_experiments.outcome import Record, Table
from coco_experiments.statistics import Mean, inside_by_ranks
from coco_experiments.study import Report, Runs, Study, not_converged
from coco_opt.array_types import Floats, Ints
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.ranges import UniversalHistogram, Workload, choose_fan_out, measure_ranges
from coco_opt.ranges.estimating.posterior.release import mean_square
from coco_opt.ranges.estimating.universal import Estimator
from coco_opt.ranges.kind import generated_cells

EPSILONS = (Fraction(1), Fraction(1, 10), Fraction(1, 100))
SEEDS, FEW_SEEDS = tuple(range(2010, 2030)), (2010, 2011)
POSTERIOR: Estimator = "posterior"
ESTIMATORS: tuple[Estimator, ...] = (POSTERIOR, "nonnegative", "zeroed", "consistent")
COVERAGE = 0.9
PLACES = 2_000  # of ranges of a length whose intervals are looked at
NOTE = "Noise is seeded: NOT PRIVATE. Estimators share each seed's noise."
Found = dict[str, Any]
"""What the estimators made of one seed's noise: errors [estimators][lengths], and the posterior's intervals by length.

``absolute`` and ``squared`` are means over all ranges of a length; those of ``squared`` at last over all ranges.
"""


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """True counts by the name of the data, and epsilon."""

    data: str
    truth: Ints
    epsilon: Fraction

    @property
    def lengths(self) -> list[int]:
        """Return lengths of ranges: powers of 4 below the number of cells."""
        return [4**power for power in range(9) if 4**power < self.truth.size]

    @property
    def cells(self) -> Record:
        """Return data and epsilon as cells of a table."""
        return {"data": self.data, "epsilon": f"{self.epsilon}"}


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return all data at every epsilon."""
    if small:
        cases: list[tuple[str, Ints, Sequence[int]]] = [("clusters, 256 cells", generated(256).values, SEEDS[:1])]
    else:
        cases = [
            ("clusters, 512 cells", generated(512).values, SEEDS),
            ("humps, 512 cells", generated_cells(512), SEEDS),
        ]
        for source in (SOCIAL_NETWORK_SOURCE, SEARCH_LOGS_SOURCE, NET_TRACE_SOURCE):
            counts = original_or_simulated(source, data)
            cases.append((counts.label, counts.values, FEW_SEEDS))
    return [(Setting(name, truth, epsilon), seeds) for name, truth, seeds in cases for epsilon in EPSILONS]


def measure(setting: Setting, seed: int) -> Found:
    """Return what all estimators make of one seed's noise."""
    truth, cost = setting.truth, Epsilon(setting.epsilon)
    measurement = measure_ranges(truth, cost, source=SeededNoise(seed), fan_out=choose_fan_out(truth.size, cost))
    exact, workload = np.concatenate([[0], np.cumsum(truth)]), Workload.of(truth.size)
    absolute, squared, seconds, fits = [], [], [], {}
    for estimator in ESTIMATORS:
        start = process_time()
        fits[estimator] = UniversalHistogram.fit(measurement, estimator)
        seconds.append(process_time() - start)
        away = np.concatenate([[0.0], np.cumsum(fits[estimator].cells)]) - exact
        of_lengths = [away[length:] - away[:-length] for length in setting.lengths]
        absolute.append([float(np.abs(error).mean()) for error in of_lengths])
        squared.append([*(float(np.square(error).mean()) for error in of_lengths), mean_square(away, workload)])
    posterior = fits[POSTERIOR].posterior
    assert posterior is not None
    found = {"absolute": absolute, "squared": squared, "seconds": seconds, "converged": posterior.sampled.converged}
    return {**found, "intervals": intervals(fits, exact, setting.lengths, seed)}


def intervals(
    fits: dict[Estimator, UniversalHistogram], exact: Ints, lengths: list[int], seed: int
) -> list[list[float]]:
    """Return by length how often intervals hold the truth, their mean width, and that of normal ones cut at 0."""
    rng, rows, histogram = np.random.default_rng(seed), [], fits[POSTERIOR]
    assert histogram.posterior is not None
    for length in lengths:
        begin = rng.integers(0, exact.size - length, PLACES)
        end = begin + length
        ends, drawn = histogram.intervals(begin, end, COVERAGE), histogram.posterior.draws.answers(begin, end)
        inside = inside_by_ranks(np.sort(drawn, axis=1), (exact[end] - exact[begin])[:, None], COVERAGE)
        # What a normal interval around the unbiased estimate holds, cut at 0.
        linear = fits["consistent"].ranges(begin, end)
        reach = 1.645 * linear.standard_error
        cut = np.maximum(linear.estimate + reach, 0.0) - np.maximum(linear.estimate - reach, 0.0)
        rows.append([float(inside.mean()), float((ends.upper - ends.lower).mean()), float(cut.mean())])
    return rows


def error_table(results: Sequence[Runs[Setting, Found]], *, squared: bool) -> Table:
    """Return a row for each data set, epsilon and length: errors, and the posterior's over those of the others."""
    rows: list[Record] = []
    for runs in results:
        errors = np.array([found["squared" if squared else "absolute"] for found in runs.found])
        lengths = [*(f"{length:,}" for length in runs.case.lengths), *(["all"] if squared else [])]
        for place, length in enumerate(lengths):
            own: Floats = errors[:, :, place]
            means = np.sqrt(own.mean(axis=0)) if squared else own.mean(axis=0)
            less = Mean.of((own[:, 0] - own[:, 1]).tolist())
            share = None if less.standard_error is None else less.value / less.standard_error
            rows.append(
                {
                    **runs.case.cells,
                    "cells of a range": length,
                    **dict(zip(ESTIMATORS, means.tolist(), strict=True)),
                    "times nonnegative": float(means[0] / means[1]),
                    "times the best of the others": float(means[0] / means[1:].min()),
                    "difference from nonnegative, in standard errors": share,
                    "runs": less.runs,
                }
            )
    title = "root mean squared error" if squared else "mean absolute error"
    return Table.of(f"{title} of a range (entities)", rows, (NOTE,))


def coverage_table(results: Sequence[Runs[Setting, Found]]) -> Table:
    """Return how often intervals hold the true counts, their mean widths, and seconds."""
    rows: list[Record] = []
    for runs in results:
        every = np.array([found["intervals"] for found in runs.found])
        for place, length in enumerate(runs.case.lengths):
            share, widths = Mean.of((100.0 * every[:, place, 0]).tolist()), every[:, place, 1:].mean(axis=0).tolist()
            shown = dict(zip(("mean width", "linear width"), widths, strict=True))
            key: Record = {**runs.case.cells, "cells of a range": length}
            rows.append({**key, **share.cells("% inside, ties split"), **shown, "runs": share.runs})
    seconds = [
        f"{runs.case.data} {float(np.mean([found['seconds'][0] for found in runs.found])):.3g}"
        for runs in results
        if runs.case.epsilon == EPSILONS[0]
    ]
    notes = (NOTE, f"Processor seconds of a posterior, epsilon 1: {'; '.join(seconds)}.")
    title = f"intervals of {100 * COVERAGE:g} % of the posterior, and widths of the linear estimate's cut at 0"
    return Table.of(title, rows, notes)


def report(results: Sequence[Runs[Setting, Found]], path: Path) -> Report:
    """Return errors and coverage; it fails where the posterior's mean square error over all ranges is not the least."""
    failures = []
    for runs in results:
        errors = np.sqrt(np.array([found["squared"] for found in runs.found])[:, :, -1].mean(axis=0))
        if errors[0] >= errors[1:].min():
            words = f"the posterior errs by {errors[0]:.3g}, another by {errors[1:].min():.3g}"
            failures.append(f"{runs.case.data}, epsilon {runs.case.epsilon}: {words}")
    tables = {
        "_absolute": error_table(results, squared=False),
        "_squared": error_table(results, squared=True),
        "_coverage": coverage_table(results),
    }
    slow = not_converged(results, lambda setting: f"{setting.data}, {setting.epsilon}")
    return Report(tables, failures=failures, notes=slow)


def key(setting: Setting, seed: int) -> str:
    """Return what a finding is stored by."""
    return f"{setting.data}, {setting.epsilon}, {seed}"


RANGES_POSTERIOR = Study("beyond/ranges_posterior", plan, measure, report, fails_small=False, key=key)
