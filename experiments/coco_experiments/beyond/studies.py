"""Six declared studies of groups beyond the papers: paired seeds, several ways, one reference each.

``posterior`` compares the posterior of cells and of buckets with joint estimation, Algorithm 1 and bottom-up at total
epsilon 1; ``ablation`` better queries alone, the learned prior alone, both and neither; ``budgets`` several total
epsilons; ``frontier`` the error at the root with that at the leaves by the split of one budget; ``west_coast`` housing
made from the 2010 census and simulated versions of race by blocks. Cells are read by every method from the same noise,
seed by seed; buckets and other splits have noise of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from coco_experiments.beyond.study import (
    BOTTOM_UP,
    BUCKETS,
    CELLS,
    GROWTH,
    JOINT,
    MATCHING,
    PLANNED,
    QueryPlan,
    Result,
    Way,
    cells,
    grown,
    hawaii_to_tracts,
    leaves_only,
    measured_cases,
    planned,
    reference_of,
    seconds_table,
    study,
    usual_ways,
)
from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw, level_title
from coco_experiments.groups import Case
from coco_experiments.kuo2018.cases import (
    TAXI_MAX_SIZE,
    hawaii_case,
    hawaiian_case,
    housing_case,
    small_cases,
    taxi_case,
    west_coast,
    white_case,
)
from coco_experiments.outcome import Record, Table

Settings = list[tuple[Case, list[Way]]]

EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2))
SEEDS = (2018, 2019, 2020, 2021, 2022)
# Dense groups: wide buckets would lose, these are as narrow as the planner tries.
TAXI_GROWTH = (0.0, 0.02, 0.02)
# Of four levels, root first, in parts; of three levels the last three.
PARTS = ((6, 2, 1, 1), (1, 1, 1, 1), (1, 1, 2, 6), (1, 1, 2, 16))


def ablation_ways(case: Case, growth: tuple[float, ...]) -> list[Way]:
    """Return neither, each alone, and both, and bottom-up."""
    buckets, *_ = grown(case, growth)
    return [
        *usual_ways(case),
        Way("matching, buckets", "matching", buckets),
        Way(CELLS, "posterior", cells(case)),
        Way(BUCKETS, "posterior", buckets),
    ]


def ablation_settings(data: Path | None, small: bool) -> Settings:
    """Return the cases with neither, each alone, and both."""
    return [(case, ablation_ways(case, growth)) for case, growth in measured_cases(data, TAXI_GROWTH, small=small)]


def budget_ways(case: Case, queries: QueryPlan, epsilons: Sequence[Fraction]) -> list[Way]:
    """Return every method at every epsilon, Algorithm 1 of buckets too where they are asked."""
    ways = []
    for epsilon in epsilons:
        setting = f"{float(epsilon):g}"
        ways += usual_ways(case, epsilon, setting)
        if any(queries.growth):
            ways.append(Way("matching, buckets", "matching", queries, epsilon, setting))
        ways.append(Way(queries.name, "posterior", queries, epsilon, setting))
    return ways


def budget_curves(results: Sequence[Result]) -> list[list[CurvePanel]]:
    """Return a row a case, a panel a level: each way's error over that of Algorithm 1, by total epsilon."""
    reference = reference_of(results, MATCHING)

    def curve(own: Sequence[Result], name: str, level: int) -> Curve:
        line = [result for result in own if result.way.name == name]
        ratios = [result.means[level].value / reference(result).means[level].value for result in line]
        return Curve(name, [float(result.way.epsilon) for result in line], ratios)

    rows = []
    for case in dict.fromkeys(result.case for result in results):
        own = [result for result in results if result.case is case]
        names = dict.fromkeys(result.way.name for result in own)
        panels = {level: tuple(curve(own, name, level) for name in names) for level in range(case.levels)}
        rows.append([CurvePanel(level_title(case.name, level), curves) for level, curves in panels.items()])
    return rows


