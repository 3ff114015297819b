"""What ``plan`` adds to its tables of errors, and exact amounts too long to read."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from coco_opt.cli.console import cell, figure, fraction, size
from tests.cli.helpers import Runner, write_tables
from tests.cli.test_tables import write

CONCENTRATED = 'epsilon = "1"\ndelta = "1/1000000"\nmechanism = "discrete_gaussian"'


def test_a_query_that_the_strategy_leaves_open_is_named_a_guess(tmp_path: Path, coco: Runner) -> None:
    config = write(tmp_path)
    assert "Not determined" not in coco("plan", config).out
    config.write_text(config.read_text() + 'strategy = ["total"]\n')
    assert "Not determined" in coco("plan", config).out


def test_what_is_held_exactly_is_said_not_to_enter_the_errors(tmp_path: Path, coco: Runner) -> None:
    config = write(tmp_path, privacy='neighbours = "replace"')
    assert "Held exactly" not in coco("plan", config).out
    config.write_text(config.read_text() + 'invariants = [{ query = "total", level = "land" }]\n')
    assert "Held exactly    total by land" in coco("plan", config).out


@pytest.mark.parametrize("write_one", [write, write_tables])
def test_long_fractions_are_shown_as_decimals_and_kept_in_json(tmp_path: Path, coco: Runner, write_one: object) -> None:
    assert callable(write_one)
    config = write_one(tmp_path)
    config.write_text(config.read_text().replace('epsilon = "1"', CONCENTRATED))
    found = json.loads(coco("plan", config, "--json").out)
    row = found.get("costs", found.get("levels"))[0]
    assert len(row["rho"]) > 16
    shown = coco("plan", config).out
    assert row["rho"] not in shown
    assert f"~{float(Fraction(row['rho'])):.6g}" in shown
    assert "Budget implies  epsilon = 1 at delta = 1/1000000" in shown


def test_figures() -> None:
    assert [figure(-0.0), figure(None), figure(1234.5)] == ["0", "-", "1.2e+03"]
    assert [cell(None), cell(1234), cell("x")] == ["-", "1,234", "x"]
    assert [fraction("1/3"), fraction(Fraction(10**9 + 1, 3 * 10**9))] == ["1/3", "~0.333333"]
    assert [size(12), size(5_300_000)] == ["12 B", "5.3 MB"]
