"""Linear estimates of every kind against generalised least squares over all cells of all regions, as dense matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coco_opt import Epsilon, Hierarchy, Measurement, Schema, SeededNoise, TableCounts, TablePlan, measure_tables
from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.operators import Grouping, Kronecker, Operator, identity, total
from coco_opt.topdown import Constraints, FullInformation, Invariant, TableMeasurements, linear_estimates
from coco_opt.topdown.constraint import UNBOUNDED, LinearConstraint, RegionBounds
from coco_opt.topdown.estimating.linear.best_linear import best_linear, is_full, low_rank_information, trees_are_best
from coco_opt.topdown.estimating.linear.constrained_trees import ConstrainedTrees, constrained_trees
from coco_opt.topdown.estimating.linear.linear_estimates import NormalEquations
from coco_opt.topdown.estimating.linear.query_trees import linear_stage
from coco_opt.topdown.queries import Query, parse_queries, parse_query
from tests.topdown.estimation import DenseSolution, check_estimates, noisy, random_hierarchy

ROWS = Grouping(np.array([0, 0, 1, 1, 2, 2]), 3)
COLUMNS = Grouping(np.array([0, 1, 0, 1, 0, 1]), 2)
SOME = Grouping(np.array([0, -1, -1, 1, 1, 1]), 2)
OVERLAPPING = Kronecker((np.tri(3), np.ones((1, 2))))
QUERIES: tuple[Operator, ...] = (identity(6), ROWS, COLUMNS, total(6), OVERLAPPING)
WANTED: tuple[Operator, ...] = (total(6), identity(6), SOME, ROWS)
STRATEGIES: dict[str, list[Operator]] = {
    "identity": [identity(6)],
    "identity and total": [identity(6), total(6)],
    "identity and margins": [identity(6), ROWS, COLUMNS],
    "margins alone": [ROWS, COLUMNS, total(6)],
}
OTHER_PROPORTIONS: list[list[float | None]] = [[1.0, 2.0, None], [4.0, 1.0, 1.0], [9.0, None, 1.0]]


class Case:
    """A random plan with shares by level, random exact answers and a ragged tree, and its dense solution."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        levels = int(rng.integers(1, 5))
        self.tree = random_hierarchy(rng, levels, 3 if levels < 4 else 2)
        operators = [QUERIES[0], *(QUERIES[number] for number in rng.permutation([1, 2, 3, 4])[: int(rng.integers(4))])]
        variances: list[list[float | None]] = [
            [float(10 ** rng.uniform(-1, 2)) if rng.random() < 0.7 else None for _ in operators] for _ in range(levels)
        ]
        variances[-1][0] = 1.0  # every region's table is determined
        truth = rng.integers(0, 20, (len(self.tree.leaves), 6))
        self.measured = noisy(rng, self.tree, operators, variances, truth)
        tables, self.constraints = self.tree.aggregate(truth), {}
        for level in range(levels):
            if rng.random() < 0.4:
                regions, query = self.tree.level_range(level), (ROWS, COLUMNS, total(6), SOME)[int(rng.integers(4))]
                exact = query.apply(tables[regions.start : regions.stop])
                public = np.ones(exact.shape, np.bool_) if rng.random() < 0.5 else rng.random(exact.shape) < 0.6
                sides = np.where(public, exact, 0), np.where(public, exact, UNBOUNDED)
                self.constraints[level] = Constraints(query, *sides, ("",) * query.answers)
        self.measured.constraints_of = lambda regions: self.constraints.get(int(self.tree.level[regions.start]))
        self.dense = DenseSolution(self.measured)


@pytest.mark.parametrize("seed", range(40))
def test_full_information_is_the_dense_solution(seed: int) -> None:
    case = Case(seed)
    check_estimates(best_linear(case.measured, full=True), case.dense, WANTED)


@pytest.mark.parametrize("seed", range(30))
def test_unions_of_regions_are_those_of_the_dense_solution(seed: int) -> None:
    case, rng = Case(seed), np.random.default_rng(seed)
    information, tree, dense = best_linear(case.measured, full=True), case.tree, case.dense
    for _ in range(4):
        regions: list[int] = []
        for region in rng.permutation(tree.regions).tolist():
            lines = [{chosen, *tree.ancestors(chosen)} for chosen in regions]
            if len(regions) < 4 and not any(region in line for line in lines):
                regions += [] if any(chosen in tree.ancestors(region) for chosen in regions) else [region]
        rows = np.sum([dense.rows(region, ROWS) for region in regions], axis=0)
        if dense.determined(rows).all():
            estimate, covariance = information.union(ROWS, regions)
            np.testing.assert_allclose(estimate, rows @ dense.estimate, atol=1e-9)
            np.testing.assert_allclose(covariance, rows @ dense.covariance @ rows.T, atol=1e-9)
        else:
            with pytest.raises(ProblemError, match="does not determine"):
                information.union(ROWS, regions)


