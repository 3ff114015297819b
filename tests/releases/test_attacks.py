"""State that survives a restore: whatever is restored, emptied, edited, copied or renamed is refused, not deleted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from coco_opt import Config, check, estimate, load_config, measure, release, verify_release
from coco_opt.errors import BudgetError, CocoOptError, ConfigError, InputError
from coco_opt.files.folder import MANIFEST, as_json, sealed
from coco_opt.privacy import RunKey, SecureNoise
from coco_opt.privacy.private_files import read_values
from coco_opt.releases.datapackage import DATAPACKAGE
from coco_opt.releases.stored_runs import abandon_run, forget_run, runs_of_ledger
from coco_opt.releases.verify import verify_paid
from tests.releases.towns import ALL, ENTITIES, StoppedError, Watch, config_in, entries, ledger, write

posix = pytest.mark.skipif(os.name != "posix", reason="owners, modes and links are POSIX's")


def in_place(folder: Path) -> Config:
    """Load the configuration again without writing the tables again."""
    return load_config(folder / "run.toml")


def contents(folder: Path) -> dict[str, str]:
    """Return the digests of all files below a private folder, but locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def refused(folder: Path, words: str, *, error: type[CocoOptError] = BudgetError) -> None:
    """Check that a release is refused in one clear line, and that nothing below the private folder was changed."""
    before = contents(folder / "private")
    with pytest.raises(error, match=words) as caught:
        release(in_place(folder))
    assert "\n" not in str(caught.value)
    assert contents(folder / "private") == before


def asking(folder: Path, query: str) -> Config:
    """Return a configuration that asks something else of the same data, with budget for several."""
    return config_in(folder, 'total = "3"', more=f'query = "{query}"')


@pytest.mark.parametrize("whole", [False, True], ids=["the ledger alone", "the ledger and its head"])
def test_an_older_ledger_is_refused_until_the_newest_is_restored(whole: bool, tmp_path: Path) -> None:
    release(asking(tmp_path, "cumulative"))
    names = ["ledger.sqlite", "ledger.sqlite.head"][: 1 + whole]
    old = {name: (tmp_path / "private" / name).read_bytes() for name in names}
    release(asking(tmp_path, "sizes"))
    new = {name: (tmp_path / "private" / name).read_bytes() for name in names}
    for name in names:
        (tmp_path / "private" / name).write_bytes(old[name])
    refused(tmp_path, "does not know run .* nothing was deleted" if whole else "8 entries|remembers 7|remembers 8")
    for name in names:
        (tmp_path / "private" / name).write_bytes(new[name])
    assert not release(in_place(tmp_path)).paid


@pytest.mark.parametrize("how", ["emptied", "gone", "truncated", "with its head gone", "of an older version"])
def test_an_emptied_ledger_is_refused(how: str, tmp_path: Path) -> None:
    release(config_in(tmp_path))
    path = ledger(tmp_path).path
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        older = content[:60] + (2).to_bytes(4, "big") + content[64:]  # where SQLite keeps the version of a format
        path.write_bytes({"truncated": content[:4096], "of an older version": older}.get(how, b""))
    if how == "with its head gone":
        path.with_name("ledger.sqlite.head").unlink()
    refused(tmp_path, "missing, emptied or an older copy|cannot be used|does not know run|not a ledger of the format 3")
    path.write_bytes(content)
    path.chmod(0o600)
    assert not release(in_place(tmp_path)).paid
    assert entries(tmp_path) == ALL