def budget_settings(data: Path | None, small: bool) -> Settings:
    """Return buckets on Hawaii and cells on Taxi by total epsilon."""
    if small:
        blocks = small_cases(30)[2]
        return [(blocks, budget_ways(blocks, grown(blocks, GROWTH[-3:])[0], EPSILONS[1:3]))]
    hawaii, taxi = hawaii_to_tracts(data), taxi_case(data, TAXI_MAX_SIZE)
    queries = [(hawaii, grown(hawaii, GROWTH[:3])[0]), (taxi, cells(taxi))]
    return [(case, budget_ways(case, plan, EPSILONS)) for case, plan in queries]


def splits(levels: int) -> list[tuple[Fraction, ...]]:
    """Return the splits of so many levels, from most at the root to most at the leaves."""
    result = []
    for parts in PARTS:
        shares = parts[:levels] if parts[0] > parts[-1] else parts[-levels:]
        result.append(tuple(Fraction(part, sum(shares)) for part in shares))
    return result


def frontier_ways(case: Case, growth: tuple[float, ...]) -> list[Way]:
    """Return each method by every split, of buckets where they grow, and bottom-up."""
    ways = [Way(BOTTOM_UP, "bottom_up", leaves_only(case))]
    name = "buckets" if any(growth) else "cells"
    for split in splits(case.levels):
        setting = ", ".join(f"{float(share):.2g}" for share in split)
        queries = QueryPlan(name, growth, split)
        ways.append(Way(f"matching, {queries.name}", "matching", queries, setting=setting))
        if not any(growth):  # joint estimation reads the same buckets on every level
            ways.append(Way(f"joint, {queries.name}", "joint", queries, setting=setting))
        ways.append(Way(f"posterior, {queries.name}", "posterior", queries, setting=setting))
    return ways


def frontier_panel(case: Case, results: Sequence[Result]) -> CurvePanel:
    """Return one case: each way's errors at the root by those at the leaves, a mark a split."""
    own = [result for result in results if result.case is case]
    lines = []
    for name in dict.fromkeys(result.way.name for result in own):
        means = [result.means for result in own if result.way.name == name]
        lines.append(Curve(name, [errors[-1].value for errors in means], [errors[0].value for errors in means]))
    return CurvePanel(case.name, tuple(lines))


def frontier_settings(data: Path | None, small: bool) -> Settings:
    """Return the cases by every split."""
    return [(case, frontier_ways(case, growth)) for case, growth in measured_cases(data, small=small)]


def posterior_ways(case: Case, all_queries: Sequence[QueryPlan]) -> list[Way]:
    """Return the other methods, and the posterior by every query; of buckets "matching" too, without a prior."""
    ways = usual_ways(case)
    for queries in all_queries:
        ways.append(Way(queries.name, "posterior", queries))
        if any(queries.growth):
            ways.append(Way(f"matching, {queries.words}", "matching", queries))
    return ways


def planned_table(results: Sequence[Result]) -> Table:
    """Return one row a case and level: the growth that the planner chooses, and its error next to that of cells."""
    rows: list[Record] = []
    for result in (result for result in results if result.way.name == PLANNED):
        (of_cells,) = (other for other in results if other.case is result.case and other.way.name == CELLS)
        levels = zip(result.way.queries.growth, of_cells.means, result.means, result.less(of_cells), strict=True)
        for level, (growth, single, mean, difference) in enumerate(levels):
            key: Record = {"data": result.case.name, "level": level, "growth": growth, "cells": single.value}
            quotient = mean.value / single.value if single.value else None
            compared: Record = {"times cells": quotient, "against cells, paired": difference.signed}
            rows.append({**key, "planner's": mean.value, **compared})
    notes = (
        "What is chosen without a look from public numbers alone: regions, groups and K.",
        "Where single cells are chosen, a data set is missing here.",
    )
    return Table.of("The planner's buckets and single cells, the posterior of both", rows, notes)


