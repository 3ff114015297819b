"""Oracles for the estimation of tables: least squares over all cells of all regions as one dense matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator
from coco_opt.privacy import Epsilon, Measurement, Rho, SeededNoise
from coco_opt.topdown.budget_plan import RegionVariances, Strategy, TablePlan
from coco_opt.topdown.constraint import LinearConstraint, RegionBounds
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.table_queries import TableQueries


def random_hierarchy(rng: np.random.Generator, levels: int, most: int = 3) -> Hierarchy:
    """Return a tree of 1 to ``most`` children a region."""
    parent, above = [-1], [0]
    for _ in range(levels - 1):
        below = []
        for region in above:
            for _ in range(int(rng.integers(1, most + 1))):
                below.append(len(parent))
                parent.append(region)
        above = below
    return Hierarchy.from_parents(parent, [f"r{v}" for v in range(len(parent))])


def sums_of_leaves(hierarchy: Hierarchy, region: int) -> Floats:
    """Return which leaves (leaves,) lie at or below a region."""
    out = np.zeros(len(hierarchy.leaves))
    below = hierarchy.leaf_range(region)
    out[below.start - hierarchy.leaves.start : below.stop - hierarchy.leaves.start] = 1.0
    return out


def dense_system(measurements: Any, regions: Iterable[int] | None = None) -> tuple[Floats, Floats, Floats]:
    """Return the rows, answers and variances of all measurements of some regions in the cells of all leaves."""
    hierarchy = measurements.hierarchy
    rows, answers, variances = [], [], []
    for region in range(hierarchy.regions) if regions is None else regions:
        level = int(hierarchy.level[region])
        inside = sums_of_leaves(hierarchy, region)
        for q, query in enumerate(measurements.queries):
            level_answers = measurements.answers[level][q]
            if level_answers is not None:
                matrix = query.operator.to_sparse().toarray()
                rows.append(np.kron(inside[None, :], matrix))
                answers.append(level_answers[region - hierarchy.level_start[level]])
                variance = measurements.region_variances(level, q)[region - hierarchy.level_start[level]]
                variances.append(np.full(len(matrix), float(variance)))
    return np.concatenate(rows), np.concatenate(answers).astype(float), np.concatenate(variances)


def dense_estimates(measurements: Any) -> tuple[Floats, Floats]:
    """Return the generalised least squares estimate of all leaves' cells (flat) and its covariance."""
    rows, answers, variances = dense_system(measurements)
    normal = rows.T @ (rows / variances[:, None])
    inverse: Floats = np.asarray(np.linalg.pinv(normal, rcond=1e-11, hermitian=True), dtype=np.float64)
    return inverse @ (rows.T @ (answers / variances)), inverse


def noisy(
    rng: np.random.Generator,
    hierarchy: Hierarchy,
    operators: list[Operator],
    variances: list[list[float | None]],
    leaves: Ints | None = None,
) -> Any:
    """Return the parts of measurements that the linear stage reads: noise of any variances, None not asked."""
    cells = operators[0].cells
    truth = rng.integers(0, 20, (len(hierarchy.leaves), cells)) if leaves is None else leaves
    tables = hierarchy.aggregate(truth)

    def answer(level: int, query: int) -> Ints | None:
        variance = variances[level][query]
        if variance is None:
            return None
        regions = hierarchy.level_range(level)
        exact = operators[query].apply(tables[regions.start : regions.stop])
        noise: Ints = np.rint(rng.normal(0, np.sqrt(variance), exact.shape)).astype(np.int64)
        return exact + noise

    return SimpleNamespace(
        hierarchy=hierarchy,
        queries=tuple(SimpleNamespace(name=f"q{k}", operator=operator) for k, operator in enumerate(operators)),
        answers=tuple(tuple(answer(level, q) for q in range(len(operators))) for level in range(hierarchy.levels)),
        variance=lambda level, query: variances[level][query],
        region_variances=lambda level, query: np.full(len(hierarchy.level_range(level)), variances[level][query]),
        by_region={},
    )


def measured(
    seed: int,
    hierarchy: Hierarchy,
    schema: Schema,
    leaves: Ints,
    queries: Sequence[str],
    budget: Fraction | int = 2,
    invariants: Sequence[tuple[str, int]] = (),
    bounds: Sequence[RegionBounds] = (),
    linear: Sequence[LinearConstraint] = (),
) -> Measurement:
    """Return a seeded measurement of leaf tables int64[leaves, cells]: the budget is shared evenly."""
    plan = TablePlan.product(
        Strategy.uniform([parse_query(text, schema) for text in queries]),
        Epsilon(Fraction(budget)),
        hierarchy.levels,
        neighbours="replace" if invariants else "add_remove",
    )
    return measure_tables(
        TableCounts.from_counts(hierarchy, schema, leaves),
        plan,
        source=SeededNoise(seed),
        invariants=[Invariant(parse_query(text, schema), level) for text, level in invariants],
        bounds=bounds,
        linear=linear,
    )


def with_variances(measurement: Measurement, variances: tuple[RegionVariances, ...]) -> Measurement:
    """Return a measurement that states the same answers with variances by region."""
    queries = TableQueries.of(measurement.measurement_plan)
    costs = [list(level) for level in queries.plan.costs]
    for each in variances:
        for place, query in enumerate(queries.plan.queries):
            if query.name in each.stated:
                costs[each.level][place] = Rho(query.sensitivity("replace").l2_squared / (2 * each.least(query.name)))
    plan = TablePlan(queries.plan.queries, tuple(map(tuple, costs)), "replace")
    changed = replace(queries, plan=plan, variances=variances).measurement_plan(measurement.measurement_plan.levels)
    answers = tuple(
        replace(answers, query=query) for answers, query in zip(measurement.answers, changed.queries, strict=True)
    )
    return replace(measurement, measurement_plan=changed, answers=answers, noise="foreign")


def with_answers(measurement: Measurement, tables: Mapping[int, Ints]) -> Measurement:
    """Return a measurement whose first query has other answers int64[regions, answers], by level."""
    answers, first = [], f"table {TableMeasurements.of(measurement).queries[0].name}"
    for level_answers in measurement.answers:
        table = tables.get(level_answers.query.level) if level_answers.query.name == first else None
        answers.append(
            level_answers if table is None else replace(level_answers, stored=np.array(table, np.int64).reshape(-1))
        )
    return replace(measurement, answers=tuple(answers))


def check_tables(measurement: Measurement, result: TablesResult) -> None:
    """Assert what every release promises: whole, nonnegative, adding up, all constraints met."""
    measured, hierarchy = TableMeasurements.of(measurement), measurement.hierarchy
    for level in range(hierarchy.levels):
        regions, tables = hierarchy.level_range(level), result.level(level)
        assert tables.dtype == np.int64
        assert tables.shape == (len(regions), measured.schema.size)
        assert (tables >= 0).all()
        if level:
            above = hierarchy.level_range(level - 1)
            parents = hierarchy.parent[regions.start : regions.stop] - above.start
            sums = np.zeros_like(result.level(level - 1))
            np.add.at(sums, parents, tables)
            np.testing.assert_array_equal(sums, result.level(level - 1))
        constraints = measured.constraints_of(regions)
        assert constraints is None or not constraints.broken_by(tables).any()
