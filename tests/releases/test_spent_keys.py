"""No key outlives its measurement, whichever command comes next; what may be needed or is proof is never deleted."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from coco_opt.config import Config, load_config
from coco_opt.errors import InputError
from coco_opt.privacy import Ledger, run_folder
from coco_opt.privacy.private_files import write_record
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.releases import measure, release, runs
from coco_opt.releases.stored_runs import abandon_run, forget_run
from tests.cli.helpers import KINDS, SECURE, Runner
from tests.releases.towns import ALL, StoppedError, entries

OPEN = KINDS["groups"].section.replace('bucket_growth = 0\nconsistency = "matching"', 'consistency = "matching"')


def write(kind: str, folder: Path) -> Path:
    """Write data of a kind and a configuration with a total of 3; "look" leaves the queries to a first look."""
    if kind != "look":
        return KINDS[kind].write(folder, privacy=f'{SECURE}\ntotal = "3"')
    path = KINDS["groups"].write(folder, privacy=f'{SECURE}\ntotal = "3"')
    path.write_text(path.read_text().replace(KINDS["groups"].section, OPEN).replace('split = "uniform"\n', ""))
    return path


def stopped(config: Config, place: Any, name: str) -> None:
    """Release until a function is called."""

    def stop(*_: object, **__: object) -> None:
        raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, stop)
        with pytest.raises(StoppedError):
            measure(config)


def run_folders(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "private" / "runs").iterdir() if path.is_dir())


def plant(folder: Path, content: bytes = bytes(range(32)), name: str = "key") -> None:
    """Put a key back into the last run, as a death or a copied folder leaves it."""
    path = run_folders(folder)[-1] / name
    path.unlink(missing_ok=True)
    write_record(path, content)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def finished(folder: Path, config: Config) -> None:
    release(config, folder / "out")


def measured(folder: Path, config: Config) -> None:
    measure(config)
    plant(folder)


def released(folder: Path, config: Config) -> None:
    finished(folder, config)
    plant(folder)


def half_erased(folder: Path, config: Config) -> None:
    finished(folder, config)
    plant(folder)
    path = run_folders(folder)[-1] / "key"
    path.write_bytes(bytes(path.stat().st_size))


def with_input(folder: Path, config: Config) -> None:
    finished(folder, config)
    plant(folder, b"f" * 64, "input")


def forgotten(folder: Path, config: Config) -> None:
    finished(folder, config)
    forget_run(config, run_folders(folder)[-1].name)
    plant(folder)


def lost(folder: Path, config: Config) -> None:
    finished(folder, config)
    plant(folder)
    shutil.rmtree(run_folders(folder)[-1] / "measurement")


def given_up(folder: Path, config: Config) -> None:
    stopped(config, runs, "write_measurement")
    abandon_run(config, run_folders(folder)[-1].name)
    plant(folder)


def voided(folder: Path, config: Config) -> None:
    stopped(config, RunFolder, "bind")
    abandon_run(config, run_folders(folder)[-1].name)
    plant(folder)


def sealed(folder: Path, config: Config) -> None:
    stopped(config, runs, "read_measurement")


def erased(folder: Path, config: Config) -> None:
    stopped(config, Ledger, "measured")


def unpaid(folder: Path, config: Config) -> None:
    stopped(config, Ledger, "reserve")


def paid(folder: Path, config: Config) -> None:
    stopped(config, RunFolder, "bind")


def bound(folder: Path, config: Config) -> None:
    stopped(config, runs, "write_measurement")


def damaged_seal(folder: Path, config: Config) -> None:
    sealed(folder, config)
    damage(run_folders(folder)[-1] / "measurement" / "packed.parquet")


def other_seal(folder: Path, config: Config) -> None:
    """Put what another run measured in place of a measurement that the ledger does not know yet."""
    output = config.output.model_copy(update={"private": folder / "elsewhere"})
    other = measure(replace(config, output=output))
    sealed(folder, config)
    assert other.folder is not None
    shutil.copytree(other.folder, run_folders(folder)[-1] / "measurement", dirs_exist_ok=True)


def emptied_ledger(folder: Path, config: Config) -> None:
    released(folder, config)
    for name in ("ledger.sqlite", "ledger.sqlite.head"):
        (folder / "private" / name).unlink()


def other_head(folder: Path, config: Config) -> None:
    released(folder, config)
    (folder / "private" / "ledger.sqlite.head").unlink()
    write_record(folder / "private" / "ledger.sqlite.head", b'{"entries": 99, "head": "x"}')


def damaged_ledger(folder: Path, config: Config) -> None:
    released(folder, config)
    damage(folder / "private" / "ledger.sqlite.key")


@dataclass(frozen=True)
class State:
    """How a folder came about; whether its key is ``spent``, and whether its measurement can still be released."""

    make: Callable[[Path, Config], None]
    spent: bool
    usable: bool = True
    key: bool = True


STATES = {
    "measured": State(measured, spent=True),
    "released": State(released, spent=True),
    "half erased": State(half_erased, spent=True),
    "with its input": State(with_input, spent=True, key=False),
    "forgotten": State(forgotten, spent=True, usable=False),
    "measurement lost": State(lost, spent=True, usable=False),
    "given up": State(given_up, spent=True),
    "voided": State(voided, spent=True),
    "sealed": State(sealed, spent=True),
    "erased": State(erased, spent=True, key=False),
    "not paid": State(unpaid, spent=False),
    "paid": State(paid, spent=False),
    "bound": State(bound, spent=False),
    "seal damaged": State(damaged_seal, spent=False, usable=False),
    "seal of another run": State(other_seal, spent=False, usable=False),
    "ledger emptied": State(emptied_ledger, spent=False, usable=False),
    "head of another ledger": State(other_head, spent=False, usable=False),
    "ledger's key damaged": State(damaged_ledger, spent=False, usable=False),
}
VERBS: dict[str, Callable[[Path, str], list[object]]] = {
    "check": lambda folder, run: ["check", folder / "run.toml"],
    "plan": lambda folder, run: ["plan", folder / "run.toml"],
    "measure": lambda folder, run: ["measure", folder / "run.toml"],
    "release": lambda folder, run: ["release", folder / "run.toml", "--out", folder / "again"],
    "estimate": lambda folder, run: ["estimate", run, folder / "run.toml", "--out", folder / "estimate"],
    "verify": lambda folder, run: ["verify", folder / "seeded", "--ledger", folder / "run.toml"],
    "ledger": lambda folder, run: ["ledger", folder / "run.toml"],
    "grant": lambda folder, run: ["ledger", folder / "run.toml", "--grant", "1"],
    "forget": lambda folder, run: ["ledger", folder / "run.toml", "--forget", run],
    "abandon": lambda folder, run: ["ledger", folder / "run.toml", "--abandon", run],
    "compare": lambda folder, run: ["compare", run, "--config", folder / "run.toml", "--size", "2"],
}
PAYING = ("measure", "release")
EVERY = (*KINDS, "look")
PAIRS = [(state, verb) for state in STATES for verb in VERBS]
CASES = [
    pytest.param(kind, state, verb, marks=() if (number + 3 * place) % 17 == 0 else pytest.mark.slow)
    for place, kind in enumerate(EVERY)
    for number, (state, verb) in enumerate(PAIRS)
]


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return a folder of a kind in a state, made once."""
    base, made = tmp_path_factory.mktemp("states"), dict[tuple[str, str], Path]()

    def template(kind: str, state: str) -> Path:
        folder = made.get((kind, state))
        if folder is None:
            folder = made[kind, state] = base / f"{kind}-{len(made)}"
            config = load_config(write(kind, folder))
            seeded = (folder / "run.toml").read_text().replace(SECURE, 'noise = "seeded"\nseed = 1')
            (folder / "seeded.toml").write_text(seeded.replace('total = "3"\n', ""))
            release(load_config(folder / "seeded.toml"), folder / "seeded")
            STATES[state].make(folder, config)
        return folder

    return template


