"""A solver from another package: its row is all that the table, configurations and releases need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coco_opt.registry import make_solver
from coco_opt.testing import check_solver
from tests.cli.helpers import KINDS, SECURE, Runner

pytestmark = pytest.mark.usefixtures("toy_package")


def test_it_passes_the_conformance_tests() -> None:
    assert {result.problem for result in check_solver(make_solver("max-min"))} == {"isotonic_l2"}


def test_a_configuration_names_it(tmp_path: Path, coco: Runner) -> None:
    more = 'loss = "l2"\n[solvers]\nisotonic_l2 = "max-min"'
    config = KINDS["groups"].write(tmp_path, privacy=SECURE, more=more)
    assert "max-min" in coco("solvers").out
    assert coco("check", config).code == 0
    assert coco("release", config, "--out", tmp_path / "out").code == 0
    assert coco("verify", tmp_path / "out").code == 0
    solved = json.loads((tmp_path / "out" / "manifest.json").read_text())["solvers"]
    assert solved["isotonic_l2"]["solver"] == "max-min"
