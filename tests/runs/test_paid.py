"""Releases that spend budget: paid before the table is opened, once, resumed bit for bit, and walled off after."""

from __future__ import annotations

import gc
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt.config import Config, load_config
from coco_opt.errors import BudgetError, InputError
from coco_opt.groups import GroupsResult, estimate_groups
from coco_opt.privacy import RunKey
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.seal import unseal
from coco_opt.report import render_report
from coco_opt.runs import release as module
from coco_opt.runs import run_release
from coco_opt.runs.paid import dataset_of
from coco_opt.runs.plan import ReleasePlan, read_counts
from coco_opt.runs.publish import folder_digest
from coco_opt.tables import PrivateCounts, verify_release

ROOT = Path(__file__).resolve().parents[2]
ENTITIES = "entity_id,group_id\n" + "".join(f"zebra{k},g{k % 7}\n" for k in range(30))
GROUPS = "group_id,region_id\n" + "".join(f"g{k},r{k % 2}\n" for k in range(8))
HIERARCHY = "region_id,nation,state\nr0,land,north\nr1,land,south\n"
ALL = ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]


def write(folder: Path, privacy: str = "", epsilon: str = "1") -> Path:
    """Write three tables and a configuration with secure noise; return the configuration."""
    for name, text in (("entities", ENTITIES), ("groups", GROUPS), ("hierarchy", HIERARCHY)):
        (folder / f"{name}.csv").write_text(text)
    data = "\n".join(f'{name} = "{name}.csv"' for name in ("entities", "groups", "hierarchy"))
    path = folder / "run.toml"
    path.write_text(f'[data]\n{data}\n[privacy]\nepsilon = "{epsilon}"\n{privacy}\n[groups]\nmax_size = 9\n')
    return path


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    return load_config(write(tmp_path))


def ledger(folder: Path) -> Ledger:
    return Ledger(folder / "private" / "ledger.sqlite")


def kinds(folder: Path) -> list[str]:
    return [entry.kind for entry in ledger(folder).entries()]


class StoppedError(Exception):
    """Planted to interrupt a run."""


