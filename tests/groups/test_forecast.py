"""Predictions before a release: exact where the stage is linear, rehearsed on public data elsewhere."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coco_opt import Config, Epsilon, SeededNoise, SolverChoices, estimate_groups
from coco_opt import forecast as plan_forecast
from coco_opt.errors import InputError
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.forecast import ExpectedErrors, readable_methods, rehearsed
from coco_opt.groups.kind.rehearsal import Rehearsal, branch_answers, branches_within, extrapolated, part_of
from coco_opt.groups.kind.simulated_data import read_simulated_data, simulated_data_of
from coco_opt.groups.measuring.measure import look_of
from coco_opt.groups.measuring.measure import measured as noisy
from coco_opt.histograms import Hierarchy, errors_by_level
from coco_opt.releases.kind import ForecastOptions, Plan
from coco_opt.releases.reporter import Silent
from tests.groups.helpers import config_of, measured


def forecast(config: Config, public: Path | None = None, runs: int = 1) -> ExpectedErrors:
    plan = GROUPS.plan(config)
    return rehearsed(plan, None if public is None else read_simulated_data(plan, public), runs, Silent())


def closed(plan: Plan) -> Plan:
    """Return the plan without its private file."""
    config = plan.config
    return replace(plan, config=replace(config, data=config.data.model_copy(update={"sizes": Path("absent.csv")})))


def test_a_forecast_reads_nothing_private_and_repeats(tmp_path: Path) -> None:
    plan = closed(GROUPS.plan(config_of(tmp_path)))
    first, second = rehearsed(plan, None, 2, Silent()), rehearsed(plan, None, 2, Silent())
    assert first.plain == second.plain
    assert first.seconds > 0
    assert "simulated data" in first.words
    assert {(prediction["method"], prediction["split"]) for prediction in first.plain} == {
        ("matching", "as configured"),
        ("posterior", "as configured"),
        ("joint", "as configured"),
        ("bottom_up", "leaves"),
    }
    assert all(len(each["errors"]) == 2 and sum(map(Fraction, each["shares"])) == 1 for each in first.plain)


def test_only_methods_that_read_what_is_asked_are_compared(tmp_path: Path) -> None:
    assert {prediction["method"] for prediction in forecast(config_of(tmp_path, query="ranks")).plain} == {
        "matching",
        "posterior",
        "bottom_up",
    }
    left_out = config_of(tmp_path, privacy='split = ["1", "0"]', consistency="joint")
    assert {prediction["method"] for prediction in forecast(left_out).plain} == {"joint", "posterior"}


def test_a_look_alike_predicts_the_release(tmp_path: Path) -> None:
    """Compare with the mean error of other seeded measurements of the simulated data itself."""
    config = config_of(tmp_path, consistency="bottom_up", query="ranks")
    result = forecast(config, tmp_path / "sizes.csv", runs=2)
    assert "sizes.csv" in result.words
    assert [each["shares"] for each in result.plain if each["method"] == "bottom_up"] == [["0", "1"]]
    config = config_of(tmp_path, consistency="bottom_up", privacy='split = "leaves"')
    plan = GROUPS.plan(config)
    rehearsal = Rehearsal(read_simulated_data(plan, tmp_path / "sizes.csv"))
    predicted, _ = rehearsal.errors(readable_methods(plan)["bottom_up"], 30, SolverChoices())
    truth, method = GROUPS.read(plan).histograms(), GroupsMethod(("l1", "l1"), consistency="bottom_up")
    tree, errors = plan.measurement_plan.hierarchy, []
    for seed in range(30):
        noisy = measured(tree, truth, seed=seed, shares=[0, 1])
        errors.append(errors_by_level(tree, estimate_groups(noisy, method).histograms, truth)[0])
    assert predicted[:, 0].mean() == pytest.approx(np.mean(errors), rel=0.35)


def test_a_look_alike_of_another_depth_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flat.csv").write_text("nation,state,county,size,groups\na,b,c,1,2\n")
    with pytest.raises(InputError, match="has 3 levels, but the data to release have 2"):
        forecast(config_of(tmp_path), tmp_path / "flat.csv")


def test_a_part_of_a_look_alike_has_its_first_branches(tmp_path: Path) -> None:
    plan = GROUPS.plan(config_of(tmp_path))
    like = read_simulated_data(plan, tmp_path / "sizes.csv")
    for public in (None, like):
        part = part_of(plan, public, 2)
        assert part.plan.measurement_plan.hierarchy.paths == plan.measurement_plan.hierarchy.paths[:3]
        assert part.private.group_counts.tolist()[1:] == plan.measurement_plan.per_region["groups"].tolist()[1:3]
    assert part_of(plan, like, None) is like
    assert (branch_answers(plan, 1), branch_answers(plan, 3)) == (24, 48)
    assert [branches_within(plan, answers) for answers in (0, 24, 36, 47, 48)] == [1, 1, 2, 2, None]


def test_errors_of_a_part_grow_by_the_power_that_it_shows() -> None:
    tree = Hierarchy.from_paths([("r", f"m{k // 9}", f"l{k}") for k in range(81)])
    part, _ = tree.first_branches(3)
    below = np.array([9.0, 3.0, 1.0])
    for power in (0.0, 0.5, 1.0):
        assert extrapolated(2.0 * below**power, part, tree) == pytest.approx(2.0 * np.array([81.0, 9.0, 1.0]) ** power)
    assert extrapolated(below**3.0, part, tree)[0] == pytest.approx(9.0**3 * 9.0)  # at most in proportion
    assert extrapolated(below, tree, tree).tolist() == below.tolist()


def test_time_and_memory_follow_rows_and_answers(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    few, many = (plan_forecast(config, rows=rows) for rows in (100, 100_000_000))
    assert few.stages is not None
    assert many.stages is not None
    assert many.stages["read"].seconds > 20 + few.stages["read"].seconds
    assert many.memory is not None
    assert few.memory is not None
    assert many.memory > 10 * few.memory
    assert list(few.stages) == ["start", "read", "measure", "estimate", "write"]
    assert few.seconds == pytest.approx(sum(stage.seconds for stage in few.stages.values()))
    wide = plan_forecast(config_of(tmp_path, max_size=1_000_000))
    assert wide.memory is not None
    assert wide.memory > few.memory + 8 * 4_000_000


def test_sizes_are_simulated_as_the_look_suggests(tmp_path: Path) -> None:
    plan = GROUPS.plan(config_of(tmp_path))
    truth = simulated_data_of(plan, None, np.eye(13)[9]).private.histograms()  # nearly all groups have size 9
    look = look_of(plan.measurement_plan, Epsilon(Fraction(50)))
    after = replace(plan, also=(noisy(look, truth, SeededNoise(1)),))
    before, looked = part_of(plan, None, 1), part_of(after, None, 1)
    assert "proportion to 1/s^2, an assumption" in before.words
    assert "as the look suggests" in looked.words
    assert looked.private.sizes.mean() > 6 > 4 > before.private.sizes.mean()


def test_chosen_queries_and_their_expected_errors_are_the_same_figures(tmp_path: Path) -> None:
    open_keys = {"bucket_growth": "auto", "privacy": 'split = "auto"', "consistency": "posterior"}
    shown = plan_forecast(config_of(tmp_path, max_size=60, **open_keys)).predicted.tables
    choices, expected = (next(table for table in shown if table.title.startswith(text)) for text in ("Chosen", "Expec"))
    assert choices.rows[0][-2:] == expected.rows[0][-2:]


@pytest.mark.parametrize("consistency", ["posterior", "joint", "bottom_up"])
def test_an_error_lies_in_the_expected_range(consistency: Consistency, tmp_path: Path) -> None:
    config = config_of(tmp_path, consistency=consistency, bucket_growth=0.0, privacy='split = "uniform"')
    plan = GROUPS.plan(config)
    expected = GROUPS.forecast(plan, ForecastOptions(), Silent()).plain["predictions"][-1]
    truth, method = GROUPS.read(plan).histograms(), GroupsMethod(("l1", "l1"), consistency=consistency)
    tree = plan.measurement_plan.hierarchy
    noisy = [measured(tree, truth, seed=seed, shares=[Fraction(1, 2)] * 2) for seed in range(3)]
    runs = [errors_by_level(tree, estimate_groups(each, method).histograms, truth) for each in noisy]
    errors = np.mean(runs, axis=0)
    assert all(low <= error <= high for low, error, high in zip(expected["low"], errors, expected["high"], strict=True))
    assert all(high < 100 * low for low, high in zip(expected["low"], expected["high"], strict=True))