@pytest.mark.parametrize("seed", range(20))
def test_by_directions_estimates_are_the_dense_solution_whatever_is_open(seed: int) -> None:
    case = Case(seed)
    estimates = low_rank_information(case.measured, 6)
    assert estimates is not None
    check_estimates(estimates, case.dense, WANTED)
    for level in range(case.tree.levels):
        for query in WANTED:
            known = np.isfinite(estimates.answers(query, level)).all(axis=0)
            np.testing.assert_array_equal(estimates.determines(query, level), known)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(4))
def test_trees_are_the_dense_solution_in_one_proportion(strategy: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    operators, levels = STRATEGIES[strategy], 2 + seed % 2
    shares, variances = rng.uniform(0.5, 3.0, len(operators)), list[list[float | None]]()
    for level in range(levels):
        unmeasured = seed >= 2 and (level + int(rng.integers(2))) % 2 == 1 and level < levels - 1
        scale = rng.uniform(0.5, 5.0)
        variances.append([None if unmeasured else float(scale * share) for share in shares])
    measured = noisy(rng, random_hierarchy(rng, levels), operators, variances)
    check_estimates(linear_stage(measured), DenseSolution(measured), [*operators, total(6), identity(6)], rtol=1e-8)


@pytest.mark.parametrize(
    ("variances", "alike"),
    [([[1.0, 2.0], [3.0, 6.0], [0.5, 1.0]], True), ([[1.0, 2.0], [3.0, 1.0], [0.5, 1.0]], False)],
)
def test_trees_are_taken_where_they_are_best(variances: list[list[float | None]], alike: bool) -> None:
    rng = np.random.default_rng(1)
    measured = noisy(rng, random_hierarchy(rng, 3), [identity(6), ROWS], variances)
    assert trees_are_best(measured) == alike
    estimates = best_linear(measured)
    assert is_full(estimates) != alike
    check_estimates(estimates, DenseSolution(measured), [ROWS, COLUMNS])


def one_more(measured: Any, level: int, query: int, place: Any) -> Any:
    """Return measurements of which one noisy answer is larger by 1: estimates are linear in it."""
    answers = [list(of_level) for of_level in measured.answers]
    answers[level][query] = answers[level][query].copy()
    answers[level][query][place] += 1
    return SimpleNamespace(**{**vars(measured), "answers": tuple(map(tuple, answers))})


def check_own_errors(estimator: Callable[[Any], Any], measured: Any) -> None:
    """Assert that stated errors are those that estimates have: their change by each answer, squared and added up."""
    estimates, levels = estimator(measured), measured.hierarchy.levels
    pairs = [(level, query) for level in range(levels) for query in WANTED]
    before, changes = [estimates.answers(query, level) for level, query in pairs], list[list[Floats]]()
    for level, query in np.argwhere([[answers is not None for answers in row] for row in measured.answers]).tolist():
        spread = np.sqrt(measured.variance(level, query))
        for place in np.ndindex(measured.answers[level][query].shape):
            other = estimator(one_more(measured, level, query, place))
            after = [other.answers(wanted, level) for level, wanted in pairs]
            changes.append([spread * (new - old) for new, old in zip(after, before, strict=True)])
    for number, (level, query) in enumerate(pairs):
        errors = estimates.standard_errors(query, level)
        variances, known = np.sum([change[number] ** 2 for change in changes], axis=0), np.isfinite(errors)
        np.testing.assert_array_equal(np.isfinite(variances), known)
        np.testing.assert_array_equal(known.all(axis=0), estimates.determines(query, level))
        np.testing.assert_allclose(errors[known] ** 2, variances[known], rtol=1e-8, atol=1e-9)


def test_trees_in_other_proportions_are_unbiased_and_state_the_errors_that_they_have() -> None:
    rng = np.random.default_rng(2)
    operators, tree = STRATEGIES["identity and margins"], random_hierarchy(rng, 3)
    truth = rng.integers(0, 9, (len(tree.leaves), 6))
    measured = noisy(rng, tree, operators, OTHER_PROPORTIONS, truth)
    check_own_errors(linear_stage, measured)
    best = DenseSolution(measured).variances(np.eye(6 * len(tree.leaves)))
    assert (linear_stage(measured).standard_errors(identity(6), 2).ravel() ** 2 >= best - 1e-12).all()
    tables = [tree.aggregate(truth)[tree.level_range(level).start : tree.level_range(level).stop] for level in range(3)]
    measured.answers = tuple(
        tuple(
            None if answers is None else operator.apply(table) for answers, operator in zip(row, operators, strict=True)
        )
        for row, table in zip(measured.answers, tables, strict=True)
    )
    for level, table in enumerate(tables):
        np.testing.assert_allclose(linear_stage(measured).tables(level), table, atol=1e-9)


@pytest.mark.parametrize("seed", [2, 5, 7, 13, 18])
def test_corrected_trees_meet_constraints_and_state_the_errors_that_they_have(seed: int) -> None:
    case = Case(seed)
    estimates = constrained_trees(case.measured)
    assert isinstance(estimates, ConstrainedTrees)
    for level, constraints in case.constraints.items():
        exact = constraints.lower == constraints.upper
        answers = estimates.answers(constraints.operator, level)[exact]
        np.testing.assert_allclose(answers, constraints.lower[exact], rtol=0, atol=1e-9)
        np.testing.assert_array_equal(estimates.standard_errors(constraints.operator, level)[exact], 0.0)
    check_own_errors(constrained_trees, case.measured)


def test_exact_answers_are_refused_as_measurements() -> None:
    rng = np.random.default_rng(0)
    measurements = noisy(rng, random_hierarchy(rng, 2), [ROWS], [[1.0], [1.0]])
    measurements.variance = lambda level, query: 0.0
    with pytest.raises(ProblemError, match=r"'q0' at level 0 .* an exact answer is an invariant"):
        linear_stage(measurements)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_normal_equations_agree_dense_and_by_conjugate_gradients(strategy: str) -> None:
    rng = np.random.default_rng(1)
    operators = STRATEGIES[strategy]
    weights = rng.uniform(0.2, 1.0, len(operators))
    dense = NormalEquations(operators, weights)
    sparse = NormalEquations(operators, weights, dense_cells=0)
    assert dense.solve(np.empty((0, dense.cells))).shape == sparse.solve(np.empty((0, dense.cells))).shape
    right = dense.apply(rng.normal(size=(3, 6)))
    np.testing.assert_allclose(dense.solve(right), sparse.solve(right), atol=1e-9)
    matrix = sum(w * (q.to_sparse().T @ q.to_sparse()).toarray() for w, q in zip(weights, operators, strict=True))
    np.testing.assert_allclose(dense.solve(right), right @ np.linalg.pinv(matrix, rcond=1e-12), atol=1e-9)
    for query in (identity(6), ROWS, total(6)):
        np.testing.assert_array_equal(dense.determines(query), sparse.determines(query))


# Whatever is public is exact, with more joint cells than matrices are made for too ---------------------------------

AGES = {6: 1, 98: 7, 210: 15, 2016: 144}
TREE = Hierarchy.from_parents([-1, 0, 0, 1, 2, 2], ["land", "n", "s", "n1", "s1", "s2"])
SHARES = {"proportional": (("1/9",) * 3,) * 3, "by level": (("1/6", "0", "1/6"), ("0", "1/9", "2/9"), ("1/9",) * 3)}


def schema_of(cells: int) -> Schema:
    """Return two sexes, some races and ages."""
    races = tuple("abcdefg"[: min(7, cells // 2)])
    return Schema({"sex": ("f", "m"), "race": races, "age": tuple(f"a{age}" for age in range(AGES[cells]))})


def plan_by_table(queries: Sequence[Query], shares: Sequence[Sequence[str]]) -> TablePlan:
    """Return a plan of epsilon 3 with a share for each level and query."""
    costs = tuple(tuple(Epsilon(3 * Fraction(share)) for share in of_level) for of_level in shares)
    return TablePlan(tuple(queries), costs, "replace")


def exact_measurement(cells: int, shares: str) -> tuple[TableCounts, Measurement]:
    """Return tables and a measurement with an invariant, public exact totals, a public equation, and empty classes."""
    schema, rng = schema_of(cells), np.random.default_rng(cells)
    leaves = rng.poisson(rng.gamma(0.3, 30.0, cells), (3, cells))
    race, persons = parse_query("race", schema), parse_query("total", schema)
    leaves[0, race.operator.labels == 2] = 0  # type: ignore[attr-defined]
    counts = TableCounts.from_counts(TREE, schema, leaves)
    none = np.full((3, race.answers), UNBOUNDED)
    none[0, 2] = 0  # no resident of race c in the first leaf: known to everybody
    people = counts.answers_to(persons.operator, range(1, 3))
    bounds = [RegionBounds(persons, 1, people, people), RegionBounds(race, 2, np.zeros_like(none), none)]
    women = int(leaves[1, parse_query("sex", schema).operator.labels == 0].sum())  # type: ignore[attr-defined]
    linear = [LinearConstraint.of(f"[sex = f] = {women}", TREE, schema, 2, regions=["land/s/s1"], source="public")]
    queries = [parse_query(text, schema) for text in ("total", "sex * race", "detail")]
    plan = plan_by_table(queries, SHARES[shares])
    declared, source = [Invariant(parse_query("sex", schema), 0)], SeededNoise(cells)
    return counts, measure_tables(counts, plan, source=source, invariants=declared, bounds=bounds, linear=linear)


def check_exact(counts: TableCounts, estimates: Any, query: Operator, level: int, regions: Any, answers: Any) -> None:
    """Assert that some answers of a query are the truth, with standard error 0."""
    truth = counts.answers_to(query, counts.hierarchy.level_range(level))
    chosen = np.ix_(regions, answers)
    # Rounding of floating point alone, whose size depends on the machine's linear algebra.
    np.testing.assert_allclose(estimates.answers(query, level)[chosen], truth[chosen], rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(estimates.standard_errors(query, level)[chosen], 0.0)


@pytest.mark.parametrize("cells", AGES)
def test_whatever_is_public_is_exact_in_the_estimates(cells: int) -> None:
    counts, measurement = exact_measurement(cells, "by level" if cells in (6, 210) else "proportional")
    measured = TableMeasurements.of(measurement)
    estimates = best_linear(measured)
    assert is_full(estimates)
    persons, sex, race = (parse_query(text, counts.schema).operator for text in ("total", "sex", "race"))
    check_exact(counts, estimates, sex, 0, [0], [0, 1])
    check_exact(counts, estimates, persons, 0, [0], [0])
    check_exact(counts, estimates, persons, 1, [0, 1], [0])
    check_exact(counts, estimates, persons, 2, [0], [0])  # the only child
    check_exact(counts, estimates, sex, 2, [1], [0])
    check_exact(counts, estimates, race, 2, [0], [2])


@pytest.mark.parametrize("cells", [6, 98, 210])
@pytest.mark.parametrize("shares", SHARES)
def test_all_else_is_the_dense_solution(cells: int, shares: str) -> None:
    counts, measurement = exact_measurement(cells, shares)
    measured = TableMeasurements.of(measurement)
    queries = parse_queries(["total", "sex", "race", "sex * race", "detail"], counts.schema)
    operators = [query.operator for query in queries]
    check_estimates(best_linear(measured), DenseSolution(measured), operators, rtol=1e-8, atol=1e-8)


def test_more_exact_rows_than_directions_are_met_by_the_trees() -> None:
    schema, rng = schema_of(98), np.random.default_rng(4)
    counts = TableCounts.from_counts(TREE, schema, rng.poisson(9.0, (3, 98)))
    queries = parse_queries(["total", "detail"], schema)
    plan = plan_by_table(queries, (("1/6",) * 2,) * 3)
    declared = [Invariant(parse_query("detail", schema), 0), Invariant(parse_query("sex", schema), 1)]
    measured = TableMeasurements.of(measure_tables(counts, plan, source=SeededNoise(4), invariants=declared))
    estimates = best_linear(measured)
    assert isinstance(estimates, ConstrainedTrees)
    assert not is_full(estimates)
    detail, sex = (parse_query(text, schema).operator for text in ("detail", "sex"))
    check_exact(counts, estimates, detail, 0, [0], range(98))
    check_exact(counts, estimates, sex, 1, [0, 1], [0, 1])
    assert (estimates.standard_errors(detail, 1) < linear_stage(measured).standard_errors(detail, 1)).all()


def people(seed: int) -> tuple[Hierarchy, TablePlan, TableCounts]:
    """Return a ragged tree, a plan whose levels share their parts differently over queries, and private tables."""
    rng = np.random.default_rng(seed)
    tree, schema = random_hierarchy(rng, 3, 3), Schema({"race": ("a", "b", "c"), "age": ("minor", "adult")})
    shares = (("1/10", "1/10", "1/10"), ("1/5", "0", "1/10"), ("1/20", "1/4", "1/10"))
    plan = plan_by_table(parse_queries(["total", "race", "detail"], schema), shares)
    return tree, plan, TableCounts.from_counts(tree, schema, rng.poisson(40.0, (len(tree.leaves), 6)))


def test_unions_of_the_same_or_nested_regions_are_refused() -> None:
    _, plan, counts = people(4)
    estimates = linear_estimates(measure_tables(counts, plan, source=SeededNoise(1)), full=True)
    assert isinstance(estimates, FullInformation)
    for regions in ([1, 1], [0, 1]):
        with pytest.raises(ProblemError, match="none inside another"):
            estimates.union(total(6), regions)
    with pytest.raises(ProblemError, match="between 0 and 1"):
        estimates.interval(total(6), [1], 1.0)
    low, high = estimates.interval(total(6), [1, 2], 0.9)
    assert low < estimates.union(total(6), [1, 2])[0] < high
