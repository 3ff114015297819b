"""Data similar to the private data that need no protection: simulated in a plan's public shape, or the user's own.

Two neighbouring tables of persons, chosen to make the measured answers differ as much as possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import InputError, Place, ProblemError
from coco_opt.files.column_checks import REGION
from coco_opt.files.inputs import Input
from coco_opt.files.similar_rows import is_release, rows_of_regions, shared_words
from coco_opt.files.source import names_of
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator
from coco_opt.privacy import MeasurementPlan, Pair
from coco_opt.releases.kind import Plan, SimulatedData
from coco_opt.topdown.estimating.estimate import TablesResult
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


def simulated_or_public(plan: Plan, public: Path | None = None, branches: int | None = None) -> SimulatedData:
    """Return simulated persons in the public regions and cells, or the user's public records."""
    return simulated_data_of(plan, branches) if public is None else read_simulated_data(plan, public)


def read_simulated_data(plan: Plan, path: Path) -> SimulatedData:
    """Read public records or a release similar to the private records, in the same cells. Raises InputError.

    Those of regions that the plan has are used, and the words of the result say how many these are.
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
    if is_release(path):
        counts, words = _released_counts(detail, path)
    else:
        records, groups = Input(path, columns), data.neighbour_of(path, "groups")
        _check_placed(plan, records, groups)
        assert detail.public is not None
        records, groups, words = rows_of_regions(records, groups, detail.public.ids)
        counts, words = count_records(simulated_plan, records, groups), f"the public records {path.name}{words}"
    return SimulatedData(simulated_plan, counts, f"{words}{_omission_note(detail.table_queries)}")


def _released_counts(detail: TablesDetail, folder: Path) -> tuple[TableCounts, str]:
    """Return the counts of a release in the regions of a plan that it has, and in words how many these are."""
    from coco_opt.topdown.kind.files import read_tables_release

    release, schema, public = read_tables_release(folder), detail.table_queries.schema, detail.public
    assert public is not None
    if release.schema.attributes != schema.attributes:
        raise InputError("other-release", "has other attributes, or other values of one", Place(folder.name))
    leaf_of, leaves = public.leaf_of, release.hierarchy.leaves
    leaf = np.array([leaf_of.get(str(release.region_ids[region]), -1) for region in leaves], np.int64)
    runs = release.runs.part(leaves.start, leaves.stop)
    places = leaf[runs.owners]
    if not (places >= 0).any():
        raise InputError("unknown-region", "has no person in a region of this release", Place(folder.name))
    cells, counts = runs.cells[places >= 0], runs.counts[places >= 0]
    words = shared_words(public.ids, [release.region_ids[region] for region in leaves])
    known = places[places >= 0]
    return (
        TableCounts.from_microdata(detail.table_queries.hierarchy, schema, known, cells, counts),
        f"the release {folder.name}{words}",
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


_STARTS = 64  # starting cells of a replaced person that are tried


@dataclass(frozen=True, slots=True)
class _Move:
    """A person moves from one cell to another, in a leaf that shares the regions down to ``shared`` with the first."""

    gain: float
    cell: int
    target: int
    shared: int


def neighbouring(counts: TableCounts, table_queries: TableQueries) -> Pair[TableCounts]:
    """Return the pair that noisy answers distinguish best: one person differs, in the leaf with the most persons.

    "add_remove": D' has one person more, in the cell that counts in the most answers, each weighted by how unlikely
    a change of 1 is under its noise. "replace": one person is in another cell, of another leaf where that is possible,
    such that every exact answer stays; D and D' both have one person more than ``counts``. Raises ProblemError where
    exact answers leave no such pair. O(cells x queries x levels), for "replace" times the starting cells tried.
    """
    tree, schema = counts.hierarchy, counts.schema
    people = np.bincount(_leaf_of_run(counts), counts.counts, len(tree.leaves))
    leaf = tree.leaves.start + int(people.argmax())
    if table_queries.plan.neighbours == "add_remove":
        gains = _gains(table_queries)
        cell = int(sum(gains.values(), np.zeros(schema.size)).argmax())
        words = f"one person added in {tree.paths[leaf]!r}, {schema.label(cell)}"
        return Pair(counts, _with_person(counts, leaf, cell), words)
    move = _best_move(table_queries, leaf)
    target_leaf = _leaf_apart(tree, leaf, move.shared)
    words = (
        f"one person in {tree.paths[leaf]!r}, {schema.label(move.cell)} "
        f"replaced by one in {tree.paths[target_leaf]!r}, {schema.label(move.target)}"
    )
    return Pair(_with_person(counts, leaf, move.cell), _with_person(counts, target_leaf, move.target), words)


def cells_by_level(measurement_plan: MeasurementPlan, table: TableCounts | TablesResult) -> Mapping[str, NDArray[Any]]:
    """Return all cells of every level's regions, one region after the other, int64; a person changes one a region."""
    by_level = {}
    for level in range(measurement_plan.hierarchy.levels):
        cells = table.level_tables(level) if isinstance(table, TableCounts) else table.level(level)
        by_level[measurement_plan.levels[level]] = cells.ravel()
    return by_level


