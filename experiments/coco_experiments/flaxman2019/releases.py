"""What the paper asked for: the privacy lost by whole releases, Algorithm 1 and bottom-up on Taxi, and histograms.

The less-obvious estimate from the residuals of cumulative counts, level by level, compared with sound bounds for the
measurements and for the release itself. Three levels, 31 regions, total epsilon 1, K = 5,000, 100 runs a side. Then
the same for universal histograms of NetTrace and unattributed ones of Social Network (Hay et al. 2010; simulated data
unless the data folder has the originals), fan-out 16, from the residuals of cells, of wider intervals, of ranks.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.data import taxi
from coco_experiments.flaxman2019 import histograms
from coco_experiments.flaxman2019.subjects import audited_groups, groups_pair
from coco_experiments.outcome import Outcome, Reporter, Table, publish
from coco_experiments.simulated import generated_counts
from coco_opt.audit.privacy_loss import CAVEAT, PrivacyLoss
from coco_opt.audit.rows import Audit, audit_release
from coco_opt.groups import GroupsMethod, Query
from coco_opt.groups.estimating.method import Consistency
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.privacy import Cost, Epsilon, SeededNoise
from coco_opt.report.losses import plot_losses

NAME = "flaxman2019/releases"
METHODS: dict[str, Consistency] = {"Algorithm 1": "matching", "bottom-up": "bottom_up"}
EPSILON = Fraction(1)
MAX_SIZE, SMALL_MAX_SIZE = 5_000, 100
RUNS, SMALL_RUNS = 100, 5
DRAWS, SMALL_DRAWS = 200_000, 5_000
SEED = 70_000
HISTOGRAM_SEED = 71_000
TITLE = "The privacy lost by whole releases"
HISTOGRAMS = "The privacy lost by whole universal and unattributed histograms"
HISTOGRAM_NOTES = (
    "H~ and H-bar: residuals show the loss of one count, epsilon / height, and not that a path has as many counts.",
    "S-bar and nonnegative H-bar follow from noisy counts that cost epsilon, so they lose no more; estimates above it "
    "come of residuals that are 0 nearly everywhere.",
)
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


def costs_of(consistency: Consistency, levels: int) -> tuple[Cost, ...]:
    """Return what each level costs at epsilon 1: even shares, or everything on the leaves for bottom-up."""
    total = Epsilon(EPSILON)
    if consistency == "bottom_up":
        return (*(total * 0,) * (levels - 1), total)
    return (total * Fraction(1, levels),) * levels


def audits(counts: PrivateCounts, max_size: int, draws: int, runs: int, reporter: Reporter) -> dict[str, Audit]:
    """Return the audit of each method, of cumulative counts and L1, on the same neighbours."""
    tree = counts.hierarchy
    leaves = [counts.leaf(leaf) for leaf in range(len(tree.leaves))]

    def audit_of(name: str, consistency: Consistency) -> Audit:
        costs = costs_of(consistency, tree.levels)
        queries: list[Query] = ["cumulative"] * tree.levels
        losses: list[Loss] = ["l1"] * tree.levels
        pair, measurement_plan = groups_pair(tree, leaves, queries, costs, max_size)
        method = GroupsMethod(tuple(losses), consistency=consistency)
        return audit_release(
            audited_groups(measurement_plan, method, Epsilon(EPSILON)),
            pair,
            lambda run: SeededNoise(SEED + run),
            draws=draws,
            runs=runs,
            progress=lambda done, total: reporter.progress(f"{NAME}: {name}", done, total),
        )

    return {name: audit_of(name, consistency) for name, consistency in METHODS.items()}


def histogram_audits(
    draws: int, runs: int, reporter: Reporter, *, small: bool, data: Path | None = None
) -> dict[str, Audit]:
    """Return the audit of each estimator of universal and unattributed histograms."""

    def sources(run: int) -> SeededNoise:
        return SeededNoise(HISTOGRAM_SEED + run)

    if small:
        return histograms.small_audits(EPSILON, draws, runs, sources, reporter, NAME)
    return histograms.audits(EPSILON, draws, runs, sources, reporter, NAME, data)


def table_of(audits: dict[str, Audit], title: str = TITLE, remarks: tuple[str, ...] = ()) -> Table:
    """Return the table, one row a method and audited thing."""
    rows = []
    for name, audit in audits.items():
        for row in audit.rows:
            loss = audit.losses.get(row.what)
            mean = None if loss is None else loss.mean_between(0.0, loss.residual_range)
            bound = None if row.bound is None else row.bound.epsilon
            inside = None if row.bound is None else not row.violated
            rows.append((name, row.what, float(row.claimed), row.runs, row.estimate, mean, bound, inside))
    neighbours = dict.fromkeys(audit.neighbours for audit in audits.values())
    notes = (
        f"In the column of estimates: {CAVEAT}. Residuals of fitted counts are not identically distributed.",
        "Bounds are sound at 99.9 % each. A hundred runs of a release can show no more than log(0.86 / 0.14) = 1.8, "
        "and only for an event that is nearly sure on one side.",
        *(f"Neighbours: {what}." for what in neighbours),
        *remarks,
        "Noise is seeded: NOT PRIVATE.",
    )
    return Table(title, COLUMNS, tuple(rows), notes)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``flaxman2019/releases`` as CSV, PNG and PDF (two each); small: simulated data."""
    counts = generated_counts(2, 3, 60, SMALL_MAX_SIZE // 4, np.random.default_rng(6)) if small else taxi(data)
    max_size = SMALL_MAX_SIZE if small else MAX_SIZE
    draws, runs = (SMALL_DRAWS, SMALL_RUNS) if small else (DRAWS, RUNS)
    of_groups = audits(counts, max_size, draws, runs, reporter)
    of_histograms = histogram_audits(draws, runs, reporter, small=small, data=data)
    tables = {"": table_of(of_groups), "_histograms": table_of(of_histograms, HISTOGRAMS, HISTOGRAM_NOTES)}
    files = [
        *plot_losses(out / NAME, losses_of(of_groups), float(EPSILON)),
        *plot_losses(out / f"{NAME}_histograms", losses_of(of_histograms), float(EPSILON), "count (entities)"),
    ]
    violated = [(name, row) for name, audit in {**of_groups, **of_histograms}.items() for row in audit.violated]
    failures = [f"{name}, {row.what}: more privacy lost than claimed" for name, row in violated]
    return publish(NAME, tables, out, reporter, files=files, failures=failures)


def losses_of(audits: dict[str, Audit]) -> dict[str, PrivacyLoss]:
    """Return the curves of the estimates, named by method and part."""
    return {f"{name}: {what}": loss for name, audit in audits.items() for what, loss in audit.losses.items()}
