"""``coco-opt audit`` of a release of tables: on made persons in the public regions and cells, or on public records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coco_opt.cli.console import TerminalReporter

if TYPE_CHECKING:
    from coco_opt.audit.groups import Audit
    from coco_opt.config import TablesConfig
    from coco_opt.privacy import NoiseSource
    from coco_opt.runs.tables.plan import TablesPlan
    from coco_opt.topdown.counts import TableCounts

_BRANCHES = 2


@dataclass(frozen=True, slots=True)
class AuditSize:
    """How many noisy answers and whole releases a side, and how sure each bound is."""

    draws: int
    runs: int
    confidence: float


def audit_of_tables(
    settings: TablesConfig,
    public: Path | None,
    noise: Callable[[int], NoiseSource],
    reporter: TerminalReporter,
    size: AuditSize,
) -> tuple[Audit, str]:
    """Return the audit and in words what it ran on; the configuration's private table stays closed.

    Invariants hold on what is audited; public bounds are left out, for other persons need not keep them.
    """
    from coco_opt.audit.table_answers import TablesMechanism
    from coco_opt.audit.table_pairs import table_pair
    from coco_opt.audit.tables import audit_tables
    from coco_opt.choices import SolverChoices
    from coco_opt.runs.plan import stated_delta
    from coco_opt.runs.settings import amount_in
    from coco_opt.runs.tables.plan import plan_tables

    with reporter.stage("Reading the data"):
        plan = plan_tables(settings)
        counts, what = _made(plan) if public is None else _public(plan, public)
    mechanism = TablesMechanism(
        plan.queries,
        amount_in(settings),
        plan.method,
        noise,
        SolverChoices(plan.solvers),
        plan.invariants,
        stated_delta(settings) * (plan.queries.mechanism == "discrete_gaussian"),
    )
    pair = table_pair(counts, plan.queries, plan.invariants)
    with reporter.stage("Releasing") as progress:
        found = audit_tables(
            pair, mechanism, draws=size.draws, runs=size.runs, confidence=size.confidence, progress=progress
        )
    return found, f"{what}, public bounds left out" if plan.bounds else what


def _made(plan: TablesPlan) -> tuple[TableCounts, str]:
    """Return made persons in a few regions of every level: the noise of a region does not depend on the others."""
    from coco_opt.runs.tables.made import first_branches, made_tables

    tree = first_branches(plan.hierarchy, _BRANCHES)
    where = "your public regions"
    if tree.regions < plan.hierarchy.regions:
        where = f"{tree.regions:,} of your {plan.hierarchy.regions:,} public regions"
    return made_tables(tree, plan.schema), f"made persons in {where} (no private table was opened)"


def _public(plan: TablesPlan, records: Path) -> tuple[TableCounts, str]:
    from coco_opt.runs.tables.plan import count_records

    return count_records(plan, records)[0], f"the public records of {records.name}"
