"""A whole run from tables to a folder: promises, exact budgets, private records, and what stays out of the public."""

from __future__ import annotations

import json
import os
import stat
from fractions import Fraction
from pathlib import Path

import pytest

from coco_opt.config import Config, parse_config
from coco_opt.errors import ConfigError, InputError, ProblemError
from coco_opt.report import render_report
from coco_opt.runs import ReleaseOutcome, run_release
from coco_opt.runs.release import Truth, errors_by_level
from coco_opt.tables import read_release, read_sizes, verify_release

SIZES = "nation,state,size,groups\n" + "".join(
    f"land,{state},{size},{groups}\n"
    for state, counts in (("north", (2, 30, 21, 9, 1)), ("south", (0, 12, 40, 3, 2)), ("east", (1, 5, 2, 2, 0)))
    for size, groups in enumerate(counts)
)
THREE = {
    "entities": "entity_id,group_id\n" + "".join(f"e{k},g{k % 7}\n" for k in range(30)),
    "groups": "group_id,region_id\n" + "".join(f"g{k},r{k % 2}\n" for k in range(8)),
    "hierarchy": "region_id,nation,state\nr0,land,north\nr1,land,south\n",
}


class Said:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stages: list[str] = []
        self.progress: list[tuple[int, int]] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def stage(self, label: str) -> Said:
        self.stages.append(label)
        return self

    def __enter__(self) -> Said:
        return self

    def __exit__(self, *failure: object) -> None:
        return None

    def __call__(self, done: int, total: int) -> None:
        self.progress.append((done, total))


def settings(folder: Path, *, privacy: str = 'noise = "seeded"\nseed = 9', **groups: object) -> Config:
    """Return a configuration over a table of counts with epsilon 1."""
    (folder / "sizes.csv").write_text(SIZES)
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {"max_size": 12, **groups}.items())
    text = f'[data]\nsizes = "sizes.csv"\n[privacy]\nepsilon = "1"\n{privacy}\n[groups]\n{lines}\n'
    return parse_config(text, folder, file="towns.toml")


def held(outcome: ReleaseOutcome) -> list[str]:
    """Return the names of the checks, all of which must pass."""
    checks = verify_release(outcome.folder)
    assert [check for check in checks if not check.passed] == []
    return [check.name for check in checks]


@pytest.mark.parametrize("consistency", ["matching", "bottom_up", "none"])
@pytest.mark.parametrize("loss", ["l1", "l2"])
@pytest.mark.parametrize("estimator", ["naive", "rank", "cumulative"])
def test_every_method_keeps_its_promises(estimator: str, loss: str, consistency: str, tmp_path: Path) -> None:
    config = settings(tmp_path, estimator=estimator, loss=loss, consistency=consistency)
    outcome = run_release(config, tmp_path / "out")
    assert ("children_sum_to_parents" in held(outcome)) == (consistency != "none")
    released = read_release(tmp_path / "out")
    assert released.hierarchy.regions == 4
    kinds = {"naive": {"simplex_projection", "controlled_rounding"}}.get(estimator, {f"isotonic_{loss}"})
    if consistency == "matching":
        kinds = kinds | {"group_matching"}
    assert set(outcome.manifest["solvers"]) == kinds


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_joint_estimation_keeps_its_promises(loss: str, tmp_path: Path) -> None:
    outcome = run_release(settings(tmp_path, loss=loss, consistency="joint"), tmp_path / "out")
    assert "children_sum_to_parents" in held(outcome)
    assert set(outcome.manifest["solvers"]) == {f"joint_{loss}", "cumulative_rounding"}


@pytest.mark.parametrize(("key", "value"), [("estimator", "rank"), ("loss", ["l1", "l2"])])
def test_joint_estimation_refuses_what_it_cannot_read(key: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"groups.{key}\] joint estimation"):
        run_release(settings(tmp_path, consistency="joint", **{key: value}), tmp_path / "out")


def test_three_tables_and_estimators_by_level(tmp_path: Path) -> None:
    for name, text in THREE.items():
        (tmp_path / f"{name}.csv").write_text(text)
    paths = "\n".join(f'{name} = "{name}.csv"' for name in THREE)
    text = f'[data]\n{paths}\n[privacy]\nepsilon = "2"\nnoise = "seeded"\nseed = 1\nsplit = ["1/4", "3/4"]\n'
    config = parse_config(text + '[groups]\nmax_size = 9\nestimator = ["rank", "cumulative"]\n', tmp_path)
    outcome = run_release(config, tmp_path / "out")
    held(outcome)
    levels = outcome.manifest["budget"]["levels"]
    assert [level["epsilon"] for level in levels] == ["1/2", "3/2"]
    assert [level["noise_scale"] for level in levels] == ["2", "2/3"]
    assert int(outcome.page.measurements.group_counts[0]) == 8