def with_planned(case: Case, all_queries: Sequence[QueryPlan]) -> list[QueryPlan]:
    """Return queries, and what the planner chooses where those are not the cells."""
    chosen = planned(case)
    return [*all_queries, chosen] if any(chosen.growth) else [*all_queries]


def posterior_settings(data: Path | None, small: bool) -> Settings:
    """Return the cases by cells, buckets, and the planner's."""
    if small:
        dense, _, blocks = small_cases(60)
        settings = [(dense, [cells(dense)]), (blocks, [cells(blocks), *grown(blocks, GROWTH[-3:])])]
    else:
        taxi, hawaii = taxi_case(data, TAXI_MAX_SIZE), hawaii_case(data)
        settings = [(taxi, [cells(taxi)]), (hawaii, [cells(hawaii), *grown(hawaii, GROWTH)])]
        settings += [(case, [cells(case)]) for case in (hawaii_case(data, "white"), hawaii_case(data, "asian"))]
    return [(case, posterior_ways(case, with_planned(case, queries))) for case, queries in settings]


def west_coast_settings(data: Path | None, small: bool) -> Settings:
    """Return California, Oregon and Washington by what the planner chooses, and by buckets."""
    if small:
        cases = small_cases(30)[1:2]
    else:
        cases = [west_coast(case) for case in (housing_case(data), white_case(data), hawaiian_case(data))]
    settings = []
    for case in cases:
        ways = posterior_ways(case, with_planned(case, [cells(case)])[-1:])
        buckets = grown(case, GROWTH[:3])[0]
        ways += [Way("matching, buckets", "matching", buckets), Way(BUCKETS, "posterior", buckets)]
        settings.append((case, ways))
    return settings


ABLATION = study(
    "beyond/ablation",
    "Queries and prior",
    ablation_settings,
    notes=(f"Buckets of max(1, c x size) sizes, c = {GROWTH[:3]} on Hawaii and {TAXI_GROWTH} on Taxi, root first.",),
)
BUDGETS = study(
    "beyond/budgets",
    "By epsilon",
    budget_settings,
    setting="total epsilon",
    notes=(
        f"Even split but for bottom-up. Hawaii's buckets grow by {GROWTH[:3]}, root first; Taxi is asked for cells.",
    ),
    figure=lambda path, results: draw(
        path, budget_curves(results), AxisStyle("total epsilon", "error / error of\nmatching, cells; one run")
    ),
)
FRONTIER = study(
    "beyond/frontier",
    "By split, total epsilon 1",
    frontier_settings,
    BOTTOM_UP,
    "split",
    ("Splits root first; bottom-up spends all on the leaves.",),
    figure=lambda path, results: draw(
        path,
        [[frontier_panel(case, results) for case in dict.fromkeys(result.case for result in results)]],
        AxisStyle("error at the leaves (entities a region), one run", "error at the root (entities)"),
    ),
)
POSTERIOR = study(
    "beyond/posterior",
    "The posterior, total epsilon 1",
    posterior_settings,
    JOINT,
    notes=(
        f"Seeds {', '.join(map(str, SEEDS))}, fixed beforehand. Whole consistent tables, as released.",
        "Even split but for bottom-up, which spends all on the leaves, and where a split is named.",
        f"Buckets of max(1, c x size) sizes, c = {GROWTH} at Hawaii's levels, root first.",
    ),
    seeds=SEEDS,
    tables=lambda results: {"_planned": planned_table(results), "_seconds": seconds_table(results)},
    figure=lambda path, results: (),
)
WEST_COAST = study(
    "beyond/west_coast",
    "West Coast, total epsilon 1",
    west_coast_settings,
    notes=(
        "Bottom-up spends all on the leaves. Where no planner's buckets are shown it asks for cells.",
        f"Buckets grow by {GROWTH[:3]}, root first: no planner asks for them where groups are so dense.",
    ),
    tables=lambda results: {"_seconds": seconds_table(results)},
)
