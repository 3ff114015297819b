"""What the paper asked for: the privacy lost by whole hierarchical releases, Algorithm 1 and bottom-up on Taxi.

The less-obvious estimate from the residuals of cumulative counts, level by level, beside sound bounds for the
measurements and for the release itself. Three levels, 31 regions, total epsilon 1, K = 5,000, 100 runs a side.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.data import taxi
from coco_experiments.experiment import Outcome, Reporter, Table, write_csv
from coco_experiments.made import made_counts
from coco_opt.audit.groups import Audit, audit_groups
from coco_opt.audit.neighbours import NeighbourPair, neighbour_pair
from coco_opt.audit.plots import plot_losses
from coco_opt.audit.privacy_loss import CAVEAT
from coco_opt.audit.released import GroupsMechanism
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMethod
from coco_opt.groups.release import Consistency
from coco_opt.privacy import Loss, PureBudget, Query, SeededNoise

NAME = "flaxman2019/releases"
METHODS: dict[str, Consistency] = {"Algorithm 1": "matching", "bottom-up": "bottom_up"}
EPSILON = Fraction(1)
MAX_SIZE, SMALL_MAX_SIZE = 5_000, 100
RUNS, SMALL_RUNS = 100, 5
DRAWS, SMALL_DRAWS = 200_000, 5_000
SEED = 70_000
COLUMNS = (
    "method",
    "what",
    "epsilon claimed",
    "runs a side",
    "estimate from residuals",
    "mean |EPL|",
    "sound lower bound",
    "bound at most the claim",
)


def mechanism_of(consistency: Consistency, levels: int, max_size: int) -> GroupsMechanism:
    """Return a cumulative L1 release at epsilon 1, split evenly, or all on the leaves for bottom-up."""
    leaves = (Fraction(0),) * (levels - 1) + (EPSILON,)
    budget = PureBudget(EPSILON, leaves) if consistency == "bottom_up" else PureBudget.uniform(EPSILON, levels)
    queries: list[Query] = ["cumulative"] * levels
    losses: list[Loss] = ["l1"] * levels
    return GroupsMechanism(
        tuple(queries),
        budget,
        max_size,
        GroupsMethod(tuple(losses), consistency=consistency),
        lambda run: SeededNoise(SEED + run),
        SolverChoices(),
    )


def audits(pair: NeighbourPair, max_size: int, draws: int, runs: int, reporter: Reporter) -> dict[str, Audit]:
    """Return the audit of each method on the same neighbours."""

    def one(name: str, consistency: Consistency) -> Audit:
        return audit_groups(
            pair,
            mechanism_of(consistency, pair.hierarchy.levels, max_size),
            draws=draws,
            runs=runs,
            progress=lambda done, total: reporter.progress(f"{NAME}: {name}", done, total),
        )

    return {name: one(name, consistency) for name, consistency in METHODS.items()}


def table_of(found: dict[str, Audit]) -> Table:
    """Return the table, one row a method and audited thing."""
    rows = []
    for name, audit in found.items():
        for row in audit.rows:
            loss = audit.losses.get(row.what)
            mean = None if loss is None else loss.mean_between(0.0, loss.residual_range)
            bound = None if row.bound is None else row.bound.epsilon
            inside = None if row.bound is None else not row.violated
            rows.append((name, row.what, float(row.claimed), row.runs, row.estimate, mean, bound, inside))
    neighbours = next(iter(found.values())).neighbours
    notes = (
        f"In the column of estimates: {CAVEAT}. Residuals of fitted counts are not identically distributed.",
        "Bounds are sound at 99.9 % each. A hundred runs of a release can show no more than log(0.86 / 0.14) = 1.8, "
        "and only for an event that is nearly sure on one side.",
        f"Neighbours: {neighbours}.",
        "Noise is seeded: NOT PRIVATE.",
    )
    return Table("The privacy lost by whole releases", COLUMNS, tuple(rows), notes)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``flaxman2019/releases`` as CSV, PNG and PDF; small: made data."""
    counts = made_counts(2, 3, 60, SMALL_MAX_SIZE // 4, np.random.default_rng(6)) if small else taxi(data)
    max_size = SMALL_MAX_SIZE if small else MAX_SIZE
    pair = neighbour_pair(counts.histograms(), counts.hierarchy, max_size)
    draws, runs = (SMALL_DRAWS, SMALL_RUNS) if small else (DRAWS, RUNS)
    found = audits(pair, max_size, draws, runs, reporter)
    table = table_of(found)
    reporter.table(table)
    losses = {f"{name}: {what}": loss for name, audit in found.items() for what, loss in audit.losses.items()}
    files = [write_csv(out / f"{NAME}.csv", table), *plot_losses(out / NAME, losses, float(EPSILON))]
    violated = [(name, row) for name, audit in found.items() for row in audit.violated]
    failures = [f"{name}, {row.what}: more privacy lost than claimed" for name, row in violated]
    return Outcome((table,), tuple(files), tuple(failures))
