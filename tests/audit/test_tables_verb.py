"""The verb ``audit`` on a configuration of tables: what it runs on, prints, writes and returns."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from coco_opt.cli.audit import audit
from coco_opt.errors import ConfigError, InputError, VerificationError
from coco_opt.topdown.queries import Query

REGIONS = "region_id,nation,state\n" + "".join(f"r{k},land,s{k}\n" for k in range(4))
RECORDS = "region_id,sex,age\n" + "r0,male,old\nr3,female,child\nr2,female,old\n" * 9
PURE = 'epsilon = "1"\nnoise = "seeded"\nseed = 3'
RHO = 'mechanism = "discrete_gaussian"\nrho = "1/2"\nnoise = "seeded"\nseed = 3'


def _config(folder: Path, privacy: str = PURE, more: str = "", data: str = "") -> Path:
    # The private table does not exist: an audit must not open it.
    (folder / "hierarchy.csv").write_text(REGIONS)
    path = folder / "run.toml"
    path.write_text(
        f'[data]\nrecords = "absent.csv"\nhierarchy = "hierarchy.csv"\n{data}\n[privacy]\n{privacy}\n[topdown]\n'
        'attributes = { sex = ["female", "male"], age = ["child", "adult", "old"] }\n'
        f'workload = ["sex", "cumulative(age)", "detail"]\n{more}'
    )
    return path


def _run(config: Path, public: Path | None = None, **options: object) -> int:
    given: dict[str, object] = {
        "runs": 3,
        "draws": 3_000,
        "confidence": 0.999,
        "seed": None,
        "out": None,
        "json": False,
    }
    return audit(config, public, **{**given, **options})  # type: ignore[arg-type]


def test_made_persons_stand_in_for_the_private_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(_config(tmp_path)) == 0
    out = capsys.readouterr().out
    assert "made persons in 3 of your 5 public regions (no private table was opened), with seeded noise" in out
    assert "one person added in 'land/s" in out
    assert "measurement, level 1 (sex, cumulative(age), detail)" in out
    assert "all measurements together" in out
    assert "release (full), direct" in out
    assert "neither an upper nor a lower bound" in out


def test_public_records_in_all_regions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "open.csv").write_text(RECORDS)
    assert _run(_config(tmp_path), tmp_path / "open.csv", json=True, out=tmp_path / "audits") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["data"] == "the public records of open.csv"
    assert [row["epsilon_claimed"] for row in printed["rows"]] == ["1/2", "1/2", "1", "1", "1", "1"]
    assert all(row["lower_bound"] is None or row["lower_bound"] <= 1 for row in printed["rows"])
    assert json.loads((tmp_path / "audits" / "audit.json").read_text())["rows"] == printed["rows"]
    (tmp_path / "open.csv").write_text(RECORDS.replace("male", "zebra7391", 1))
    with pytest.raises(InputError, match="unknown-value") as caught:
        _run(_config(tmp_path), tmp_path / "open.csv")
    assert "zebra7391" not in str(caught.value)


def test_gaussian_noise_is_held_to_what_its_rho_implies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(_config(tmp_path, RHO)) == 0
    assert "delta = 1e-06" in capsys.readouterr().out
    assert _run(_config(tmp_path, RHO), json=True) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["delta"] for row in rows if row["lower_bound"] is not None} == {1e-6}
    assert 5 < Fraction(rows[-1]["epsilon_claimed"]) < 6


def test_invariants_hold_and_bounds_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bounds.csv").write_text("region,query,answer,lower,upper\nland/s0,total,total,0,1\n")
    config = _config(
        tmp_path,
        PURE + '\nneighbours = "replace"',
        '[[topdown.invariants]]\nquery = "total"\nlevel = "state"\n',
        'bounds = "bounds.csv"',
    )
    assert _run(config) == 0
    out = capsys.readouterr().out
    assert "public bounds left out" in out
    assert "one person in 'land/s" in out


def test_a_violation_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Query.sensitivity
    monkeypatch.setattr(Query, "sensitivity", lambda self, who, norm=1: max(1, real(self, who, norm) // 3))
    config = _config(tmp_path, more='strategy = ["cumulative(age)"]\n')
    with pytest.raises(VerificationError, match="all measurements together"):
        _run(config, draws=20_000, runs=2)


def test_a_wrong_configuration_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"topdown\.strategy"):
        _run(_config(tmp_path, more='strategy = ["height"]\n'))
