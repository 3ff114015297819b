"""Private numbers of groups: calibrated noise, then whole, nonnegative counts that sum, certified."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from coco_opt import CountOfCounts, GroupsMethod, Hierarchy, SeededNoise, SolverChoices, estimate_groups, solve
from coco_opt.array_types import Ints
from coco_opt.errors import InputError, ProblemError
from coco_opt.groups import Buckets, GroupsMeasurements
from coco_opt.groups.estimating.group_counts import FromAbove, estimate_group_counts, noisy_counts, with_group_counts
from coco_opt.groups.measuring.measure import MAX_GROUPS, exact_parts, measure_hierarchy
from coco_opt.groups.noisy_measurements import KIND, MAX_SIZE
from coco_opt.groups.queries import groups_query
from coco_opt.histograms import errors_by_level, sum_of_leaves
from coco_opt.privacy import Cost, Drawing, Epsilon, Exact, Measurement, MeasurementPlan, Rho
from coco_opt.problems import TreeLeastSquares
from tests.groups.helpers import NoNoise, Told, costs, thirds

PATHS = [("n", f"s{i}", f"c{j}") for i in range(4) for j in range(1 + 2 * i)]
HIERARCHY = Hierarchy.from_paths(PATHS)
THIRDS = [Fraction(1, 3)] * 3
UNITS: list[type[Cost]] = [Epsilon, Rho]


def counts_of(seed: int, most: int = 60) -> Ints:
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, most, len(HIERARCHY.leaves)) * (rng.random(len(HIERARCHY.leaves)) < 0.6)
    return HIERARCHY.aggregate(leaves.astype(np.int64))


def measure_counts(hierarchy: Hierarchy, counts: Ints, costs: Any, neighbours: Any, source: Any) -> Measurement:
    """Return noisy numbers of groups alone."""
    queries = [groups_query(level, neighbours, cost) for level, cost in enumerate(costs) if cost]
    names = tuple(f"level {level}" for level in range(hierarchy.levels))
    measurement_plan = MeasurementPlan(KIND, hierarchy, names, tuple(queries), neighbours, {MAX_SIZE: 1})
    parts = (
        Exact(query, hierarchy.paths[region], counts[region : region + 1])
        for query in queries
        for region in hierarchy.level_range(query.level)
    )
    return Drawing.of(measurement_plan, parts, source).measurement()


def noisy(counts: Ints, shares: Any = THIRDS, unit: type[Cost] = Epsilon, **settings: Any) -> Measurement:
    options: dict[str, Any] = {"neighbours": "add_remove", "source": SeededNoise(1), **settings}
    return measure_counts(HIERARCHY, counts, costs(shares, unit), **options)


def told(hierarchy: Hierarchy, values: list[int], amounts: list[Fraction]) -> Measurement:
    """Return a measurement of the given noisy values."""
    source = Told({path: [value] for path, value in zip(hierarchy.paths, values, strict=True)})
    zeros = np.zeros(hierarchy.regions, np.int64)
    return measure_counts(hierarchy, zeros, costs(amounts), "add_remove", source)


def assert_counts(result: Ints) -> None:
    assert result.dtype == np.int64
    assert (result >= 0).all()
    np.testing.assert_array_equal(HIERARCHY.aggregate(result[HIERARCHY.leaves.start :]), result)


SHARES = [
    THIRDS,
    [Fraction(1, 8), Fraction(1, 8), Fraction(3, 4)],
    [None, None, Fraction(1)],
    [None, Fraction(20), Fraction(1, 9)],
    [Fraction(1, 100)] * 3,
]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shares", SHARES)
@hypothesis_settings(max_examples=20)
@given(seed=st.integers(0, 100_000))
def test_counts_are_whole_nonnegative_and_consistent(
    seed: int, shares: list[Fraction | None], unit: type[Cost]
) -> None:
    measurement = noisy(counts_of(seed), shares, unit, source=SeededNoise(seed))
    assert measurement.cost == unit(sum((share or Fraction(0) for share in shares), Fraction(0)))
    solvers = SolverChoices()
    result = estimate_group_counts(measurement, solvers)
    assert_counts(result)
    values, variances = noisy_counts(measurement)
    exact = solve(TreeLeastSquares(HIERARCHY.parent, values, np.maximum(variances, 1e-6), lower=0.0)).value
    assert np.abs(result - exact).max() < 1 + 1e-4  # each is the floor or the ceiling of the fit
    assert {certificate.problem for certificate in solvers.certificates} == {"tree_l2", "controlled_rounding"}
    assert all(certificate.relative_gap <= 1e-6 for certificate in solvers.certificates)


@given(st.integers(0, 100_000))
def test_without_noise_the_counts_come_back(seed: int) -> None:
    counts = counts_of(seed, 10**9)
    np.testing.assert_array_equal(estimate_group_counts(noisy(counts, source=NoNoise())), counts)


def test_a_negative_leaf_is_not_clipped_alone() -> None:
    """Leaves -4 and 10 under a root of 4, equal variances: with bounds 0 and 7, not 0 and 10."""
    hierarchy = Hierarchy.from_paths([("n", "a"), ("n", "b")])
    assert estimate_group_counts(told(hierarchy, [4, -4, 10], [Fraction(1, 2)] * 2)).tolist() == [7, 0, 7]


@pytest.mark.parametrize(("neighbours", "changed"), [("add_remove", 1), ("replace", 2)])
def test_noise_is_scaled_by_what_a_group_can_change(neighbours: str, changed: int) -> None:
    """The sensitivity by brute force (every group added, or moved between any leaves) and the scales that follow."""
    leaves = np.arange(1, len(HIERARCHY.leaves) + 1)
    before = HIERARCHY.aggregate(leaves)
    moves = np.eye(leaves.size, dtype=np.int64)
    if neighbours == "replace":
        moves = np.array([a - b for a in moves for b in moves])
    change = np.array([HIERARCHY.aggregate(leaves + move) - before for move in moves])
    for level in range(3):
        level_change = change[:, HIERARCHY.level_range(level)]
        assert np.abs(level_change).sum(axis=1).max() == (0 if level == 0 and neighbours == "replace" else changed)
        assert (level_change**2).sum(axis=1).max() <= changed
    for unit, expected in ((Epsilon, Fraction(changed, 3)), (Rho, Fraction(changed, 6))):
        source = NoNoise()
        measurement = noisy(before, [None, None, 3], unit, source=source, neighbours=neighbours)
        assert {opened[0] for opened in source.opened} == {expected}
        assert len({opened[1:] for opened in source.opened}) == len(HIERARCHY.leaves)
        assert measurement.cost == unit(Fraction(3))


def truth_of(seed: int) -> list[CountOfCounts]:
    rng = np.random.default_rng(seed)
    leaves = [CountOfCounts.from_dense(rng.integers(0, 20, 6) * (rng.random(6) < 0.7)) for _ in HIERARCHY.leaves]
    return sum_of_leaves(HIERARCHY, leaves)


def with_sizes(truth: list[CountOfCounts], **settings: Any) -> Measurement:
    options: dict[str, Any] = {
        "group_counts": None,
        "counts_share": Fraction(1, 10),
        "queries": ["cumulative"] * 3,
        "costs": thirds(),
        "max_size": 6,
        "neighbours": "add_remove",
        "source": SeededNoise(7),
        **settings,
    }
    return measure_hierarchy(truth, options.pop("tree", HIERARCHY), **options)


BUCKETS = [Buckets.from_starts([0, 1, 3], 6)] * 3
ASKED = [
    {"queries": ["cumulative"] * 3},
    {"queries": ["sizes"] * 3},
    {"buckets": BUCKETS},
    {"queries": ["cumulative", "sizes", "cumulative"], "buckets": [None, None, BUCKETS[0]]},
]


@pytest.mark.parametrize("measurement_plan", ASKED)
def test_without_noise_sizes_are_read_as_with_public_counts(measurement_plan: dict[str, Any]) -> None:
    truth = truth_of(3)
    private = with_group_counts(with_sizes(truth, source=NoNoise(), **measurement_plan))
    counts = np.array([one.groups for one in truth])
    public = with_sizes(truth, source=NoNoise(), group_counts=counts, counts_share=None, **measurement_plan)
    assert [one.query.name for one in private.answers] == [one.query.name for one in public.answers]
    for one, other in zip(private.answers, public.answers, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(GroupsMeasurements(private).group_counts, counts)


@pytest.mark.parametrize("measurement_plan", ASKED)
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_the_stated_sensitivities_hold_for_every_neighbour(measurement_plan: dict[str, Any], neighbours: str) -> None:
    """By brute force: an entity joins a group or brings one, or an empty group comes; "replace": from anywhere."""
    measurement_plan = {"neighbours": neighbours, **measurement_plan}
    tree = Hierarchy.from_paths([("n", "s", "a"), ("n", "s", "b"), ("n", "t", "c")])
    start = [[0, 1, 1, 5], [1, 2], [1]]

    def after_one_more(leaves: list[list[int]]) -> list[list[list[int]]]:
        grown = [[*sorted(leaf[:k] + leaf[k + 1 :] + [leaf[k] + 1])] for leaf in leaves for k in range(len(leaf))]
        owners = [place for place, leaf in enumerate(leaves) for _ in leaf]
        changed = [[*leaves[:place], one, *leaves[place + 1 :]] for place, one in zip(owners, grown, strict=True)]
        return changed + [
            [*leaves[:place], [*leaves[place], size], *leaves[place + 1 :]] for place in range(3) for size in (0, 1)
        ]

    def answers(leaves: list[list[int]]) -> dict[tuple[int, str], Ints]:
        truth = sum_of_leaves(tree, [CountOfCounts.from_ranks(leaf) for leaf in leaves])
        settings = {"tree": tree, "counts_share": Fraction(1, 2), "source": NoNoise(), **measurement_plan}
        measurement = with_sizes(truth, **settings)
        queries.update({(one.query.level, one.query.name): one.query for one in measurement.answers})
        return {(one.query.level, one.query.name): one.values for one in measurement.answers}

    queries: dict[tuple[int, str], Any] = {}
    more = [answers(one) for one in after_one_more(start)]
    # Two ways to add to one table differ by a replacement where both add an entity, or both an empty group.
    pairs = [(answers(start), one) for one in more]
    if neighbours == "replace":
        empty = [
            not any(sum(leaf) > sum(old) for leaf, old in zip(one, start, strict=True)) for one in after_one_more(start)
        ]
        pairs = [(a, b) for a, e in zip(more, empty, strict=True) for b, f in zip(more, empty, strict=True) if e == f]
    worst: dict[tuple[int, str], tuple[int, int]] = {}
    for first, second in pairs:
        for key, values in first.items():
            change = np.abs(values - second[key])
            l1, l2 = worst.get(key, (0, 0))
            worst[key] = max(l1, int(change.sum())), max(l2, int((change**2).sum()))
    for key, (l1, l2) in worst.items():
        stated = queries[key].sensitivity
        assert l1 <= stated.l1, key
        assert l2 <= stated.l2_squared, key
    leaf = queries[2, "groups"].sensitivity
    assert worst[2, "groups"] == (leaf.l1, leaf.l2_squared)  # and is reached


@pytest.mark.parametrize("consistency", ["matching", "joint", "bottom_up", "none"])
def test_releases_beside_private_counts_are_whole_and_sum(consistency: Any) -> None:
    truth = truth_of(6)
    measurement = with_sizes(truth, source=SeededNoise(6))
    assert measurement.cost == Epsilon(Fraction(1))
    result = estimate_groups(measurement, GroupsMethod(consistency=consistency))
    assert_counts(result.group_counts)
    np.testing.assert_array_equal(result.group_counts, estimate_group_counts(measurement))
    if consistency != "none":
        summed = sum_of_leaves(HIERARCHY, result.histograms[-len(HIERARCHY.leaves) :])
        assert all(a.equals(b) for a, b in zip(result.histograms, summed, strict=True))


def test_the_error_is_near_that_with_public_counts() -> None:
    """Over six seeds at epsilon 1: a tenth of the budget for counts costs less than as much error again."""
    errors = {share: np.zeros(3) for share in (None, Fraction(1, 10))}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        leaves = [CountOfCounts.from_dense(np.r_[0, rng.integers(0, 400, 30)]) for _ in HIERARCHY.leaves]
        truth = sum_of_leaves(HIERARCHY, leaves)
        for share, total in errors.items():
            counts = np.array([histogram.groups for histogram in truth]) if share is None else None
            settings = {"group_counts": counts, "counts_share": share, "max_size": 40, "source": SeededNoise(seed)}
            result = estimate_groups(with_sizes(truth, **settings), GroupsMethod(consistency="joint"))
            total += errors_by_level(HIERARCHY, result.histograms, truth)
    ratio = errors[Fraction(1, 10)] / errors[None]
    assert (ratio < 2).all(), ratio
    assert (ratio > 0.9).all(), ratio


def test_answers_from_above_are_turned_in_any_pieces() -> None:
    truth = truth_of(2)
    measurement = with_sizes(truth, buckets=BUCKETS)
    turned = with_group_counts(measurement)
    for answer, turned_answer in zip(measurement.answers[3:], turned.answers, strict=True):
        regions = HIERARCHY.level_range(answer.query.level)
        groups = GroupsMeasurements(turned).group_counts[regions.start : regions.stop]
        lazy = FromAbove(answer, groups, BUCKETS[0].end - BUCKETS[0].begin)
        for begin, end in ((0, lazy.size), (1, 2), (lazy.size - 2, lazy.size)):
            np.testing.assert_array_equal(lazy.read(begin, end), turned_answer.values[begin:end])


def test_regions_are_not_read_before_their_groups_are_counted() -> None:
    measurement = with_sizes(truth_of(1))
    with pytest.raises(ProblemError, match="estimate them before"):
        GroupsMeasurements(measurement)
    assert sum(1 for _ in exact_parts(measurement.measurement_plan, truth_of(1))) == 2 * HIERARCHY.regions


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_counts": [1] * HIERARCHY.regions}, "give either"),
        ({"counts_share": None}, "give either"),
        ({"counts_share": Fraction(1)}, "between 0 and 1"),
        ({"queries": ["ranks"] * 3}, "as many as there are groups"),
        ({"costs": costs([1, 1, None])}, "give their level a share"),
        ({"neighbours": "remove"}, "unknown neighbours"),
    ],
)
def test_parameters_are_checked_first(settings: dict[str, Any], message: str) -> None:
    source = NoNoise()
    with pytest.raises(ProblemError, match=message):
        with_sizes(truth_of(1), source=source, **settings)
    assert source.opened == []


def test_counts_are_checked_and_never_shown() -> None:
    secret = 7_654_321
    truth = [CountOfCounts.from_runs([1], [secret])] * HIERARCHY.regions
    for wrong, code in (
        (truth, "group-count-mismatch"),
        ([CountOfCounts.from_runs([1], [2 * MAX_GROUPS])] * HIERARCHY.regions, "too-large"),
    ):
        source = NoNoise()
        with pytest.raises(InputError) as error:
            with_sizes(wrong, source=source)
        assert error.value.code == code
        assert str(secret) not in str(error.value).replace(",", "")
        assert source.opened == []


def test_the_leaves_must_be_measured() -> None:
    with pytest.raises(ProblemError, match="give their level a share"):
        estimate_group_counts(noisy(counts_of(1), [1, 1, None]))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "shares",
    [
        [Fraction(1, 2**39), Fraction(1), Fraction(10**6)],
        [Fraction(10**6), Fraction(1), Fraction(1, 2**39)],
        [Fraction(1, 1000), Fraction(10**4), Fraction(1, 10**6)],
    ],
)
def test_budgets_far_apart_still_give_certified_counts(shares: list[Fraction], unit: type[Cost]) -> None:
    for seed, most in ((1, 50), (2, 2**35)):
        counts = counts_of(seed, most)
        result = estimate_group_counts(noisy(counts, shares, unit, source=SeededNoise(seed)))
        assert_counts(result)
        sharp = HIERARCHY.level_range(max(range(3), key=lambda level: shares[level]))
        if sharp.stop == HIERARCHY.regions:
            assert np.abs(result[sharp] - counts[sharp]).max() <= 1


@pytest.mark.slow
def test_fitting_the_tree_beats_the_raw_counts() -> None:
    """Mean squared error by level over 200 draws, against the noisy counts themselves."""
    raw, fitted = np.zeros(3), np.zeros(3)
    for seed in range(200):
        counts = counts_of(seed)
        measurement = noisy(counts, source=SeededNoise(seed))
        result = estimate_group_counts(measurement)
        for errors, values in ((raw, noisy_counts(measurement)[0]), (fitted, result)):
            errors += [np.mean((values - counts)[HIERARCHY.level_range(level)] ** 2) for level in range(3)]
    assert (fitted < 0.9 * raw).all()
