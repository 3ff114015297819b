"""Predictions before a release: exact where the stage is linear, rehearsed on public data elsewhere."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from coco_opt.config import Config, parse_config
from coco_opt.errors import InputError
from coco_opt.privacy import Measurements
from coco_opt.runs import plan as plan_module
from coco_opt.runs import run_release
from coco_opt.runs.plan import plan_release
from coco_opt.runs.predict import Forecast, count_cells, forecast, made_look_alike
from coco_opt.tables import PrivateCounts

SIZES = "nation,state,size,groups\n" + "".join(
    f"land,{state},{size},{groups}\n"
    for state, counts in (("north", (2, 30, 21, 9, 1)), ("south", (0, 12, 40, 3, 2)), ("east", (1, 5, 2, 2, 0)))
    for size, groups in enumerate(counts)
)


def settings(folder: Path, *, privacy: str = "", **groups: object) -> Config:
    (folder / "sizes.csv").write_text(SIZES)
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {"max_size": 12, **groups}.items())
    text = f'[data]\nsizes = "sizes.csv"\n[privacy]\nepsilon = "1"\n{privacy}\n[groups]\n{lines}\n'
    return parse_config(text, folder, file="towns.toml")


@pytest.fixture
def no_private_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object) -> PrivateCounts:
        raise AssertionError("the private table was read")

    for name in ("read_sizes", "read_private"):
        monkeypatch.setattr(plan_module, name, opened)


@pytest.mark.usefixtures("no_private_table")
def test_a_forecast_spends_nothing_and_repeats(tmp_path: Path) -> None:
    config = settings(tmp_path)
    first, second = forecast(config, runs=2), forecast(config, runs=2)
    assert first.predictions == second.predictions
    assert not (tmp_path / "private").exists()
    assert first.cells == (12, 36)
    assert first.sealed == 8 * 48
    assert first.memory > first.sealed
    assert first.seconds > 0
    assert "made data" in first.look_alike
    names = {(one.method, one.split, one.exact) for one in first.predictions}
    assert ("least_squares", "planned", True) in names
    assert ("matching", "planned", False) in names
    assert ("bottom_up", "leaves", False) in names
    assert all(len(one.errors) == 2 and sum(one.shares) == 1 for one in first.predictions)


def test_the_planned_split_is_the_best_of_its_method(tmp_path: Path) -> None:
    found = forecast(settings(tmp_path), runs=2)
    for exact in (True, False):
        method = "least_squares" if exact else "matching"
        rows = {one.split: one for one in found.predictions if (one.method, one.exact) == (method, exact)}
        assert set(rows) == {"uniform", "proportional", "square root", "planned"}
        assert rows["planned"].total == min(one.total for one in rows.values())
    assert found.best.total == rows["planned"].total
    shares = ", ".join(f'"{share}"' for share in found.best.shares)
    assert plan_release(settings(tmp_path, privacy=f"split = [{shares}]")).budget.levels == found.best.shares


def test_a_look_alike_predicts_the_release(tmp_path: Path) -> None:
    """Compare with the mean error of seeded releases of the look-alike itself."""
    config = settings(tmp_path, consistency="bottom_up")
    found = forecast(config, tmp_path / "sizes.csv", runs=30)
    assert "sizes.csv" in found.look_alike
    (predicted,) = (one for one in found.predictions if one.method == "bottom_up" and not one.exact)
    assert predicted.shares == (0, Fraction(1))
    errors = [released_error(tmp_path, seed) for seed in range(30)]
    assert predicted.errors[0] == pytest.approx(sum(errors) / len(errors), rel=0.35)


def released_error(folder: Path, seed: int) -> float:
    from coco_opt.runs.release import errors_by_level
    from coco_opt.tables import read_sizes

    config = settings(folder, privacy=f'noise = "seeded"\nseed = {seed}', consistency="bottom_up")
    outcome = run_release(config, folder / f"out{seed}")
    assert isinstance(outcome.page.measurements, Measurements)
    truth = read_sizes(folder / "sizes.csv").histograms()
    return errors_by_level(outcome.result.hierarchy, truth, outcome.result.histograms)[0]


def test_a_look_alike_of_another_depth_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flat.csv").write_text("nation,state,county,size,groups\na,b,c,1,2\n")
    with pytest.raises(InputError, match="has 3 levels, but the data to release have 2"):
        forecast(settings(tmp_path), tmp_path / "flat.csv")


def test_made_data_have_the_public_shape(tmp_path: Path) -> None:
    plan = plan_release(settings(tmp_path))
    made = made_look_alike(plan)
    assert made.group_counts.tolist() == plan.group_counts.tolist()
    assert max(int(one.sizes.max()) for one in made.histograms) <= 12


def test_cells_are_what_is_measured(tmp_path: Path) -> None:
    plan = plan_release(settings(tmp_path, estimator=["naive", "rank"]))
    assert count_cells(plan.queries, plan.hierarchy, plan.group_counts, 12) == (13, int(plan.group_counts[0]))
    found: Forecast = forecast(settings(tmp_path, estimator=["naive", "rank"], consistency="bottom_up"), runs=1)
    assert found.sealed == 8 * int(plan.group_counts[0])