def edited(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    for trigger in ("no_update", "no_delete"):
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_lowered_amount_hashed_again_is_found_for_want_of_the_key(tmp_path: Path) -> None:
    """Who writes the ledger and does not hold its key can make no entry: not by a hash without a key either."""
    release(config_in(tmp_path))
    path = ledger(tmp_path).path
    rows, previous = ledger(tmp_path).entries(), "0" * 64
    for row in rows:
        small = replace(row, previous=previous, amount=min(row.amount, Fraction(1, 100)), fingerprint="")
        previous = small.keyed_hash(b"")
        statement = (
            f"UPDATE entries SET amount = '{small.amount}', previous = '{small.previous}', fingerprint = '', "
            f"hash = '{previous}' WHERE sequence = {row.sequence}"
        )
        if row.sequence == 1:
            edited(path, statement)
        else:
            connection = sqlite3.connect(path)
            connection.execute(statement)
            connection.commit()
            connection.close()
    refused(tmp_path, "does not match its hash")


def test_the_last_entry_cut_off_is_found(tmp_path: Path) -> None:
    release(config_in(tmp_path))
    edited(ledger(tmp_path).path, "DELETE FROM entries WHERE sequence = 4")
    refused(tmp_path, "it has 3 entries, and ledger.sqlite.head remembers 4")


def test_another_private_folder_is_refused_by_the_witness(tmp_path: Path) -> None:
    witness = f'witness = "{tmp_path / "elsewhere.json"}"'
    config = config_in(tmp_path, witness)
    release(config)
    assert read_values(tmp_path / "elsewhere.json")["entries"] == 4
    shutil.move(tmp_path / "private", tmp_path / "hidden")
    with pytest.raises(BudgetError, match=r"it has 0 entries, and elsewhere.json remembers 4"):
        release(config)
    shutil.rmtree(tmp_path / "private")
    shutil.move(tmp_path / "hidden", tmp_path / "private")
    assert not release(config).paid


def test_another_private_folder_without_a_witness_is_told_and_shows_by_the_known_ledger(tmp_path: Path) -> None:
    """No file can know of a folder that is gone: who runs it is told in one line, and the known ledger did not pay."""
    config, told = config_in(tmp_path), Watch()
    first = release(config, tmp_path / "first", reporter=told)
    shutil.move(tmp_path / "private", tmp_path / "hidden")
    again = Watch()
    assert release(config, tmp_path / "second", reporter=again).paid
    for watch in (told, again):
        (line,) = (line for line in watch.lines if "opens the account" in line)
        assert "if these data were released before, by another ledger, state that as privacy.ledger" in line
    shutil.rmtree(tmp_path / "private")
    shutil.move(tmp_path / "hidden", tmp_path / "private")
    assert all(check.passed for check in verify_paid(first.folder, config))
    assert not all(check.passed for check in verify_paid(tmp_path / "second", config))
    assert entries(tmp_path) == ALL


@posix
@pytest.mark.parametrize("which", ["private", "ledger.sqlite", "ledger.sqlite.key", "ledger.sqlite.head", "runs"])
def test_what_others_may_read_is_refused(which: str, tmp_path: Path) -> None:
    release(config_in(tmp_path))
    path = tmp_path / "private" if which == "private" else tmp_path / "private" / which
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode | 0o066)
    refused(tmp_path, rf"others can read it: run chmod {mode:o} on it", error=CocoOptError)
    path.chmod(mode)
    assert not release(in_place(tmp_path)).paid


@posix
def test_a_witness_may_be_a_command(tmp_path: Path) -> None:
    script = tmp_path / "witness.py"
    script.write_text(
        "import json, sys, pathlib\n"
        "told, log = json.load(sys.stdin), pathlib.Path(sys.argv[1])\n"
        "known = int(log.read_text()) if log.exists() else 0\n"
        "if told['event'] == 'grown': log.write_text(str(told['entries']))\n"
        "sys.exit(told['entries'] < known)\n"
    )
    command = json.dumps([sys.executable, str(script), str(tmp_path / "log")])
    config = config_in(tmp_path, f"witness = {command}")
    measure(config)
    assert (tmp_path / "log").read_text() == "3"
    (tmp_path / "log").write_text("9")
    with pytest.raises(BudgetError, match=r"refuses it .exit code 1"):
        measure(config)
    (tmp_path / "log").unlink()
    script.unlink()
    with pytest.raises(BudgetError, match=r"the witness .* refuses it"):
        measure(config)


def test_known_data_under_a_new_name_need_a_word(tmp_path: Path) -> None:
    release(config_in(tmp_path, 'dataset = "towns"'))
    renamed = config_in(tmp_path, 'dataset = "villages"')
    with pytest.raises(BudgetError, match=r"knows these data as dataset 'towns'.*--renamed"):
        release(renamed)
    with pytest.raises(BudgetError, match=r"knows these data as dataset 'towns'.*--renamed"):
        check(renamed)
    assert entries(tmp_path) == ALL
    assert measure(renamed, renamed=True).paid
    assert not release(renamed).paid
    assert set(ledger(tmp_path).books().accounts) == {"towns", "villages"}


def test_a_renamed_file_opens_no_account(tmp_path: Path) -> None:
    release(config_in(tmp_path))
    (tmp_path / "entities.csv").rename(tmp_path / "people.csv")
    path = tmp_path / "other.toml"
    path.write_text((tmp_path / "run.toml").read_text().replace("entities.csv", "people.csv"))
    assert not release(load_config(path)).paid
    assert entries(tmp_path).count("RESERVED") == 1


