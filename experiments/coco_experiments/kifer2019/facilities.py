"""Facilities by type and block, of known block totals: how bounds, cuts and the minimal schema scale.

Simulated blocks, in census-like numbers: few types each, at least as many people as facilities. Bounds on single types,
closed under sums, are not what 2^types combinations imply; cuts and the minimal schema keep them all.

``households``: householders >= spouses + partners in every block, a constraint that holds if it is declared, and is
broken if not. Simulated blocks in tracts and a county. The rule is true of the data in every block, and of every
possible household; noise does not know it. It is declared as structural: nothing is taken from the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np

from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError, SolverError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.topdown import (
    UNBOUNDED,
    Invariant,
    LinearConstraint,
    RegionBounds,
    Schema,
    Strategy,
    TableCounts,
    TablePlan,
    TopdownMethod,
    estimate_tables,
    measure_tables,
    parse_query,
)

SIZES = ((3, 10), (7, 100), (14, 100), (14, 300), (28, 300), (28, 1000))
METHODS = ("bounds", "cuts", "minimal_schema")
MOST_BLOCKS = {"bounds": 300, "cuts": 300, "minimal_schema": 10**9}
FAN_OUT = 10


def blocks(types: int, count: int, seed: int, *, ages: int = 1, exact: bool = False) -> tuple[Measurement, np.ndarray]:
    """Return a seeded measurement of simulated blocks, epsilon 1 over four levels, and the true table.

    ``ages`` divide every type into cells that no constraint distinguishes. With ``exact`` the constraints are the
    people of every type in every block, else which types are there (at least one person for each facility, nobody
    without any).
    """
    rng = np.random.default_rng([seed, types, count])
    tree = Hierarchy.from_paths(
        [("state", f"county {b // FAN_OUT**2}", f"tract {b // FAN_OUT}", f"block {b}") for b in range(count)]
    )
    attributes = {"type": [f"type {k}" for k in range(types)]}
    schema = Schema(attributes if ages == 1 else {**attributes, "age": [f"age {k}" for k in range(ages)]})
    share = np.minimum(0.9, 3.0 * rng.dirichlet(np.full(types, 0.7)))
    facilities = (rng.random((count, types)) < share) * rng.integers(1, 4, (count, types))
    facilities[~facilities.any(axis=1), 0] = 1
    people = facilities * (1 + rng.poisson(rng.gamma(0.7, 12.0, (count, types))))
    kinds = parse_query("type", schema)
    constraints = RegionBounds(kinds, tree.levels - 1, facilities, np.where(facilities > 0, UNBOUNDED, 0))
    if exact:
        constraints = RegionBounds(kinds, tree.levels - 1, people, people)
    if ages > 1:
        people = rng.multinomial(people, rng.dirichlet(np.full(ages, 2.0), types)).reshape(count, -1)
    plan = TablePlan.product(
        Strategy.uniform([parse_query("total", schema), parse_query("detail", schema)]),
        Epsilon(Fraction(1)),
        tree.levels,
        neighbours="replace",
    )
    counts = TableCounts.from_counts(tree, schema, people.astype(np.int64))
    total = [Invariant(parse_query("total", schema), tree.levels - 1)]
    measurement = measure_tables(counts, plan, source=SeededNoise(seed), invariants=total, bounds=[constraints])
    return measurement, tree.aggregate(people.astype(np.int64))


def measure(case: tuple[int, int, str], seed: int) -> tuple[Record, str]:
    """Return the row of one size and method, and what went wrong, "" for nothing."""
    types, count, method = case
    measurement, truth = blocks(types, count, seed)
    tree, start = measurement.hierarchy, perf_counter()
    parents = tree.regions - len(tree.leaves)
    row: Record = {"types": types, "blocks": count, "method": method, "parents": parents}
    try:
        result = estimate_tables(
            measurement,
            TopdownMethod(implied=method),  # type: ignore[arg-type]
            SolverChoices(fallback=True),
        )
    except (ProblemError, SolverError) as error:
        return {**row, "seconds": perf_counter() - start}, f"{types} types, {count} blocks, {method}: {error}"
    seconds = perf_counter() - start
    off = [
        np.abs(result.level(level) - truth[tree.level_range(level).start : tree.level_range(level).stop]).mean()
        for level in range(tree.levels)
    ]
    wrong = "" if method == "bounds" or len(result.relaxed) <= 0.01 * parents else f"{types} types: failsafes"
    row |= {"failsafes": len(result.relaxed), "persons moved": sum(change.moved for change in result.relaxed)}
    return {**row, "cuts": result.implied.cuts, "error by type": float(np.mean(off)), "seconds": seconds}, wrong


def plan(data: Path | None, small: bool) -> list[tuple[tuple[int, int, str], Sequence[int]]]:
    """Return every size by each method that can be afforded."""
    measure((*SIZES[0], "minimal_schema"), 1)  # compiles
    sizes = SIZES[:1] if small else SIZES
    return seeded(((*size, method) for size in sizes for method in METHODS if size[1] <= MOST_BLOCKS[method]), (1,))


def report(results: Sequence[Runs[tuple[int, int, str], tuple[Record, str]]], path: Path) -> Report:
    """Return all rows; it fails where cuts or the minimal schema relax over 1 % of parents."""
    notes = ("error by type: mean absolute error of a region's type, in persons, mean over the four levels.",)
    found = [runs.found[0] for runs in results]
    table = Table.of("facilities by type and block", (row for row, _ in found), notes)
    failsafes = dict.fromkeys(METHODS, 0)
    for row, _ in found:
        failsafes[row["method"]] += row["failsafes"] if "failsafes" in row else row["parents"]
    claim = Statement(
        "slides, TopDown with invariants, Example",
        "every combination of types has an implied constraint; cutting planes and the minimal schema keep them all",
        f"failsafes: {', '.join(f'{method} {count}' for method, count in failsafes.items())}",
        failsafes["cuts"] + failsafes["minimal_schema"] < max(1, failsafes["bounds"]),
    )
    return Report({"": table}, failures=[wrong for _, wrong in found if wrong], statements=[claim])


FACILITIES = Study("kifer2019/facilities", plan, measure, report)


RULE = "householders >= spouses + partners"
COUNTS = {"householders": "relation = householder", "spouses": "relation = spouse", "partners": "relation = partner"}
SCHEMA = Schema({"relation": ["householder", "spouse", "partner", "child", "other"], "age": ["minor", "adult"]})
QUERIES = ("total", "relation", "detail")
BLOCKS, EPSILONS, SEEDS = 300, (1, 4), (1, 2, 3)


def people(rng: np.random.Generator, blocks: int) -> np.ndarray:
    """Return integer tables int64[blocks, cells]: couples, single householders, children and others of each block."""
    couples, partners = rng.poisson(rng.gamma(0.8, 2.5, blocks)), rng.poisson(0.3, blocks)
    table = np.zeros((blocks, 5, 2), np.int64)
    table[:, 0, 1] = couples + partners + rng.poisson(rng.gamma(0.5, 2.0, blocks))
    table[:, 1, 1], table[:, 2, 1] = couples, partners
    table[:, 3, 0], table[:, 3, 1] = rng.poisson(1.2 * couples), rng.poisson(0.2 * couples)
    table[:, 4, 1] = rng.poisson(0.4, blocks)
    return table.reshape(blocks, -1)


@dataclass(frozen=True, slots=True)
class Setting:
    """How many blocks are released with which epsilon, with the rule declared or not."""

    blocks: int
    epsilon: int
    declared: bool


def measure_households(setting: Setting, seed: int) -> tuple[list[int], int, float]:
    """Return the regions that break the rule by level, the failsafes, and the error of a block's answer."""
    tree = Hierarchy.from_paths([("county", f"tract {b // 20}", f"block {b}") for b in range(setting.blocks)])
    leaves = people(np.random.default_rng(2020), setting.blocks)
    counts, queries = TableCounts.from_counts(tree, SCHEMA, leaves), [parse_query(text, SCHEMA) for text in QUERIES]
    rule = LinearConstraint.of(RULE, tree, SCHEMA, counts=COUNTS)
    plan_households = TablePlan.product(Strategy.uniform(queries), Epsilon(Fraction(setting.epsilon)), tree.levels)
    constraints = [rule] if setting.declared else []
    result = estimate_tables(measure_tables(counts, plan_households, source=SeededNoise(seed), linear=constraints))
    broken = [int((result.level(level) @ rule.row(SCHEMA) < 0).sum()) for level in range(tree.levels)]
    error = np.abs(queries[1].operator.apply(result.level(tree.levels - 1) - leaves)).mean()
    return broken, len(result.relaxed), float(error)