def contents(folder: Path) -> dict[str, str]:
    """Return the digests of the files below the runs, but locks."""
    files = (path for path in (folder / "private" / "runs").rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def secrets(folder: Path) -> list[str]:
    """Return the keys and the inputs' fingerprints that are on disk."""
    return [path.name for path in run_folders(folder) if RunFolder(path.parent, path.name).has_secrets]


@pytest.mark.parametrize(("kind", "state", "verb"), CASES)
def test_whichever_command_comes_next_erases_what_is_spent_and_nothing_else(
    kind: str, state: str, verb: str, templates: Callable[[str, str], Path], tmp_path: Path, coco: Runner
) -> None:
    folder, expected = tmp_path / "here", STATES[state]
    shutil.copytree(templates(kind, state), folder, copy_function=shutil.copy2)
    for record in folder.glob("private/runs/*/ledger.json"):  # which names the ledger of the template
        record.unlink()
    run, before = run_folders(folder)[-1], contents(folder)
    ran = coco(*VERBS[verb](folder, run.name))
    assert "unexpected" not in ran.err + ran.out
    assert ran.code in (0, 1, 2, 3), ran.err
    after = contents(folder)
    if expected.spent:
        assert secrets(folder) == []
        if expected.key and verb not in ("forget", "abandon"):
            assert "noise key" in ran.out + ran.err
    elif verb not in (*PAYING, "forget", "abandon"):
        assert {name: after.get(name) for name in before} == before
    elif not expected.usable and not (verb == "abandon" and ran.code == 0):
        assert before.items() <= after.items()
    if not (expected.spent or expected.usable):
        assert f"noise key of run {run.name}" in " ".join((ran.out + ran.err).split())
    if verb in PAYING and expected.usable:
        assert ran.code == 0, ran.err
        assert secrets(folder) == []


@pytest.fixture
def coco(capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(capsys)


def test_no_run_is_called_measured_before_its_key_is_gone(tmp_path: Path) -> None:
    config = load_config(write("ranges", tmp_path))
    erased(tmp_path, config)
    assert secrets(tmp_path) == []
    before = (run_folders(tmp_path)[0] / "measurement" / "packed.parquet").read_bytes()
    assert not release(config).paid
    assert (run_folders(tmp_path)[0] / "measurement" / "packed.parquet").read_bytes() == before
    assert entries(tmp_path) == ALL


@pytest.mark.parametrize("state", ["seal damaged", "seal of another run"])
def test_a_key_is_left_where_the_seal_is_damaged_until_the_run_is_given_up(
    state: str, tmp_path: Path, coco: Runner
) -> None:
    STATES[state].make(tmp_path, load_config(write("ranges", tmp_path)))
    before, config, run = contents(tmp_path), tmp_path / "run.toml", run_folders(tmp_path)[-1]
    assert f"--abandon {run.name}" in " ".join(coco("ledger", config).out.split())
    assert coco("ledger", config, "--forget", run.name).code == 3
    assert contents(tmp_path) == before
    assert coco("ledger", config, "--abandon", run.name).code == 0
    assert secrets(tmp_path) == []
    kept = {name: digest for name, digest in before.items() if Path(name).name not in ("key", "input")}
    assert kept.items() <= contents(tmp_path).items()
    assert entries(tmp_path) == [*ALL[:2], "ABANDONED"]
    assert coco("ledger", config, "--forget", run.name).code == 0
    assert not (run / "measurement").exists()


def test_a_damaged_seal_that_is_moved_away_is_made_again_to_the_byte(tmp_path: Path, coco: Runner) -> None:
    damaged_seal(tmp_path, load_config(write("ranges", tmp_path)))
    seal = run_folders(tmp_path)[-1] / "measurement"
    damage(seal / "packed.parquet")
    before = {path.name: path.read_bytes() for path in seal.iterdir()}
    seal.rename(tmp_path / "away")
    assert coco("measure", tmp_path / "run.toml").code == 0
    assert {path.name: path.read_bytes() for path in seal.iterdir()} == before
    assert entries(tmp_path) == ALL[:3]


def test_a_run_is_not_given_up_next_to_one_that_the_ledger_does_not_know(tmp_path: Path, coco: Runner) -> None:
    config = write("ranges", tmp_path)
    damaged_seal(tmp_path, load_config(config))
    run = run_folders(tmp_path)[-1]
    shutil.copytree(run, run.with_name("20990101T000000Z-00000000"))
    before = contents(tmp_path)
    assert coco("ledger", config, "--abandon", run.name).code == 3
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("verb", "code"), [("ledger", 0), ("verify", 1), ("measure", 2), ("release", 2), ("plan", 0)])
def test_a_key_that_cannot_be_erased_is_reported_and_nothing_is_paid_next_to_it(
    verb: str, code: int, tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(write("ranges", tmp_path))
    release(config, tmp_path / "out")
    plant(tmp_path)
    shutil.copytree(tmp_path / "out", tmp_path / "seeded")

    def refuse(*_: object, **__: object) -> None:
        raise InputError("cannot-write", "could not be erased: Read-only file system")

    monkeypatch.setattr(run_folder, "erase_private", refuse)
    path = tmp_path / "run.toml"
    path.write_text(path.read_text().replace('epsilon = "1"', 'epsilon = "2"'))  # which would be paid for
    run = run_folders(tmp_path)[-1]
    ran = coco(*VERBS[verb](tmp_path, run.name))
    assert ran.code == code, ran.err
    assert f"noise key of run {run.name}" in " ".join((ran.out + ran.err).split())
    assert entries(tmp_path) == ALL


def test_a_run_that_is_sealed_is_finished_before_it_is_forgotten(tmp_path: Path, coco: Runner) -> None:
    config = write("ranges", tmp_path)
    sealed(tmp_path, load_config(config))
    run = run_folders(tmp_path)[-1].name
    for verb in ("--abandon", "--forget"):
        refused = coco("ledger", config, verb, run)
        assert refused.code == 3
        assert f"coco-opt estimate {run}" in refused.err
    assert coco("estimate", run, config, "--out", tmp_path / "out").code == 0
    assert coco("ledger", config, "--forget", run).code == 0
    assert coco("ledger", config, "--abandon", run).code == 3


def test_a_run_that_another_process_works_on_keeps_its_key(tmp_path: Path, coco: Runner) -> None:
    measured(tmp_path, load_config(write("ranges", tmp_path)))
    run = run_folders(tmp_path)[-1]
    other = RunFolder(run.parent, run.name)
    assert other.claim()
    assert coco("ledger", tmp_path / "run.toml").code == 0
    assert (run / "key").exists()
    other.release()
    assert "noise key" in coco("ledger", tmp_path / "run.toml").out
    assert not (run / "key").exists()


def test_a_link_in_place_of_a_key_is_not_followed(tmp_path: Path, coco: Runner) -> None:
    released(tmp_path, load_config(write("ranges", tmp_path)))
    key, other = run_folders(tmp_path)[-1] / "key", tmp_path / "other"
    key.unlink()
    other.write_text("keep me")
    key.symlink_to(other)
    assert "is a link" in " ".join(coco("ledger", tmp_path / "run.toml").out.split())
    assert other.read_text() == "keep me"


def test_a_forgotten_run_still_proves_that_a_ledger_is_older(tmp_path: Path, coco: Runner) -> None:
    config = load_config(write("ranges", tmp_path))
    measure(config)
    old = {name: (tmp_path / "private" / name).read_bytes() for name in ("ledger.sqlite", "ledger.sqlite.head")}
    other = load_config(write("ranges", tmp_path))
    other_path = tmp_path / "run.toml"
    other_path.write_text(other_path.read_text().replace('epsilon = "1"', 'epsilon = "2"'))
    second = measure(load_config(other_path)).run
    forget_run(other, second)
    for name, content in old.items():
        (tmp_path / "private" / name).write_bytes(content)
    ran = coco("measure", other_path)
    assert ran.code == 3
    assert f"does not know run {second}, which measured" in ran.err
