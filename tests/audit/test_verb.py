"""The verb ``audit`` for every kind: what it runs on, prints, writes and returns."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from coco_opt.audit import CAVEAT, audit_release
from coco_opt.cli import audit as verb
from coco_opt.cli import main
from coco_opt.errors import InputError, VerificationError
from tests.audit.helpers import KINDS, PURE, RHO, audited, config_of, half_the_sensitivity, sources, with_queries

PAIR = 'mechanism = "discrete_gaussian"\nepsilon = "1"\ndelta = "1/1000000"'
SIZES = "nation,state,size,groups\nland,s0,0,1\nland,s0,2,3\nland,s1,1,4\nland,s1,5,2\n"
RECORDS = "region_id,sex,age\n" + "r0,male,old\nr3,female,child\nr2,female,old\n" * 9
VALUES = "value\n" + "0\n0\n3\n7\n" * 5
PUBLIC = {"groups": SIZES, "tables": RECORDS, "ranges": VALUES}


def _run(config: Path, public: Path | None = None, **options: object) -> int:
    given: dict[str, object] = {
        "runs": 3,
        "draws": 3_000,
        "confidence": 0.999,
        "seed": None,
        "out": None,
        "json": False,
    }
    return verb.audit(config, public, **{**given, **options})  # type: ignore[arg-type]


def _public(kind: str, folder: Path) -> Path:
    path = folder / "open.csv"
    path.write_text(PUBLIC[kind], encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_no_estimate_stands_beside_a_claim(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(config_of(kind, tmp_path)) == 0
    bounds, estimates = capsys.readouterr().out.split("Estimates from residuals")
    assert "estimate" not in bounds
    assert "claimed" in bounds
    assert "claimed" not in estimates
    assert estimates.startswith(", neither an upper nor a lower bound")
    assert "None of these says that more is lost than allowed" in estimates


@pytest.mark.parametrize("kind", KINDS)
def test_public_data_and_files(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "audits"
    assert _run(config_of(kind, tmp_path), _public(kind, tmp_path), json=True, out=folder) == 0
    printed = json.loads(capsys.readouterr().out)
    assert "open.csv" in printed["data"]
    assert {row["epsilon_claimed"] for row in printed["rows"]} == ({"1"} if kind == "ranges" else {"1/2", "1"})
    assert all(row["lower_bound"] is None or row["lower_bound"] <= 1 for row in printed["rows"])
    assert all(CAVEAT in row["note"] for row in printed["rows"] if row["estimate"] is not None)
    assert sorted(path.name for path in folder.iterdir()) == ["audit.csv", "audit.json", "audit.pdf", "audit.png"]
    assert json.loads((folder / "audit.json").read_text())["rows"] == printed["rows"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("privacy", [PURE, RHO, PAIR], ids=["epsilon", "rho", "pair"])
def test_what_the_pair_loses_is_said_exactly(
    kind: str, privacy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(kind, tmp_path, privacy)
    assert _run(config, json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lost"] == found["claimed"]
    together = [row for row in found["rows"] if row["what"].startswith(("all", "measurement, all"))][-1]
    assert Fraction(together["epsilon_lost"]) == pytest.approx(Fraction(together["epsilon_claimed"]), rel=1e-4)
    assert bool(found["curve"]) == (privacy != PURE)
    for row in found["curve"]:
        assert row["lower_bound"] <= Fraction(row["epsilon_claimed"])
        assert row["epsilon_lost"] is None or Fraction(row["epsilon_lost"]) <= Fraction(row["epsilon_claimed"]) * 1.001
    _run(config)
    assert "by the noisy answers, exactly: all of the" in capsys.readouterr().out


def test_an_epsilon_and_delta_are_held_to_that_delta(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = 'mechanism = "discrete_gaussian"\nepsilon = "2"\ndelta = "1/1000"'
    assert _run(config_of("groups", tmp_path, pair), json=True) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert 1.99 < Fraction(rows[-1]["epsilon_claimed"]) <= 2
    assert rows[-1]["delta"] == 0.001


def test_invariants_hold_and_bounds_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bounds.csv").write_text("region,query,answer,lower,upper\nland/s0,total,total,0,1\n")
    config = config_of(
        "tables",
        tmp_path,
        PURE + '\nneighbours = "replace"',
        more='[[topdown.invariants]]\nquery = "total"\nlevel = "state"\n',
        data='bounds = "bounds.csv"',
    )
    assert _run(config) == 0
    out = capsys.readouterr().out
    assert "bounds and constraints left out" in out
    assert "one person in 'land/s" in out


def test_the_configured_sampler_or_a_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of("ranges", tmp_path)
    text = config.read_text().replace('noise = "seeded"\nseed = 3', 'dataset = "d"')
    config.write_text(text)
    assert _run(config) == 0
    assert "with secure noise" in capsys.readouterr().out
    printed = []
    for seed in (3, 3, 4):
        _run(config, seed=seed, json=True)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_violation_fails_by_name(kind: str, tmp_path: Path) -> None:
    case = audited(kind, tmp_path)
    faulty = with_queries(case.subject, half_the_sensitivity)
    found = audit_release(faulty, case.pair, sources(8), draws=40_000, runs=0)
    with pytest.raises(VerificationError, match="more privacy is lost than claimed: ") as caught:
        verb.verdict(found)
    assert caught.value.exit_code == 1
    assert verb.verdict(replace(found, rows=())) == 0


def test_what_is_printed_of_a_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = audited("groups", tmp_path)
    faulty: Any = with_queries(case.subject, half_the_sensitivity)
    verb.write_report(audit_release(faulty, case.pair, sources(8), draws=40_000, runs=0), "these data", 0.999, "seeded")
    out = capsys.readouterr().out
    assert "ABOVE THE CLAIM" in out
    assert "Nothing lies above" not in out


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    with pytest.raises(InputError, match="cannot-write"):
        _run(config_of("ranges", tmp_path), out=taken)


def test_mistakes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(
        "tables",
        tmp_path,
        section='[topdown]\nattributes = { sex = ["f", "m"] }\nworkload = ["sex"]\nstrategy = ["height"]',
    )
    assert main(["audit", str(config)]) == 2
    assert "topdown.strategy" in capsys.readouterr().err
    config = config_of("tables", tmp_path)
    public = _public("tables", tmp_path)
    public.write_text(RECORDS.replace("male", "zebra7391", 1))
    assert main(["audit", str(config), "--public", str(public)]) == 2
    told = capsys.readouterr().err
    assert "unknown-value" in told
    assert "zebra7391" not in told
