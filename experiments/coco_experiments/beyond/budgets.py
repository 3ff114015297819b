"""The posterior, joint estimation, Algorithm 1 and bottom-up by total epsilon: 0.1, 0.5, 1 and 2, even split."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from coco_experiments.beyond.questions import GROWTH, Questions, cells, grown
from coco_experiments.beyond.study import (
    MATCHING,
    Result,
    Way,
    beside,
    error_table,
    finish,
    hawaii_to_tracts,
    kept_of,
    study,
    usual_ways,
)
from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.experiment import Outcome, Reporter
from coco_experiments.kuo2018.cases import Case, small_cases, taxi_case
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE

NAME = "beyond/budgets"
SEEDS = (2018,)
EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2))
SMALL_EPSILONS = EPSILONS[1:3]


def ways_of(case: Case, asked: Questions, epsilons: Sequence[Fraction]) -> list[Way]:
    """Return every method at every epsilon, Algorithm 1 of buckets too where they are asked."""
    found = []
    for epsilon in epsilons:
        setting = f"{float(epsilon):g}"
        found += usual_ways(case, epsilon, setting)
        if any(asked.growth):
            found.append(Way("matching, buckets", "matching", asked, epsilon, setting))
        found.append(Way(asked.name, "posterior", asked, epsilon, setting))
    return found


def curves(results: Sequence[Result]) -> list[list[CurvePanel]]:
    """Return a row a case, a panel a level: each way's error over that of Algorithm 1, by total epsilon."""
    other = beside(results, MATCHING)
    rows = []
    for case in dict.fromkeys(one.case for one in results):
        own = [one for one in results if one.case is case]
        names = dict.fromkeys(one.way.name for one in own)
        rows.append(
            [
                CurvePanel(
                    f"{case.name}, level {level}",
                    tuple(
                        Curve(
                            name,
                            [float(one.way.epsilon) for one in own if one.way.name == name],
                            [
                                one.means[level].value / other(one).means[level].value
                                for one in own
                                if one.way.name == name
                            ],
                        )
                        for name in names
                    ),
                )
                for level in range(case.levels)
            ]
        )
    return rows


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/budgets`` as CSV, PNG and PDF; small: two epsilons, one seed, made data."""
    if small:
        blocks = small_cases(30)[2]
        asked = [(blocks, grown(blocks, GROWTH[-3:])[0])]
    else:
        hawaii, taxi = hawaii_to_tracts(data), taxi_case(data, TAXI_MAX_SIZE)
        asked = [(hawaii, grown(hawaii, GROWTH[:3])[0]), (taxi, cells(taxi))]
    found: list[Result] = []
    kept = kept_of(out)
    for case, questions in asked:
        ways = ways_of(case, questions, SMALL_EPSILONS if small else EPSILONS)
        found += study(NAME, case, ways, SEEDS[:1] if small else SEEDS, reporter, kept)
    notes = (
        f"Even split but for bottom-up. Hawaii's buckets grow by {GROWTH[:3]}, root first; Taxi is asked for cells.",
    )
    table = error_table("By epsilon", found, MATCHING, "total epsilon", notes)
    style = AxisStyle("total epsilon", "error / error of Algorithm 1")
    return finish(NAME, out, {"": table}, found, draw(out / NAME, curves(found), style), reporter)
