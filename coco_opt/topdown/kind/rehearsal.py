"""Releases of simulated persons in the same regions, cells and kinds of constraints: their errors, and their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import process_time
from typing import Any

import numpy as np

from coco_opt.activity import Progress, doing
from coco_opt.array_types import Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import InputError
from coco_opt.histograms import Hierarchy
from coco_opt.posterior.chains import MOVES_A_SECOND
from coco_opt.privacy import SeededNoise
from coco_opt.releases.kind import Plan, SimulatedData
from coco_opt.releases.reporter import no_progress
from coco_opt.releases.resource_cost import slowness
from coco_opt.topdown.constraint import LinearConstraint, RegionBounds
from coco_opt.topdown.estimating.estimate import TablesResult, estimate_tables
from coco_opt.topdown.estimating.implied import ImpliedChoice, implied_choice
from coco_opt.topdown.estimating.linear.linear_estimates import DENSE_CELLS
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.posterior.sampler import SamplerOptions
from coco_opt.topdown.feasibility.system import ConstraintSystem
from coco_opt.topdown.invariants import Stated
from coco_opt.topdown.kind.method import TablesMethod
from coco_opt.topdown.kind.plan import TablesDetail
from coco_opt.topdown.kind.simulated_data import POPULATION, SEED, Population, generated_tables
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.rows import integer_matrix
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.table_queries import TableQueries

PERSONS = 10
"""Persons in every cell of a leaf, where answers do not count: no cell is at a bound."""

_REHEARSED = (300, 3_000)  # approximate numbers of regions of the two sub-hierarchies that are rehearsed
_PART = 4  # of the regions of a small hierarchy, a release of which compiles
_FEW = 2  # children of each region where only compiling counts
# Of a rehearsal before a payment: the leaves and their cells at most, the persons in each leaf but one, and from how
# many cells of a table on values are left out.
_FEW_LEAVES, _FEW_CELLS, _FEW_PERSONS, _FEW_TABLE_CELLS = 8, 4_096, 60, 256
_BRIEF = 0.05  # seconds of the chains there, as counted for large data: the fewest sweeps
_LONG = 10.0  # seconds of enforcing implied constraints, above which they are predicted, not rehearsed
# Seconds of the chains of a rehearsal, as counted for large data, at most and over the cells: of few regions these are
# many sweeps, which cost by the cells.
_DRAWN, _DRAWN_BY_CELL = 4.0, 100.0
_MOVES = 1.5e7  # of chains a second of a core
_DRAWN_CELLS = 30_000  # of all regions whose posterior is rehearsed
_CELL_SECONDS = 5e-6  # of a cell of a region, besides the chains: fits, targets, intervals


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedReleases:
    """Releases of simulated persons, their true counts, and the CPU seconds of noise and estimation of all regions.

    ``table_queries`` are those of the regions that were released: all, or of a large hierarchy a part. ``most`` are the
    seconds where the posterior's chains do not converge before their limit, None for other estimations.
    """

    table_queries: TableQueries
    truth: TableCounts
    results: tuple[TablesResult, ...]
    seconds: float
    most: float | None = None


def simulated_releases(
    table_queries: TableQueries,
    method: TopdownMethod,
    solvers: Callable[[], SolverChoices],
    *,
    population: Population = POPULATION,
    runs: int = 1,
    progress: Progress = no_progress,
) -> SimulatedReleases:
    """Release simulated persons ``runs`` times; the seconds are a constant plus a rate for regions.

    For a large hierarchy two sub-hierarchies are released, in which only regions near the root lack children. A first
    release is not timed: it compiles. Where enforcing implied constraints takes long, its time is predicted, and the
    rehearsal keeps bounds on single answers. ``progress`` counts releases.
    """
    extra, implied = 0.0, public_choice(table_queries, method)
    if implied.seconds > _LONG:
        extra, method = slowness() * implied.seconds, replace(method, implied="bounds")
    if method.estimation == "posterior":
        return _drawn_releases(table_queries, method, solvers, population, runs, progress, extra)
    tree = table_queries.hierarchy
    limits = min(_REHEARSED[0], tree.regions // _PART), _REHEARSED[1]
    small, large = (_simulated(table_queries, _branch_limits(tree, regions), population) for regions in limits)
    regions, more = small[0].hierarchy.regions, large[0].hierarchy.regions
    rehearsed(*small, method, solvers(), 0)
    seconds = 0.0
    extrapolates = regions < more < tree.regions
    if extrapolates:
        seconds = rehearsed(*small, method, solvers(), 1)[1]
    results, longer = _rehearsed_times(large, method, solvers, runs, progress)
    if extrapolates:
        total = seconds + max(longer - seconds, 0.0) / (more - regions) * (tree.regions - regions)
    else:
        total = longer * tree.regions / more
    return SimulatedReleases(large[1], large[0], results, extra + total)


def _drawn_releases(
    table_queries: TableQueries,
    method: TopdownMethod,
    solvers: Callable[[], SolverChoices],
    population: Population,
    runs: int,
    progress: Progress,
    extra: float,
) -> SimulatedReleases:
    """Return releases by the posterior of so many regions that they take seconds; chains of few make many sweeps.

    The seconds of further regions are predicted by their cells; chains of all regions take up to their limit.
    """
    tree, cells = table_queries.hierarchy, table_queries.schema.size
    many = min(_REHEARSED[1], _DRAWN_CELLS // cells)
    large = _simulated(table_queries, _branch_limits(tree, many), population)
    first = _simulated(table_queries, [_FEW] * (tree.levels - 1), population)
    if 2 * first[0].hierarchy.regions < large[0].hierarchy.regions:
        rehearsed(*first, replace(method, time=min(_BRIEF, method.time)), solvers(), 0)
    brief = replace(method, time=min(_DRAWN, _DRAWN_BY_CELL / cells, method.time))
    results, seconds = _rehearsed_times(large, brief, solvers, runs, progress)
    further = tree.regions - large[0].hierarchy.regions
    seconds += extra + slowness() * _CELL_SECONDS * cells * further
    most = seconds + _chain_seconds(method.time) - _chain_seconds(brief.time)
    return SimulatedReleases(large[1], large[0], results, seconds, most)


def _chain_seconds(time: float) -> float:
    """Return the seconds of a core that chains take up to the limit of their moves in a ``time``."""
    return slowness() * min(SamplerOptions().moves, MOVES_A_SECOND * time) / _MOVES


def _rehearsed_times(
    part: tuple[TableCounts, TableQueries],
    method: TopdownMethod,
    solvers: Callable[[], SolverChoices],
    runs: int,
    progress: Progress,
) -> tuple[tuple[TablesResult, ...], float]:
    """Return ``runs`` releases of a part, and the median of their CPU seconds."""
    results, times = [], []
    for run in range(runs):
        result, each = rehearsed(*part, method, solvers(), 1 + run)
        results.append(result)
        times.append(each)
        progress(run + 1, runs)
    return tuple(results), float(np.median(times))


def rehearsed(
    private: TableCounts, table_queries: TableQueries, method: TopdownMethod, solvers: SolverChoices, seed: int
) -> tuple[TablesResult, float]:
    """Return the tables of simulated data with seeded noise, and the CPU seconds of noise and estimation."""
    start = process_time()
    measurement = measure_tables(
        private,
        table_queries.plan,
        source=SeededNoise(seed),
        invariants=table_queries.invariants,
        bounds=table_queries.bounds,
        linear=table_queries.linear,
    )
    with doing(f"a release of {private.hierarchy.regions:,} simulated regions") as progress:
        result = estimate_tables(measurement, method, solvers, progress=progress)
    return result, process_time() - start


def public_choice(table_queries: TableQueries, method: TopdownMethod) -> ImpliedChoice:
    """Return how implied constraints will be enforced, as far as public numbers decide it."""
    bounds = (*generated_invariants(table_queries), *table_queries.bounds)
    if not bounds and not table_queries.linear:
        return implied_choice(None, method)
    system = ConstraintSystem.of(table_queries.hierarchy, table_queries.schema, bounds, table_queries.linear)
    return implied_choice(system, method)


def generated_invariants(table_queries: TableQueries) -> tuple[RegionBounds, ...]:
    """Return the declared invariants with answers of uniform simulated tables."""
    hierarchy, schema = table_queries.hierarchy, table_queries.schema
    leaves = hierarchy.aggregate(np.full((len(hierarchy.leaves), 1), PERSONS, np.int64))
    bounds = []
    for invariant in table_queries.invariants:
        regions = hierarchy.level_range(invariant.level)
        cells = invariant.query.operator.apply(np.ones(schema.size, np.int64))
        answers = leaves[regions.start : regions.stop] * cells
        bounds.append(RegionBounds.exact(invariant.query, invariant.level, answers))
    return tuple(bounds)


def _simulated(
    table_queries: TableQueries, branches: Sequence[int], population: Population
) -> tuple[TableCounts, TableQueries]:
    """Return simulated persons of the first branches of each region, and the queries with constraints they meet."""
    tree, where = table_queries.hierarchy.first_branches(branches)
    counts = generated_tables(tree, table_queries.schema, population=population)
    return counts, _met_by(counts, table_queries, where)


def _met_by(counts: TableCounts, table_queries: TableQueries, where: Ints) -> TableQueries:
    """Return the queries of the regions ``where`` of a hierarchy, with constraints that simulated counts meet.

    They are over the schema of the counts, which may have fewer values.
    """
    schema, plan = counts.schema, table_queries.plan
    stated = [_loosened(constraint, table_queries, counts, where) for constraint in table_queries.constraints]
    bounds = tuple(constraint for constraint in stated if isinstance(constraint, RegionBounds))
    linear = tuple(constraint for constraint in stated if isinstance(constraint, LinearConstraint))
    plan = replace(plan, queries=_over(schema, plan.queries))
    invariants = tuple(replace(each, query=_over(schema, [each.query])[0]) for each in table_queries.invariants)
    return TableQueries(counts.hierarchy, schema, plan, invariants, bounds, linear)


def _over(schema: Schema, queries: Sequence[Query]) -> tuple[Query, ...]:
    """Return the same queries over another schema, which has the values that they name."""
    return tuple(
        query if query.operator.cells == schema.size else parse_query(query.text, schema, query.name)
        for query in queries
    )


def _few_values(table_queries: TableQueries, queries: Sequence[Query]) -> Schema:
    """Return a schema with the values that rules, queries and constraints name, and the first of attributes and groups.

    A small schema stays, one of so many cells that linear systems are solved in another way, and one whose texts cannot
    be read with fewer values. Values that nothing names differ for no query: fewer pose the same kinds of problems.
    """
    schema = table_queries.schema
    if not _FEW_TABLE_CELLS < schema.size <= DENSE_CELLS:
        return schema
    stated = [
        *(invariant.query for invariant in table_queries.invariants),
        *(bound.query for bound in table_queries.bounds),
    ]
    queries = [*table_queries.plan.queries, *queries, *stated]
    conditions = [conditions for constraint in table_queries.linear for _, conditions in constraint.terms]
    text = "\n".join((*(query.text for query in queries), *conditions, *schema.structural_zeros))
    few = max(2, int(_FEW_TABLE_CELLS ** (1 / len(schema.names))))
    firsts = {
        (axis, int(k)) for axis, labels in schema.group_labels.values() for k in np.unique(labels, return_index=True)[1]
    }
    attributes = {
        name: [value for k, value in enumerate(values) if k < few or (axis, k) in firsts or value in text]
        for axis, (name, values) in enumerate(schema.attributes.items())
    }
    groupings = {}
    for name, (axis, labels) in schema.group_labels.items():
        grouping = schema.groupings[name]
        group_of = dict(zip(schema.attributes[schema.names[axis]], labels.tolist(), strict=True))
        groups = {
            group: [value for value in attributes[schema.names[axis]] if group_of[value] == number]
            for number, group in enumerate(grouping.groups)
        }
        groupings[name] = replace(grouping, groups=groups)
    try:
        small = Schema(attributes, schema.structural_zeros, groupings)
        _over(small, queries), [constraint.row(small) for constraint in table_queries.linear]
    except InputError:
        return schema
    return small


def small_instance(plan: Plan, method: TablesMethod) -> tuple[SimulatedData, TablesMethod]:
    """Return the first branches of a plan's regions with few persons, and the method with brief chains.

    The last leaf is empty, and most cells are; where there are many levels or cells, upper regions have a single child.
    Queries, noise and constraints stay: the sides of a constraint move to where simulated persons meet them, many
    exactly. Fewer regions and fewer values of an attribute pose the same problems for fewer parents and cells.
    """
    detail: TablesDetail = plan.detail
    own = method.topdown
    schema = _few_values(detail.table_queries, (*own.workload, *own.rounding_order))
    full, cells = detail.table_queries.hierarchy, schema.size
    if len(full.leaves) <= _FEW_LEAVES and len(full.leaves) * cells <= _FEW_CELLS:
        branches = [full.regions] * (full.levels - 1)
    else:
        forks = max(1, int(np.log2(min(_FEW_LEAVES, max(_FEW_CELLS / cells, 1)))))
        branches = [_FEW if level >= full.levels - 1 - forks else 1 for level in range(full.levels - 1)]
    tree, where = full.first_branches(branches)
    rng, leaves = np.random.default_rng(SEED), len(tree.leaves)
    in_leaf = np.repeat(np.arange(max(leaves - 1, 1)), _FEW_PERSONS)
    in_cell = rng.choice(cells, size=in_leaf.size, p=rng.dirichlet(np.full(cells, 0.5)))
    counts = TableCounts.from_microdata(tree, schema, in_leaf, in_cell)
    table_queries = _met_by(counts, detail.table_queries, where)
    ids = [plan.measurement_plan.region_ids[region] for region in where.tolist()]
    measurement_plan = table_queries.measurement_plan(plan.measurement_plan.levels, ids)
    small = plan.on(measurement_plan, TablesDetail(table_queries, _over(schema, detail.workload)))
    time = _BRIEF if own.estimation == "posterior" else own.time
    order = _over(schema, own.rounding_order)
    brief = replace(own, time=time, workload=_over(schema, own.workload), rounding_order=order)
    return SimulatedData(small, counts, "a small simulated instance"), TablesMethod(brief, schema)


def _loosened(constraint: Stated, table_queries: TableQueries, counts: TableCounts, where: np.ndarray) -> Stated:
    """Return a constraint on simulated persons, its sides moved to where these meet it; equal sides stay equal."""
    full, regions = table_queries.hierarchy, counts.hierarchy.level_range(constraint.level)
    places = where[regions.start : regions.stop] - full.level_range(constraint.level).start
    lower, upper = constraint.lower[places], constraint.upper[places]
    query: dict[str, Any] = {}
    if isinstance(constraint, RegionBounds):
        (over,) = _over(counts.schema, [constraint.query])
        labels, answers = set(over.labels()), counts.answers_to(over.operator, regions)
        kept = [number for number, label in enumerate(constraint.query.labels()) if label in labels]
        lower, upper, query = lower[:, kept], upper[:, kept], {"query": over}
    else:
        answers = counts.answers_to(integer_matrix(constraint.row(counts.schema)[None, :]), regions)[:, 0]
    same = lower == upper
    lower = np.where(same, answers, np.minimum(lower, answers))
    upper = np.where(same, answers, np.maximum(upper, answers))
    return replace(constraint, lower=lower, upper=upper, **query)


def _branch_limits(tree: Hierarchy, regions: int) -> list[int]:
    """Return the number of children a region keeps by level, root first, for at most about ``regions`` regions."""
    limits = [tree.regions] * (tree.levels - 1)

    def fits(level: int, most: int) -> bool:
        return tree.first_branches([*limits[:level], most, *limits[level + 1 :]])[0].regions <= regions

    for level in range(len(limits)):
        low, high = 1, tree.regions
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(level, middle) else (low, middle - 1)
        limits[level] = low
        if fits(level, low):
            break
    return limits
