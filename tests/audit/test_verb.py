"""The verb ``audit``: what it prints, writes and returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coco_opt.cli.audit import audit
from coco_opt.errors import ConfigError, InputError, VerificationError
from coco_opt.privacy import budget
from tests.cli.helpers import SIZES, write_config


def _config(folder: Path, **settings: str) -> Path:
    # The tables named do not exist: an audit must not open them.
    return write_config(folder, 'sizes = "absent.csv"', **settings)


def _public(folder: Path, text: str = SIZES) -> Path:
    path = folder / "public.csv"
    path.write_text(text, encoding="utf-8")
    return path


def _run(config: Path, public: Path | None, **options: object) -> int:
    given: dict[str, object] = {
        "runs": 12,
        "draws": 3_000,
        "confidence": 0.999,
        "seed": None,
        "out": None,
        "json": False,
    }
    return audit(config, public, **{**given, **options})  # type: ignore[arg-type]


def test_table_states_claim_estimate_bound_and_caveat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(_config(tmp_path), _public(tmp_path)) == 0
    out = capsys.readouterr().out
    assert "public counts of public.csv, with seeded noise; no privacy budget was spent" in out
    assert "one entity added to a group of 2 in 'land/north'" in out
    assert "neither an upper nor a lower bound" in out
    assert "all measurements together" in out
    assert "release (matching), level 1" in out


def test_json_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "audits"
    assert _run(_config(tmp_path), _public(tmp_path), json=True, out=folder) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["epsilon_claimed"] for row in printed["rows"]] == ["1/2", "1/2", "1", "1", "1", "1"]
    assert all(row["lower_bound"] is None or row["lower_bound"] <= 1 for row in printed["rows"])
    assert sorted(path.name for path in folder.iterdir()) == ["audit.csv", "audit.json", "audit.pdf", "audit.png"]
    assert json.loads((folder / "audit.json").read_text())["rows"] == printed["rows"]


def test_made_data_by_default_and_the_configured_sampler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = _config(tmp_path, groups="max_size = 400", privacy='noise = "secure"')
    assert _run(config, None, runs=2, draws=300) == 0
    out = capsys.readouterr().out
    assert "made data (three levels); no table of yours was opened" in out
    assert "seeded" not in out
    assert _run(config, None, runs=2, draws=300, seed=4) == 0
    assert "with seeded noise" in capsys.readouterr().out


def test_same_seed_same_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for seed in (3, 3, 4):
        _run(_config(tmp_path), _public(tmp_path), seed=seed, json=True)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


def test_a_violation_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(budget._UNIT_SENSITIVITY, "naive", 1)
    config = _config(tmp_path, groups='max_size = 20\nestimator = "naive"')
    with pytest.raises(VerificationError, match="all measurements together"):
        _run(config, _public(tmp_path), draws=20_000, runs=2)


def test_levels_that_do_not_fit_are_explained(tmp_path: Path) -> None:
    config = _config(tmp_path, groups='max_size = 20\nestimator = ["rank", "rank"]')
    with pytest.raises(ConfigError, match="--public"):
        _run(config, None)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    with pytest.raises(InputError, match="cannot-write"):
        _run(_config(tmp_path), _public(tmp_path), out=taken)
