"""What private numbers of groups cost beyond public ones (Kuo et al. 2018, footnote 4), on Taxi and Hawaii's blocks.

Total epsilon 1, split evenly over levels; a share of each level's budget asks for its numbers of groups. Errors count
entities to add or remove, so that an empty group too many costs nothing and a group of five five.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.draws import Levels, mean_by_level, split_evenly
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.kuo2018.sweep import BARS, SEEDED, level_figure, means_of
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_experiments.statistics import Mean
from coco_opt.groups import GroupsMethod, Query, estimate_groups, measure_hierarchy
from coco_opt.histograms import errors_by_level
from coco_opt.privacy import Epsilon, SeededNoise

NAME = "kuo2018/private_counts"
EPSILON = Fraction(1)
SEEDS = (2018, 2019, 2020, 2021, 2022)
SHARES = (None, Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), Fraction(2, 5))
METHODS = (GroupsMethod(consistency="joint"), GroupsMethod(consistency="matching"))
COLUMNS = (
    "data",
    "method",
    "share for counts",
    "level",
    "entities off",
    "standard error",
    "runs",
    "times public",
    "groups off",
)


@dataclass(frozen=True, slots=True)
class Result:
    """Mean errors by level of one method at one share: in entities, and of the number of groups."""

    case: str
    method: str
    share: Fraction | None
    errors: tuple[Mean, ...]
    groups: tuple[Mean, ...]

    @property
    def name(self) -> str:
        """Return the method and what its numbers of groups are."""
        return f"{self.method}, {'public' if self.share is None else f'share {self.share}'}"


def result_of(case: Case, method: GroupsMethod, share: Fraction | None, seeds: Sequence[int]) -> Result:
    """Return the errors of a case with public numbers of groups (None), or with a share for private numbers."""
    errors: list[Levels] = []
    groups: list[Levels] = []
    query: Query = "cumulative"
    for seed in seeds:
        measurement = measure_hierarchy(
            case.truth,
            case.hierarchy,
            case.counts.group_counts if share is None else None,
            queries=[query] * case.levels,
            costs=[Epsilon(part) for part in split_evenly(EPSILON, case.levels)],
            max_size=case.max_size,
            neighbours="add_remove",
            source=SeededNoise(seed),
            counts_share=share,
        )
        estimates = estimate_groups(measurement, method)
        errors.append(tuple(errors_by_level(case.hierarchy, estimates.histograms, case.truth).tolist()))
        off = np.abs(estimates.group_counts - case.counts.group_counts)
        groups.append(mean_by_level(case, off.astype(np.float64)))
    return Result(case.name, str(method.consistency), share, means_of(errors), means_of(groups))


def results_of(case: Case, seeds: Sequence[int], reporter: Reporter) -> list[Result]:
    """Return the results of all methods and shares on one case."""
    settings = [(method, share) for method in METHODS for share in SHARES]
    results = []
    for done, (method, share) in enumerate(settings, 1):
        results.append(result_of(case, method, share, seeds))
        reporter.progress(f"{NAME} {case.name}", done, len(settings))
    return results


def table_of(results: Sequence[Result]) -> Table:
    """Return one row a case, method, share and level, and its error as a multiple of that with public counts."""
    public = {(result.case, result.method): result for result in results if result.share is None}
    rows: list[tuple[Cell, ...]] = []
    for result in results:
        base = public[result.case, result.method]
        for level, (error, groups) in enumerate(zip(result.errors, result.groups, strict=True)):
            share = "public" if result.share is None else str(result.share)
            times = error.value / base.errors[level].value
            figures = (error.value, error.standard_error, error.runs, times, groups.value)
            rows.append((result.case, result.method, share, level, *figures))
    notes = (SEEDED, BARS, f"Seeds {', '.join(map(str, SEEDS))}, fixed beforehand.")
    title = "Private numbers of groups: mean distance (entities) a region, total epsilon 1"
    return Table(title, COLUMNS, tuple(rows), notes)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/private_counts`` as CSV, PNG and PDF; small: two seeds on simulated data."""
    if small:
        results = results_of(small_cases(150)[0], SEEDS[:2], reporter)
    else:
        results = results_of(taxi_case(data, TAXI_MAX_SIZE), SEEDS, reporter)
        results += results_of(hawaii_case(data), SEEDS, reporter)
    means: dict[str, dict[str, tuple[Mean, ...]]] = {}
    for result in results:
        means.setdefault(result.case, {})[result.name] = result.errors
    return publish(NAME, {"": table_of(results)}, out, reporter, files=level_figure(out / NAME, means))
