"""Linear estimates with more joint cells than matrices are made for: exact where the truth is public, else the best."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from coco_opt.config import Config
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator, identity, total
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.releases import forecast, release
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.constraint import LinearConstraint, RegionBounds
from coco_opt.topdown.estimating.linear.best_linear import (
    LowRankInformation,
    best_linear,
    is_full,
    low_rank_information,
)
from coco_opt.topdown.estimating.linear.constrained_trees import ConstrainedTrees, constrained_trees
from coco_opt.topdown.estimating.linear.information import joint_cells
from coco_opt.topdown.estimating.linear.query_trees import linear_stage
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema
from tests.topdown.estimation import dense_system, random_hierarchy, sums_of_leaves
from tests.topdown.persons import SEEDED, SEX, bounds, failing, write
from tests.topdown.test_information import ROWS, SOME, Case

AGES = {98: 7, 210: 15, 2016: 144}
TREE = Hierarchy.from_parents([-1, 0, 0, 1, 2, 2], ["land", "n", "s", "n1", "s1", "s2"])
SHARES = {"proportional": (("1/9",) * 3,) * 3, "by level": (("1/6", "0", "1/6"), ("0", "1/9", "2/9"), ("1/9",) * 3)}


def schema_of(cells: int) -> Schema:
    """Return 2 x 7 x some ages."""
    ages = tuple(f"a{age}" for age in range(AGES[cells]))
    return Schema({"sex": ("f", "m"), "race": tuple("abcdefg"), "age": ages})


def exact_measurement(cells: int, shares: str) -> tuple[TableCounts, Measurement]:
    """Return tables and a measurement with an invariant, public exact totals, a public equation, and empty classes."""
    schema, rng = schema_of(cells), np.random.default_rng(cells)
    leaves = rng.poisson(rng.gamma(0.3, 30.0, cells), (3, cells))
    leaves[0, parse_query("race", schema).operator.labels == 2] = 0  # type: ignore[attr-defined]
    counts = TableCounts.from_counts(TREE, schema, leaves)
    race, whole = parse_query("race", schema), parse_query("total", schema)
    none = np.full((3, 7), UNBOUNDED)
    none[0, 2] = 0  # no resident of race c in the first leaf: known to everybody
    people = counts.answers_to(whole.operator, range(1, 3))
    bounds = [RegionBounds(whole, 1, people, people), RegionBounds(race, 2, np.zeros((3, 7), np.int64), none)]
    women = int(leaves[1, parse_query("sex", schema).operator.labels == 0].sum())  # type: ignore[attr-defined]
    linear = [LinearConstraint.of(f"[sex = f] = {women}", TREE, schema, 2, regions=["land/s/s1"], source="public")]
    plan = TablePlan.table(
        [parse_query(text, schema) for text in ("total", "sex * race", "detail")],
        Epsilon(Fraction(3)),
        SHARES[shares],
        "replace",
    )
    declared = [Invariant(parse_query("sex", schema), 0)]
    return counts, measure_tables(
        counts, plan, source=SeededNoise(cells), invariants=declared, bounds=bounds, linear=linear
    )


def rows_of(region: int, query: Operator) -> Any:
    """Return a region's answers in the cells of all leaves."""
    return np.kron(sums_of_leaves(TREE, region)[None, :], query.to_sparse().toarray())


class Dense:
    """Generalised least squares over all cells of all leaves, corrected to all constraints, as dense matrices."""

    def __init__(self, measured: TableMeasurements) -> None:
        rows, answers, variances = dense_system(measured)
        exact, values = [], []
        for region in range(TREE.regions):
            constraints = measured.constraints_of(range(region, region + 1))
            if constraints is not None:
                held = constraints.lower[0] == constraints.upper[0]
                exact.append(rows_of(region, constraints.operator)[held])
                values.append(constraints.lower[0][held])
        matrix, value = np.vstack(exact), np.concatenate(values)
        self.inverse = np.linalg.inv(rows.T @ (rows / variances[:, None]))
        before = self.inverse @ (rows.T @ (answers / variances))
        gain = self.inverse @ matrix.T @ np.linalg.pinv(matrix @ self.inverse @ matrix.T, rcond=1e-10, hermitian=True)
        self.estimate = before + gain @ (value - matrix @ before)
        self.matrix, self.gain = matrix, gain

    def variances(self, rows: Any) -> Any:
        """Return the variances of linear combinations."""
        spread = rows @ self.inverse
        return ((spread - (rows @ self.gain) @ (self.matrix @ self.inverse)) * rows).sum(axis=1)


