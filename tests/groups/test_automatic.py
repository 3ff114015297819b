"""What a configuration leaves out is chosen: queries, allocation and method, from public numbers or after a look."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coco_opt import Config, CountOfCounts, Hierarchy, check, configure, estimate, measure, release
from coco_opt.array_types import Floats
from coco_opt.errors import BudgetError, ConfigError, InputError
from coco_opt.groups import Buckets, sensitivity
from coco_opt.groups.look import certain_distribution, distribution_of_look
from coco_opt.groups.measuring import automatic
from coco_opt.groups.measuring.automatic import LIMIT, QuerySearch, assumed_distributions
from coco_opt.groups.measuring.measure import look_of, measured, measurement_plan_of
from coco_opt.groups.measuring.predicted import Predictor, Regions, range_of
from coco_opt.privacy import Epsilon, SeededNoise, planner
from coco_opt.privacy.planner import NoisePlan, allocation, allocations, root_and_leaf_allocation
from coco_opt.releases.trials import trials
from tests.cli.helpers import paid, write_groups

TREE = Hierarchy.from_paths([("land", f"state {k // 4}", f"county {k}") for k in range(12)])
COUNTS = TREE.aggregate(np.arange(50, 62, dtype=np.int64) * 20)


def search(max_size: int, aim: tuple[float, ...] = (1 / 3, 1 / 3, 1 / 3), **fixed: Any) -> QuerySearch:
    noise = NoisePlan(Epsilon(Fraction(1)), (sensitivity("cumulative", "add_remove"),) * 3)
    return QuerySearch(Regions.of(TREE, COUNTS), max_size, noise, np.array(aim), **fixed)


def geometric(max_size: int, mean: float) -> np.ndarray:
    weights = np.exp(-np.arange(max_size + 1) / mean)
    return np.asarray(weights / weights.sum())


def test_the_family_of_distributions_is_one_of_probabilities() -> None:
    for max_size in (1, 2, 30, 1000):
        for probabilities in assumed_distributions(max_size).values():
            assert probabilities.shape == (max_size + 1,)
            assert probabilities.min() >= 0
            assert probabilities.sum() == pytest.approx(1)


def test_predicted_errors_fall_with_the_budget_and_rise_towards_the_root() -> None:
    predictor = Predictor(Regions.of(TREE, COUNTS), geometric(300, 10.0))
    cells = [Buckets.cells(300)] * 3
    less, more = (predictor.errors(cells, np.full(3, variance)) for variance in (2.0, 200.0))
    assert (less < more).all()
    assert less[0] > less[1] > less[2] > 0


def test_a_small_budget_is_asked_for_buckets_and_dense_sizes_for_single_sizes() -> None:
    noise = NoisePlan(Epsilon(Fraction(1, 10)), search(300).noise.sensitivities)
    heavy = np.append(0.0, np.arange(1.0, 301.0) ** -1.5)
    sparse = replace(search(300), noise=noise).choose({"sparse": heavy / heavy.sum()})
    dense = search(20).choose({"dense": np.full(21, 1 / 21)})
    assert sparse.growths[-1] >= 0.1
    assert dense.growths == (0.0, 0.0, 0.0)
    for choice in (sparse, dense):
        assert sum(choice.shares) == 1
        assert list(choice.growths) == sorted(choice.growths)


def test_an_aim_moves_the_budget_and_what_is_fixed_stays() -> None:
    sizes = {"geometric": geometric(60, 5.0)}
    root, leaves = (search(60, aim).choose(sizes) for aim in ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0)))
    assert root.shares[0] > leaves.shares[0]
    assert root.errors[0, 0] < leaves.errors[0, 0]
    assert leaves.errors[0, 2] < root.errors[0, 2]
    shares = allocation(2.0, 3)
    assert search(60, shares=shares).choose(sizes).shares == shares
    buckets = tuple(Buckets.by_growth(60, growth) for growth in (0.0, 0.1, 0.1))
    chosen = replace(search(60, buckets=buckets), most_answers=1.0).choose(sizes)
    assert chosen.growths == ()
    assert chosen.shares != allocation(1.0, 3)
    predictor, noise = Predictor(Regions.of(TREE, COUNTS), sizes["geometric"]), search(60).noise
    assert chosen.errors[0] == pytest.approx(predictor.errors(buckets, noise.variances(chosen.shares)))


def test_allocations_sum_to_one_and_some_leave_most_to_the_leaves() -> None:
    assert allocations(1) == [(Fraction(1),)]
    for shares in allocations(4):
        assert sum(shares) == 1
        assert min(shares) > 0
    assert {float(shares[-1]) for shares in allocations(4) if shares[0] == shares[1] < shares[-1]} >= {0.7, 0.85}
    assert root_and_leaf_allocation(0.8, 4) == tuple(Fraction(part, 100) for part in (18, 1, 1, 80))


def test_several_distributions_are_chosen_for_by_the_least_worst_regret() -> None:
    problem, family = search(60), {"sparse": geometric(60, 2.0), "dense": np.full(61, 1 / 61)}
    ranking = problem.ranked(family, 1000)
    aims = np.array([np.log(choice.errors).mean(axis=1) for choice in ranking])
    worst = (aims - aims.min(axis=0)).max(axis=1)
    regrets = [choice.regret for choice in ranking[1:]]
    # The credit of single sizes is the same for both distributions; the errors decide but for it.
    assert worst[1] <= worst.min() + 0.2 * np.log(3.0) + 1e-9
    assert regrets == sorted(regrets)


@pytest.mark.parametrize("epsilon", ["1/10", "1/2", "2"])
@pytest.mark.parametrize("sizes", [geometric(20, 3.0), np.eye(21)[[4, 4, 11]].mean(axis=0), np.full(21, 1 / 21)])
def test_no_level_pays_too_much_for_the_others(epsilon: str, sizes: Floats) -> None:
    noise = NoisePlan(Epsilon(Fraction(epsilon)), search(20).noise.sensitivities)
    chosen, *others = replace(search(20), noise=noise).ranked({"sizes": sizes}, 1000)
    aims = np.array([np.log(np.maximum(each.errors, 1e-12)).mean() for each in (chosen, *others)])
    prices = np.array([each.price.max() for each in (chosen, *others)])
    worth = np.log(chosen.even).mean() > aims.min() + np.log(1.05)
    allowed = (prices <= LIMIT) | worth
    near = allowed & (aims <= aims[allowed].min() + np.log(1.03))
    assert near[0]
    assert prices[0] <= 1.1 * prices[near].min()
    assert (chosen.even > 0.0).all()


def test_an_aim_at_the_leaves_may_cost_the_root_anything() -> None:
    assert search(20, (0.0, 0.0, 1.0)).choose({"dense": np.full(21, 1 / 21)}).price[0] > LIMIT


def test_an_aim_for_one_level_alone_takes_the_best_candidate_for_it() -> None:
    for level in range(3):
        ranking = search(60, tuple(np.eye(3)[level].tolist())).ranked({"geometric": geometric(60, 5.0)}, 1000)
        assert ranking[0].errors[0, level] == min(choice.errors[0, level] for choice in ranking)


def test_noise_makes_no_large_groups_in_what_is_rehearsed() -> None:
    """Of 20 looks at sizes up to 8: half suggest groups above 60, and hardly one that is certain; real ones stay."""
    tree, counts = Hierarchy.from_paths([("land",)]), np.array([20_000])
    plan = measurement_plan_of(
        tree, counts, queries=["cumulative"], costs=[Epsilon(Fraction(1))], max_size=1000, neighbours="add_remove"
    )
    look, sizes = look_of(plan, Epsilon(Fraction(1, 50))), np.arange(1001)
    small = CountOfCounts.from_runs(np.arange(1, 9), np.full(8, 2_500))
    large = CountOfCounts.from_runs(np.append(np.arange(1, 9), 500), np.append(np.full(8, 2_400), 800))
    suggested, certain = [], []
    for seed in range(20):
        noisy = measured(look, [small], SeededNoise(seed))
        distribution, hidden = certain_distribution(noisy)
        assert distribution.sum() == pytest.approx(1)
        assert hidden >= 0.0
        assert np.abs(np.cumsum(distribution)[:8] - np.arange(8) / 8).max() < 0.08
        suggested.append(20_000 * float(distribution_of_look(noisy)[61:] @ sizes[61:]))
        certain.append(20_000 * float(distribution[61:] @ sizes[61:]))
    assert np.mean(suggested) > 100
    assert np.mean(certain) < 0.3 * np.mean(suggested)
    assert np.median(certain) == pytest.approx(0.0, abs=1e-6)
    kept, hidden = certain_distribution(measured(look, [large], SeededNoise(1)))
    assert 20_000 * float(kept[300:].sum()) == pytest.approx(800, rel=0.2)
    assert hidden < 0.1 * 800 * 500


def test_queries_fit_the_time_before_another_method_is_taken(tmp_path: Path) -> None:
    sizes, regions = geometric(300, 3.0), np.diff(TREE.level_start)
    for most in (300.0, 500.0):
        choice = replace(search(300), most_answers=most).choose({"true": sizes})
        answers = regions @ [Buckets.by_growth(300, growth).count if growth else 300 for growth in choice.growths]
        assert answers <= most
    assert replace(search(300), most_answers=1.0).choose({"true": sizes}).growths == (2.0,) * 3
    shares = {}
    for consistency in ("bottom_up", "matching", "auto"):
        folder = tmp_path / consistency
        folder.mkdir()
        privacy: dict[str, Any] = {"auto": {"look": "0", "time": "0.2 seconds"}}
        chosen = measure(config_of(folder, private=False, groups={"consistency": consistency}, **privacy)).config
        shares[consistency] = chosen.privacy.split
        assert chosen.method.consistency == ("joint" if consistency == "auto" else consistency)
    assert shares["bottom_up"][-1] == 1


def config_of(folder: Path, private: bool = True, groups: dict[str, Any] | None = None, **privacy: Any) -> Config:
    write_groups(folder)
    files = {key: f"{key}.csv" for key in ("entities", "groups", "hierarchy")}
    noise = {"dataset": "land"} if private else {"noise": "seeded", "seed": 7}
    auto = privacy.pop("auto", {})
    return configure(
        folder=folder,
        data=files,
        privacy={"epsilon": "1", **noise, **privacy},
        groups={"max_size": 20, **(groups or {})},
        auto=auto,
    )


def test_a_plain_private_release_pays_its_budget_in_two_parts_and_once(tmp_path: Path) -> None:
    outcome = release(config_of(tmp_path))
    assert outcome.paid
    assert paid(tmp_path) == ["GRANTED", "RESERVED", "MEASURED", "RESERVED", "MEASURED", "RELEASED", "RELEASED"]
    assert outcome.manifest["budget"]["epsilon"] == "1"
    assert len(outcome.manifest["measurements"]) == 2
    assert outcome.manifest["config"]["groups"]["consistency"] == "posterior"
    # Only the sum is guaranteed: later queries were chosen by earlier answers.
    assert set(outcome.manifest["budget"]["implied"]["curve"].values()) == {"1"}
    again = release(config_of(tmp_path))
    assert not again.paid
    assert again.folder == outcome.folder


@pytest.mark.parametrize(
    ("changes", "payments"),
    [
        ({}, 2),
        ({"auto": {"look": "0"}}, 1),
        ({"mechanism": "discrete_gaussian", "delta": "1/1000000"}, 1),
    ],
)
def test_another_version_of_the_choice_takes_up_what_was_measured(
    changes: dict[str, Any], payments: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = measure(config_of(tmp_path, **changes))
    monkeypatch.setattr(automatic, "GROWTHS", (0.07, 0.9))
    monkeypatch.setattr(planner, "RATIOS", (0.4,))
    again = measure(config_of(tmp_path, **changes))
    assert not again.paid
    assert again.measurement.measurement_plan.digest == first.measurement.measurement_plan.digest
    assert paid(tmp_path).count("RESERVED") == payments


@pytest.mark.parametrize(
    ("module", "function", "entries"),
    [
        ("coco_opt.releases.measure", "resolved", ["GRANTED", "RESERVED", "MEASURED"]),
        ("coco_opt.releases.runs", "write_measurement", ["GRANTED", "RESERVED"]),
    ],
    ids=["after the look", "before the look is sealed"],
)
def test_a_release_that_stopped_at_its_look_goes_on_without_paying_for_another(
    module: str, function: str, entries: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[module], function, stop)
        with pytest.raises(KeyboardInterrupt):
            measure(config_of(tmp_path))
    assert paid(tmp_path) == entries
    measured = measure(config_of(tmp_path))
    assert measured.paid
    assert measured.measurement.cost == Epsilon(Fraction(1))
    assert paid(tmp_path).count("RESERVED") == 2


def test_a_budget_that_does_not_hold_both_payments_is_refused_before_the_look(tmp_path: Path) -> None:
    measure(config_of(tmp_path, groups={"query": "ranks", "consistency": "matching"}, split="uniform", total="3/2"))
    before = paid(tmp_path)
    with pytest.raises(BudgetError):
        measure(config_of(tmp_path))
    assert paid(tmp_path) == before


@pytest.mark.parametrize(
    ("groups", "privacy", "consistency"),
    [
        ({"bucket_growth": 0.0}, {"split": "uniform"}, "posterior"),
        ({"bucket_growth": 0.0, "loss": "l2"}, {"split": "uniform"}, "joint"),
        ({"bucket_growth": 0.0, "merge": "average"}, {"split": "uniform"}, "matching"),
        ({"query": "sizes"}, {"split": "uniform"}, "matching"),
        ({"query": "ranks"}, {"split": "uniform"}, "posterior"),
        ({"bucket_growth": 0.0}, {"split": "uniform", "auto": {"time": "0.2 seconds"}}, "joint"),
        ({"consistency": "bottom_up"}, {"auto": {"look": "0"}}, "bottom_up"),
    ],
)
def test_keys_that_are_set_stay_and_the_method_fits_them(
    groups: dict[str, Any], privacy: dict[str, Any], consistency: str, tmp_path: Path
) -> None:
    outcome = measure(config_of(tmp_path, private=False, groups=groups, **privacy))
    assert outcome.config.method.consistency == consistency
    assert not outcome.measurement.also
    for key, value in groups.items():
        assert getattr(outcome.config.method, key) == value


def test_without_a_look_and_with_private_counts_there_is_one_payment(tmp_path: Path) -> None:
    for name, groups, auto in (("a", {}, {"look": "0"}), ("b", {"group_counts": "private"}, {})):
        folder = tmp_path / name
        folder.mkdir()
        outcome = release(config_of(folder, groups=groups, auto=auto))
        assert outcome.manifest["budget"]["epsilon"] == "1"
        assert paid(folder).count("RESERVED") == 1


def test_gaussian_budgets_take_a_look_in_rho_and_pairs_take_none(tmp_path: Path) -> None:
    rho = {"mechanism": "discrete_gaussian", "epsilon": None, "rho": "1/2"}
    write_groups(tmp_path)
    files = {key: f"{key}.csv" for key in ("entities", "groups", "hierarchy")}
    sections: dict[str, Any] = {"data": files, "groups": {"max_size": 20}}
    rho = {"mechanism": "discrete_gaussian", "rho": "1/2", "noise": "seeded", "seed": 1}
    looked = measure(configure(folder=tmp_path, **sections, privacy=rho))
    assert str(looked.measurement.cost.amount) == "1/2"
    assert len(looked.measurement.every) == 2
    pair = {"mechanism": "discrete_gaussian", "epsilon": "1", "delta": "1/1000000", "noise": "seeded", "seed": 1}
    assert len(measure(configure(folder=tmp_path, **sections, privacy=pair)).measurement.every) == 1


def test_the_noise_of_a_look_is_not_that_of_what_is_measured_after_it(tmp_path: Path) -> None:
    config = config_of(tmp_path, private=False, groups={"bucket_growth": 0.5}, auto={"look": "1/2"}, split="auto")
    one, two = (measure(config).measurement for _ in range(2))
    assert one.content == two.content
    main, look = one.every
    size = min(main.answers[0].values.size, look.answers[0].values.size)
    truth = measure(
        config_of(tmp_path, private=False, groups={"bucket_growth": 0.5}, epsilon="1000000", split="uniform")
    )
    exact = truth.measurement.answers[0].values[:size]
    noise = [measurement.answers[0].values[:size] - exact for measurement in (main, look)]
    assert (noise[0] != noise[1]).any()


@pytest.mark.parametrize(
    ("auto", "message"),
    [
        ({"aim": "best"}, "balanced"),
        ({"aim": [1, -1]}, "at least 0"),
        ({"look": "2"}, "part of the budget"),
        ({"time": "soon"}, "10 minutes"),
        ({"looks": "1/50"}, "look"),
    ],
)
def test_mistakes_in_the_section_name_its_key(auto: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(tmp_path, auto=auto)


def test_weights_need_one_a_level(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"auto\.aim"):
        measure(config_of(tmp_path, private=False, auto={"aim": [1, 2, 3, 4, 5, 6, 7]}))


def test_compared_releases_measure_what_a_look_at_their_data_chooses(tmp_path: Path) -> None:
    """Where sizes are dense, single sizes; what stands in for the choice before a look are buckets."""
    rows = [f"all,{part},{size},{20 + size % 3}\n" for part in "ns" for size in range(1, 201)]
    (tmp_path / "sizes.csv").write_text("nation,part,size,groups\n" + "".join(rows))
    config = configure(
        folder=tmp_path,
        data={"sizes": "sizes.csv"},
        privacy={"epsilon": "4", "split": "uniform", "dataset": "land"},
        groups={"max_size": 200, "consistency": "matching"},
    )
    single, buckets = trials(config, {"groups.bucket_growth": [0.0, 0.1]}, runs=2, public=tmp_path / "sizes.csv").rows
    (chosen,) = trials(config, {"privacy.epsilon": ["4"]}, runs=2, public=tmp_path / "sizes.csv").rows
    assert (chosen.errors.mean(axis=0) <= 1.5 * single.errors.mean(axis=0)).all()
    assert (buckets.errors.mean(axis=0) > 1.5 * chosen.errors.mean(axis=0)).all()


def test_a_range_over_several_distributions_holds_steeper_data_too() -> None:
    one = np.array([[6.0]])
    assert [float(end[0]) for end in range_of(one)] == pytest.approx([4.0, 13.2])
    assert [float(end[0]) for end in range_of(np.vstack([one, 2 * one]))] == pytest.approx([4 / 3, 26.4])


def test_other_data_never_meet_the_look_of_these(tmp_path: Path) -> None:
    measure(config_of(tmp_path, total="3"))
    other = config_of(tmp_path, dataset="other", ledger=str(tmp_path / "private" / "ledger.sqlite"), total="3")
    entities = tmp_path / "entities.csv"
    entities.write_text(entities.read_text().replace("e9,g5", "e9,g4"))
    measured_other = measure(other)
    assert measured_other.paid
    assert paid(tmp_path).count("RESERVED") == 4
    assert measured_other.measurement.cost == Epsilon(Fraction(1))
    with pytest.raises(InputError, match="on other data"):
        measure(_changed(tmp_path))


def _changed(folder: Path) -> Config:
    """Return the first configuration over entities that were changed since."""
    config = config_of(folder, total="3")
    entities = folder / "entities.csv"
    entities.write_text(entities.read_text().replace("e9,g5", "e9,g4"))
    return config


def test_a_check_refuses_other_data_under_the_look_of_these(tmp_path: Path) -> None:
    config = config_of(tmp_path, total="3")
    measure(config)
    assert "Would pay: nothing: run" in repr(check(config))
    assert check(config).plan.after_look == ", the main measurement alone: the look for epsilon = 1/50 was paid before"
    with pytest.raises(InputError, match="on other data"):
        check(_changed(tmp_path))


def test_the_convex_program_is_asked_for_what_it_reads_before_anything_is_paid(tmp_path: Path) -> None:
    outcome = release(config_of(tmp_path, groups={"consistency": "convex"}))
    assert set(outcome.manifest["method"]["bucket_starts"]) == {None}
    assert outcome.manifest["budget"]["epsilon"] == "1"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"groups": {"consistency": "joint"}}, {}),
        ({"split": "uniform"}, {}),
        ({"groups": {"bucket_growth": 0.5}}, {}),
        ({"auto": {"aim": "leaves"}}, {"auto": {"aim": "root"}}),
    ],
)
def test_other_open_keys_after_the_same_look_are_chosen_anew(
    first: dict[str, Any], then: dict[str, Any], tmp_path: Path
) -> None:
    measure(config_of(tmp_path, total="4", **first))
    again = measure(config_of(tmp_path, total="4", **then))
    assert sum(again.config.privacy.split) == 1
    assert again.measurement.cost == Epsilon(Fraction(1))
    stored = list((tmp_path / "private" / "runs").glob("*/chosen-*.json"))
    assert len(stored) == (1 if "consistency" in first.get("groups", {}) else 2)  # the method is free to change


@pytest.mark.parametrize(
    ("privacy", "keys", "losses"),
    [
        ({"epsilon": "1"}, {}, ["l1", "l1"]),
        ({"rho": "1/2", "mechanism": "discrete_gaussian"}, {}, ["l2", "l2"]),
        ({"rho": "1/2", "mechanism": "discrete_gaussian"}, {"loss": "l1"}, ["l1", "l1"]),
        ({"rho": "1/2", "mechanism": "discrete_gaussian"}, {"loss": ["auto", "l1"]}, ["l2", "l1"]),
        ({"rho": "1/2", "mechanism": "discrete_gaussian"}, {"ties": "lower"}, ["l1", "l1"]),
    ],
)
def test_the_loss_that_is_left_out_is_that_of_the_noise(
    privacy: dict[str, str], keys: dict[str, Any], losses: list[str]
) -> None:
    counts = {"nation": ["all"] * 4, "part": ["north", "north", "south", "south"], "size": [1, 2, 1, 3]}
    config = configure(
        data={"sizes": pa.table({**counts, "groups": [5, 6, 7, 8]})},
        privacy={**privacy, "noise": "seeded", "seed": 1},
        groups={"max_size": 4, "consistency": "matching", **keys},
    )
    result = estimate(measure(config))
    assert result.manifest["method"]["losses"] == losses
    assert {each.split("_")[-1] for each in result.manifest["solvers"] if each.startswith("isotonic")} == set(losses)
