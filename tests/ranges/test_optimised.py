"""Workloads, the least error of any strategy, and trees whose fan-outs and shares have the least expected error."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from coco_opt import Config, estimate, forecast, measure, parse_config, read_ranges_release, release, verify_release
from coco_opt.errors import ConfigError, ProblemError
from coco_opt.estimators import estimator_rows
from coco_opt.privacy import NEIGHBOURS, Cost, Epsilon, Neighbours, Rho, SeededNoise
from coco_opt.ranges import DomainTree, UniversalHistogram, choose_fan_out, measure_ranges, optimised_tree
from coco_opt.ranges.interval_counts import Precision, noise_of
from coco_opt.ranges.kind import RANGES
from coco_opt.ranges.workload import Workload, over_bound, unit_variance
from tests.ranges.test_kind import TEXT

EPSILON, RHO = Epsilon(Fraction(1, 10)), Rho(Fraction(1, 100))

ESTIMATORS = tuple(row.name for row in estimator_rows("ranges"))
COSTS = pytest.mark.parametrize("cost", [EPSILON, RHO], ids=str)
SHARES = tuple(map(Fraction, ("1/10", "3/10", "1/5", "2/5")))
LISTS = (([0, 2, 5], [1, 5, 12]), ([3, 3, 4], [7, 7, 9]), ([0], [12]))


def dense(workload: Workload) -> np.ndarray:
    """Return the workload as a matrix (k, cells)."""
    n = workload.cells
    pairs: Any = zip(workload.begin, workload.end, strict=True)
    if workload.name == "ranges":
        pairs = [(i, j) for i in range(n) for j in range(i + 1, n + 1)]
    return np.array([[i <= cell < j for cell in range(n)] for i, j in pairs], dtype=np.float64)


def counted(domain: DomainTree) -> np.ndarray:
    """Return the matrix of the counts of all intervals (nodes, cells)."""
    return np.array([domain.counts(unit) for unit in np.eye(domain.cells, dtype=np.int64)], dtype=np.float64).T


def workloads(cells: int) -> list[Workload]:
    named = [Workload.of(cells, name) for name in ("ranges", "prefixes")]
    return [*named, *(Workload.of(cells, asked) for asked in LISTS if cells == 12)]


@pytest.mark.parametrize("cells", [1, 2, 7, 12])
def test_workloads_are_those_of_their_matrices(cells: int) -> None:
    for workload in workloads(cells):
        matrix = dense(workload)
        assert len(matrix) == workload.size
        for width in (1, 2, 5, cells):
            blocks = [matrix[:, begin : begin + width].sum(axis=1) for begin in range(0, cells, width)]
            assert workload.overlaps(width) == pytest.approx(float((np.array(blocks) ** 2).sum()))
        values = workload.singular_values()
        assert values is not None
        columns = np.unique(matrix[:, matrix.any(axis=0)], axis=1)
        expected = np.linalg.svd(columns, compute_uv=False)
        np.testing.assert_allclose(values[: expected.size], expected, atol=1e-7)
        assert values.size == columns.shape[1]


@COSTS
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize(
    ("fan_out", "shares"), [(3, None), (None, None), ((3, 2, 2), None), ((3, 2, 2), SHARES), (3, SHARES)]
)
def test_predicted_errors_are_those_of_dense_least_squares(
    fan_out: Any, shares: Any, neighbours: Neighbours, cost: Cost
) -> None:
    domain = DomainTree(12, fan_out, shares=shares)
    precision = Precision(domain, noise_of(domain, cost, neighbours))
    weights = 1 / precision.counts
    covariance = np.linalg.inv(counted(domain).T @ (weights[:, None] * counted(domain)))
    for workload in workloads(12):
        matrix = dense(workload)
        expected = np.einsum("ij,jk,ik->", matrix, covariance, matrix) / workload.size
        assert workload.variance(precision) == pytest.approx(expected, rel=1e-9)
        over = over_bound(domain, workload, cost, neighbours)
        if neighbours == "replace" and workload.size == 1:
            assert over is None  # the total of all cells never changes
        else:
            assert over is not None
            assert over > 0.999


@COSTS
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_no_strategy_is_below_the_bound(neighbours: Neighbours, cost: Cost) -> None:
    rng = np.random.default_rng(8)
    matrix, least = dense(Workload.of(6)), Workload.of(6).least_variance(cost, neighbours)
    assert least is not None
    for _ in range(200):
        strategy = rng.normal(size=(9, 6)) * rng.choice([0.1, 1.0], size=(9, 1)) + rng.normal(size=(9, 1))
        order = 1 if cost == EPSILON else 2
        columns = [strategy[:, [i]] - (strategy if neighbours == "replace" else 0.0) for i in range(6)]
        sensitivity = max(float(np.linalg.norm(column, ord=order, axis=0).max()) for column in columns)
        variance = unit_variance(cost) * sensitivity**2
        error = variance * float(((matrix @ np.linalg.pinv(strategy)) ** 2).sum()) / len(matrix)
        assert error >= least * (1 - 1e-9)


def chains(cells: int) -> list[tuple[int, ...]]:
    """Return all sequences of widths that lead from all cells to one, each a divisor of the one above."""
    if cells == 1:
        return [(1,)]
    divisors = [width for width in range(1, cells) if cells % width == 0]
    return [(cells, *rest) for width in divisors for rest in chains(width)]


@COSTS
def test_the_optimised_tree_is_the_best_of_all_trees(cost: Cost) -> None:
    workload = Workload.of(12)
    tree = optimised_tree(workload, cost)
    error = workload.variance(Precision(own := DomainTree(12, tree.fan_out, shares=tree.shares), noise_of(own, cost)))
    best = min(_best_error(widths, workload, cost) for widths in chains(12))
    assert error < 1.02 * best  # shares are thousandths, and the root and the cells are always measured
    assert best * (1 - 1e-3) < error  # the variance of integer noise is a little less


@COSTS
def test_a_tree_for_nonnegative_estimates_measures_the_whole_domain(cost: Cost) -> None:
    workload = Workload.of(1_024)
    free, bound = (optimised_tree(workload, cost, nonnegative=nonnegative) for nonnegative in (False, True))
    assert bound.shares is not None
    share = Fraction(2, 3) / len(bound.shares)
    assert bound.shares[0] > share - Fraction(1, 1_000)
    assert free.shares is not None
    assert free.shares[0] < share
    over = [over_bound(DomainTree(1_024, tree.fan_out, shares=tree.shares), workload, cost) for tree in (free, bound)]
    assert over[0] is not None
    assert over[1] is not None
    assert over[0] < over[1] < 1.2 * over[0]


def _best_error(widths: tuple[int, ...], workload: Workload, cost: Cost) -> float:
    """Return the least error of the shares of one tree, by a general optimiser and dense matrices."""
    nodes = counted(DomainTree(12, tuple(above // below for above, below in pairwise(widths))))
    level = np.repeat(np.arange(len(widths)), 12 // np.array(widths))
    gram = dense(workload).T @ dense(workload)

    def error(logarithms: np.ndarray) -> float:
        shares = np.exp(logarithms) / np.exp(logarithms).sum()
        precision = shares[level] ** cost.precision_power / unit_variance(cost)
        covariance = np.linalg.inv(nodes.T @ (precision[:, None] * nodes) + 1e-12 * np.eye(12))
        return float((covariance * gram).sum()) / workload.size

    starts = (np.zeros(len(widths)), np.arange(len(widths)) / 2.0)
    return min(minimize(error, start, method="L-BFGS-B").fun for start in starts)


@COSTS
@pytest.mark.parametrize("cells", [1, 2, 97])
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_no_single_fan_out_that_is_weighed_errs_less(neighbours: Neighbours, cells: int, cost: Cost) -> None:
    for workload in (Workload.of(cells), Workload.of(cells, "prefixes")):
        tree = optimised_tree(workload, cost, neighbours=neighbours)
        own = DomainTree(cells, tree.fan_out, shares=tree.shares)
        others = [DomainTree(cells, fan_out) for fan_out in (choose_fan_out(cells, cost, neighbours=neighbours), None)]
        errors = [workload.variance(Precision(domain, noise_of(domain, cost, neighbours))) for domain in (own, *others)]
        assert errors[0] <= min(errors[1:])


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_the_sensitivity_of_every_level_is_that_of_all_neighbours(neighbours: Neighbours) -> None:
    domain = DomainTree(7, (2, 2, 2), shares=SHARES)
    units, five = np.eye(7, dtype=np.int64), np.full(7, 5)
    base = domain.counts(five)
    others = (
        [five + unit for unit in units] if neighbours == "add_remove" else [five + a - b for a in units for b in units]
    )
    for level, (part, stated) in enumerate(zip(domain.measured_parts, domain.sensitivities(neighbours), strict=True)):
        changes = [(domain.counts(other) - base)[part] for other in others]
        reached = max(int(np.abs(change).sum()) for change in changes)
        assert reached == (0 if neighbours == "replace" and level == 0 else stated.l1)
        assert stated.l1 == stated.l2_squared
    plan = measure_ranges(five, EPSILON, source=SeededNoise(1), fan_out=(2, 2, 2), shares=SHARES, neighbours=neighbours)
    assert plan.cost == EPSILON
    assert [query.cost for query in plan.queries] == list(EPSILON.shared(SHARES))


@pytest.mark.parametrize(
    ("fan_out", "shares", "words"),
    [
        ((2, 2), None, "do not lead"),
        ((2, 2, 2, 2), None, "do not lead"),
        ((2, 1, 8), None, "at least 2"),
        ((2, 4), SHARES, "3 levels"),
        (None, SHARES, "2 levels"),
        ((2, 2, 2), (*SHARES[:3], Fraction(1)), "sum to 1"),
    ],
)
def test_trees_that_cannot_be_are_refused(fan_out: Any, shares: Any, words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        DomainTree(8, fan_out, shares=shares)


@pytest.mark.parametrize("asked", [([], []), ([2], [2]), ([0], [9]), ([-1], [2]), "suffixes"])
def test_workloads_that_cannot_be_are_refused(asked: Any) -> None:
    with pytest.raises(ProblemError):
        Workload.of(8, asked)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    values = np.random.default_rng(3).binomial(89, 0.4, 800)
    (tmp_path / "visits.csv").write_text("\n".join(["value", *map(str, values)]) + "\n")
    return tmp_path


def config(folder: Path, more: str, *changes: tuple[str, str]) -> Config:
    text = TEXT
    for old, new in changes:
        text = text.replace(old, new)
    return parse_config(text + more, folder, file="visits.toml")


GIVEN = 'fan_out = [3, 30]\nshares = ["1/10", "2/5", "1/2"]\n'
GAUSSIAN = ('epsilon = "1"', 'mechanism = "discrete_gaussian"\nrho = "1/8"\nneighbours = "replace"')


@pytest.mark.parametrize(
    ("keys", "changes"),
    [
        ('fan_out = "optimised"\n', ()),
        ('fan_out = "optimised"\nworkload = "prefixes"\n', (GAUSSIAN,)),
        ('fan_out = "optimised"\nworkload = [[0, 7], [7, 14]]\n', (("cells = 90", "edges = [0, 7, 14, 30, 90]"),)),
        (GIVEN, (GAUSSIAN,)),
        ("fan_out = [3, 30]\n", ()),
    ],
)
def test_releases_verify_and_answer_any_range(folder: Path, keys: str, changes: tuple[tuple[str, str], ...]) -> None:
    # An optimised tree depends on whether counts are made nonnegative, and on nothing else of the estimator.
    for estimator in ("consistent", "nonnegative") if changes or keys != 'fan_out = "optimised"\n' else ESTIMATORS:
        stated = config(folder, f'{keys}estimator = "{estimator}"\nfractions = true\n', *changes)
        measured = measure(stated).measurement
        made = release(stated)
        assert [row for row in verify_release(made.folder) if not row.passed] == []
        histogram = read_ranges_release(made.folder)
        fitted = UniversalHistogram.fit(measured, estimator, workload=stated.method.ranges)
        np.testing.assert_array_equal(histogram.nodes, fitted.nodes)
        estimated, error = histogram.between(7, 30)
        values = np.loadtxt(folder / "visits.csv", skiprows=1, dtype=np.int64)
        assert abs(estimated - ((values >= 7) & (values < 30)).sum()) < 6 * error + (30 if estimator == "zeroed" else 0)
    assert all(row.passed for row in verify_release(estimate(measured).save(folder / "own")))


@pytest.mark.parametrize(("cells", "words"), [(5, "larger unbiased error"), (111, "would err 18 % less")])
def test_a_plan_says_why_the_optimised_tree_is_not_taken(folder: Path, cells: int, words: str) -> None:
    stated = config(folder, "", ("cells = 90", f"cells = {cells}"))
    notes = dict(forecast(stated).predicted.notes)
    assert words in notes["optimised"]
    best = config(folder, 'fan_out = "optimised"\n', ("cells = 90", "cells = 111"))
    assert "optimised" not in dict(forecast(best).predicted.notes)


def test_what_was_chosen_can_be_written_into_the_configuration(folder: Path) -> None:
    open_tree = config(folder, 'fan_out = "optimised"\n')
    plan = RANGES.plan(open_tree)
    written = f"fan_out = {plan.chosen['fan_out']}\nshares = {plan.chosen['shares']}\n"
    again = RANGES.plan(config(folder, written))
    assert again.measurement_plan.digest == plan.measurement_plan.digest
    assert plan.replanned is not None
    assert plan.replanned(open_tree, plan.chosen).measurement_plan.digest == plan.measurement_plan.digest
    equal = RANGES.plan(config(folder, "fan_out = [3, 30]\n"))
    assert equal.measurement_plan.digest != plan.measurement_plan.digest


def test_a_tree_that_was_paid_for_is_kept_under_another_estimator(folder: Path) -> None:
    private = ('noise = "seeded"\nseed = 5', 'dataset = "visits"\ntotal = "1"')
    keys = 'fan_out = "optimised"\nestimator = '
    first, second = (release(config(folder, f'{keys}"{name}"\n', private)) for name in ("nonnegative", "consistent"))
    assert first.manifest["ranges"]["shares"] == second.manifest["ranges"]["shares"]  # and nothing more was left to pay
    assert all(row.passed for row in verify_release(second.folder))
    afresh = RANGES.plan(config(folder, f'{keys}"consistent"\n', private))
    assert afresh.chosen["shares"] != first.manifest["ranges"]["shares"]


def test_estimation_refuses_another_tree(folder: Path) -> None:
    measured = measure(config(folder, GIVEN)).measurement
    estimate(measured, config(folder, 'fan_out = "optimised"\n'))
    with pytest.raises(ConfigError, match=r"is 30$"):  # on 90 cells, 3 x 30 is the tree of fan-out 30
        estimate(measured, config(folder, "fan_out = [30, 3]\n"))
    with pytest.raises(ConfigError, match=r"0\.1, 0\.4, 0\.5"):
        estimate(measured, config(folder, "fan_out = [3, 30]\n"))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("fan_out = [3, 3]", "do not lead from one interval to 90 cells"),
        ('fan_out = "optimised"\nshares = ["1/2", "1/2"]', "remove them"),
        ('fan_out = 90\nshares = ["1/2", "1/4", "1/4"]', "give 2 shares"),
        ('fan_out = 90\nshares = ["1", "0"]', "above 0"),
        ('workload = "suffixes"', "ranges, prefixes"),
        ("workload = [[3, 2]]", "list of ranges"),
        ("workload = [[0, 91]]", "[0, 91] does not begin and end at edges"),
    ],
)
def test_mistakes_are_named(folder: Path, keys: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(folder, keys + "\n")
    assert words in str(caught.value)
