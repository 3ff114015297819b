"""Which method where: made hierarchies from sparse to dense, shallow to deep, at a small and a usual epsilon.

Every region has four parts, sizes are mostly small with a long tail up to 200. A method's score is its error over that
of Algorithm 1 of single cells, in the geometric mean over levels; buckets are those that the planner chooses from
public facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.beyond.questions import planned
from coco_experiments.beyond.study import MATCHING, Result, Way, beside, error_table, finish, kept_of, study, usual_ways
from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.experiment import Cell, Outcome, Reporter, Table
from coco_experiments.kuo2018.cases import Case
from coco_experiments.made import counts_of_runs, group_sizes
from coco_opt.histograms import Hierarchy

NAME = "beyond/which_method"
SEEDS = (2018,)
FAN_OUT, MAX_SIZE = 4, 200
LEVELS = (2, 4)
GROUPS = (10, 100, 1_000)  # a leaf
EPSILONS = (Fraction(1, 10), Fraction(1))
COLUMNS = ("levels", "groups a leaf", "total epsilon", "least error at the root", "at the leaves", "over all levels")


def made(levels: int, groups: int, max_size: int = MAX_SIZE) -> Case:
    """Return a hierarchy of four parts a region, so many groups in every leaf."""
    rng = np.random.default_rng(2018)
    places = product(range(FAN_OUT), repeat=levels - 1)
    paths = [("all", *("-".join(map(str, place[:n])) for n in range(1, levels))) for place in places]
    tree = Hierarchy.from_paths(paths)
    sizes = np.concatenate([group_sizes(groups, max_size, rng) for _ in paths])
    leaf = np.repeat(np.arange(len(paths), dtype=np.int64), groups)
    counts = counts_of_runs(tree, leaf, sizes, np.ones(sizes.size, np.int64))
    return Case.of(f"{levels} levels, {groups:,} groups a leaf", counts, max_size)


def ways_of(case: Case, epsilon: Fraction) -> list[Way]:
    """Return the usual ways, and Algorithm 1 and the posterior of what the planner asks."""
    setting, asked = f"{float(epsilon):g}", planned(case, epsilon)
    return [
        *usual_ways(case, epsilon, setting),
        Way("matching, planner's questions", "matching", asked, epsilon, setting),
        Way("posterior, planner's questions", "posterior", asked, epsilon, setting),
    ]


def scores(results: Sequence[Result]) -> dict[Result, float]:
    """Return each result's error over that of Algorithm 1, in the geometric mean over levels; 0 counts as 0.1."""
    other = beside(results, MATCHING)
    return {one: float(np.exp(np.log(_errors(one) / _errors(other(one))).mean())) for one in results}


def _errors(result: Result) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.maximum([mean.value for mean in result.means], 0.1)


def map_table(results: Sequence[Result], places: dict[str, tuple[int, int]]) -> Table:
    """Return which method errs least, a row a hierarchy and epsilon."""
    found = scores(results)
    rows: list[tuple[Cell, ...]] = []
    for case, setting in dict.fromkeys((one.case, one.way.setting) for one in results):
        own = [one for one in results if (one.case, one.way.setting) == (case, setting)]
        best = [min(own, key=lambda one, at=at: one.means[at].value).way.name for at in (0, -1)]  # type: ignore[misc]
        rows.append((*places[case.name], setting, *best, min(own, key=found.__getitem__).way.name))
    return Table("Which method errs least", COLUMNS, tuple(rows), (f"Seeds: {len(results[0].errors)}.",))


def curves(results: Sequence[Result], places: dict[str, tuple[int, int]]) -> list[list[CurvePanel]]:
    """Return a row an epsilon, a panel a depth: each method's score by the groups of a leaf."""
    found = scores(results)
    names = dict.fromkeys(one.way.name for one in results)
    rows = []
    for setting in dict.fromkeys(one.way.setting for one in results):
        panels = []
        for levels in dict.fromkeys(levels for levels, _ in places.values()):
            own = [one for one in results if one.way.setting == setting and places[one.case.name][0] == levels]
            lines = []
            for name in names:
                line = [one for one in own if one.way.name == name]
                lines.append(Curve(name, [places[one.case.name][1] for one in line], [found[one] for one in line]))
            panels.append(CurvePanel(f"{levels} levels, epsilon {setting}", tuple(lines)))
        rows.append(panels)
    return rows


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/which_method`` as CSV, PNG and PDF; small: two hierarchies."""
    grid = [(2, 10), (2, 100)] if small else list(product(LEVELS, GROUPS))
    seeds, epsilons = (SEEDS[:1], EPSILONS[1:]) if small else (SEEDS, EPSILONS)
    places: dict[str, tuple[int, int]] = {}
    found: list[Result] = []
    kept = kept_of(out)
    for levels, groups in grid:
        case = made(levels, groups, 30 if small else MAX_SIZE)
        places[case.name] = levels, groups
        ways = [way for one in epsilons for way in ways_of(case, one)]
        found += study(NAME, case, ways, seeds, reporter, kept)
    errors = error_table("Which method where", found, MATCHING, "total epsilon")
    tables = {"": errors, "_map": map_table(found, places)}
    figures = draw(out / NAME, curves(found, places), AxisStyle("groups a leaf", "error / error of Algorithm 1"))
    return finish(NAME, out, tables, found, figures, reporter)
