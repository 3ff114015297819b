"""Constraints that always hold: tables of Hawaii's blocks with totals and facilities, 28 types in 1,000 blocks, proofs.

Hawaii's tables have 224 cells (made within the real counts of its blocks), every block's total is exact, and public
constraints say which types of residence a block has. Proofs are of the entire tree, before any payment: that some
integer table exists, and that none does where one block or one tract contradicts the rest.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np

from coco_experiments.bench.apart import peak_megabytes
from coco_experiments.bench.rows import Bench, Benchmark
from coco_experiments.data import find_data_file
from coco_experiments.kifer2019.facilities import blocks
from coco_experiments.kifer2019.redistricting import people
from coco_experiments.topdown.data import generated_blocks, hawaii
from coco_opt.choices import SolverChoices
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.topdown import (
    UNBOUNDED,
    Invariant,
    RegionBounds,
    Strategy,
    TableCounts,
    TablePlan,
    TopdownMethod,
    estimate_tables,
    measure_tables,
    parse_query,
)
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.feasibility.conflict import prove
from coco_opt.topdown.feasibility.system import ConstraintSystem

HAWAII = "census2010_blocks/hi_2010_block.csv.gz"
QUERIES = {"detail": "1/2", "hispanic * race": "1/6", "voting_age": "1/6", "residence": "1/6"}
RELEASE, ESTIMATE, PROOF = "measure, fit, split and round", "fit, split and round", "prove or refuse"
HAWAII_LIMIT, TYPES_LIMIT, PROOF_LIMIT, MEMORY_LIMIT = 60.0, 10.0, 30.0, 1000.0
THREADS = 2


def facilities(counts: TableCounts) -> RegionBounds:
    """Return which types of group quarters every block has: one person at least lives in each, nobody in others."""
    query = parse_query("residence", counts.schema)
    homes = counts.answers_to(query.operator, counts.hierarchy.leaves)
    lower, upper = (homes > 0).astype(np.int64), np.where(homes > 0, UNBOUNDED, 0)
    lower[:, 0], upper[:, 0] = 0, UNBOUNDED  # anybody may live in a household
    return RegionBounds(query, counts.hierarchy.levels - 1, lower, upper)


def exact(counts: TableCounts, text: str, level: int) -> RegionBounds:
    """Return a query's true answers in the regions of a level as public constraints."""
    operator = parse_query(text, counts.schema).operator
    return stated(counts, text, level, counts.answers_to(operator, counts.hierarchy.level_range(level)))


def stated(counts: TableCounts, text: str, level: int, answers: np.ndarray) -> RegionBounds:
    """Return a query's answers in the regions of a level, whatever the true answers are, as public constraints."""
    return RegionBounds(parse_query(text, counts.schema), level, answers, answers)


def measured(counts: TableCounts) -> Measurement:
    """Return a seeded measurement with exact totals of blocks and their facilities."""
    queries = tuple(parse_query(text, counts.schema) for text in QUERIES)
    strategy = Strategy(queries, tuple(map(Fraction, QUERIES.values())))
    plan = TablePlan.product(strategy, Epsilon(Fraction(1)), counts.hierarchy.levels, neighbours="replace")
    total = Invariant(parse_query("total", counts.schema), counts.hierarchy.levels - 1)
    return measure_tables(counts, plan, source=SeededNoise(1), invariants=[total], bounds=[facilities(counts)])


def estimated(measurement: Measurement, implied: str = "auto") -> TablesResult:
    """Return integer tables."""
    method = TopdownMethod(implied=implied)  # type: ignore[arg-type]
    return estimate_tables(measurement, method, SolverChoices(fallback=True), threads=THREADS)


def cases(counts: TableCounts) -> list[tuple[str, list[RegionBounds], bool]]:
    """Return names, constraints of a whole tree, and whether some table meets them."""
    last = counts.hierarchy.levels - 1
    homes, totals = facilities(counts), exact(counts, "total", last)
    ages, kinds = exact(counts, "voting_age", last), exact(counts, "residence", last - 2)
    filled = np.flatnonzero(totals.lower[:, 0] > 0)
    crowded, open_to = homes.lower.copy(), homes.upper.copy()
    block = int(filled[filled.size // 2])
    crowded[block, 3], open_to[block, 3] = totals.lower[block, 0] + 1, UNBOUNDED
    wrong_tract = exact(counts, "total", last - 2).lower.copy()
    tract = int(np.argmax(wrong_tract[:, 0]))
    wrong_tract[tract] -= 1
    wrong_ages = exact(counts, "voting_age", last - 2).lower.copy()
    wrong_ages[tract] += [1, -1]
    wrong_state = totals.lower.sum(axis=0, keepdims=True) - 1

    crossing = [homes, totals, ages, kinds]
    return [
        ("totals and facilities", [homes, totals], True),
        ("totals, facilities, two marginals that cross", crossing, True),
        ("one block too small", [RegionBounds(homes.query, last, crowded, open_to), totals], False),
        ("one tract too small", [homes, totals, stated(counts, "total", last - 2, wrong_tract)], False),
        ("one tract of other ages", [*crossing, stated(counts, "voting_age", last - 2, wrong_ages)], False),
        ("the state too small", [homes, totals, stated(counts, "total", 0, wrong_state)], False),
    ]


def measure(bench: Bench) -> str:
    """Time releases and proofs; fails for a wrong verdict, a table relaxed or not proved nearest."""
    real = not bench.small and find_data_file(HAWAII, bench.data) is not None
    blocks_here = hawaii(bench.data) if real else generated_blocks(np.random.default_rng(7), 2, 2, 2, 6)
    counts = people(blocks_here, structural_zeros=False)
    place, leaves = "Hawaii" if real else "made", len(counts.hierarchy.leaves)
    estimated(measured(people(generated_blocks(np.random.default_rng(7), 1, 2, 1, 4))))  # compiles
    name, limit = f"{place}, {leaves:,} blocks x {counts.schema.size} cells, totals and facilities", HAWAII_LIMIT
    tables = {name: bench.once(name, RELEASE, leaves, lambda: estimated(measured(counts)), limit=limit)[0]}
    bench.notes.append(f"largest memory until here: {peak_megabytes():,.0f} MB (at most {MEMORY_LIMIT:,.0f})")
    types, number = (4, 40) if bench.small else (28, 1_000)
    measurement, _ = blocks(types, number, 1)
    for implied in ("auto", "cuts"):
        name, call = f"{types} types x {number:,} blocks, {implied}", partial(estimated, measurement, implied)
        tables[name] = bench.once(name, ESTIMATE, number, call, limit=TYPES_LIMIT)[0]
    for name, constraints, holds in bench.over(cases(counts)):
        system = ConstraintSystem.of(counts.hierarchy, counts.schema, constraints)
        proving = partial(prove, system, witness=True)
        proof, _ = bench.once(f"{place}: {name}", PROOF, leaves, proving, limit=PROOF_LIMIT)
        if proof.verdict != ("holds" if holds else "conflict"):
            bench.wrong.append(f"{name}: {proof.verdict}")
        elif not proof.smallest:
            bench.wrong.append(f"{name}: the conflict named is not proved to be smallest")
    for name, result in tables.items():
        if result.relaxed or result.uncertified_gap.steps:
            relaxed, steps = len(result.relaxed), result.uncertified_gap.steps
            bench.wrong.append(f"{name}: {relaxed} regions relaxed, {steps} steps not proved")
    return "Constraints that always hold: releases and proofs"


NOTES = ("two threads; one run each after one of a small instance that compiles",)
CONSTRAINTS = Benchmark("bench/constraints", measure, NOTES)
