"""Householders >= spouses + partners in every block: a constraint holds if it is declared, and is broken if not.

Simulated blocks in tracts and a county. The rule is true of the data in every block, and of every possible household;
noise does not know it. It is declared as structural: nothing is taken from the data.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
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

NAME = "kifer2019/households"
RULE = "householders >= spouses + partners"
COUNTS = {"householders": "relation = householder", "spouses": "relation = spouse", "partners": "relation = partner"}
SCHEMA = Schema({"relation": ["householder", "spouse", "partner", "child", "other"], "age": ["minor", "adult"]})
QUERIES = ("total", "relation", "detail")
BLOCKS, EPSILONS, SEEDS = 300, (1, 4), (1, 2, 3)
COLUMNS = ("epsilon", "seed", "declared", "blocks", "broken", "regions above broken", "failsafes", "error by relation")


def people(rng: np.random.Generator, blocks: int) -> np.ndarray:
    """Return integer tables int64[blocks, cells]: couples, single householders, children and others of each block."""
    couples, partners = rng.poisson(rng.gamma(0.8, 2.5, blocks)), rng.poisson(0.3, blocks)
    table = np.zeros((blocks, 5, 2), np.int64)
    table[:, 0, 1] = couples + partners + rng.poisson(rng.gamma(0.5, 2.0, blocks))
    table[:, 1, 1], table[:, 2, 1] = couples, partners
    table[:, 3, 0], table[:, 3, 1] = rng.poisson(1.2 * couples), rng.poisson(0.2 * couples)
    table[:, 4, 1] = rng.poisson(0.4, blocks)
    return table.reshape(blocks, -1)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Release with and without the rule; fails where a declared rule is broken anywhere."""
    blocks, seeds = (40, SEEDS[:1]) if small else (BLOCKS, SEEDS)
    tree = Hierarchy.from_paths([("county", f"tract {b // 20}", f"block {b}") for b in range(blocks)])
    leaves = people(np.random.default_rng(2020), blocks)
    counts, queries = TableCounts.from_counts(tree, SCHEMA, leaves), [parse_query(text, SCHEMA) for text in QUERIES]
    rule = LinearConstraint.of(RULE, tree, SCHEMA, counts=COUNTS)
    weights, by_relation, last = rule.row(SCHEMA), queries[1].operator, tree.levels - 1
    rows: list[tuple[Cell, ...]] = []
    failures = []
    for epsilon in EPSILONS:
        plan = TablePlan.product(Strategy.uniform(queries), Epsilon(Fraction(epsilon)), tree.levels)
        for seed in seeds:
            for declared in (False, True):
                constraints = [rule] if declared else []
                result = estimate_tables(measure_tables(counts, plan, source=SeededNoise(seed), linear=constraints))
                broken = [int((result.level(level) @ weights < 0).sum()) for level in range(tree.levels)]
                error = np.abs(by_relation.apply(result.level(last) - leaves)).mean()
                figures = (blocks, broken[last], sum(broken[:last]), len(result.relaxed), float(error))
                rows.append((epsilon, seed, declared, *figures))
                if declared and any(broken):
                    failures.append(f"epsilon {epsilon}, seed {seed}: {sum(broken)} regions break {RULE!r}")
            reporter.progress(NAME, len(rows), 2 * len(EPSILONS) * len(seeds))
    notes = ("error by relation: mean absolute error of a block's answer. Noise is seeded: NOT PRIVATE.",)
    table = Table(f"{RULE} in every block", COLUMNS, tuple(rows), notes)
    return publish(NAME, {"": table}, out, reporter, failures=failures)
