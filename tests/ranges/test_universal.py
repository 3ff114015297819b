"""Universal and unattributed histograms: intervals, sensitivities, answers, errors, fan-outs, the order of counts."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from coco_solvers.structured.tree import TreePasses

from coco_opt import IsotonicL1, IsotonicL2, SolverChoices, Tree, solve
from coco_opt.errors import ProblemError
from coco_opt.estimators import estimator_rows
from coco_opt.privacy import NEIGHBOURS, Cost, Epsilon, Measurement, Neighbours, Rho, SeededNoise
from coco_opt.ranges import (
    DomainTree,
    IntervalCounts,
    UniversalHistogram,
    choose_fan_out,
    measure_ranges,
    measure_sorted,
    predict_errors,
    round_nonnegative,
    zero_subtrees,
)
from coco_opt.ranges.domain import shortest_fan_out
from coco_opt.ranges.estimating.universal import Estimator

ESTIMATORS = tuple(row.name for row in estimator_rows("ranges"))

EPSILON = Epsilon(Fraction(1))
RHO = Rho(Fraction(1, 2))


def solvers() -> SolverChoices:
    return SolverChoices({"tree_l2": TreePasses()})


def measured(fan_out: int | None, cells: int = 45, seed: int = 1) -> tuple[np.ndarray, Measurement]:
    rng = np.random.default_rng(seed)
    counts = np.where(rng.random(cells) < 0.4, rng.geometric(0.1, cells), 0)
    return counts, measure_ranges(counts, EPSILON, source=SeededNoise(seed), fan_out=fan_out)


def test_the_papers_example() -> None:
    domain = DomainTree(4, 2)
    assert domain.counts([2, 0, 10, 2]).tolist() == [14, 2, 12, 2, 0, 10, 2]
    assert (domain.height, domain.sensitivity().l1, domain.first_leaf) == (3, 3, 3)


def test_trees_have_one_shortest_statement_each() -> None:
    """All lists of two or three fan-outs and all numbers: one statement a tree, and another one for another tree."""
    for cells in (1, 2, 7, 31, 100):
        found: dict[tuple[int, ...], set[object]] = {}
        for fan_out in (*range(2, 12), 100, *product(range(2, 12), repeat=2), *product((2, 3, 5, 10), repeat=3)):
            try:
                domain = DomainTree(cells, fan_out)
            except ProblemError:
                continue
            shortest = shortest_fan_out(cells, fan_out)
            assert shortest == shortest_fan_out(cells, shortest)
            np.testing.assert_array_equal(DomainTree(cells, shortest).tree.parent, domain.tree.parent)
            found.setdefault(tuple(domain.tree.parent.tolist()), set()).add(shortest)
        assert all(len(each) == 1 for each in found.values())
    assert shortest_fan_out(100, (10, 10)) == shortest_fan_out(100, 10) == 10


@pytest.mark.parametrize("fan_out", [2, 3, 5, 16, None])
@pytest.mark.parametrize("cells", [1, 2, 3, 16, 17, 45])
def test_padding_is_left_out_and_levels_add_up(cells: int, fan_out: int | None) -> None:
    domain = DomainTree(cells, fan_out)
    counts = np.arange(1, cells + 1)
    nodes = domain.counts(counts)
    assert nodes[0] == counts.sum()
    for level in range(domain.height):
        assert nodes[domain.level_start[level] : domain.level_start[level + 1]].sum() == counts.sum()
    assert domain.tree.is_leaf.sum() == cells
    if fan_out is not None:
        assert fan_out ** (domain.height - 1) >= cells > (fan_out ** (domain.height - 2) if cells > 1 else 0)


@pytest.mark.parametrize("fan_out", [2, 3, 4, (2, 3, 2), (6, 2), None])
def test_ranges_are_the_fewest_intervals(fan_out: int | tuple[int, ...] | None) -> None:
    cells = 11
    domain = DomainTree(cells, fan_out)
    spans = domain.counts(np.arange(1, cells + 1))
    usable = range(1 if fan_out is None else 0, domain.tree.nodes)
    covers = {v: _cells_below(domain, v) for v in usable}
    running = np.concatenate([[0], np.cumsum(spans)])
    for begin in range(cells + 1):
        fewest = {begin: 0}
        for at in range(begin, cells):
            for first, behind in covers.values():
                if first == at and at in fewest:
                    fewest[behind] = min(fewest.get(behind, cells), fewest[at] + 1)
        for end in range(begin, cells + 1):
            pieces, taken = domain.subtrees([begin], [end])
            assert taken[0] == fewest[end]
            total = sum(int(running[behind[0]] - running[first[0]]) for first, behind in pieces)
            assert total == sum(range(begin + 1, end + 1))


def _cells_below(domain: DomainTree, node: int) -> tuple[int, int]:
    first = behind = node
    behind += 1
    while first < domain.first_leaf:
        first, behind = int(domain.tree.first_child[first]), int(domain.tree.first_child[behind])
    return first - domain.first_leaf, behind - domain.first_leaf


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("cells", [2, 7, 9])
@pytest.mark.parametrize("fan_out", [2, 3, None])
def test_sensitivities_are_those_of_all_neighbours(fan_out: int | None, cells: int, neighbours: Neighbours) -> None:
    domain = DomainTree(cells, fan_out)
    five, units = np.full(cells, 5), np.eye(cells, dtype=np.int64)
    base = domain.counts(five)
    added = [domain.counts(five + unit) for unit in units]
    moved = [domain.counts(five + a - b) for a in units for b in units]
    changes = [(answer - base)[domain.measured_levels] for answer in (added if neighbours == "add_remove" else moved)]
    stated = domain.sensitivity(neighbours)
    assert max(int(np.abs(change).sum()) for change in changes) == stated.l1
    assert max(int((change**2).sum()) for change in changes) == stated.l2_squared


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("cost", [EPSILON, RHO], ids=str)
def test_noise_is_what_the_cost_buys(cost: Cost, neighbours: Neighbours) -> None:
    measurement = measure_ranges(np.arange(9), cost, source=SeededNoise(1), fan_out=3, neighbours=neighbours)
    assert measurement.cost == cost
    height = 3 if neighbours == "add_remove" else 4
    counts = IntervalCounts.of(measurement)
    assert counts.distribution == cost.distribution(counts.domain.sensitivity(neighbours))
    assert counts.distribution.parameter == height
    with pytest.raises(ProblemError, match="no counts of intervals"):
        IntervalCounts.of(measure_sorted([1], cost, source=SeededNoise(1)))


def test_cells_hold_the_values_between_their_edges() -> None:
    domain = DomainTree(3, 2, [-5, 0, 18, 65])
    assert domain.cells_of([-6, -5, -1, 0, 17, 18, 64, 65]).tolist() == [-1, 0, 0, 1, 1, 2, 2, 3]
    assert domain.between(0, 65) == (1, 3)
    assert DomainTree(4).between(1, 3) == (1, 3)
    assert (domain.plain, DomainTree(3).plain) == (False, True)
    for low, high in ((1, 18), (18, 0), (0, 66)):
        with pytest.raises(ProblemError, match="edges"):
            domain.between(low, high)
    for edges in ([0, 1, 2], [0, 1, 1, 2], [0.0, 1.0, 2.0, 3.0]):
        with pytest.raises(ProblemError, match="4 edges"):
            DomainTree(3, 2, edges)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("fan_out", [2, 4, None])
def test_answers_of_every_estimator(fan_out: int | None, estimator: Estimator) -> None:
    counts, measurement = measured(fan_out)
    histogram = UniversalHistogram.fit(measurement, estimator, solvers())
    begin, end = np.array([0, 3, 10, 44, 7]), np.array([45, 9, 10, 45, 40])
    answers = histogram.ranges(begin, end)
    if estimator != "noisy":
        cells = [histogram.cells[i:j].sum() for i, j in zip(begin, end, strict=True)]
        np.testing.assert_allclose(answers.estimate, cells, atol=1e-9)
    assert answers.estimate[2] == answers.standard_error[2] == 0
    assert histogram.range(3, 9)[0] == answers.estimate[1]
    truth = np.array([counts[i:j].sum() for i, j in zip(begin, end, strict=True)])
    if estimator != "zeroed":  # the heuristic is biased by more than its noise where the data are sparse
        assert (np.abs(answers.estimate - truth) <= 10 * answers.standard_error + 1e-9).all()
    if estimator in ("nonnegative", "zeroed"):
        assert (histogram.cells >= 0).all()
    cdf = histogram.cdf()
    assert (np.diff(cdf) >= 0).all()
    assert cdf[-1] == 1
    assert (np.diff(histogram.quantile([0.0, 0.25, 0.5, 0.75, 1.0])) >= 0).all()
    assert len(histogram.to_pandas()) == 45


def test_consistent_is_never_less_sure_than_noisy() -> None:
    for fan_out in (2, 3, 7):
        _, measurement = measured(fan_out, cells=30)
        pairs = [(i, j) for i in range(30) for j in range(i, 31)]
        begin, end = np.array(pairs).T
        consistent, noisy = (
            UniversalHistogram.fit(measurement, name, solvers()).ranges(begin, end).standard_error
            for name in ("consistent", "noisy")
        )
        assert (consistent <= noisy + 1e-9).all()
        assert (consistent < noisy - 0.1).any()


def test_predicted_errors_are_those_of_the_histogram() -> None:
    begin, end = np.array([0, 5, 17]), np.array([30, 9, 18])
    for row in predict_errors(30, EPSILON, fan_outs=[None, 2, 5], ranges=(begin, end)):
        _, measurement = measured(row.fan_out, cells=30)
        errors = UniversalHistogram.fit(measurement, "consistent", solvers()).ranges(begin, end).standard_error
        assert row.mean_variance == pytest.approx(float((errors**2).mean()))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_precision_of_intervals_is_that_of_ranges(estimator: Estimator) -> None:
    for fan_out in (3, None):
        histogram = UniversalHistogram.fit(measured(fan_out, cells=10)[1], estimator, solvers())
        answers = histogram.ranges(*histogram.domain.spans())
        if estimator != "noisy":  # an edge's only child is measured apart from it, and counts the same cells
            np.testing.assert_allclose(answers.estimate, histogram.nodes, atol=1e-9)
        np.testing.assert_allclose(answers.standard_error**2, histogram.precision.intervals())


def test_standard_errors_are_those_of_many_runs() -> None:
    for cost in (EPSILON, RHO):
        for estimator in ("noisy", "consistent"):
            runs = [
                UniversalHistogram.fit(
                    measure_ranges(np.full(9, 50), cost, source=SeededNoise(seed), fan_out=3), estimator, solvers()
                ).ranges([0, 2], [1, 8])
                for seed in range(400)
            ]
            spread = np.std([run.estimate for run in runs], axis=0)
            np.testing.assert_allclose(spread, runs[0].standard_error, rtol=0.12)


def test_the_chosen_fan_out_bounds_the_bias_of_sparse_nonnegative_counts() -> None:
    counts = np.where(np.random.default_rng(10).random(365) < 0.1, 20, 0)
    assert predict_errors(365, EPSILON)[0].fan_out is None  # of unbiased estimates
    total = {}
    for fan_out in (None, choose_fan_out(365, EPSILON)):
        runs = [measure_ranges(counts, EPSILON, source=SeededNoise(seed), fan_out=fan_out) for seed in range(20)]
        total[fan_out] = np.mean([UniversalHistogram.fit(run).total - counts.sum() for run in runs])
    alone, chosen = total.values()
    assert abs(chosen) < 0.2 * alone


def test_rounding_keeps_the_digits_of_large_counts() -> None:
    odd = 2**52 + 1
    assert round_nonnegative([float(odd), 0.49999999999999994, 2.5, -0.5]).tolist() == [odd, 0, 3, 0]
    assert round_nonnegative(np.array([2**62 + 1, -1])).tolist() == [2**62 + 1, 0]
    for value in (np.nan, np.inf, 1e19):
        with pytest.raises(ProblemError, match="below 2"):
            round_nonnegative([1.0, value])


def test_counts_whose_sums_overflow_are_refused() -> None:
    with pytest.raises(ProblemError, match="at most 2"):
        DomainTree(4096, 4096).counts(np.full(4096, 2**52))
    with pytest.raises(ProblemError, match="at most 2"):
        DomainTree(2).counts(np.array([2**64 - 1, 1], dtype=np.uint64))
    assert DomainTree(4).counts(np.array([10**13, 0, 1, 10**13]))[0] == 2 * 10**13 + 1


def test_zero_subtrees_and_rounding() -> None:
    tree = Tree.complete(2, 3)
    zeroed = zero_subtrees(tree, [5.0, -0.5, 5.5, 2.0, -2.5, 0.0, 5.5])
    assert zeroed.tolist() == [5.0, 0.0, 5.5, 0.0, 0.0, 0.0, 5.5]
    assert round_nonnegative([-3.0, -0.2, 0.49, 0.5, 1.5, 2.5]).tolist() == [0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize(("counts", "words"), [([1, -2], "nonnegative"), ([1.0, 2.0], "integers"), ([[1]], "integers")])
def test_bad_counts_are_refused(counts: list[float], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        measure_ranges(counts, EPSILON, source=SeededNoise(0))


def test_bad_questions_are_refused() -> None:
    _, measurement = measured(4)
    histogram = UniversalHistogram.fit(measurement, "consistent", solvers())
    for begin, end in (([3], [2]), ([0], [46]), ([-1], [2]), ([0.5], [2]), ([0, 1], [2])):
        with pytest.raises(ProblemError, match="ranges"):
            histogram.ranges(begin, end)
    with pytest.raises(ProblemError, match="between 0 and 1"):
        histogram.quantile(1.5)
    with pytest.raises(ProblemError, match="estimator"):
        UniversalHistogram.fit(measurement, "best", solvers())  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="at least one range"):
        predict_errors(8, EPSILON, ranges=(np.empty(0, np.int64), np.empty(0, np.int64)))
    with pytest.raises(ProblemError, match="each of the 7 nodes"):
        zero_subtrees(DomainTree(4).tree, [1.0, 2.0])


ONE = Epsilon(Fraction(1))


@pytest.mark.parametrize(
    ("noisy", "expected"),
    [([9, 10, 14], [9, 10, 14]), ([9, 14, 10], [9, 12, 12]), ([14, 9, 10, 15], [11, 11, 11, 15])],
)
def test_example_4_of_the_paper(noisy: list[int], expected: list[int]) -> None:
    np.testing.assert_allclose(solve(IsotonicL2(noisy)).value, expected, atol=1e-12)


def test_min_max_formula() -> None:
    y = np.random.default_rng(0).integers(-5, 9, 25)
    n = y.size
    largest = [max(y[i : j + 1].mean() for i in range(j + 1)) for j in range(n)]
    np.testing.assert_allclose(solve(IsotonicL2(y)).value, [min(largest[k:]) for k in range(n)], atol=1e-12)


def test_runs_of_equal_counts_cost_little() -> None:
    counts = np.repeat([1, 2, 40], [3000, 900, 100])
    errors = {"raw": 0.0, "sorted": 0.0, "l2": 0.0, "l1": 0.0}
    for seed in range(5):
        (answers,) = measure_sorted(counts[::-1], ONE, source=SeededNoise(seed)).answers
        for name, fit in (
            ("raw", answers.values),
            ("sorted", round_nonnegative(np.sort(answers.values))),
            ("l2", solve(IsotonicL2(answers.values)).value),
            ("l1", solve(IsotonicL1(answers.values, lower=0)).value),
        ):
            errors[name] += float(np.square(fit - counts).sum()) / 5
    assert errors["l2"] < errors["sorted"] / 10
    assert errors["l1"] < errors["sorted"] / 10
    assert errors["sorted"] < errors["raw"]


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_sorting_does_not_raise_the_sensitivity(neighbours: Neighbours) -> None:
    (answers,) = measure_sorted([1, 2], ONE, source=SeededNoise(0), neighbours=neighbours).answers
    sensitivity = answers.query.sensitivity
    assert sensitivity is not None
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(2000):
        counts = rng.integers(1, 5, int(rng.integers(2, 8)))
        more = counts.copy()
        more[rng.integers(0, counts.size)] += 1
        if neighbours == "replace":
            more[rng.integers(0, counts.size)] -= 1
        change = np.sort(more) - np.sort(counts)
        seen.add((int(np.abs(change).sum()), int((change**2).sum())))
    assert max(l1 for l1, _ in seen) == sensitivity.l1
    assert max(l2 for _, l2 in seen) == sensitivity.l2_squared


def test_bad_input_is_refused() -> None:
    with pytest.raises(ProblemError, match="nonnegative integers"):
        measure_sorted([1.5], ONE, source=SeededNoise(0))
    with pytest.raises(ProblemError, match="at most 2"):
        measure_sorted(np.array([2**64 - 1], dtype=np.uint64), ONE, source=SeededNoise(0))
    source = SeededNoise(0)
    measure_sorted([1, 2], ONE, source=source)
    with pytest.raises(ProblemError, match="already drawn"):
        measure_sorted([1, 2], ONE, source=source)