def plan_households(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return both epsilons without and with the rule."""
    blocks, seeds = (40, SEEDS[:1]) if small else (BLOCKS, SEEDS)
    return seeded((Setting(blocks, *setting) for setting in product(EPSILONS, (False, True))), seeds)


def report_households(results: Sequence[Runs[Setting, tuple[list[int], int, float]]], path: Path) -> Report:
    """Return a row a setting and seed; it fails where a declared rule is broken anywhere."""
    rows: list[Record] = []
    failures = []
    for runs in results:
        for seed, (broken, relaxed, error) in zip(runs.seeds, runs.found, strict=True):
            rows.append(
                {
                    "epsilon": runs.case.epsilon,
                    "seed": seed,
                    "declared": runs.case.declared,
                    "blocks": runs.case.blocks,
                    "broken": broken[-1],
                    "regions above broken": sum(broken[:-1]),
                    "failsafes": relaxed,
                    "error by relation": error,
                }
            )
            if runs.case.declared and any(broken):
                words = f"{sum(broken)} regions break {RULE!r}"
                failures.append(f"epsilon {runs.case.epsilon}, seed {seed}: {words}")
    notes = ("error by relation: mean absolute error of a block's answer. Noise is seeded: NOT PRIVATE.",)
    by_rule = {
        declared: sum(row["broken"] for row in rows if row["declared"] == declared) for declared in (False, True)
    }
    claim = Statement(
        "slides, Invariants",
        f"data must satisfy {RULE}, which noise does not know",
        f"blocks that break it: {by_rule[False]:,} where it is not declared, {by_rule[True]:,} where it is",
        by_rule[True] == 0 < by_rule[False],
    )
    table = Table.of(f"{RULE} in every block", rows, notes)
    return Report({"": table}, failures=failures, statements=[claim])


HOUSEHOLDS = Study("kifer2019/households", plan_households, measure_households, report_households)
