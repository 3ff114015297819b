"""A release of any kind that is stopped anywhere is taken up again: paid once, the same bytes, nothing half published.

``make faults`` tries every operation of every kind; without it, points are drawn by a fixed seed, as many as the
environment's COCO_OPT_FAULTS says ("all", or a number for each kind and mode).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import KINDS, SECURE
from tests.releases import towns
from tests.topdown import persons

ROOT = Path(__file__).resolve().parents[2]
WANTED = "COCO_OPT_FAULTS"
INTERRUPTED, NO_FAULT = 130, 100  # of tests.releases.faults, whose import would patch this process

WRITE: dict[str, Callable[[Path], object]] = {
    "groups": towns.write,
    "tables": lambda folder: persons.write(folder, persons.SECURE, persons.TOPDOWN + "microdata = true\n"),
    "ranges": lambda folder: KINDS["ranges"].write(folder, privacy=SECURE),
}
STOPPED = {"kill": -9, "timed": -14}
FEW = (("groups", "kill", 8), ("groups", "full", 6), ("tables", "kill", 5), ("ranges", "broken", 5))
MORE = {"kill": 14, "full": 9, "broken": 9, "timed": 8, "interrupt": 8}


@pytest.mark.skipif(os.name != "posix", reason="kills processes")
@pytest.mark.parametrize(
    ("kind", "mode", "points"),
    [*FEW, *(pytest.param(kind, mode, MORE[mode], marks=pytest.mark.slow) for kind in WRITE for mode in MORE)],
)
def test_a_run_stopped_anywhere_goes_on_bit_for_bit(kind: str, mode: str, points: int, tmp_path: Path) -> None:
    whole, undisturbed, *rounds = rounds_of(tmp_path, kind, mode, points)
    assert whole["code"] == undisturbed["code"] == NO_FAULT
    assert whole["after"] == undisturbed["after"]
    assert len(rounds) >= points
    for step in rounds:
        check_round(step, mode, whole["after"])
    assert len({step["at"] for step in rounds}) == len(rounds)
    sys.stdout.write(f"{kind}, {mode}: {len(rounds)} points\n")


@pytest.mark.skipif(os.name != "posix", reason="kills processes")
@pytest.mark.parametrize(
    ("kind", "verb", "points"),
    [
        ("ranges", "ledger", 10),
        *(pytest.param(kind, verb, 40, marks=pytest.mark.slow) for kind in WRITE for verb in ("ledger", "estimate")),
    ],
)
def test_whichever_command_follows_a_death_no_key_outlives_the_seal(
    kind: str, verb: str, points: int, tmp_path: Path
) -> None:
    whole, _, *rounds = rounds_of(tmp_path, kind, "kill", points, verb)
    for step in rounds:
        between, after = step["between"], step["after"]
        assert step["verb"] in (0, 2, 3)
        assert between["keys"] == (step["before"]["keys"] if not between["seals"] else 0)
        assert between["kinds"][: len(step["before"]["kinds"])] == step["before"]["kinds"]
        assert step["second"] == NO_FAULT
        assert (after["seals"], after["release"]) == (whole["after"]["seals"], whole["after"]["release"])
        assert after["kinds"][: len(towns.ALL)] == towns.ALL
        assert (after["keys"], after["partial"]) == (0, [])
    sys.stdout.write(f"{kind}, {verb}: {len(rounds)} points\n")


def rounds_of(tmp_path: Path, kind: str, mode: str, points: int, *verb: str) -> list[dict[str, Any]]:
    """Return what was printed of every round: two without a fault, then one a point."""
    template = tmp_path / "template"
    template.mkdir()
    WRITE[kind](template)
    wanted = os.environ.get(WANTED, str(points))
    command = [sys.executable, "-m", "tests.releases.faults", str(tmp_path), mode, wanted, "7", *verb]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_round(step: dict[str, Any], mode: str, whole: dict[str, Any]) -> None:
    """Check one interrupted release and the next one against an undisturbed one."""
    before, after, all_entries = step["before"], step["after"], towns.ALL
    finished = before["kinds"] == all_entries  # a fault while tidying up is no failure
    if mode == "kill":
        assert step["code"] == STOPPED[mode]
    elif mode == "timed":
        assert step["code"] in (STOPPED[mode], NO_FAULT)
    else:
        assert step["code"] > 0 or finished, step
    assert step["second"] == NO_FAULT  # a release that appeared before it was recorded is recorded now
    assert before["kinds"] == all_entries[: len(before["kinds"])]
    assert before["release"] in (None, whole["release"])
    assert after == whole
    assert after["kinds"] == all_entries
    assert (after["keys"], after["partial"]) == (0, [])