def _leaf_of_run(counts: TableCounts) -> Ints:
    return np.repeat(np.arange(counts.offsets.size - 1, dtype=np.int64), np.diff(counts.offsets))


def _with_person(counts: TableCounts, leaf: int, cell: int) -> TableCounts:
    return TableCounts.from_microdata(
        counts.hierarchy,
        counts.schema,
        np.append(_leaf_of_run(counts), leaf - counts.hierarchy.leaves.start),
        np.append(counts.cells, cell),
        np.append(counts.counts, 1),
    )


def _worth(table_queries: TableQueries) -> dict[tuple[int, int], float]:
    """Return, for each measured query, how much less likely its noise makes a change of 1: a log-likelihood."""
    plan = table_queries.plan
    return {pair: -float(plan.distribution(*pair).log_weight(np.ones(1))[0]) for pair in plan.measured_queries}


def _gains(table_queries: TableQueries) -> dict[tuple[int, int], Floats]:
    """Return, for each measured query, the change by one more person in each cell, float64[cells]."""
    queries = table_queries.plan.queries
    return {
        (level, query): queries[query].operator.absolute_columns * worth
        for (level, query), worth in _worth(table_queries).items()
    }


def _best_move(table_queries: TableQueries, leaf: int) -> _Move:
    gains, worth = _gains(table_queries), _worth(table_queries)
    total = sum(gains.values(), np.zeros(table_queries.schema.size))
    starts = np.argsort(-total, kind="stable")[:_STARTS].tolist()
    depths = list(_depths(table_queries.hierarchy, leaf))
    moves = [_move_from(table_queries, cell, shared, gains, worth) for cell in starts for shared in depths]
    best = max(moves, key=lambda move: move.gain, default=_Move(0.0, 0, 0, 0))
    if best.gain <= 0:
        raise ProblemError("no replaced person keeps all exact answers and changes a noisy one: nothing to audit")
    return best


def _depths(tree: Hierarchy, leaf: int) -> Iterator[int]:
    """Yield the levels at which another leaf can branch off from this leaf, and the leaf's own level."""
    for region in reversed(tree.ancestors(leaf)):
        if len(tree.children(region)) > 1:
            yield int(tree.level[region])
    yield tree.levels - 1


def _move_from(
    table_queries: TableQueries,
    cell: int,
    shared: int,
    gains: Mapping[tuple[int, int], Floats],
    worth: Mapping[tuple[int, int], float],
) -> _Move:
    """Return the best move from a cell; its gain is 0 if no move keeps all exact answers."""
    apart = [_distance(query.operator, cell) for query in table_queries.plan.queries]
    gain = np.zeros(table_queries.schema.size)
    for (level, query), change in gains.items():
        gain += change + change[cell] if level > shared else apart[query] * worth[level, query]
    for exact in table_queries.invariants:
        operator = exact.query.operator
        columns = operator.absolute_columns
        unchanged = _distance(operator, cell) == 0
        if exact.level > shared:
            unchanged = (columns == 0) & (columns[cell] == 0)
        gain[~unchanged] = 0.0
    target = int(gain.argmax())
    return _Move(float(gain[target]), cell, target, shared)


def _distance(operator: Operator, cell: int) -> Floats:
    """Return the L1 distance of every cell's column from one cell's, float64[cells]: entries are 0 or 1."""
    unit = np.zeros(operator.cells)
    unit[cell] = 1.0
    columns = operator.absolute_columns
    out: Floats = columns + columns[cell] - 2.0 * operator.adjoint(operator.apply(unit))
    return out


def _leaf_apart(tree: Hierarchy, leaf: int, shared: int) -> int:
    """Return a leaf that shares a leaf's regions down to a level and none below; the leaf itself at its own level."""
    lineage = [*reversed(tree.ancestors(leaf)), leaf]
    if shared == tree.levels - 1:
        return leaf
    sibling = next(child for child in tree.children(lineage[shared]) if child != lineage[shared + 1])
    return tree.leaf_range(sibling).start
