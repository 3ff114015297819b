"""Data similar to the private data that need no protection: simulated in a plan's public shape, or the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from coco_opt.errors import InputError, Place
from coco_opt.files.group_rows import REGION
from coco_opt.files.inputs import Input
from coco_opt.files.source import names_of
from coco_opt.histograms import Hierarchy
from coco_opt.releases.kind import Plan, SimulatedData
from coco_opt.topdown.kind.plan import TablesDetail, count_records
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.records import PERSON
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.table_queries import TableQueries

SEED = 7  # of the simulated data: the same for the same plan
SIMULATED_PERSONS = 200
"""Simulated persons a leaf, on average."""


@dataclass(frozen=True, slots=True)
class Population:
    """Simulated persons: how many a leaf, on average, and how unequal cells and leaves are.

    Their weights are exponential numbers to the powers ``cells`` and ``leaves``; of the power 0 they are equal. With
    the power 2 about six in ten persons lie in a tenth of the cells.
    """

    persons: int = SIMULATED_PERSONS
    cells: float = 2.0
    leaves: float = 0.0


POPULATION = Population()


def simulated_data_of(plan: Plan, branches: int | Sequence[int] | None = None) -> SimulatedData:
    """Simulate 200 persons a leaf: leaves have similar counts, cells very different counts, as in real populations.

    ``branches`` keeps the first so many children of each region, by level if it is a sequence. Bounds and constraints
    are not used: they describe other people.
    """
    tree, where = plan.measurement_plan.hierarchy, np.arange(plan.measurement_plan.hierarchy.regions)
    if branches is not None:
        tree, where = tree.first_branches(branches)
    detail: TablesDetail = plan.detail
    all_queries = detail.table_queries
    table_queries = TableQueries(tree, all_queries.schema, all_queries.plan, all_queries.invariants)
    ids = [plan.measurement_plan.region_ids[region] for region in where.tolist()]
    simulated_plan = plan.on(
        table_queries.measurement_plan(plan.measurement_plan.levels, ids), TablesDetail(table_queries, detail.workload)
    )
    return SimulatedData(
        simulated_plan,
        generated_tables(tree, all_queries.schema),
        f"simulated persons, {SIMULATED_PERSONS} a leaf{_omission_note(all_queries)}",
    )


def read_simulated_data(plan: Plan, path: Path) -> SimulatedData:
    """Read public records similar to the private records, in the same regions and cells. Raises InputError.

    Columns have the names that [data] states. Where the private records have groups, a file of their name next to
    ``path`` says where these records lie, else the records' own region_id. The private groups are not opened. Bounds
    and constraints are not used: they describe other people.
    """
    detail: TablesDetail = plan.detail
    table_queries = replace(detail.table_queries, bounds=(), linear=(), earlier=())
    measurement_plan = table_queries.measurement_plan(plan.measurement_plan.levels, plan.measurement_plan.region_ids)
    simulated_plan = plan.on(measurement_plan, TablesDetail(table_queries, detail.workload, detail.public))
    data, rows = plan.config.data, plan.config.method.rows_a_person
    # Public data need no ids of persons, unless these have several rows.
    columns = {own: there for own, there in data.columns.items() if own != PERSON or rows is not None}
    records, groups = Input(path, columns), data.neighbour_of(path, "groups")
    _check_placed(plan, records, groups)
    counts = count_records(simulated_plan, records, groups)
    return SimulatedData(
        simulated_plan,
        counts,
        f"the public records {path.name}{_omission_note(detail.table_queries)}",
    )


def _check_placed(plan: Plan, records: Input, groups: Input | None) -> None:
    """Raise InputError (missing-column) for records that state no region and have no groups next to them."""
    listed = getattr(plan.config.data, "groups", None)
    names = names_of(records)
    if groups is None and isinstance(listed, Path) and records.called(names).get(REGION, REGION) not in names:
        message = (
            f"states no region, and next to it there is no {listed.name} with the groups of these public records: put "
            "it there. The configured one is private and is not opened"
        )
        raise InputError("missing-column", message, Place(records.name))


def _omission_note(table_queries: TableQueries) -> str:
    return ", bounds and constraints left out" if table_queries.bounds or table_queries.linear else ""


def generated_tables(
    hierarchy: Hierarchy, schema: Schema, seed: int = SEED, population: Population = POPULATION
) -> TableCounts:
    """Return simulated persons of every leaf."""
    rng = np.random.default_rng(seed)
    leaves, cells = len(hierarchy.leaves), schema.size
    every = population.persons * leaves
    weights = rng.exponential(size=cells) ** population.cells
    sizes = rng.exponential(size=leaves) ** population.leaves if population.leaves else np.ones(leaves)
    where = (
        rng.choice(leaves, size=every, p=sizes / sizes.sum()),
        rng.choice(cells, size=every, p=weights / weights.sum()),
    )
    return TableCounts.from_microdata(hierarchy, schema, *where)
