"""The posterior, joint estimation, Algorithm 1 and bottom-up by total epsilon: 0.1, 0.5, 1 and 2, even split."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from coco_experiments.beyond.queries import GROWTH, QueryPlan, cells, grown
from coco_experiments.beyond.study import (
    MATCHING,
    Result,
    Way,
    error_table,
    finish,
    hawaii_to_tracts,
    reference_of,
    studied,
    usual_ways,
)
from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.kuo2018.cases import Case, small_cases, taxi_case
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.outcome import Outcome, Reporter

NAME = "beyond/budgets"
SEEDS = (2018,)
EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2))
SMALL_EPSILONS = EPSILONS[1:3]


def ways_of(case: Case, queries: QueryPlan, epsilons: Sequence[Fraction]) -> list[Way]:
    """Return every method at every epsilon, Algorithm 1 of buckets too where they are asked."""
    ways = []
    for epsilon in epsilons:
        setting = f"{float(epsilon):g}"
        ways += usual_ways(case, epsilon, setting)
        if any(queries.growth):
            ways.append(Way("matching, buckets", "matching", queries, epsilon, setting))
        ways.append(Way(queries.name, "posterior", queries, epsilon, setting))
    return ways


def curves(results: Sequence[Result]) -> list[list[CurvePanel]]:
    """Return a row a case, a panel a level: each way's error over that of Algorithm 1, by total epsilon."""
    reference = reference_of(results, MATCHING)
    rows = []
    for case in dict.fromkeys(result.case for result in results):
        own = [result for result in results if result.case is case]
        names = dict.fromkeys(result.way.name for result in own)
        rows.append(
            [
                CurvePanel(
                    f"{case.name}, level {level}",
                    tuple(
                        Curve(
                            name,
                            [float(result.way.epsilon) for result in own if result.way.name == name],
                            [
                                result.means[level].value / reference(result).means[level].value
                                for result in own
                                if result.way.name == name
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
    """Measure, print and write ``beyond/budgets`` as CSV, PNG and PDF; small: two epsilons, a seed, simulated data."""
    if small:
        blocks = small_cases(30)[2]
        settings = [(blocks, grown(blocks, GROWTH[-3:])[0])]
    else:
        hawaii, taxi = hawaii_to_tracts(data), taxi_case(data, TAXI_MAX_SIZE)
        settings = [(hawaii, grown(hawaii, GROWTH[:3])[0]), (taxi, cells(taxi))]
    ways = ((case, ways_of(case, queries, SMALL_EPSILONS if small else EPSILONS)) for case, queries in settings)
    results = studied(NAME, ways, SEEDS, out, reporter, small=small)
    notes = (
        f"Even split but for bottom-up. Hawaii's buckets grow by {GROWTH[:3]}, root first; Taxi is asked for cells.",
    )
    table = error_table("By epsilon", results, MATCHING, "total epsilon", notes)
    style = AxisStyle("total epsilon", "error / error of Algorithm 1")
    return finish(NAME, out, {"": table}, results, draw(out / NAME, curves(results), style), reporter)
