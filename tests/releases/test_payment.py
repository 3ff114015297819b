"""What is paid: nothing before everything is checked, and once for the same questions of the same data."""

from __future__ import annotations

import gc
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from coco_opt.config import load_config
from coco_opt.errors import BudgetError, ConfigError, InputError
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.privacy import Ledger, RunKey, run_folder
from coco_opt.privacy.private_files import remove_leftovers, temporary_name
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.releases import check, estimate, measure, release, render_report, verify_release
from coco_opt.releases import runs as runs_module
from coco_opt.releases.storage import check_storage
from tests.cli.helpers import KINDS, SECURE
from tests.releases.towns import ALL, ENTITIES, GROUPS, STAGES, StoppedError, Watch, config_in, entries, ledger, write

ROOT = Path(__file__).resolve().parents[2]


def seals(folder: Path) -> list[Path]:
    return sorted(folder.glob("private/runs/*/measurement"))


def runs(folder: Path) -> list[Path]:
    return [path for path in (folder / "private" / "runs").iterdir() if path.is_dir()]


def test_a_private_release_pays_seals_and_forgets_its_key(tmp_path: Path) -> None:
    outcome = release(config_in(tmp_path), tmp_path / "out", page=render_report)
    assert outcome.paid
    assert all(result.passed for result in verify_release(outcome.folder))
    assert entries(tmp_path) == ALL
    (run,) = runs(tmp_path)
    assert run.name == outcome.run
    assert not (run / "key").exists()
    for path in (tmp_path / "private").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or os.name != "posix"
        assert path.is_dir() or b"zebra" not in path.read_bytes()
    for path in outcome.folder.iterdir():
        assert b"zebra" not in path.read_bytes()
        assert b"entities.csv" not in path.read_bytes()


def test_answers_need_memory_for_a_region_and_disk_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, held, empty = config_in(tmp_path), list[int](), np.empty
    plan = check(config).plan
    answers = plan.measurement_plan.answers
    monkeypatch.setattr(sys.modules["coco_opt.releases.storage"], "DENSE", 0)
    monkeypatch.setattr(np, "empty", lambda size, kind: held.append(size) or empty(1, kind))
    check_storage(plan)
    assert 0 < held[0] <= 2 * answers // len(plan.measurement_plan.queries)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=answers - 1))
    with pytest.raises(InputError, match=rf"{answers:,} answers need .* on the disk of the private folder"):
        check_storage(plan)


