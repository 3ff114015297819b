"""Oracles for the estimation of tables: least squares over all cells of all regions as one dense matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt import Epsilon, Hierarchy, Measurement, Rho, Schema, SeededNoise
from coco_opt.array_types import Floats, Ints
from coco_opt.operators import Operator
from coco_opt.topdown import Invariant, TableCounts, TableMeasurements, TablesResult, measure_tables, parse_query
from coco_opt.topdown.budget_plan import RegionVariances, Strategy, TablePlan
from coco_opt.topdown.constraint import LinearConstraint, RegionBounds
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


def rows_of(hierarchy: Hierarchy, region: int, query: Operator) -> Floats:
    """Return a region's answers in the cells of all leaves [answers, leaves x cells]."""
    return np.kron(sums_of_leaves(hierarchy, region)[None, :], query.to_sparse().toarray())


def dense_system(measurements: Any) -> tuple[Floats, Floats, Floats]:
    """Return the rows, answers and variances of all noisy answers in the cells of all leaves."""
    hierarchy = measurements.hierarchy
    rows, answers, variances = [], [], []
    for region in range(hierarchy.regions):
        level = int(hierarchy.level[region])
        offset = region - hierarchy.level_start[level]
        for q, query in enumerate(measurements.queries):
            level_answers, variance = measurements.answers[level][q], measurements.region_variances(level, q)[offset]
            if level_answers is not None and np.isfinite(variance):
                rows.append(rows_of(hierarchy, region, query.operator))
                answers.append(level_answers[offset])
                variances.append(np.full(len(rows[-1]), float(variance)))
    return np.concatenate(rows), np.concatenate(answers).astype(float), np.concatenate(variances)


def exact_system(measurements: Any) -> tuple[Floats, Floats]:
    """Return the rows and values of all exact answers in the cells of all leaves."""
    hierarchy, rows, values = measurements.hierarchy, [], []
    for level in range(hierarchy.levels):
        regions = hierarchy.level_range(level)
        constraints = measurements.constraints_of(regions)
        for offset, region in enumerate(regions if constraints is not None else ()):
            exact = constraints.lower[offset] == constraints.upper[offset]
            rows.append(rows_of(hierarchy, region, constraints.operator)[exact])
            values.append(constraints.lower[offset][exact])
    cells = len(hierarchy.leaves) * measurements.queries[0].operator.cells
    return np.concatenate([np.zeros((0, cells)), *rows]), np.concatenate([np.zeros(0), *values])


class DenseSolution:
    """Generalised least squares over all cells of all leaves under all exact answers, as dense matrices.

    Several measurements of the same tables are solved together. ``estimate`` and ``covariance`` are of the cells of
    all leaves; ``unknown`` spans what no answer determines, ``exact`` what exact answers do.
    """

    def __init__(self, *measurements: Any) -> None:
        self.hierarchy = measurements[0].hierarchy
        systems = zip(*map(dense_system, measurements), strict=True)
        rows, answers, variances = (np.concatenate(arrays) for arrays in systems)
        constraints, values = exact_system(measurements[0])
        start, free, self.exact = np.zeros(rows.shape[1]), np.eye(rows.shape[1]), np.zeros((0, rows.shape[1]))
        if len(constraints):
            start = np.linalg.pinv(constraints, rcond=1e-11) @ values
            _, spread, right = np.linalg.svd(np.linalg.qr(constraints, mode="r"))
            rank = int((spread > 1e-9 * spread[0]).sum())
            self.exact, free = right[:rank], right[rank:].T
        scale = np.sqrt(variances)
        basis, triangle = np.linalg.qr(rows @ free / scale[:, None])
        left, spread, right = np.linalg.svd(triangle)
        rank = int((spread > 1e-8).sum())
        within = left[:, :rank].T @ (basis.T @ ((answers - rows @ start) / scale))
        self.estimate = start + free @ (right[:rank].T @ (within / spread[:rank]))
        self.covariance = free @ (right[:rank].T / spread[:rank] ** 2) @ right[:rank] @ free.T
        self.unknown = free @ right[rank:].T

    def rows(self, region: int, query: Operator) -> Floats:
        """Return a region's answers in the leaves' cells."""
        return rows_of(self.hierarchy, region, query)

    def determined(self, rows: Floats) -> NDArray[np.bool_]:
        """Return which combinations of the leaves' cells are determined."""
        return np.abs(rows @ self.unknown).max(axis=1, initial=0.0) < 1e-7

    def variances(self, rows: Floats) -> Floats:
        """Return the variances of combinations of the leaves' cells."""
        return ((rows @ self.covariance) * rows).sum(axis=1)


def check_estimates(
    estimates: Any, dense: DenseSolution, queries: Sequence[Operator], rtol: float = 1e-9, atol: float = 1e-9
) -> None:
    """Assert that what is known, answers, standard errors and covariances are the dense solution's, of slices too."""
    hierarchy = dense.hierarchy
    for level in range(hierarchy.levels):
        for query in queries:
            answers, errors = estimates.answers(query, level), estimates.standard_errors(query, level)
            rows = np.vstack([dense.rows(region, query) for region in hierarchy.level_range(level)])
            determined = dense.determined(rows).reshape(answers.shape)
            np.testing.assert_array_equal(np.isfinite(answers), determined)
            np.testing.assert_array_equal(np.isfinite(errors), determined)
            assert (determined | ~estimates.determines(query, level)).all()
            expected = (rows @ dense.estimate).reshape(answers.shape)
            np.testing.assert_allclose(answers[determined], expected[determined], rtol=1e-10, atol=atol)
            variances = dense.variances(rows).reshape(answers.shape)
            np.testing.assert_allclose(errors[determined] ** 2, variances[determined], rtol=rtol, atol=1e-9)
            np.testing.assert_array_equal(estimates.of_level(level)(query, slice(None)), answers)
            some = slice(len(answers) // 2, None)
            for of, whole in ((estimates.answers, answers), (estimates.standard_errors, errors)):
                np.testing.assert_allclose(of(query, level, some), whole[some], rtol=0, atol=1e-9)
    pairs = (
        np.random.default_rng(1).integers(hierarchy.regions, size=(12, 2)) if hasattr(estimates, "covariance") else ()
    )
    for first, second in np.asarray(pairs).tolist():
        left, right = dense.rows(first, queries[0]), dense.rows(second, queries[-1])
        if dense.determined(np.vstack([left, right])).all():
            covariance = estimates.covariance((first, queries[0]), (second, queries[-1]))
            size = 1e-9 * max(1.0, np.abs(dense.covariance).max())
            np.testing.assert_allclose(covariance, left @ dense.covariance @ right.T, rtol=0, atol=size)


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
        constraints_of=lambda regions: None,
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
