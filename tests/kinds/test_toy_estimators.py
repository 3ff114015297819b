"""Estimators from another package: every verb serves them as it serves the built-in ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coco_opt as co
from coco_opt.config import load_config
from coco_opt.errors import InputError, ProblemError
from coco_opt.estimators import EstimatorRow, estimator_row, estimator_rows
from tests.cli.helpers import KINDS, SECURE, Runner, paid

pytestmark = pytest.mark.usefixtures("toy_package")
KEYS = {
    "groups": ("groups.consistency", "leaf_squares"),
    "tables": ("topdown.estimation", "even_shares"),
    "ranges": ("ranges.estimator", "moving_mean"),
}


def write(folder: Path, kind: str, privacy: str) -> Path:
    """Write a kind's data and a configuration that names the estimator."""
    (section, key), name = KEYS[kind][0].split("."), KEYS[kind][1]
    own = KINDS[kind].section.replace('consistency = "matching"\n', "")
    assert f"[{section}]" in own
    config = KINDS[kind].write(folder, privacy=privacy)
    config.write_text(config.read_text().replace(KINDS[kind].section, f'{own}\n{key} = "{name}"'))
    return config


@pytest.mark.parametrize("kind", KINDS)
def test_every_verb_serves_it(kind: str, tmp_path: Path, coco: Runner) -> None:
    config, (key, name) = write(tmp_path, kind, SECURE), KEYS[kind]
    assert coco("check", config).code == 0
    assert coco("plan", config).code == 0
    assert name in coco("plan", config, "--runs", "2").out or kind != "groups"
    assert coco("release", config, "--out", tmp_path / "out").code == 0
    assert coco("verify", tmp_path / "out").code == 0
    assert ("{toy2026," in coco("cite", tmp_path / "out").out) == (kind != "ranges")
    other = {"groups": "matching", "tables": "classic", "ranges": "consistent"}[kind]
    compared = coco("compare", config, "--vary", f"{key}={name},{other}", "--runs", "1")
    assert compared.code == 0
    assert {name, other} <= set(compared.out.replace(",", " ").split())
    assert name in coco("solvers").out
    assert name in coco("cite").out


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_nobody_defines_is_refused_with_the_nearest(kind: str, tmp_path: Path, coco: Runner) -> None:
    config, (key, name) = write(tmp_path, kind, SECURE), KEYS[kind]
    config.write_text(config.read_text().replace(name, f"{name}s"))
    refused = coco("release", config)
    assert (refused.code, paid(tmp_path)) == (2, [])
    assert key in refused.err
    assert f"did you mean {name!r}" in refused.err


@pytest.mark.parametrize(
    ("kind", "returned"),
    [
        ("groups", lambda answers: []),
        ("groups", lambda answers: [co.CountOfCounts.from_ranks([1])] * 3),
        ("tables", lambda answers: [np.zeros((1, 1))]),
        ("ranges", lambda answers: np.array([np.nan])),
        ("ranges", lambda answers: 1 / 0),
    ],
)
def test_what_it_must_not_return_is_refused_before_a_payment(
    kind: str, returned: Any, tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(tmp_path, kind, SECURE)
    monkeypatch.setattr(EstimatorRow, "load", lambda _: lambda answers, *_: returned(answers))
    for verb in ("check", "release"):
        assert coco(verb, config).code == 2
    assert paid(tmp_path) == []


def test_tables_are_moved_to_the_nearest_that_meet_all_constraints(tmp_path: Path) -> None:
    config = write(tmp_path, "tables", f'{SECURE}\nneighbours = "replace"')
    text = config.read_text() + 'invariants = [{ query = "total", level = "county" }]\n'
    config.write_text(text)
    release = co.read_release(co.release(load_config(config)).folder)
    totals = [int(np.asarray(release[path]).sum()) for path in ("land/north", "land/south")]
    truth = [sum(3 + 5 * region + len(age) for _ in range(2) for age in ("child", "adult", "old")) for region in (1, 2)]
    assert totals == truth


def test_two_rows_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (*estimator_rows("groups"), estimator_row("groups", "joint"))
    estimator_rows.cache_clear()
    monkeypatch.setattr("coco_opt.plugins.table_of", lambda *_: table)
    with pytest.raises(InputError, match="two tables define the estimator"):
        estimator_rows("groups")


def test_an_unknown_estimator_in_python() -> None:
    with pytest.raises(ProblemError, match="did you mean 'leaf_squares'"):
        co.GroupsMethod(consistency="leaf_square")
