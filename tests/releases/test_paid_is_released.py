"""Whatever is paid for is released and verified: any method, query, noise and solver, on any small hierarchy.

What would fail after the payment fails before it. If something fails after it all the same, the message has a command
that makes a release.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import coco_opt as co
from coco_opt.config import load_config
from coco_opt.errors import CocoOptError, SolverError
from coco_opt.kinds import kind_row
from coco_opt.privacy import Ledger
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.releases import planning, render_report
from tests.cli.conftest import coco as coco
from tests.cli.helpers import KINDS as DATA
from tests.cli.helpers import SECURE, SIZES, Data, Runner, paid
from tests.releases.drawn import draw

KINDS = ("groups", "tables", "ranges")
DRAWS = int(os.environ.get("COCO_OPT_DRAWS", "200"))
"""Of the slow suite, a kind."""


def outcome(kind: str, seed: int, *, checked: bool) -> str:
    """Return "released", or the reason of a refusal before a payment; raise whatever follows a payment.

    A release is ``checked`` before, which must accept what the release accepts.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, keys = Path(name), draw(kind, seed)
        try:
            config = co.configure(folder=folder, **keys)
            if checked:
                co.check(config)
            written = co.release(config, page=render_report).folder
        except CocoOptError as error:
            ledger = folder / "private" / "ledger.sqlite"
            if ledger.exists() and any(entry.kind == "RESERVED" for entry in Ledger(ledger).entries()):
                raise
            return f"{error.code}: {getattr(error, 'key', '')} {error}"
        failed = [check for check in co.verify_release(written) if not check.passed]
        assert not failed, (kind, seed, failed)
    return "released"


def refusals(kind: str, seeds: range, *, checked: bool) -> Counter[str]:
    """Return how often each refusal came; an error after a payment names the draw."""
    outcomes = Counter[str]()
    for seed in seeds:
        try:
            outcomes[outcome(kind, seed, checked=checked)] += 1
        except Exception as error:
            error.add_note(f"draw {seed} of {kind}: {draw(kind, seed)}")
            raise
    del outcomes["released"]
    return outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_paid_for_is_released(kind: str) -> None:
    assert sum(refusals(kind, range(25), checked=False).values()) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_paid_for_is_released_in_many_draws(kind: str) -> None:
    refused = refusals(kind, range(1_000, 1_000 + DRAWS), checked=True)
    assert sum(refused.values()) <= 0.02 * DRAWS, refused


METHODS = {"groups": 'consistency = "joint"', "tables": 'estimation = "classic"', "ranges": 'estimator = "consistent"'}
SECTIONS = {"groups": "[groups]\nbucket_growth = 0\nmax_size = 20\n"}


def write(folder: Path, kind: str) -> Path:
    """Write data of a kind, to be estimated by a method that is not the plainest."""
    section = SECTIONS.get(kind, DATA[kind].section + "\n") + METHODS[kind]
    return Data(DATA[kind].files, section, "", frozenset()).write(folder, privacy=SECURE)


def break_step(monkeypatch: pytest.MonkeyPatch, kind: str, step: str, error: type[Exception], *, late: bool) -> None:
    """Let a step of a kind's release raise; if ``late``, for what was paid and another method than the plainest."""
    value = kind_row(kind).load()
    original, plain = getattr(value, step), next(iter(value.plainest.values()))

    def broken(_: Any, *arguments: Any) -> Any:
        measurement = getattr(arguments[0], "measurement", arguments[0])
        if not late or (measurement.private and plain not in str(arguments)):
            raise error("unknown")
        return original(*arguments)

    monkeypatch.setattr(type(value), step, broken)