def test_changed_data_under_known_questions_need_a_word(tmp_path: Path) -> None:
    config = config_in(tmp_path, 'total = "2"')
    release(config)
    (tmp_path / "entities.csv").write_text(ENTITIES + "zebra99,g1\n")
    refused(tmp_path, "input-changed", error=InputError)
    assert measure(in_place(tmp_path), again=True).paid


def test_the_same_data_are_known_in_another_private_folder_of_one_ledger(tmp_path: Path) -> None:
    shared = f'ledger = "{tmp_path / "shared.sqlite"}"\ntotal = "2"'
    release(config_in(tmp_path / "one", shared))
    with pytest.raises(BudgetError, match="knows these data as dataset 'towns'"):
        release(config_in(tmp_path / "two", shared + '\ndataset = "others"'))


def test_a_reservation_whose_key_met_no_data_is_voided_when_the_data_change(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    with pytest.raises(StoppedError):
        release(config, reporter=Watch("Measuring"))
    (bound,) = tmp_path.glob("private/runs/*/input")
    bound.unlink()  # as if the machine had stopped before the binding
    (tmp_path / "entities.csv").write_text(ENTITIES + "zebra99,g1\n")
    assert release(in_place(tmp_path)).paid
    assert entries(tmp_path) == ["GRANTED", "RESERVED", "VOIDED", "RESERVED", "MEASURED", "RELEASED"]
    account = ledger(tmp_path).books().accounts["towns"]
    assert (account.total, account.spent) == (1, 1)


def test_giving_up_gives_back_only_what_met_no_data(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    with pytest.raises(StoppedError):
        release(config, reporter=Watch("Measuring"))
    (bound,) = tmp_path.glob("private/runs/*/input")
    abandon_run(config, bound.parent.name)
    assert entries(tmp_path)[-1] == "ABANDONED"
    with pytest.raises(BudgetError, match="0 of 1 is left"):
        release(config)


def test_of_two_copies_of_a_reserved_folder_only_the_same_input_is_taken_up(tmp_path: Path) -> None:
    """The whole folder copied as it stood after the payment: bit for bit the same, or voided."""
    config = config_in(tmp_path / "one")
    with pytest.raises(StoppedError):
        release(config, reporter=Watch("Measuring"))
    (tmp_path / "one" / next((tmp_path / "one").glob("private/runs/*/input"))).unlink()
    for name in ("same", "changed"):
        shutil.copytree(tmp_path / "one", tmp_path / name)
        for record in (tmp_path / name).glob("private/runs/*/ledger.json"):
            record.unlink()
    (tmp_path / "changed" / "entities.csv").write_text(ENTITIES + "zebra99,g1\n")
    release(in_place(tmp_path / "one"))
    release(in_place(tmp_path / "same"))
    with_one, with_same = (next((tmp_path / name).glob("private/runs/*/measurement")) for name in ("one", "same"))
    for path in with_one.iterdir():
        assert path.read_bytes() == (with_same / path.name).read_bytes()
    # The changed copy cannot even take the reservation up: it is voided there, and another key is drawn.
    release(in_place(tmp_path / "changed"))
    assert "VOIDED" in entries(tmp_path / "changed")


@pytest.mark.parametrize("key", ["each its own", "one key"])
def test_the_difference_of_two_copies_of_a_reserved_folder_has_the_law_of_independent_noise(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chi-square; with one run key for both, nothing but the binding to the input stands between their streams."""
    if key == "one key":
        monkeypatch.setattr(RunKey, "generate", classmethod(lambda cls: cls(bytes(range(32)))))
    one, changed = tmp_path / "one", tmp_path / "changed"
    path = write(one, more='query = "sizes"')
    path.write_text(path.read_text().replace("max_size = 9", "max_size = 20000"))
    with pytest.raises(StoppedError):
        measure(in_place(one), reporter=Watch("Measuring"))
    next(one.glob("private/runs/*/input")).unlink()  # as if both had stopped before the binding
    shutil.copytree(one, changed)
    for record in changed.glob("private/runs/*/ledger.json"):
        record.unlink()
    (changed / "entities.csv").write_text(ENTITIES + "zebra99,g1\n")
    answers = [measure(in_place(folder)).measurement.answers for folder in (one, changed)]
    difference = np.concatenate([a.values - b.values for a, b in zip(*answers, strict=True)])
    assert difference.size > 60_000
    assert like_independent(difference, scale=4)  # sensitivity 2 of sizes, half of epsilon 1 a level


def like_independent(difference: np.ndarray, scale: float) -> bool:
    """Tell whether a chi-square test takes values for differences of independent double-geometric noise."""
    a, reach = np.exp(-1 / scale), int(8 * scale)
    single = (1 - a) / (1 + a) * a ** np.abs(np.arange(-600, 601))
    distribution = np.convolve(single, single)[1200 - reach : 1201 + reach] * difference.size
    counts = np.array([np.count_nonzero(difference == k) for k in range(-reach, reach + 1)])
    rest = difference.size - counts.sum(), difference.size - distribution.sum()
    return bool(stats.chisquare([*counts, rest[0]], [*distribution, rest[1]]).pvalue > 1e-4)


@pytest.mark.parametrize("changed", ["input", "queries"])
def test_one_key_on_other_input_or_questions_is_other_noise(changed: str) -> None:
    """Chi-square of the difference of two streams of one run key against that of two independent ones."""
    run, cells, scale = RunKey(bytes(range(32))), 200_000, Fraction(2)
    labels = [["q", "a"], ["q", "b"]] if changed == "input" else [["q", "a"], ["r", "a"]]
    first, second = (
        SecureNoise(RunKey(run.derive("coco-opt noise", *pair))).stream(scale, measurement="m", region="r").draw(cells)
        for pair in labels
    )
    assert like_independent(first - second, scale=2)
    assert not like_independent(first - first, scale=2)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(cells)


@posix
@pytest.mark.parametrize("which", ["private", "ledger.sqlite", "ledger.sqlite.key", "ledger.sqlite.head", "runs"])
def test_links_are_refused(which: str, tmp_path: Path) -> None:
    release(config_in(tmp_path))
    path = tmp_path / "private" if which == "private" else tmp_path / "private" / which
    path.rename(tmp_path / "real")
    path.symlink_to(tmp_path / "real", target_is_directory=(tmp_path / "real").is_dir())
    with pytest.raises((BudgetError, ConfigError, InputError), match="is a link"):
        release(in_place(tmp_path))
    path.unlink()
    (tmp_path / "real").rename(path)
    assert not release(in_place(tmp_path)).paid


@posix
@pytest.mark.parametrize("which", ["measurement", "measurement/packed.parquet", "input", "key", "lock", "."])
def test_links_within_a_run_are_refused(which: str, tmp_path: Path) -> None:
    measured = measure(config_in(tmp_path))
    path, real = (tmp_path / "private" / "runs" / measured.run / which).resolve(), tmp_path / "real"
    if path.exists():
        path.rename(real)
    path.symlink_to(real, target_is_directory=real.is_dir())
    config = in_place(tmp_path)
    verbs: list[Callable[[], object]] = [lambda: release(config), lambda: forget_run(config, measured.run)]
    if which.startswith("m") or which == ".":  # that is all that these read of it
        verbs += [lambda: estimate(measured.run, config), lambda: runs_of_ledger(config)]
    for verb in verbs:
        with pytest.raises((BudgetError, ConfigError, InputError), match=r"is a link|symbolic links"):
            verb()
    assert real.exists() == (which != "key")


@posix
@pytest.mark.parametrize("kind", ["secure", "seeded"])
def test_all_that_is_private_is_its_owners_alone_under_any_umask(kind: str, tmp_path: Path) -> None:
    noise = "" if kind == "secure" else 'noise = "seeded"\nseed = 1'
    (tmp_path / "private").mkdir(mode=0o700)
    if kind == "seeded":  # as earlier versions left it
        (tmp_path / "private" / "seeded").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        measure(config_in(tmp_path, noise))
    finally:
        os.umask(before)
    everything = [tmp_path / "private", *(tmp_path / "private").rglob("*")]
    assert [path for path in everything if path.stat().st_mode & 0o077] == []


@posix
@pytest.mark.parametrize("which", ["private", "ledger.sqlite"])
def test_a_foreign_owner_is_refused(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release(config_in(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr("coco_opt.privacy.private_files.os.geteuid", lambda: os.getuid() + 1)
        words = "belongs to another user"
        with pytest.raises(ConfigError, match=words):
            release(in_place(tmp_path))
        with pytest.raises(BudgetError, match=words):
            ledger(tmp_path).books()


FOLDER_EDITS = {
    "epsilon in both places": lambda m: [
        part.update(epsilon="1/100") for part in (m["budget"], m["config"]["privacy"])
    ],
    "epsilon": lambda m: m["budget"].update(epsilon="1/100"),
    "epsilon of the configuration": lambda m: m["config"]["privacy"].update(epsilon="1/100"),
    "a scale": lambda m: m["budget"]["questions"][0].update(scale="1"),
    "a promise": lambda m: m["promises"].remove("children_sum_to_parents"),
    "implied": lambda m: m["budget"]["implied"].update(rho="1/9999"),
    "status": lambda m: m.update(status="NOT PRIVATE", private=False),
    "max_size": lambda m: m.update(max_size=8),
    "a digest": lambda m: m["files"].update({"hierarchy.parquet": "0" * 64}),
    "neighbours": lambda m: m["budget"].update(neighbours="replace"),
    "billions of digits: epsilon": lambda m: m["budget"].update(epsilon="1e400000000"),
    "billions of digits: epsilon of the configuration": lambda m: m["config"]["privacy"].update(epsilon="1e400000000"),
    "billions of digits: a scale": lambda m: m["budget"]["questions"][0].update(scale="1e400000000"),
    "billions of digits: implied": lambda m: m["budget"]["implied"].update(rho="1e-400000000"),
}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    release(load_config(write(folder)), folder / "out")
    return folder


@pytest.mark.parametrize("what", FOLDER_EDITS)
@pytest.mark.parametrize("again", [False, True], ids=["edited", "edited and sealed again"])
def test_an_edited_manifest_is_found(what: str, again: bool, released: Path, tmp_path: Path) -> None:
    shutil.copytree(released / "out", tmp_path / "out")
    path = tmp_path / "out" / MANIFEST
    manifest = json.loads(path.read_text())
    FOLDER_EDITS[what](manifest)
    path.write_bytes(as_json(sealed(manifest) if again else manifest))
    failed = [check.name for check in verify_release(tmp_path / "out") if not check.passed]
    assert ("seal" in failed) != again
    paid = [check.name for check in verify_paid(tmp_path / "out", in_place(released)) if not check.passed]
    assert paid
    if (
        "epsilon" in what
        or "digits" in what
        or what in ("a scale", "a promise", "implied", "status", "a digest", "neighbours")
    ):
        # "a promise" beyond the least is the ledger's to find; everything else contradicts itself.
        assert failed or what == "a promise"


def test_an_edited_estimate_a_deleted_and_a_foreign_file_are_found(released: Path, tmp_path: Path) -> None:
    def failed(change: str) -> list[str]:
        out = tmp_path / change
        shutil.copytree(released / "out", out)
        if change == "deleted":
            (out / "hierarchy.parquet").unlink()
        elif change == "foreign":
            (out / "more.csv").write_text("x")
        else:
            table = pq.read_table(out / "histograms.parquet")
            values = table.column("groups").to_numpy().copy()
            values[0] += 1
            column = table.column_names.index("groups")
            pq.write_table(table.set_column(column, "groups", [values]), out / "histograms.parquet")
        return [check.name for check in verify_release(out) if not check.passed]

    for change in ("deleted", "foreign", "edited"):
        assert failed(change)[0] == "files"


def test_verify_compares_with_what_was_paid(released: Path) -> None:
    checks = verify_paid(released / "out", in_place(released))
    assert [(check.name, check.passed) for check in checks] == [("paid", True), ("recorded", True)]


def test_a_receipt_of_another_payment_is_found(released: Path, tmp_path: Path) -> None:
    """The same questions at the same cost are no payment for this measurement."""
    shutil.copytree(released / "out", tmp_path / "out")
    path = tmp_path / "out" / MANIFEST
    manifest = json.loads(path.read_text())
    path.write_bytes(as_json(sealed({**manifest, "receipt": manifest["receipt"][::-1]})))
    (paid,) = (check for check in verify_paid(tmp_path / "out", in_place(released)) if check.name == "paid")
    assert not paid.passed
    assert "the receipt is of no payment" in paid.detail


def test_no_private_name_is_public(released: Path) -> None:
    for path in (released / "out").iterdir():
        for word in (b"entities.csv", b"private", b"zebra", b"ledger.sqlite", str(released).encode()):
            if not (word == b"private" and path.name in (MANIFEST, DATAPACKAGE)):  # both state whether it is
                assert word not in path.read_bytes(), (path.name, word)
