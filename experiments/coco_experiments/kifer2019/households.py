"""Householders >= spouses + partners in every block: a constraint holds if it is declared, and is broken if not.

Simulated blocks in tracts and a county. The rule is true of the data in every block, and of every possible household;
noise does not know it. It is declared as structural: nothing is taken from the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.topdown import (
    LinearConstraint,
    Schema,
    Strategy,
    TableCounts,
    TablePlan,
    estimate_tables,
    measure_tables,
    parse_query,
)

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


def measure(setting: Setting, seed: int) -> tuple[list[int], int, float]:
    """Return the regions that break the rule by level, the failsafes, and the error of a block's answer."""
    tree = Hierarchy.from_paths([("county", f"tract {b // 20}", f"block {b}") for b in range(setting.blocks)])
    leaves = people(np.random.default_rng(2020), setting.blocks)
    counts, queries = TableCounts.from_counts(tree, SCHEMA, leaves), [parse_query(text, SCHEMA) for text in QUERIES]
    rule = LinearConstraint.of(RULE, tree, SCHEMA, counts=COUNTS)
    plan = TablePlan.product(Strategy.uniform(queries), Epsilon(Fraction(setting.epsilon)), tree.levels)
    constraints = [rule] if setting.declared else []
    result = estimate_tables(measure_tables(counts, plan, source=SeededNoise(seed), linear=constraints))
    broken = [int((result.level(level) @ rule.row(SCHEMA) < 0).sum()) for level in range(tree.levels)]
    error = np.abs(queries[1].operator.apply(result.level(tree.levels - 1) - leaves)).mean()
    return broken, len(result.relaxed), float(error)


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return both epsilons without and with the rule."""
    blocks, seeds = (40, SEEDS[:1]) if small else (BLOCKS, SEEDS)
    return seeded((Setting(blocks, *setting) for setting in product(EPSILONS, (False, True))), seeds)


def report(results: Sequence[Runs[Setting, tuple[list[int], int, float]]], path: Path) -> Report:
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
    return Report({"": Table.of(f"{RULE} in every block", rows, notes)}, failures=failures)


HOUSEHOLDS = Study("kifer2019/households", plan, measure, report)