@pytest.mark.parametrize("step", ["estimate", "release", "page", "verify"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_would_fail_after_the_payment_fails_before(
    kind: str, step: str, tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(tmp_path, kind)
    break_step(monkeypatch, kind, step, KeyError, late=False)
    for verb in ("check", "measure", "release"):
        refused = coco(verb, config)
        assert refused.code == 2
        assert "KeyError" in refused.errors[0]
    assert paid(tmp_path) == []


@pytest.mark.parametrize(("leaves", "code"), [(4, 0), (40, 2)])
def test_a_solver_of_tiny_problems_is_refused_by_the_public_size(
    leaves: int, code: int, tmp_path: Path, coco: Runner
) -> None:
    sizes = "country,county,size,groups\n" + "".join(f"land,c{leaf},2,1\n" for leaf in range(leaves))
    section = SECTIONS["groups"] + 'consistency = "matching"\n[solvers]\nfallback = false\n'
    config = Data({"sizes": sizes}, section + 'group_matching = "brute-force"', "", frozenset()).write(
        tmp_path, privacy=SECURE
    )
    assert coco("release", config).code == code
    assert bool(paid(tmp_path)) == (code == 0)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("", "go to another solver"),
        ("fallback = false", "coco-opt check tries simulated data of this size"),
        ('fallback = false\n[groups]\ngroup_counts = "private"', "their sizes are private"),
    ],
)
def test_a_plan_says_what_becomes_of_problems_too_large_for_a_solver(
    keys: str, words: str, tmp_path: Path, coco: Runner
) -> None:
    keys, _, private = keys.partition("\n[groups]")
    section = (
        f'{SECTIONS["groups"]}consistency = "matching"{private}\n[solvers]\ngroup_matching = "brute-force"\n{keys}'
    )
    sizes = "country,county,size,groups\n" + "".join(f"land,c{leaf},2,1\n" for leaf in range(3))
    config = Data({"sizes": sizes}, section, "", frozenset()).write(tmp_path, privacy=SECURE)
    for verb in ("plan", "check"):
        ran = coco(verb, config)
        assert ran.code in (0, 2)
        assert words in " ".join((ran.out + ran.err).split())


def test_outlines_are_read_once_while_their_file_stays_the_same(
    tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, read = write_mapped("groups", tmp_path), list[Path]()
    original = planning.read_outlines

    def counted(path: Path, *arguments: Any) -> Any:
        read.append(path)
        return original(path, *arguments)

    monkeypatch.setattr(planning, "read_outlines", counted)
    map_file = tmp_path / "map.geojson"
    assert coco("release", config).code == 0
    assert [path.name for path in read].count(map_file.name) == 1
    map_file.write_text(map_file.read_text().replace("[0, 0]", "[0, 0.5]"))
    assert coco("plan", config).code == 0
    assert coco("check", config).code == 0
    assert [path.name for path in read].count(map_file.name) == 2


@pytest.mark.parametrize("kind", ["groups", "tables"])
@pytest.mark.parametrize("drawing", ["coco_opt.releases.rehearsal.map_data", "coco_opt.report.explorer.map_data"])
def test_a_map_that_cannot_be_drawn_costs_nothing(
    kind: str, drawing: str, tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_mapped(kind, tmp_path)
    monkeypatch.setattr(drawing, lambda *_: 1 // 0)
    assert coco("release", config).code == 2
    assert paid(tmp_path) == []
    monkeypatch.undo()
    assert coco("release", config).code == 0


@pytest.mark.parametrize("kind", ["groups", "tables"])
def test_a_map_that_fails_after_the_payment_is_left_out_by_the_command_in_the_message(
    kind: str, tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_mapped(kind, tmp_path)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["coco_opt.releases.measure"], "rehearse", lambda *_: None)
        patch.setattr("coco_opt.report.explorer.map_data", lambda *_: 1 // 0)
        failed = coco("release", config)
        command = re.search(r"coco-opt (estimate \S+ run.toml --plain)", failed.errors[0])
        assert command is not None
        assert coco(*command[1].split(), "--out", "out").code == 0


def write_mapped(kind: str, folder: Path) -> Path:
    """Write data of a kind, and an outline of every leaf: squares in a row."""
    config = write(folder, kind)
    with (folder / "hierarchy.csv").open() as file:
        regions = [row["region_id"] for row in csv.DictReader(file)]
    features = [
        {
            "properties": {"region_id": region},
            "geometry": {"type": "Polygon", "coordinates": [[[x, 0], [x + 1, 0], [x + 1, 1], [x, 1], [x, 0]]]},
        }
        for x, region in enumerate(regions)
    ]
    (folder / "map.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    config.write_text(config.read_text() + '\n[output]\ngeometry = "map.geojson"\n')
    return config


def test_a_rehearsal_after_a_look_says_that_the_look_is_paid(
    tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = "[groups]\nmax_size = 20\n"
    config = Data(DATA["groups"].files, section, "", frozenset()).write(tmp_path, privacy=SECURE)
    kind = kind_row("groups").load()
    rehearsal = type(kind).rehearsal

    def broken(plan: Any, method: Any) -> Any:
        if plan.also:
            raise KeyError("unknown")
        return rehearsal(plan, method)

    monkeypatch.setattr(type(kind), "rehearsal", staticmethod(broken))
    refused = coco("release", config)
    assert refused.code == 2
    assert "nothing was paid" not in refused.err
    assert paid(tmp_path) == ["GRANTED", "RESERVED", "MEASURED"]


@pytest.mark.parametrize("section", [SECTIONS["groups"], "[groups]\nmax_size = 20\n"])
def test_what_a_reservation_for_other_data_gives_way_to_is_rehearsed(
    section: str, tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Data({"sizes": SIZES}, section, "", frozenset()).write(tmp_path, privacy=SECURE)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "bind", _stop)
        assert coco("release", config).code == 1
    (tmp_path / "sizes.csv").write_text(SIZES.replace("5,2", "4,2"))
    break_step(monkeypatch, "groups", "estimate", KeyError, late=False)
    assert coco("release", config).code == 2
    assert paid(tmp_path) == ["GRANTED", "RESERVED"]


def _stop(*_: object) -> None:
    raise RuntimeError("stopped")


@pytest.mark.parametrize(
    ("step", "error"),
    [("estimate", ZeroDivisionError), ("estimate", SolverError), ("page", KeyError)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_command_in_the_message_makes_a_release_of_what_was_paid(
    kind: str, step: str, error: type[Exception], tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(tmp_path, kind)
    break_step(monkeypatch, kind, step, error, late=True)
    monkeypatch.chdir(tmp_path)
    failed = coco("release", config)
    assert failed.code in (1, 4)
    command = re.search(r"coco-opt (estimate \S+ run.toml --plain)", failed.errors[0])
    assert command is not None
    assert coco(*command[1].split(), "--out", "out").code == 0
    assert coco("verify", "out").code == 0
    assert paid(tmp_path) == ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]


def test_a_rehearsal_sees_no_private_number_of_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = '[groups]\nmax_size = 20\nconsistency = "matching"\ngroup_counts = "private"'
    kind, seen = kind_row("groups").load(), []
    original = type(kind).estimate

    def watched(self: Any, measurement: Any, *arguments: Any) -> Any:
        seen.append((measurement.content, measurement.private))
        return original(self, measurement, *arguments)

    monkeypatch.setattr(type(kind), "estimate", watched)
    for name, sizes in (("few", SIZES), ("many", SIZES.replace("5,2", "5,200"))):
        config = Data({"sizes": sizes}, section, "", frozenset()).write(tmp_path / name, privacy=SECURE)
        co.check(load_config(config))
    assert seen[0] == seen[1]
    assert not seen[0][1]
