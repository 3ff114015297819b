"""What the paper asked for: the privacy lost by whole releases, Algorithm 1 and bottom-up on Taxi.

The less-obvious estimate from the residuals of cumulative counts, level by level, compared with sound bounds for the
measurements and for the release itself, as ``coco-opt audit`` makes them. Three levels, 31 regions, total epsilon 1,
K = 5,000, 100 runs a side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from coco_experiments.bench.release import write_sizes
from coco_experiments.data import data_file, generated_counts
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.audit import CAVEAT, Audit, PrivacyLoss, audit_release
from coco_opt.cli.audit import noise_of, subject_of
from coco_opt.config import Config, configure
from coco_opt.groups.kind import GROUPS
from coco_opt.releases.planning import planned
from coco_opt.releases.reporter import Silent
from coco_opt.report.losses import plot_losses

METHODS = {"Algorithm 1": ("matching", "uniform"), "bottom-up": ("bottom_up", "leaves")}
"""By name, the consistency and the split of the budget over the levels."""
SEED = 70_000


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """A file of public counts, a method by name, K, and how many draws of answers and whole releases."""

    sizes: Path
    method: str
    max_size: int
    draws: int
    runs: int

    @property
    def config(self) -> Config:
        """Return the configuration that is audited."""
        consistency, split = METHODS[self.method]
        return configure(
            folder=self.sizes.parent,
            data={"sizes": self.sizes.name},
            privacy={"epsilon": "1", "split": split, "noise": "seeded", "seed": SEED},
            groups={"max_size": self.max_size, "query": "cumulative", "loss": "l1", "consistency": consistency},
        )


def measure(setting: Setting, seed: int) -> Audit:
    """Return the audit of a method on public data."""
    config = setting.config
    data = GROUPS.simulated_data(planned(config, Silent()), setting.sizes, 2)
    subject, pair = subject_of(GROUPS, data.plan), GROUPS.neighbours(data)
    return audit_release(subject, pair, noise_of(config, None), draws=setting.draws, runs=setting.runs)


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return both methods on Taxi; small: on simulated data."""
    if small:
        sizes = write_sizes(Path(mkdtemp(), "sizes.csv"), generated_counts(2, 3, 60, 25, np.random.default_rng(6)))
        return seeded(Setting(sizes, method, 100, 5_000, 5) for method in METHODS)
    sizes = data_file("kuo2018/taxi_neighbourhoods.csv", data).resolve()
    return seeded(Setting(sizes, method, 5_000, 200_000, 100) for method in METHODS)


def report(results: Sequence[Runs[Setting, Audit]], path: Path) -> Report:
    """Return one row a method and audited thing; it fails where more is lost than claimed."""
    rows, failures, losses = list[Record](), list[str](), dict[str, PrivacyLoss]()
    audits = {runs.case.method: runs.found[0] for runs in results}
    for name, audit in audits.items():
        losses |= {f"{name}: {what}": loss for what, loss in audit.losses.items()}
        failures += [f"{name}, {row.what}: more privacy lost than claimed" for row in audit.violated]
        for row in audit.rows:
            loss = audit.losses.get(row.what)
            rows.append(
                {
                    "method": name,
                    "what": row.what,
                    "epsilon claimed": float(row.claimed),
                    "runs a side": row.runs,
                    "estimate from residuals": row.estimate,
                    "mean |EPL|": None if loss is None else loss.mean_between(0.0, loss.residual_range),
                    "sound lower bound": None if row.bound is None else row.bound.epsilon,
                    "bound at most the claim": None if row.bound is None else not row.violated,
                }
            )
    notes = (
        f"In the column of estimates: {CAVEAT}. Residuals of fitted counts are not identically distributed.",
        "Bounds are sound at 99.9 % each. A hundred runs of a release can show no more than log(0.86 / 0.14) = 1.8, "
        "and only for an event that is nearly sure on one side.",
        *(f"Neighbours: {audit.neighbours}." for audit in audits.values()),
        "Noise is seeded: NOT PRIVATE.",
    )
    table = Table.of("The privacy lost by whole releases", rows, notes)
    claim = Statement(
        "section 4",
        "it would be interesting to have the empirical loss of whole releases with their post-processing",
        f"{len(rows)} rows of {' and '.join(audits)}, {len(failures)} of them above the budget claimed",
        None,
        "the paper has no figure of it",
    )
    return Report({"": table}, plot_losses(path, losses, 1.0), failures, [claim])


RELEASES = Study("flaxman2019/releases", plan, measure, report)
