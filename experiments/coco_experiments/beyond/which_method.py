"""Which method where: simulated hierarchies from sparse to dense, shallow to deep, at a small and a usual epsilon.

Every region has four parts, sizes are mostly small with a long tail up to 200. A method's score is its error over that
of Algorithm 1 of single cells, in the geometric mean over levels; buckets are those that the planner chooses from
public constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.beyond.study import MATCHING, Result, Way, planned, reference_of, study, usual_ways
from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.data import counts_of_runs, group_sizes
from coco_experiments.groups import Case
from coco_experiments.outcome import Record, Table
from coco_opt.histograms import Hierarchy

FAN_OUT, MAX_SIZE = 4, 200
LEVELS = (2, 4)
GROUPS = (10, 100, 1_000)  # a leaf
EPSILONS = (Fraction(1, 10), Fraction(1))


def generated(levels: int, groups: int, max_size: int = MAX_SIZE) -> Case:
    """Return a hierarchy of four parts a region, so many groups in every leaf."""
    rng = np.random.default_rng(2018)
    places = product(range(FAN_OUT), repeat=levels - 1)
    paths = [("all", *("-".join(map(str, place[:n])) for n in range(1, levels))) for place in places]
    tree = Hierarchy.from_paths(paths)
    sizes = np.concatenate([group_sizes(groups, max_size, rng) for _ in paths])
    leaf = np.repeat(np.arange(len(paths), dtype=np.int64), groups)
    counts = counts_of_runs(tree, leaf, sizes, np.ones(sizes.size, np.int64))
    return Case.of(f"{levels} levels, {groups:,} groups a leaf", counts, max_size)


def place_of(case: Case) -> tuple[int, int]:
    """Return the levels of a hierarchy and the groups of a leaf."""
    return case.levels, case.truth[-1].groups


def ways_of(case: Case, epsilon: Fraction) -> list[Way]:
    """Return the usual ways, and Algorithm 1 and the posterior of what the planner asks."""
    setting, queries = f"{float(epsilon):g}", planned(case, epsilon)
    return [
        *usual_ways(case, epsilon, setting),
        Way("matching, planner's queries", "matching", queries, epsilon, setting),
        Way("posterior, planner's queries", "posterior", queries, epsilon, setting),
    ]


def scores(results: Sequence[Result]) -> dict[Result, float]:
    """Return each result's error over that of Algorithm 1, in the geometric mean over levels; 0 counts as 0.1."""
    reference = reference_of(results, MATCHING)
    return {result: float(np.exp(np.log(_errors(result) / _errors(reference(result))).mean())) for result in results}


def _errors(result: Result) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.maximum([mean.value for mean in result.means], 0.1)


def map_table(results: Sequence[Result]) -> Table:
    """Return which method errs least, a row a hierarchy and epsilon."""
    score = scores(results)
    rows: list[Record] = []
    for case, setting in dict.fromkeys((result.case, result.way.setting) for result in results):
        own = [result for result in results if (result.case, result.way.setting) == (case, setting)]
        levels, groups = place_of(case)
        row: Record = {"levels": levels, "groups a leaf": groups, "total epsilon": setting}
        for name, level in {"least error at the root": 0, "at the leaves": -1}.items():
            row[name] = min(own, key=lambda result, level=level: result.means[level].value).way.name  # type: ignore[misc]
        rows.append({**row, "over all levels": min(own, key=score.__getitem__).way.name})
    return Table.of("Which method errs least", rows, (f"Seeds: {len(results[0].errors)}.",))


def curves(results: Sequence[Result]) -> list[list[CurvePanel]]:
    """Return a row an epsilon, a panel a depth: each method's score by the groups of a leaf."""
    score = scores(results)
    names = dict.fromkeys(result.way.name for result in results)
    rows = []
    for setting in dict.fromkeys(result.way.setting for result in results):
        panels = []
        for levels in dict.fromkeys(result.case.levels for result in results):
            own = [result for result in results if (result.way.setting, result.case.levels) == (setting, levels)]
            lines = []
            for name in names:
                line = [result for result in own if result.way.name == name]
                lines.append(
                    Curve(name, [place_of(result.case)[1] for result in line], [score[result] for result in line])
                )
            panels.append(CurvePanel(f"{levels} levels, epsilon {setting}", tuple(lines)))
        rows.append(panels)
    return rows


def settings(data: Path | None, small: bool) -> list[tuple[Case, list[Way]]]:
    """Return all hierarchies at both epsilons; small: two hierarchies at the larger one."""
    grid = [(2, 10), (2, 100)] if small else list(product(LEVELS, GROUPS))
    cases = [generated(levels, groups, 30 if small else MAX_SIZE) for levels, groups in grid]
    return [(case, [way for epsilon in EPSILONS[small:] for way in ways_of(case, epsilon)]) for case in cases]


WHICH_METHOD = study(
    "beyond/which_method",
    "Which method where",
    settings,
    setting="total epsilon",
    tables=lambda results: {"_map": map_table(results)},
    figure=lambda path, results: draw(
        path, curves(results), AxisStyle("groups a leaf", "error / error of Algorithm 1")
    ),
)
