"""The posterior of tables where its prior is wrong: on made states it hardly errs more than ``full`` at any level."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from coco_opt import Hierarchy, Schema, SolverChoices, TableCounts, TopdownMethod, estimate_tables, measure_tables
from coco_opt.array_types import Floats, Ints
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.topdown import Strategy, TablePlan, parse_queries
from coco_opt.topdown.estimating.posterior import sampler

SCHEMA = Schema({"race": ["a", "b", "c", "d", "e", "f", "g"]})
COUNTIES, TRACTS, GROUPS, BLOCKS = 5, 5, 4, 20
LEAVES = COUNTIES * TRACTS * GROUPS * BLOCKS
SEEDS = (2032, 2033, 2034)
SPLITS = {"even": None, "leaves": [Fraction(share, 100) for share in (5, 5, 10, 20, 60)]}
SWEEPS = 240


def hierarchy() -> Hierarchy:
    """Return a state of 2,000 blocks on five levels."""
    shape = np.indices((COUNTIES, TRACTS, GROUPS, BLOCKS)).reshape(4, -1).T.tolist()
    return Hierarchy.from_paths([("s", f"c{c}", f"t{t}", f"g{g}", f"b{b}") for c, t, g, b in shape])


def people(case: str) -> Ints:
    """Return the blocks' true tables, which no nested Dirichlet distribution with few concentrations gives."""
    rng = np.random.default_rng(7)
    sizes = np.where(rng.random(LEAVES) < 0.4, 0, rng.geometric(1 / 50, LEAVES))
    if case == "uniform shares":
        return np.full((LEAVES, 7), 6, np.int64)
    if case == "dependent cells":
        # Cells come in pairs of the same number, a pair in half of the blocks, and the last one alone in few.
        pairs = rng.multinomial(sizes // 2, np.full(3, 1 / 3)) * (rng.random((LEAVES, 3)) < 0.5)
        return np.concatenate([pairs, pairs, rng.poisson(0.2, (LEAVES, 1))], axis=1).astype(np.int64)
    tables = rng.multinomial(sizes, [0.3, 0.3, 0.2, 0.1, 0.05, 0.04, 0.01])
    tables[777] = 100_000, 0, 20_000, 0, 0, 0, 30_000  # one huge block
    return tables.astype(np.int64)


def errors(case: str, split: str, seed: int) -> Floats:
    """Return the mean absolute errors of cells [full or posterior, levels]."""
    tree, true = hierarchy(), people(case)
    strategy = Strategy(parse_queries(["detail", "total"], SCHEMA), (Fraction(3, 4), Fraction(1, 4)))
    plan = TablePlan.product(strategy, Epsilon(Fraction(1)), 5, level_shares=SPLITS[split])
    measurement = measure_tables(TableCounts.from_counts(tree, SCHEMA, true), plan, source=SeededNoise(seed))
    every = tree.aggregate(true)
    exact = [every[tree.level_start[level] : tree.level_start[level + 1]] for level in range(5)]
    results = (estimate_tables(measurement, TopdownMethod(name), SolverChoices()) for name in ("full", "posterior"))
    return np.array([[np.abs(result.level(level) - exact[level]).mean() for level in range(5)] for result in results])


@pytest.mark.slow
@pytest.mark.parametrize("split", list(SPLITS))
@pytest.mark.parametrize("case", ["dependent cells", "one huge block", "uniform shares"])
def test_errors_are_hardly_larger_than_those_of_least_squares(
    case: str, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler.SamplerOptions, "affordable", lambda options, moves: (2, SWEEPS, SWEEPS))
    full, posterior = np.moveaxis([errors(case, split, seed) for seed in SEEDS], 1, 0)
    over = posterior - 1.05 * full
    noise = 2.0 * over.std(axis=0, ddof=1) / np.sqrt(len(SEEDS))
    assert (over.mean(axis=0) <= noise).all(), (posterior.mean(axis=0) / full.mean(axis=0)).round(3)
