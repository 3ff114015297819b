"""Releases of tables of persons from configuration to folder: paid once, resumed, verified, refused in time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from coco_opt.config import TablesConfig, load_any
from coco_opt.errors import CocoOptError, ConfigError, InputError
from coco_opt.privacy import SeededNoise
from coco_opt.privacy.ledger import Ledger
from coco_opt.report.tables import render_tables_report
from coco_opt.runs.publish import folder_digest
from coco_opt.runs.reporter import Silent
from coco_opt.runs.tables import release as module
from coco_opt.runs.tables.checkpoints import LevelFiles
from coco_opt.runs.tables.plan import plan_tables, read_private_tables
from coco_opt.runs.tables.predict import forecast_tables
from coco_opt.runs.tables.release import run_tables
from coco_opt.tables import verify_release
from coco_opt.tables.persons import read_tables_release
from coco_opt.topdown.measure import measure_tables
from coco_opt.topdown.release import linear_estimates

HIERARCHY = "region_id,nation,state,county\n" + "".join(
    f"r{state}{county},land,s{state},c{county}\n" for state in range(2) for county in range(3)
)
SEX, AGE = ("female", "male"), ("child", "adult", "old")
SEEDED = 'epsilon = "2"\nnoise = "seeded"\nseed = 5\n'
SECURE = 'epsilon = "2"\n'
TOPDOWN = """attributes = { sex = ["female", "male"], age = ["child", "adult", "old"] }
workload = ["total", "sex", "sex * age"]
"""


def records(persons: int = 300, forbid: str = "") -> str:
    rng = np.random.default_rng(11)
    lines = ["region_id,sex,age"]
    while len(lines) <= persons:
        region = f"r{rng.integers(2)}{rng.integers(3)}"
        line = f"{region},{SEX[rng.integers(2)]},{AGE[rng.integers(3)]}"
        if not forbid or forbid not in line:
            lines.append(line)
    return "\n".join(lines) + "\n"


def write(
    folder: Path,
    privacy: str = SEEDED,
    topdown: str = TOPDOWN,
    persons: str | None = None,
    more: str = "",
    data: str = "",
) -> TablesConfig:
    (folder / "hierarchy.csv").write_text(HIERARCHY)
    (folder / "persons.csv").write_text(records() if persons is None else persons)
    (folder / "run.toml").write_text(
        f'[data]\nrecords = "persons.csv"\nhierarchy = "hierarchy.csv"\n{data}'
        f"[privacy]\n{privacy}[topdown]\n{topdown}{more}"
    )
    config = load_any(folder / "run.toml")
    assert isinstance(config, TablesConfig)
    return config


def failing(folder: Path) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in verify_release(folder) if not check.passed]


@pytest.mark.parametrize("estimation", ["full", "classic", "bottom_up"])
@pytest.mark.parametrize("strategy", ['"workload"', '"identity"', '"optimised"', '["total", "detail"]'])
def test_every_method_releases_what_it_promises(tmp_path: Path, estimation: str, strategy: str) -> None:
    topdown = f'{TOPDOWN}estimation = "{estimation}"\nstrategy = {strategy}\nmicrodata = true\n'
    outcome = run_tables(write(tmp_path, topdown=topdown), tmp_path / "out", page=render_tables_report)
    assert failing(outcome.folder) == []
    assert outcome.spent.startswith("NOT PRIVATE")
    assert {path.name for path in outcome.folder.iterdir()} == {
        "tables.parquet",
        "hierarchy.parquet",
        "manifest.json",
        "estimates.parquet",
        "microdata.parquet",
        "report.html",
    }
    assert "<h2>Solvers and certificates</h2>" in (outcome.folder / "report.html").read_text()


def test_without_much_noise_the_release_is_the_data(tmp_path: Path) -> None:
    outcome = run_tables(write(tmp_path, privacy=SEEDED.replace('"2"', '"200"')), tmp_path / "out")
    found = read_tables_release(outcome.folder)
    truth: dict[str, int] = {}
    for line in records().splitlines()[1:]:
        truth[line] = truth.get(line, 0) + 1
    for line, persons in truth.items():
        region, sex, age = line.split(",")
        table = found.table(f"land/s{region[1]}/c{region[2]}")
        assert table[3 * SEX.index(sex) + AGE.index(age)] == persons
    assert found.table("land").sum() == 300
    estimates = pq.read_table(outcome.folder / "estimates.parquet").to_pydict()
    total = estimates["answer"].index("total")
    assert estimates["estimate"][total] == pytest.approx(300, abs=0.1)


def test_invariants_zeros_and_bounds_hold_exactly(tmp_path: Path) -> None:
    (tmp_path / "bounds.csv").write_text(
        "region,query,answer,lower,upper\nland/s0/c1,sex,sex = female,3,40\nland/s1/c2,total,total,,90\n"
    )
    config = write(
        tmp_path,
        privacy='epsilon = "1/2"\nnoise = "seeded"\nseed = 3\nneighbours = "replace"\n',
        topdown=TOPDOWN + 'structural_zeros = ["sex = male & age = old"]\n',
        persons=records(forbid="male,old"),
        more='[[topdown.invariants]]\nquery = "total"\nlevel = "state"\n',
        data='bounds = "bounds.csv"\n',
    )
    outcome = run_tables(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    manifest = json.loads((outcome.folder / "manifest.json").read_text())
    assert {"invariants", "structural_zeros"} <= set(manifest["promises"])
    found = read_tables_release(outcome.folder)
    lines = records(forbid="male,old").splitlines()[1:]
    for state in range(2):
        true = sum(line.startswith(f"r{state}") for line in lines)
        assert found.table(f"land/s{state}").sum() == true
    assert found.table("land").sum() == len(lines)
    stated = pq.read_table(outcome.folder / "invariants.parquet").to_pydict()
    assert {"land/s0", "land/s1", "land/s0/c1", "land/s1/c2"} <= set(stated["region"])
    assert None in stated["upper"]
    assert 90 in stated["upper"]


def ledger(folder: Path) -> list[str]:
    path = folder / "private" / "ledger.sqlite"
    return [entry.kind for entry in Ledger(path).entries()] if path.exists() else []


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch, where: str) -> Iterator[None]:
    class StoppedError(Exception):
        pass

    def stop(*_: object, **__: object) -> Any:
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(module, where, stop)
        with pytest.raises(StoppedError):
            yield


@pytest.mark.parametrize("where", ["estimate_tables", "manifest_of_tables", "publish", "write_private_record"])
def test_an_interrupted_run_is_resumed_and_pays_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    config = write(tmp_path, privacy=SECURE)
    with interrupted(monkeypatch, where):
        run_tables(config, tmp_path / "out")
    outcome = run_tables(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    assert ledger(tmp_path) == ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]
    entries = Ledger(tmp_path / "private" / "ledger.sqlite").entries()
    assert entries[-1].digest == folder_digest(outcome.folder)
    record = json.loads(outcome.record.read_text())
    assert record["identity"]["persons"] == 300
    assert "persons" not in json.dumps(json.loads((outcome.folder / "manifest.json").read_text())["budget"])


def test_a_level_that_was_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(tmp_path, privacy=SECURE)
    real, kept = LevelFiles.keep, []

    def keep(self: LevelFiles, done: Any) -> None:
        real(self, done)
        kept.append(done.level)
        if done.level == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(LevelFiles, "keep", keep)
    with pytest.raises(KeyboardInterrupt):
        run_tables(config, tmp_path / "out")
    assert kept == [0, 1]
    outcome = run_tables(config, tmp_path / "out")
    assert kept == [0, 1, 2]
    assert failing(outcome.folder) == []


def test_an_infeasible_release_names_region_and_constraint(tmp_path: Path) -> None:
    (tmp_path / "bounds.csv").write_text(
        "region,query,answer,lower,upper\nland/s0,total,total,50,60\nland/s0/c0,total,total,70,\n"
    )
    with pytest.raises(CocoOptError, match=r"s0") as caught:
        run_tables(write(tmp_path, privacy=SECURE, data='bounds = "bounds.csv"\n'), tmp_path / "out")
    assert "total" in str(caught.value)
    assert ledger(tmp_path) == []


BAD = [
    ("passes", TOPDOWN + 'passes = [{ queries = ["sx"] }]\n', ConfigError, "did you mean 'sex'"),
    ("workload", TOPDOWN.replace('"sex * age"', '"sex * height"'), ConfigError, "height"),
    ("structural_zeros", TOPDOWN + 'structural_zeros = ["sex = mal"]\n', ConfigError, "male"),
    ("strategy", TOPDOWN + 'strategy = ["size"]\n', ConfigError, "size"),
    ("attributes", TOPDOWN.replace("sex =", "region ="), ConfigError, "another name"),
    ("invariants", TOPDOWN + 'invariants = [{ query = "total", level = "town" }]\n', ConfigError, "no level"),
    ("invariants", TOPDOWN + 'invariants = [{ query = "total", level = "state" }]\n', ConfigError, "replace"),
]


@pytest.mark.parametrize("gap", [0.0, 0.25])
def test_roundings_that_were_not_proved_nearest_are_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: float
) -> None:
    real: Any = vars(module)["estimate_tables"]
    if gap:
        monkeypatch.setattr(module, "estimate_tables", lambda *one, **more: replace(real(*one, **more), unproved=gap))
    outcome = run_tables(write(tmp_path), tmp_path / "out", page=render_tables_report)
    assert json.loads((outcome.folder / "manifest.json").read_text())["unproved_rounding"] == gap
    assert failing(outcome.folder) == []
    page = (outcome.folder / "report.html").read_text()
    assert ("<h2>Roundings not proved nearest</h2>" in page) == (gap > 0.0)
    assert ("at most 0.25 of their distance" in page) == (gap > 0.0)


def test_queries_are_fitted_in_passes(tmp_path: Path) -> None:
    passes = 'passes = [{ queries = ["total"] }, { queries = ["sex"], tolerance = 2.0 }]\n'
    outcome = run_tables(write(tmp_path, topdown=TOPDOWN + passes), tmp_path / "out")
    assert failing(outcome.folder) == []
    assert outcome.manifest["config"]["topdown"]["passes"][1] == {"queries": ["sex"], "tolerance": 2.0}


@pytest.mark.parametrize(("key", "topdown", "kind", "words"), BAD)
def test_a_wrong_configuration_spends_nothing(
    tmp_path: Path, key: str, topdown: str, kind: type[CocoOptError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        run_tables(write(tmp_path, privacy=SECURE, topdown=topdown), tmp_path / "out")
    assert f"topdown.{key}" in str(caught.value)
    assert caught.value.exit_code == 2
    assert ledger(tmp_path) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("persons", "code"),
    [
        (records().replace("r00,", "r99,", 1), "unknown-region"),
        (records().replace("female", "zebra", 1), "unknown-value"),
        ("region_id,sex\nr00,male\n", "missing-column"),
    ],
)
def test_bad_records_are_refused_at_their_row(tmp_path: Path, persons: str, code: str) -> None:
    with pytest.raises(InputError, match=code) as caught:
        run_tables(write(tmp_path, persons=persons), tmp_path / "out")
    assert "zebra" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_shares_and_levels_must_fit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="3 levels"):
        run_tables(write(tmp_path, privacy=SEEDED + 'split = ["1/2", "1/2"]\n'))
    with pytest.raises(ConfigError, match="only the leaves"):
        run_tables(
            write(
                tmp_path,
                privacy=SEEDED + 'split = ["1/2", "1/4", "1/4"]\n',
                topdown=TOPDOWN + 'estimation = "bottom_up"\n',
            )
        )


def test_a_release_with_discrete_gaussian_noise(tmp_path: Path) -> None:
    privacy = 'mechanism = "discrete_gaussian"\nepsilon = "1"\ndelta = "1/1000000"\n'
    outcome = run_tables(write(tmp_path, privacy=privacy), tmp_path / "out")
    assert failing(outcome.folder) == []
    budget = outcome.manifest["budget"]
    assert budget["asked"] == {"epsilon": "1", "delta": "1/1000000"}
    assert {row["level"] for row in budget["queries"]} == {0, 1, 2}


def test_predicted_errors_are_those_of_many_measurements(tmp_path: Path) -> None:
    plan = plan_tables(write(tmp_path))
    predicted = {(one.level, one.query): one for one in forecast_tables(plan.settings).predictions}
    assert all(one.linear <= one.alone + 1e-9 for one in predicted.values())
    counts, _ = read_private_tables(plan)
    query = next(one for one in plan.workload if one.text == "sex")
    truth = counts.answers_of(query.operator, plan.hierarchy.level_range(1))
    errors = []
    for seed in range(200):
        linear = linear_estimates(measure_tables(counts, plan.queries, source=SeededNoise(seed)))
        errors.append(query.operator.apply(linear.tables(1)) - truth)
    # 800 errors, of which those of a region's two answers are correlated: within 20 % at four deviations.
    assert float(np.sqrt(np.mean(np.square(errors)))) == pytest.approx(predicted[1, "sex"].linear, rel=0.2)


def test_bottom_up_cannot_keep_what_holds_above(tmp_path: Path) -> None:
    config = write(
        tmp_path,
        privacy=SEEDED + 'neighbours = "replace"\n',
        topdown=TOPDOWN + 'estimation = "bottom_up"\n',
        more='[[topdown.invariants]]\nquery = "total"\nlevel = "state"\n',
    )
    with pytest.raises(ConfigError, match="cannot keep"):
        run_tables(config, tmp_path / "out")


def test_a_workload_that_is_not_measured_is_said(tmp_path: Path) -> None:
    class Told(Silent):
        lines: list[str] = []  # noqa: RUF012

        def line(self, text: str) -> None:
            self.lines.append(text)

    told = Told()
    run_tables(write(tmp_path, topdown=TOPDOWN + 'strategy = ["total"]\n'), tmp_path / "out", reporter=told)
    assert sum("Not determined" in line for line in told.lines) == 2