@pytest.mark.parametrize(
    ("table", "text", "code"),
    [
        ("entities", "entity_id,group_id\n", "empty-file"),
        ("entities", ENTITIES + "zebra1,g2\n", "duplicate-entity"),
        ("entities", ENTITIES + 'zebra99,"g1\n', "malformed-row"),
        ("entities", ENTITIES + ",g1\n", "null-id"),
        ("entities", ENTITIES + "zebra99,g77\n", "unknown-group"),
        ("groups", GROUPS + "g9,r7\n", "unknown-region"),
        ("groups", "group_id|region_id\n", "no-header"),
        ("hierarchy", "region_id,nation\nr0,land\nr0,land\n", "duplicate-region"),
    ],
)
def test_a_mistake_costs_nothing_and_the_mended_run_pays_once(table: str, text: str, code: str, tmp_path: Path) -> None:
    config = config_in(tmp_path)
    good = (tmp_path / f"{table}.csv").read_text()
    (tmp_path / f"{table}.csv").write_text(text)
    with pytest.raises(InputError) as refused:
        release(config, tmp_path / "out")
    assert code in str(refused.value)
    assert "zebra" not in str(refused.value)
    assert ledger(tmp_path).entries() == []
    (tmp_path / f"{table}.csv").write_text(good)
    release(config, tmp_path / "out")
    assert entries(tmp_path) == ALL


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ('consistency = "joint"\nquery = "ranks"', "groups"),
        ('loss = ["l1", "l2", "l1"]', "groups.loss"),
        ('[solvers]\nisotonic_l1 = { name = "highs", tolerance = "x" }', "solvers.isotonic_l1.tolerance"),
        ('[solvers]\nisotonic_l1 = "split-newton"', "solvers.isotonic_l1"),
    ],
)
def test_an_estimation_that_cannot_work_is_refused_before_the_payment(more: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        release(config_in(tmp_path, more=more), tmp_path / "out")
    assert key in str(refused.value)
    assert ledger(tmp_path).entries() == []


def test_a_folder_that_cannot_be_made_is_refused_before_the_payment(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    for out in (tmp_path, tmp_path / ("n" * 300), tmp_path / "run.toml" / "out", Path("/proc/nowhere/out")):
        with pytest.raises(InputError):
            release(config, out)
    assert ledger(tmp_path).entries() == []


@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupted_run_goes_on_for_free(stage: str, tmp_path: Path) -> None:
    config = config_in(tmp_path)
    with pytest.raises(StoppedError):
        release(config, reporter=Watch(stage))
    paid = stage != STAGES[0]
    assert entries(tmp_path) == ([] if not paid else ALL[:2] if stage == STAGES[1] else ALL[:3])
    before = [(path / "packed.parquet").read_bytes() for path in seals(tmp_path)]
    assert bool(before) == (stage not in STAGES[:2])
    outcome = release(config)
    assert entries(tmp_path) == ALL
    assert outcome.paid != paid
    assert outcome.folder.name.endswith(outcome.run)
    assert [path.name for path in (tmp_path / "releases").iterdir()] == [outcome.folder.name]
    assert not before or before == [(path / "packed.parquet").read_bytes() for path in seals(tmp_path)]
    assert outcome.record is not None
    assert json.loads(outcome.record.read_text())["identity"]["rows_read"] == 30


def test_a_finished_run_says_where_its_release_lies(tmp_path: Path) -> None:
    config, watch = config_in(tmp_path), Watch()
    first = release(config)
    again = release(config, reporter=watch)
    assert again.folder == first.folder
    assert not again.paid
    assert any(str(first.folder) in line for line in watch.lines)
    assert entries(tmp_path) == ALL
    # A release that was edited, or moved away, is made again.
    shutil.rmtree(first.folder)
    assert release(config).folder == first.folder


def test_estimation_keys_are_free_and_questions_are_not(tmp_path: Path) -> None:
    first = release(config_in(tmp_path))
    free = ('loss = "l2"', 'consistency = "joint"', 'consistency = "bottom_up"', 'ties = "lower"', 'merge = "average"')
    folders = {release(config_in(tmp_path, more=more)).folder for more in free}
    assert len({first.folder, *folders}) == 1 + len(free)
    assert entries(tmp_path) == [*ALL, *["RELEASED"] * len(free)]
    solver = release(config_in(tmp_path, more='[solvers]\nisotonic_l1 = "highs"'))
    assert solver.manifest["solvers"]["isotonic_l1"]["solver"] == "highs"
    assert not solver.paid
    for measurement_plan in ('query = "ranks"', 'query = ["ranks", "cumulative"]'):
        with pytest.raises(BudgetError, match="and 0 of 1 is left"):
            release(config_in(tmp_path, more=measurement_plan))
    with pytest.raises(BudgetError, match="and 0 of 1 is left"):
        release(config_in(tmp_path, 'split = "leaves"', more='consistency = "bottom_up"'))
    assert all(result.passed for folder in folders for result in verify_release(folder))


def test_a_run_that_was_stopped_refuses_other_data(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    with pytest.raises(StoppedError):
        release(config, reporter=Watch("Measuring"))
    (tmp_path / "entities.csv").write_text(ENTITIES + "zebra99,g1\n")
    with pytest.raises(InputError, match="input-changed"):
        release(config)
    (tmp_path / "entities.csv").write_text(ENTITIES)
    release(config)
    assert entries(tmp_path) == ALL


def test_rows_in_another_order_are_the_same_data(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    release(config)
    head, *rows = ENTITIES.splitlines()
    (tmp_path / "entities.csv").write_text("\n".join([head, *reversed(rows)]) + "\n")
    assert not release(config).paid


def parts(folder: Path, sizes: tuple[int, ...], seed: int) -> None:
    """Write the entities in a random order into a new folder of so many rows a file."""
    head, *rows = ENTITIES.splitlines()
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for place, size in enumerate(sizes):
        lines = [head, *(rows[order.pop()] for _ in range(size))]
        (folder / f"part-{place}.csv").write_text("\n".join(lines) + "\n")
    assert not order


def test_the_same_rows_in_other_files_are_the_same_data(tmp_path: Path) -> None:
    """A run that is killed goes on with the noise of its key, whatever files the rows lie in, and pays once."""
    path = write(tmp_path, 'noise = "seeded"\nseed = 3')
    one = np.concatenate([answers.values for answers in measure(load_config(path)).measurement.answers])
    path.write_text(path.read_text().replace('"entities.csv"', '"entities/"'))
    for seed, sizes in enumerate([(30,), (7, 0, 23), (*[1] * 10, *[0] * 3, *[5] * 4)]):
        parts(tmp_path / "entities", sizes, seed)
        measurement = measure(load_config(path)).measurement
        assert np.array_equal(one, np.concatenate([answers.values for answers in measurement.answers]))
    secure = write(tmp_path)
    secure.write_text(secure.read_text().replace('"entities.csv"', '"entities/"'))
    with pytest.raises(StoppedError):
        release(load_config(secure), reporter=Watch("Measuring"))
    parts(tmp_path / "entities", (1, 29), 8)
    first = release(load_config(secure))
    parts(tmp_path / "entities", (10, 10, 10), 9)
    assert release(load_config(secure)).folder == first.folder
    assert entries(tmp_path) == ALL


def test_a_total_allows_more_measurements_of_one_dataset(tmp_path: Path) -> None:
    text = 'total = "1"\nledger = "elsewhere.sqlite"'
    for query in ("ranks", "cumulative", "sizes"):
        release(config_in(tmp_path, text, epsilon="1/3", more=f'query = "{query}"'))
    with pytest.raises(BudgetError, match="1/6 was requested of dataset 'towns', and 0 of 1 is left"):
        release(config_in(tmp_path, text, epsilon="1/6"))
    assert not (tmp_path / "private" / "ledger.sqlite").exists()
    with pytest.raises(BudgetError, match=r"privacy\.total"):
        release(config_in(tmp_path, text.replace('"1"', '"2"'), epsilon="1/6"))
    assert len(runs(tmp_path)) == 3


@pytest.mark.parametrize(
    ("stage", "lost", "code"), [("Measuring", "key", "lost-key"), (STAGES[2], "packed", "damaged")]
)
def test_a_lost_key_or_answer_is_never_drawn_again(stage: str, lost: str, code: str, tmp_path: Path) -> None:
    config = config_in(tmp_path)
    with pytest.raises(StoppedError):
        release(config, reporter=Watch(stage))
    (path,) = (path for path in (tmp_path / "private" / "runs").rglob("*") if path.name.split(".")[0] == lost)
    path.unlink()
    with pytest.raises(InputError, match=code):
        release(config)
    assert entries(tmp_path)[-1] != "RELEASED"


def test_a_damaged_or_lost_ledger_key_is_said_and_nothing_is_paid(tmp_path: Path) -> None:
    config = config_in(tmp_path, 'total = "9"')
    release(config)
    key = tmp_path / "private" / "ledger.sqlite.key"
    whole = key.read_bytes()
    for content in (whole[:31], b"", whole[:-1] + b"x"):
        key.write_bytes(content)
        with pytest.raises(
            InputError, match=r"ledger.sqlite.key: is not what was written: restore it.*goes on for free"
        ):
            release(config)
    key.unlink()
    with pytest.raises(BudgetError, match=r"was written, is gone: .* If it is lost for good"):
        release(config)
    key.write_bytes(whole)
    key.chmod(0o600)
    assert entries(tmp_path) == ALL
    assert not release(config).paid


def test_whose_private_table_is_gone_is_told_what_needs_none(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    outcome = release(config)
    (tmp_path / "entities.csv").unlink()
    with pytest.raises(InputError, match=f"coco-opt estimate {outcome.run} CONFIG needs no private table"):
        release(config)
    again = estimate(outcome.run, config)
    assert again.manifest["private"]
    again.save(tmp_path / "again")


def test_the_same_release_to_the_same_folder_is_made_once(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    first = release(config, tmp_path / "out")
    again = release(config, tmp_path / "out")
    assert (again.folder, again.paid, again.record) == (first.folder, False, first.record)
    assert entries(tmp_path)[: len(ALL)] == ALL
    with pytest.raises(InputError, match="folder-exists"):
        release(config_in(tmp_path, more='loss = "l2"'), tmp_path / "out")


@pytest.mark.parametrize("promises", [[], ["integers"], ["nonnegative", "group_totals"]])
def test_a_release_promises_what_every_one_of_its_kind_keeps(promises: list[str], tmp_path: Path) -> None:
    path = release(config_in(tmp_path), tmp_path / "out").folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "promises": promises}))
    assert "manifest" in [check.name for check in verify_release(path.parent) if not check.passed]


def test_a_foreign_folder_in_the_way_is_kept(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    with pytest.raises(StoppedError):
        release(config, tmp_path / "out", reporter=Watch("Writing the release"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("keep me")
    with pytest.raises(InputError, match="folder-exists"):
        release(config, tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "keep me"
    assert release(config, tmp_path / "free").folder == tmp_path / "free"
    assert entries(tmp_path) == ALL


def private_counts() -> list[PrivateCounts]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is PrivateCounts]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to list open files")
def test_nothing_private_is_in_reach_when_estimation_begins(tmp_path: Path) -> None:
    of_other_tests = private_counts()  # kept alive, so that no new object has the number of one of them
    reached: list[object] = []

    class Inspecting(Watch):
        def stage(self, label: str):  # type: ignore[no-untyped-def]
            if label == STAGES[2]:
                known = {id(each) for each in of_other_tests}
                reached.extend(each for each in private_counts() if id(each) not in known)
                links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
                reached.extend(link for link in links if "entities" in str(link.readlink()))
                assert not list(tmp_path.glob("private/runs/*/key"))
                (tmp_path / "entities.csv").unlink()
            return super().stage(label)

    outcome = release(config_in(tmp_path), tmp_path / "out", page=render_report, reporter=Inspecting())
    assert reached == []
    assert all(result.passed for result in verify_release(outcome.folder))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_pays_for_noise_of_opendp(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    KINDS[kind].write(tmp_path, privacy='dataset = "land"\nnoise = "opendp"')
    measured = measure(load_config(tmp_path / "run.toml"))
    assert measured.paid
    assert measured.measurement.private
    assert entries(tmp_path) == ALL[:3]
    assert ledger(tmp_path).books().accounts["land"].spent == 1


def test_no_key_of_a_run_outlives_the_seal_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[RunKey] = []

    class Remembered(RunKey):
        def __init__(self, secret: bytes) -> None:
            super().__init__(secret)
            kept.append(self)

    for module in (runs_module, run_folder):
        monkeypatch.setattr(module, "RunKey", Remembered)
    measure(config_in(tmp_path))
    assert len(kept) >= 3  # drawn before the payment, read again for the noise, and the one derived from it
    assert all(key.erased for key in kept)


def test_a_run_that_died_after_its_seal_draws_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenDP's noise would be another one, and that of two measurements."""
    pytest.importorskip("opendp")
    config = config_in(tmp_path, 'noise = "opendp"')

    def dies(*_: object) -> None:
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "measured", dies)
        with pytest.raises(StoppedError):
            measure(config)
    assert entries(tmp_path) == ALL[:2]
    (sealed,) = seals(tmp_path)
    before, watch = (sealed / "packed.parquet").read_bytes(), Watch()
    assert not measure(config, reporter=watch).paid
    assert "Measuring" not in watch.stages
    assert (sealed / "packed.parquet").read_bytes() == before
    assert entries(tmp_path) == ALL[:3]


def test_an_exchanged_measurement_is_refused(tmp_path: Path) -> None:
    """Even one that is whole, and answers the same questions."""
    for name in ("one", "two"):
        measure(config_in(tmp_path / name))
    (ours,), (theirs,) = seals(tmp_path / "one"), seals(tmp_path / "two")
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    with pytest.raises(InputError, match="not the measurement that was sealed"):
        release(load_config(tmp_path / "one" / "run.toml"))
    assert entries(tmp_path / "one") == ALL[:3]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_private_table_is_read_once(kind: str, tmp_path: Path) -> None:
    """What was checked is what is measured, and nothing is left to look at afterwards."""
    watch = Watch()
    KINDS[kind].write(tmp_path, privacy=SECURE)
    measure(load_config(tmp_path / "run.toml"), reporter=watch)
    assert watch.stages.count("Reading the private table") == 1
    assert watch.stages.index("Reading the private table") < watch.stages.index("Measuring")


WALL = """
import sys
from pathlib import Path
from types import SimpleNamespace
from coco_opt.config import load_config
from coco_opt.releases import release, render_report
opened, sealed, paid = [], [], []
def hear(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("measurement"):
        sealed.append(True)
    if event == "open" and "entities.csv" in str(arguments[0]):
        opened.append(bool(sealed))
sys.addaudithook(hear)
release(load_config(Path(sys.argv[1])), page=render_report)
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


STARTS = 50
MANY = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from coco_opt.config import load_config
from coco_opt.errors import BudgetError
from coco_opt.releases import release
import coco_opt.groups.kind
config = load_config(Path(sys.argv[1]))
gate, start = os.pipe()
children = []
for number in range(int(sys.argv[2])):
    child = os.fork()
    if not child:
        os.close(start)
        os.read(gate, 1)
        code = 9
        try:
            code = 0 if release(config, Path(sys.argv[1]).parent / f"out{number}").paid else 1
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
def test_of_concurrent_releases_one_pays(starts: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", MANY, str(write(tmp_path)), str(starts)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    codes = [int(code) for code in done.stdout.split()]
    # The others are told that it is in progress, or find it measured and estimate it for free.
    assert codes.count(0) == 1
    assert set(codes) <= {0, 1, 3}
    assert entries(tmp_path).count("RESERVED") == entries(tmp_path).count("MEASURED") == 1
    assert not list(tmp_path.glob("private/runs/*/key"))


@pytest.mark.skipif(os.name != "posix", reason="kills processes")
def test_who_takes_a_run_leaves_what_living_processes_write_there(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "run")
    assert folder.claim()
    folder.release()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as living:
        ours, mine = temporary_name(Path("released.json")).name, f"-{os.getpid()}."
        names = [ours.replace(mine, f"-{process}.") for process in (living.pid, 2**22 + 1)]
        for name in names:
            (folder.path / name).touch()
        assert folder.claim()
        assert [name for name in names if (folder.path / name).exists()] == names[:1]
        living.communicate(b"\n")


@pytest.mark.skipif(os.name != "posix", reason="looks at processes")
def test_what_another_machine_writes_stays_for_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of another host, or of another container, has a number that none or a different one has here."""
    with monkeypatch.context() as patch:
        patch.setattr("platform.node", lambda: "elsewhere")
        theirs = temporary_name(tmp_path / "released.json")
    ours = temporary_name(tmp_path / "released.json")
    dead = ours.with_name(ours.name.replace(f"-{os.getpid()}.", f"-{2**22 + 1}."))
    other = theirs.with_name(theirs.name.replace(f"-{os.getpid()}.", f"-{2**22 + 1}."))
    for path in (ours, theirs, dead, other):
        path.touch()
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted((ours, theirs, other))
    for path in (ours, theirs, other):
        os.utime(path, (0, 0))
    remove_leftovers(tmp_path, "released.json")
    assert list(tmp_path.iterdir()) == [ours]
