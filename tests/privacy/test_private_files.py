"""Files that survive a power cut, and secrets that do not survive their erasure."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from coco_opt.errors import InputError
from coco_opt.files.folder import write_folder
from coco_opt.privacy import Charge, Ledger
from coco_opt.privacy.private_files import erase_private, make_private_folder, replace_private, write_private
from coco_opt.privacy.run_folder import RunFolder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="folders are made durable on POSIX alone")

Log = list[tuple[str, str]]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Return what happens to names, and which files and folders are made durable, in order."""
    happened: Log = []
    fsync, rename, link, replace, unlink, mkdir = os.fsync, os.rename, os.link, os.replace, os.unlink, os.mkdir

    def synced(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        happened.append((f"sync {kind}", str(os.fstat(descriptor).st_ino)))
        fsync(descriptor)

    def told(name: str, action: Callable[..., None]) -> Callable[..., None]:
        def act(path: object, *others: object, **options: object) -> None:
            action(path, *others, **options)
            happened.append((name, os.fspath(others[0] if others and name != "mkdir" else path)))  # type: ignore[call-overload]

        return act

    monkeypatch.setattr(os, "fsync", synced)
    for name, action in (("rename", rename), ("link", link), ("replace", replace), ("unlink", unlink)):
        monkeypatch.setattr(os, name, told(name, action))
    monkeypatch.setattr(os, "mkdir", told("mkdir", mkdir))
    return happened


def durable(log: Log, folder: Path, path: Path) -> bool:
    """Tell whether the last change of a name was made durable after it, and a file's content before."""
    sync = ("sync folder", str(folder.stat().st_ino))
    changes = [place for place, (what, name) in enumerate(log) if not what.startswith("sync") and name == str(path)]
    return sync in log[changes[-1] :]


@pytest.mark.parametrize("write", [write_private, replace_private])
def test_a_private_file_is_on_disk_before_its_name_and_its_name_before_the_call_ends(
    write: Callable[[Path, list[bytes]], None], tmp_path: Path, log: Log
) -> None:
    path = tmp_path / "record"
    write(path, [b"one", b"two"])
    assert path.read_bytes() == b"onetwo"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert durable(log, tmp_path, path)
    named = next(place for place, (_, name) in enumerate(log) if name == str(path))
    assert ("sync file", str(path.stat().st_ino)) in log[:named]


def test_a_private_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_private(path, [b"first"])
    with pytest.raises(InputError, match="never overwritten"):
        write_private(path, [b"second"])
    assert path.read_bytes() == b"first"


def test_a_run_is_bound_to_one_input(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "run")
    assert folder.claim()
    assert not folder.is_bound
    folder.bind(b"one")
    folder.bind(b"one")
    with pytest.raises(InputError, match="input-changed"):
        folder.bind(b"two")
    assert folder.holds(b"one")
    folder.release()


def test_what_is_erased_is_overwritten_on_disk_before_its_name_goes(tmp_path: Path, log: Log) -> None:
    """A second name of the same file shows what is left of its content."""
    path, other = tmp_path / "key", tmp_path / "seen"
    write_private(path, [b"secret" * 9])
    other.hardlink_to(path)
    del log[:]
    erase_private(path)
    assert not path.exists()
    assert other.read_bytes() == bytes(54)
    assert log[0] == ("sync file", str(other.stat().st_ino))
    assert durable(log, tmp_path, path)


def test_a_private_folder_is_its_owners_and_its_name_is_durable(tmp_path: Path, log: Log) -> None:
    folder = tmp_path / "private"
    make_private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert durable(log, tmp_path, folder)


def test_a_ledgers_file_is_durable_before_anything_is_paid(tmp_path: Path, log: Log) -> None:
    path = tmp_path / "ledger.sqlite"
    account = Ledger(path)
    account.fingerprint([])  # draws the key, whose folder is made durable with it
    del log[:]
    account.reserve("run", Charge("towns", "epsilon", Fraction(1), "add_remove", "questions"))
    sync = ("sync folder", str(tmp_path.stat().st_ino))
    assert log.count(sync) == 2  # for the ledger, and for its head


def test_a_folder_and_its_files_are_durable_before_its_name(tmp_path: Path, log: Log) -> None:
    folder = tmp_path / "release"
    write_folder(folder, {"table": b"content"}, "index", lambda digests: b"index")
    assert durable(log, tmp_path, folder)
    named = next(place for place, (_, name) in enumerate(log) if name == str(folder))
    for what, path in (("file", folder / "table"), ("file", folder / "index"), ("folder", folder)):
        assert (f"sync {what}", str(path.stat().st_ino)) in log[:named]


def test_erasing_follows_no_link(tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", tmp_path / "key"
    outside.write_bytes(b"kept")
    link.symlink_to(outside)
    with pytest.raises(InputError, match="is a link"):
        erase_private(link)
    assert outside.read_bytes() == b"kept"
