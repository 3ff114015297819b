"""Predictions before a release: exact where the stage is linear, rehearsed on public data elsewhere."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coco_opt.config import Config
from coco_opt.errors import InputError
from coco_opt.groups.estimated.baselines import errors_by_level
from coco_opt.groups.estimated.estimate import GroupsMethod, estimate_groups
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.forecast import Predicted, count_cells, predicted
from coco_opt.groups.kind.look_alike import made_look_alike
from coco_opt.groups.kind.plan import buckets_of, queries_of
from coco_opt.releases.kind import Plan
from coco_opt.releases.reporter import Silent
from tests.groups.helpers import measured
from tests.groups.towns import config_of


def forecast(config: Config, public: Path | None = None, runs: int = 2) -> Predicted:
    return predicted(GROUPS.plan(config), public, runs, Silent())


def closed(plan: Plan) -> Plan:
    """Return the plan without its private file."""
    config = plan.config
    return replace(plan, config=replace(config, data=config.data.model_copy(update={"sizes": Path("absent.csv")})))


def test_a_forecast_reads_nothing_private_and_repeats(tmp_path: Path) -> None:
    plan = closed(GROUPS.plan(config_of(tmp_path)))
    first, second = predicted(plan, None, 2, Silent()), predicted(plan, None, 2, Silent())
    assert first.predictions == second.predictions
    assert first.seconds > 0
    assert "made data" in first.look_alike
    names = {(one.method, one.split, one.exact) for one in first.predictions}
    assert ("least_squares", "planned", True) in names
    assert ("matching", "planned", False) in names
    assert ("bottom_up", "leaves", False) in names
    assert all(len(one.errors) == 2 and sum(one.shares) == 1 for one in first.predictions)


def test_the_planned_split_is_the_best_of_its_method(tmp_path: Path) -> None:
    found = forecast(config_of(tmp_path))
    for exact in (True, False):
        method = "least_squares" if exact else "matching"
        rows = {one.split: one for one in found.predictions if (one.method, one.exact) == (method, exact)}
        assert set(rows) == {"uniform", "proportional", "square root", "planned"}
        assert rows["planned"].total == min(one.total for one in rows.values())
    assert found.best.total == rows["planned"].total
    shares = ", ".join(f'"{share}"' for share in found.best.shares)
    again = config_of(tmp_path, privacy=f"split = [{shares}]")
    assert tuple(cost.amount for cost in again.levels_cost(2)) == found.best.shares


def test_a_look_alike_predicts_the_release(tmp_path: Path) -> None:
    """Compare with the mean error of other seeded measurements of the look-alike itself."""
    config = config_of(tmp_path, consistency="bottom_up")
    found = forecast(config, tmp_path / "sizes.csv", runs=30)
    assert "sizes.csv" in found.look_alike
    (expected,) = (one for one in found.predictions if one.method == "bottom_up" and not one.exact)
    assert expected.shares == (0, Fraction(1))
    plan = GROUPS.plan(config)
    truth, method = GROUPS.read(plan).histograms(), GroupsMethod(("l1", "l1"), consistency="bottom_up")
    tree, errors = plan.asked.hierarchy, []
    for seed in range(30):
        noisy = measured(tree, truth, seed=seed, shares=[0, 1])
        errors.append(errors_by_level(tree, estimate_groups(noisy, method).histograms, truth)[0])
    assert expected.errors[0] == pytest.approx(np.mean(errors), rel=0.35)


def test_a_look_alike_of_another_depth_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flat.csv").write_text("nation,state,county,size,groups\na,b,c,1,2\n")
    with pytest.raises(InputError, match="has 3 levels, but the data to release have 2"):
        forecast(config_of(tmp_path), tmp_path / "flat.csv")


def test_made_data_have_the_public_shape(tmp_path: Path) -> None:
    plan = GROUPS.plan(config_of(tmp_path))
    made = made_look_alike(plan)
    assert made.private.group_counts.tolist() == plan.asked.per_region["groups"].tolist()
    assert made.private.sizes.max() <= 12
    assert made.plan.asked.digest == plan.asked.digest
    cut = made_look_alike(plan, branches=2)
    assert cut.plan.asked.hierarchy.paths == plan.asked.hierarchy.paths[:3]
    assert cut.private.group_counts.tolist()[1:] == plan.asked.per_region["groups"].tolist()[1:3]


def test_cells_are_what_is_measured(tmp_path: Path) -> None:
    config = config_of(tmp_path, query=["sizes", "ranks"])
    asked = GROUPS.plan(config).asked
    assert count_cells(asked, queries_of(config, 2), [None, None]) == (13, int(asked.per_region["groups"][0]))
    bucketed = config_of(tmp_path, bucket_growth=[0.5, 0])
    assert count_cells(GROUPS.plan(bucketed).asked, queries_of(bucketed, 2), buckets_of(bucketed, 2)) == (7, 36)


def test_what_is_shown_are_the_predictions(tmp_path: Path) -> None:
    shown = GROUPS.forecast(GROUPS.plan(config_of(tmp_path, consistency="joint")), None, 1, Silent())
    exact, simulated = shown.tables
    assert exact.header == ("method", "split", "shares", "nation", "state", "sum")
    assert {row[0] for row in simulated.rows} == {"joint", "matching", "bottom_up", "none"}
    assert len(shown.plain["predictions"]) == len(exact.rows) + len(simulated.rows)
    assert [name for name, _ in shown.notes] == ["Simulated on", "Best split"]
    assert shown.memory == 16 * 8 * 4 * 12


def test_bootstrap_variances_are_not_redrawn_in_the_search_for_a_split(tmp_path: Path) -> None:
    """The planned split is that of the formula's variances; its prediction is of the bootstrap's."""
    plain, booted = (forecast(config_of(tmp_path, variances=rule)) for rule in ("formula", "bootstrap"))
    assert plain.best.shares == booted.best.shares or booted.best.split != "planned"
    uniform = [
        next(one for one in found.predictions if one.method == "matching" and one.split == "uniform")
        for found in (plain, booted)
    ]
    assert uniform[0].errors != uniform[1].errors