def check_exact(counts: TableCounts, estimates: Any, query: Operator, level: int, regions: Any, answers: Any) -> None:
    """Assert that some answers of a query are the truth, with standard error 0."""
    truth = counts.answers_to(query, counts.hierarchy.level_range(level))
    at = np.ix_(regions, answers)
    # Rounding of floating point alone, whose size depends on the machine's linear algebra.
    np.testing.assert_allclose(estimates.answers(query, level)[at], truth[at], rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(estimates.standard_errors(query, level)[at], 0.0)


def check_all_exact(counts: TableCounts, estimates: Any) -> None:
    """Assert that everything that ``exact_measurement`` states, and what follows from it, is exact."""
    schema = counts.schema
    whole, sex = (parse_query(text, schema).operator for text in ("total", "sex"))
    check_exact(counts, estimates, sex, 0, [0], [0, 1])
    check_exact(counts, estimates, whole, 0, [0], [0])
    check_exact(counts, estimates, whole, 1, [0, 1], [0])
    check_exact(counts, estimates, whole, 2, [0], [0])  # the only child
    check_exact(counts, estimates, sex, 2, [1], [0])
    check_exact(counts, estimates, parse_query("race", schema).operator, 2, [0], [2])


def check_dense(measured: TableMeasurements, estimates: Any, queries: list[Operator]) -> None:
    """Assert that estimates and standard errors are those of the dense solution."""
    dense = Dense(measured)
    for level in range(TREE.levels):
        for query in queries:
            answers, errors = estimates.answers(query, level), estimates.standard_errors(query, level)
            rows = np.vstack([rows_of(region, query) for region in TREE.level_range(level)])
            np.testing.assert_allclose(answers.ravel(), rows @ dense.estimate, rtol=1e-10, atol=1e-8)
            np.testing.assert_allclose(errors.ravel() ** 2, dense.variances(rows), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("cells", AGES)
def test_whatever_is_public_is_exact_in_the_estimates(cells: int) -> None:
    counts, measurement = exact_measurement(cells, "by level" if cells == 210 else "proportional")
    measured = TableMeasurements.of(measurement)
    assert joint_cells(measured) == cells
    estimates = best_linear(measured)
    assert isinstance(estimates, LowRankInformation)
    assert is_full(estimates)
    check_all_exact(counts, estimates)


@pytest.mark.parametrize("cells", [98, 210, pytest.param(2016, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shares", SHARES)
def test_all_else_is_the_dense_solution(cells: int, shares: str) -> None:
    counts, measurement = exact_measurement(cells, shares)
    measured = TableMeasurements.of(measurement)
    texts = ["total", "sex", "race", "sex * race"] + ["detail"] * (cells < 2016)
    check_dense(measured, best_linear(measured), [parse_query(text, counts.schema).operator for text in texts])


@pytest.mark.parametrize("seed", range(20))
def test_by_directions_estimates_are_those_of_the_dense_solution_whatever_is_open(seed: int) -> None:
    case = Case(seed)
    estimates = low_rank_information(case.measured, 6)
    assert estimates is not None
    for level in range(case.tree.levels):
        for query in (identity(6), ROWS, total(6), SOME):
            answers, errors = estimates.answers(query, level), estimates.standard_errors(query, level)
            np.testing.assert_array_equal(estimates.of_level(level)(query, slice(None)), answers)
            rows = np.vstack([case.rows(region, query) for region in case.tree.level_range(level)])
            determined = case.determined(rows).reshape(answers.shape)
            np.testing.assert_array_equal(np.isfinite(answers), determined)
            np.testing.assert_array_equal(np.isfinite(errors), determined)
            np.testing.assert_array_equal(estimates.determines(query, level), determined.all(axis=0))
            expected = (rows @ case.estimate).reshape(answers.shape)[determined]
            np.testing.assert_allclose(answers[determined], expected, rtol=0, atol=1e-9)
            variances = np.einsum("ki,ij,kj->k", rows, case.covariance, rows).reshape(answers.shape)[determined]
            np.testing.assert_allclose(errors[determined] ** 2, variances, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", [5, 17, 25, 29, 32])
def test_corrected_trees_meet_constraints_and_state_the_errors_that_they_have(seed: int) -> None:
    case = Case(seed)
    measured, tree = case.measured, case.tree
    estimates = constrained_trees(measured)
    assert isinstance(estimates, ConstrainedTrees)
    for level, constraints in case.constraints.items():
        exact = constraints.lower == constraints.upper
        answers = estimates.answers(constraints.operator, level)[exact]
        np.testing.assert_allclose(answers, constraints.lower[exact], rtol=0, atol=1e-9)
        np.testing.assert_array_equal(estimates.standard_errors(constraints.operator, level)[exact], 0.0)
    pairs = [(level, query) for level in range(tree.levels) for query in (identity(6), ROWS, total(6), SOME)]
    stated = [estimates.standard_errors(query, level) for level, query in pairs]
    before = [estimates.answers(query, level) for level, query in pairs]
    changes = []
    for level, query in np.argwhere([[answers is not None for answers in each] for each in measured.answers]).tolist():
        spread = np.sqrt(measured.variance(level, query))
        for place in np.ndindex(measured.answers[level][query].shape):
            other = constrained_trees(one_more(measured, level, query, place))
            after = [other.answers(query, level) for level, query in pairs]
            changes.append([spread * (new - old) for new, old in zip(after, before, strict=True)])
    for number, (level, query) in enumerate(pairs):
        variances = np.sum([(change[number]) ** 2 for change in changes], axis=0)
        known = np.isfinite(stated[number])
        np.testing.assert_array_equal(np.isfinite(variances), known)
        np.testing.assert_array_equal(known.all(axis=0), estimates.determines(query, level))
        np.testing.assert_allclose(stated[number][known] ** 2, variances[known], rtol=1e-8, atol=1e-9)


def one_more(measured: Any, level: int, query: int, place: Any) -> Any:
    """Return measurements of which one noisy answer is larger by 1: estimates are linear in it."""
    answers = [list(each) for each in measured.answers]
    answers[level][query] = answers[level][query].copy()
    answers[level][query][place] += 1
    return SimpleNamespace(**{**vars(measured), "answers": tuple(map(tuple, answers))})


def test_more_exact_rows_than_directions_are_met_by_the_trees() -> None:
    schema, rng = schema_of(98), np.random.default_rng(4)
    counts = TableCounts.from_counts(TREE, schema, rng.poisson(9.0, (3, 98)))
    plan = TablePlan.table(
        [parse_query(text, schema) for text in ("total", "detail")],
        Epsilon(Fraction(3)),
        (("1/6",) * 2,) * 3,
        "replace",
    )
    declared = [Invariant(parse_query("detail", schema), 0), Invariant(parse_query("sex", schema), 1)]
    measured = TableMeasurements.of(measure_tables(counts, plan, source=SeededNoise(4), invariants=declared))
    estimates = best_linear(measured)
    assert isinstance(estimates, ConstrainedTrees)
    assert not is_full(estimates)
    detail, sex = (parse_query(text, schema).operator for text in ("detail", "sex"))
    check_exact(counts, estimates, detail, 0, [0], range(98))
    check_exact(counts, estimates, sex, 1, [0, 1], [0, 1])
    free = linear_stage(measured).standard_errors(detail, 1)
    assert (estimates.standard_errors(detail, 1) < free).all()


def test_estimates_of_some_regions_are_those_of_the_level() -> None:
    rng = np.random.default_rng(3)
    tree, schema = random_hierarchy(rng, 4), schema_of(98)
    counts = TableCounts.from_counts(tree, schema, rng.poisson(5.0, (len(tree.leaves), 98)))
    plan = TablePlan.table(
        [parse_query(text, schema) for text in ("total", "detail")],
        Epsilon(Fraction(4)),
        (("1/8",) * 2,) * 4,
        "replace",
    )
    invariants = [Invariant(parse_query("total", schema), 2)]
    measured = TableMeasurements.of(measure_tables(counts, plan, source=SeededNoise(1), invariants=invariants))
    race = parse_query("race", schema).operator
    for level in range(tree.levels):
        some = slice(len(tree.level_range(level)) // 2, None)
        for each in (best_linear(measured), constrained_trees(measured)):
            for of in (each.answers, each.standard_errors):
                np.testing.assert_allclose(of(race, level, some), of(race, level)[some], rtol=0, atol=1e-9)


AGES_105 = ", ".join(f'"a{age}"' for age in range(35))
OFFICE = f"""attributes = {{ sex = ["female", "male", "other"], age = [{AGES_105}] }}
workload = ["total", "sex", "age", "sex * age"]
strategy = ["total", "sex * age"]
structural_zeros = ["sex = other & age = a0"]
constraints = [{{ holds = "[sex = male & age = a3] = [sex = male & age = a4]", level = "nation", source = "public" }}]
"""


def office(folder: Path, invariant: str) -> Config:
    """Write 4,000 persons of 104 cells in six counties; two counties' totals are public, one county has no "other"."""
    rng = np.random.default_rng(28)
    counties = [f"r{state}{county}" for state in range(2) for county in range(3)]
    lines = [f"{counties[rng.integers(6)]},{SEX[rng.integers(2)]},a{rng.integers(35)}" for _ in range(4000)]
    more = sum(line.endswith("male,a4") - line.endswith("male,a3") for line in lines if "female" not in line)
    lines += [f"{counties[0]},male,a{3 if more > 0 else 4}"] * abs(more)
    known = [(region, sum(line.startswith(region) for line in lines)) for region in ("r00", "r11")]
    rows = [f"land/s{region[1]}/c{region[2]},total,total,{people},{people}" for region, people in known]
    rows.append("land/s0/c1,sex,sex = other,,0")
    topdown = OFFICE + f'invariants = [{{ query = "{invariant}", level = "state" }}]\n'
    records = "\n".join(["region_id,sex,age", *lines]) + "\n"
    privacy = SEEDED + 'neighbours = "replace"\n'
    return write(folder, privacy=privacy, topdown=topdown, persons=records, data=bounds(folder, *rows))


@pytest.mark.parametrize("invariant", ["total", "sex * age"])
def test_what_an_office_publishes_exactly_is_exact_in_its_estimates_and_plan(tmp_path: Path, invariant: str) -> None:
    config = office(tmp_path, invariant)
    predictions = forecast(config).as_dict()["predictions"]
    folder = release(config, tmp_path / "out").folder
    frame = pq.read_table(folder / "estimates.parquet").to_pandas()
    totals = frame[frame["query"] == "total"].set_index("region")
    tables = pq.read_table(folder / "tables.parquet").to_pandas().groupby("region").persons.sum()
    exact = ["land", "land/s0", "land/s1", "land/s0/c0", "land/s1/c1"]
    np.testing.assert_array_equal(totals.estimate[exact], tables[exact])
    np.testing.assert_array_equal(totals.standard_error[exact], 0.0)
    nobody = frame[(frame.region == "land/s0/c1") & (frame.answer == "sex = other")]
    assert (nobody.estimate == 0.0).all() & (nobody.standard_error == 0.0).all()
    means = (frame.standard_error**2).groupby([frame.level_name, frame["query"]]).mean() ** 0.5
    for prediction in predictions:
        stated = means[prediction["level"], prediction["query"]]
        assert prediction["standard_error"] == pytest.approx(stated, rel=1e-9, abs=1e-12)
    assert failing(folder) == []