def interrupt(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Make the next run fail at a step of the release module."""

    def stop(*_: object, **__: object) -> Any:
        raise StoppedError

    monkeypatch.setattr(module, where, stop)


def test_a_private_release_pays_seals_and_forgets_its_key(tmp_path: Path, settings: Config) -> None:
    outcome = run_release(settings, tmp_path / "out", page=render_report)
    assert all(check.passed for check in verify_release(outcome.folder))
    entries = ledger(tmp_path).entries()
    assert [entry.kind for entry in entries] == ALL
    assert entries[-1].digest == folder_digest(outcome.folder)
    assert {entry.dataset for entry in entries} == {"entities.csv"} == {dataset_of(settings)}
    (run,) = [path for path in (tmp_path / "private" / "runs").iterdir() if path.is_dir()]
    assert run.name == entries[1].run
    assert sorted(path.name for path in run.iterdir()) == ["identity.json", "input", "lock", "sealed", "target.json"]
    for path in (tmp_path / "private").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or os.name != "posix"
        assert path.is_dir() or b"zebra" not in path.read_bytes()


def test_a_spent_budget_refuses_the_next_release_and_leaves_no_key(tmp_path: Path, settings: Config) -> None:
    run_release(settings, tmp_path / "out")
    with pytest.raises(BudgetError, match=r"1 was asked of dataset 'entities\.csv', and 0 of 1 is left"):
        run_release(settings, tmp_path / "second")
    assert not (tmp_path / "second").exists()
    assert len([path for path in (tmp_path / "private" / "runs").iterdir() if path.is_dir()]) == 1
    assert kinds(tmp_path) == ALL


def test_a_total_allows_more_releases_of_one_dataset(tmp_path: Path) -> None:
    text = 'total = "1"\ndataset = "towns"\nledger = "elsewhere.sqlite"'
    settings = load_config(write(tmp_path, text, epsilon="1/3"))
    for number in range(3):
        run_release(settings, tmp_path / f"out{number}")
    with pytest.raises(BudgetError, match="1/3 was asked of dataset 'towns', and 0 of 1 is left"):
        run_release(settings, tmp_path / "out3")
    assert not (tmp_path / "private" / "ledger.sqlite").exists()
    seals = {path.read_bytes() for path in tmp_path.glob("private/runs/*/sealed")}
    assert len(seals) == 3
    with pytest.raises(BudgetError, match=r"privacy\.total"):
        run_release(load_config(write(tmp_path, text.replace('"1"', '"2"'), epsilon="1/3")), tmp_path / "out3")


def test_the_table_is_opened_after_the_payment(
    tmp_path: Path, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def reading(plan: ReleasePlan) -> PrivateCounts:
        seen.append(kinds(tmp_path))
        return read_counts(plan)

    monkeypatch.setattr(module, "read_counts", reading)
    run_release(settings, tmp_path / "out")
    assert seen == [["GRANTED", "RESERVED"]]


@pytest.mark.parametrize(
    "where", ["read_counts", "measure_hierarchy", "estimate_groups", "publish", "write_private_record"]
)
def test_an_interrupted_run_is_finished_without_paying(
    where: str, tmp_path: Path, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunKey, "generate", lambda: RunKey(bytes(range(32))))
    with monkeypatch.context() as patch:
        interrupt(patch, where)
        with pytest.raises(StoppedError):
            run_release(settings)
    sealed = list(tmp_path.glob("private/runs/*/sealed"))
    assert bool(sealed) == (where not in ("read_counts", "measure_hierarchy"))
    assert bool(list(tmp_path.glob("private/runs/*/key"))) != bool(sealed)
    outcome = run_release(settings)
    assert kinds(tmp_path) == ALL
    assert outcome.folder.name.endswith(ledger(tmp_path).entries()[1].run)
    assert [path.name for path in (tmp_path / "releases").iterdir()] == [outcome.folder.name]
    assert json.loads(outcome.record.read_text())["identity"]["rows_read"] == 30
    other = tmp_path / "other"
    other.mkdir()
    assert folder_digest(run_release(load_config(write(other))).folder) == folder_digest(outcome.folder)


def test_a_changed_input_or_configuration_is_not_resumed(
    tmp_path: Path, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, "measure_hierarchy")
        with pytest.raises(StoppedError):
            run_release(settings)
    (tmp_path / "entities.csv").write_text(ENTITIES + "zebra99,g1\n")
    with pytest.raises(InputError, match="input-changed") as refused:
        run_release(settings)
    assert "zebra" not in str(refused.value)
    changed = load_config(write(tmp_path, 'neighbours = "add_remove"\nsplit = ["1/4", "3/4"]'))
    with pytest.raises(BudgetError, match="unfinished and paid for"):
        run_release(changed)
    (tmp_path / "groups.csv").write_text(GROUPS + "g9,r1\n")
    with pytest.raises(BudgetError, match="unfinished and paid for"):
        run_release(settings)
    run_release(load_config(write(tmp_path)))
    assert kinds(tmp_path) == ALL


def test_a_lost_key_or_seal_is_never_drawn_again(
    tmp_path: Path, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where, lost, code in (("measure_hierarchy", "key", "lost-key"), ("publish", "sealed", "file-not-found")):
        folder = tmp_path / where
        folder.mkdir()
        config = load_config(write(folder))
        with monkeypatch.context() as patch:
            interrupt(patch, where)
            with pytest.raises(StoppedError):
                run_release(config)
        (file,) = folder.glob(f"private/runs/*/{lost}")
        file.unlink()
        with pytest.raises(InputError, match=code):
            run_release(config)


def test_a_missing_ledger_beside_paid_runs_is_refused(tmp_path: Path, settings: Config) -> None:
    run_release(settings)
    ledger(tmp_path).path.unlink()
    with pytest.raises(BudgetError, match="is missing"):
        run_release(settings)
    assert not ledger(tmp_path).path.exists()


def test_a_foreign_folder_in_the_way_of_a_resumed_run_is_kept(
    tmp_path: Path, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, "publish")
        with pytest.raises(StoppedError):
            run_release(settings, tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("keep me")
    with pytest.raises(InputError, match="folder-exists"):
        run_release(settings, tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "keep me"
    with pytest.raises(InputError, match="folder-exists"):
        run_release(settings, tmp_path)
    assert run_release(settings, tmp_path / "free").folder == tmp_path / "free"
    assert kinds(tmp_path) == ALL


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to list open files")
def test_nothing_private_is_in_reach_after_the_seal(
    tmp_path: Path, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[object] = []

    def open_files() -> Iterator[str]:
        for link in Path("/proc/self/fd").iterdir():
            try:
                yield str(link.readlink())
            except OSError:
                continue

    def walled(*arguments: Any, **options: Any) -> GroupsResult:
        gc.collect()
        reached.extend(one for one in gc.get_objects() if type(one) is PrivateCounts)
        reached.extend(path for path in open_files() if "entities" in path)
        assert list(tmp_path.glob("private/runs/*/key")) == []
        (tmp_path / "entities.csv").unlink()
        return estimate_groups(*arguments, **options)

    monkeypatch.setattr(module, "estimate_groups", walled)
    outcome = run_release(settings, tmp_path / "out", page=render_report)
    assert reached == []
    assert all(check.passed for check in verify_release(outcome.folder))


WALL = """
import sys
from pathlib import Path
from coco_opt.config import load_config
from coco_opt.runs import run_release
from coco_opt.report import render_report
opened, sealed = [], []
def hear(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("sealed"):
        sealed.append(True)
    if event == "open" and "entities.csv" in str(arguments[0]):
        opened.append(bool(sealed))
    if sealed and event == "import" and arguments[0] == "duckdb":
        opened.append(True)
sys.addaudithook(hear)
run_release(load_config(Path(sys.argv[1])), page=render_report)
assert sealed, "never sealed"
print(opened)
"""


def test_the_private_table_is_opened_before_the_seal_only(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WALL, str(write(tmp_path))], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    opened = json.loads(done.stdout.lower())
    assert opened
    assert not any(opened)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from coco_opt.config import load_config
from coco_opt.runs import release
real = release.measure_hierarchy
def measure(*arguments, **options):
    drawn = real(*arguments, **options)
    np.save(sys.argv[2], np.concatenate([one.values for one in drawn.answers]))
    os.kill(os.getpid(), signal.SIGKILL)
release.measure_hierarchy = measure
release.run_release(load_config(Path(sys.argv[1])))
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
def test_killed_between_payment_and_seal_the_noise_is_the_same(tmp_path: Path, settings: Config) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run.toml"), str(tmp_path / "drawn.npy")]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
    assert kinds(tmp_path) == ["GRANTED", "RESERVED"]
    assert not list(tmp_path.glob("private/runs/*/sealed"))
    run_release(settings)
    (sealed,) = tmp_path.glob("private/runs/*/sealed")
    values = [one.values for one in unseal(sealed)[0] if one is not None]
    np.testing.assert_array_equal(np.concatenate(values), np.load(tmp_path / "drawn.npy"))
    assert kinds(tmp_path) == ALL
    other = tmp_path / "other"
    other.mkdir()
    run_release(load_config(write(other)))
    (fresh,) = other.glob("private/runs/*/sealed")
    assert fresh.read_bytes() != sealed.read_bytes()


def test_opendp_pays_and_resumes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opendp")
    config = load_config(write(tmp_path, 'noise = "opendp"'))
    with monkeypatch.context() as patch:
        interrupt(patch, "estimate_groups")
        with pytest.raises(StoppedError):
            run_release(config)
    (sealed,) = tmp_path.glob("private/runs/*/sealed")
    before = sealed.read_bytes()
    run_release(config)
    assert sealed.read_bytes() == before
    assert kinds(tmp_path) == ALL


STARTS = 50
FIFTY = """
import os, sys
from pathlib import Path
from coco_opt.config import load_config
from coco_opt.errors import BudgetError
from coco_opt.runs import run_release
import coco_opt.groups, coco_opt.tables, coco_opt.privacy.seal
settings = load_config(Path(sys.argv[1]))
gate, start = os.pipe()
children = []
for number in range(int(sys.argv[2])):
    child = os.fork()
    if not child:
        os.close(start)
        os.read(gate, 1)
        code = 9
        try:
            run_release(settings)
            code = 0
        except BudgetError:
            code = 3
        finally:
            os._exit(code)
    children.append(child)
os.close(start)
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks its starts")
@pytest.mark.parametrize("starts", [6, pytest.param(STARTS, marks=pytest.mark.slow)])
def test_of_concurrent_releases_one_wins(starts: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FIFTY, str(write(tmp_path)), str(starts)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert sorted(int(code) for code in done.stdout.split()) == [0] + [3] * (starts - 1)
    assert kinds(tmp_path) == ALL
    assert len(list((tmp_path / "releases").iterdir())) == 1
    assert len(list(tmp_path.glob("private/runs/*/target.json"))) == 1
    assert not list(tmp_path.glob("private/runs/*/key"))


@pytest.mark.skipif(os.name != "posix", reason="kills processes")
@pytest.mark.parametrize(
    ("mode", "stride"),
    [("kill", 9), ("full", 13), *(pytest.param(mode, 1, marks=pytest.mark.slow) for mode in ("kill", "full"))],
)
def test_a_run_stopped_at_any_step_resumes_bit_for_bit(mode: str, stride: int, tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.mkdir()
    write(template)
    command = [sys.executable, "-m", "tests.runs.faults", str(tmp_path), mode, str(stride)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole, *rounds, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert whole["code"] == last["code"] == 100
    assert len(rounds) >= 4
    for one in rounds:
        finished = one["before"]["kinds"] == ALL  # a fault while tidying up is no failure
        assert one["code"] == -9 if mode == "kill" else one["code"] > 0 or finished
        assert one["second"] == (2 if finished else 100)  # 2: the release is there already
        assert one["before"]["kinds"] == ALL[: len(one["before"]["kinds"])]
        assert one["after"]["kinds"] == ALL
        assert one["after"]["seals"] == whole["after"]["seals"]
        assert one["after"]["release"] == whole["after"]["release"]
        assert one["before"]["release"] in (None, whole["after"]["release"])
        assert one["after"]["keys"] == 0
    assert len({one["at"] for one in rounds}) == len(rounds)