def test_bottom_up_spends_everything_on_the_leaves(tmp_path: Path) -> None:
    outcome = run_release(settings(tmp_path, consistency="bottom_up"), tmp_path / "out")
    assert [level["epsilon"] for level in outcome.manifest["budget"]["levels"]] == ["0", "1"]
    assert outcome.page.measurements.epsilon_spent == Fraction(1)
    assert outcome.page.measurements.answers[0] is None


def test_a_huge_budget_returns_the_truth(tmp_path: Path) -> None:
    config = settings(tmp_path)
    text = '[data]\nsizes = "sizes.csv"\n[privacy]\nepsilon = "400"\nnoise = "seeded"\nseed = 1\n'
    config = parse_config(text + "[groups]\nmax_size = 12\n", tmp_path)
    outcome = run_release(config, tmp_path / "out")
    truth = read_sizes(tmp_path / "sizes.csv").histograms()
    assert errors_by_level(outcome.result.hierarchy, truth, outcome.result.histograms) == [0.0, 0.0]


def test_the_same_seed_writes_the_same_public_files(tmp_path: Path) -> None:
    config = settings(tmp_path)
    folders = [run_release(config, tmp_path / name, page=render_report).folder for name in ("one", "two")]
    for name in ("histograms.parquet", "hierarchy.parquet", "manifest.json", "report.html"):
        first, second = (folder.joinpath(name).read_bytes() for folder in folders)
        assert first == second, name


def test_the_chosen_solver_is_used_and_named(tmp_path: Path) -> None:
    text = '[data]\nsizes = "sizes.csv"\n[privacy]\nepsilon = "1"\nnoise = "seeded"\nseed = 9\n'
    text += '[groups]\nmax_size = 12\nloss = "l2"\n[solvers]\nisotonic_l2 = { name = "piqp", tolerance = 1e-5 }\n'
    settings(tmp_path)
    outcome = run_release(parse_config(text, tmp_path), tmp_path / "out")
    assert outcome.manifest["solvers"]["isotonic_l2"]["solver"] == "piqp"
    assert 0 <= outcome.manifest["solvers"]["isotonic_l2"]["worst_relative_gap"] <= 1e-5
    held(outcome)


def test_what_is_private_stays_in_the_private_record(tmp_path: Path) -> None:
    said = Said()
    outcome = run_release(settings(tmp_path), reporter=said, page=render_report)
    assert outcome.folder.parent == tmp_path / "releases"
    assert outcome.folder.name.startswith("towns-")
    assert stat.S_IMODE(outcome.record.stat().st_mode) == 0o600
    assert stat.S_IMODE(outcome.record.parent.stat().st_mode) == 0o700
    record = json.loads(outcome.record.read_text())
    assert record["identity"]["rows_read"] == record["identity"]["rows_counted"] == 15
    assert record["identity"]["groups_at_root"] == record["identity"]["groups_in_input"]
    assert set(record["seconds"]) == {"read_public", "read_private", "measure", "estimate", "write"}
    manifest = (outcome.folder / "manifest.json").read_text()
    for word in ("seconds", "rows", "identity", str(tmp_path)):
        assert word not in manifest
    assert said.lines == [outcome.spent]
    assert (4, 4) in said.progress


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_an_open_private_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o755)
    (tmp_path / "private").chmod(0o755)
    with pytest.raises(ConfigError, match=r"output\.private.*chmod 700"):
        run_release(settings(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_targets_are_checked_before_anything_is_spent(tmp_path: Path) -> None:
    config = settings(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="folder-exists"):
        run_release(config, tmp_path / "file")
    with pytest.raises(InputError, match="cannot-write"):
        run_release(config, tmp_path / "file" / "below")
    assert not (tmp_path / "private").exists()


def test_no_truth_beside_a_private_release(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    config = settings(tmp_path, privacy="")
    truth = Truth(read_sizes(tmp_path / "sizes.csv").histograms())
    with pytest.raises(ProblemError, match="truth"):
        run_release(config, tmp_path / "out", truth=truth)
    assert not (tmp_path / "out").exists()
    outcome = run_release(config, tmp_path / "out")
    assert outcome.manifest["status"] == "private"
    assert outcome.spent.startswith("PRIVATE: epsilon = 1 spent")
    assert outcome.page.errors() == {}
