"""Sealed measurements on disk, the private folder of a run, and the wall behind the seal."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Measurements, SeededNoise, measure_hierarchy
from coco_opt.privacy.budget import Query
from coco_opt.privacy.private_files import FileLock, erase_private, remove_partial, write_private
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.privacy.seal import SEALING, seal, unseal

ROOT = Path(__file__).resolve().parents[2]
TREE = Hierarchy.from_paths([("nation", "é/".strip("/")), ("nation", "west")])
LEAVES = (CountOfCounts.from_dense(np.array([0, 3, 2, 0, 1])), CountOfCounts.from_dense(np.array([1, 0, 0, 7])))


def measured(
    queries: tuple[Query, Query] = ("cumulative", "naive"), raw_limit: int = 100, **options: str
) -> Measurements:
    epsilons = options.get("epsilons", "1/3 2").split()
    histograms = [CountOfCounts.total(LEAVES), *LEAVES]
    return measure_hierarchy(
        histograms,
        TREE,
        np.array([one.groups for one in histograms]),
        queries=queries,
        losses=("l2", "l2"),
        epsilons=tuple(Fraction(one) for one in epsilons),
        max_size=6,
        neighbours="replace",
        source=SeededNoise(int(options.get("seed", "1"))),
        raw_limit=raw_limit,
    )


@pytest.mark.parametrize("queries", [("cumulative", "naive"), ("rank", "rank"), ("naive", "cumulative")])
@pytest.mark.parametrize("raw_limit", [0, 100])
@pytest.mark.parametrize("epsilons", ["1/3 2", "0 1"])
def test_what_is_sealed_comes_back(tmp_path: Path, queries: tuple[Query, Query], raw_limit: int, epsilons: str) -> None:
    before = measured(queries, raw_limit, epsilons=epsilons)
    digest = seal(before, tmp_path / "sealed")
    after, found = unseal(tmp_path / "sealed", digest)
    assert found == digest
    for name in ("max_size", "amounts", "queries", "losses", "neighbours", "noise", "private", "mechanism"):
        assert getattr(after, name) == getattr(before, name)
    assert after.hierarchy.paths == before.hierarchy.paths
    np.testing.assert_array_equal(after.group_counts, before.group_counts)
    for one, other in zip(before, after, strict=True):
        assert (one is None) == (other is None)
        if one is None or other is None:
            continue
        assert repr(one) == repr(other)
        np.testing.assert_array_equal(one.values, other.values)
        assert (one.lengths is None) == (other.lengths is None)
        if one.lengths is not None and other.lengths is not None:
            np.testing.assert_array_equal(one.lengths, other.lengths)
        assert not other.values.flags.writeable


def test_the_file_is_private_repeatable_and_whole(tmp_path: Path) -> None:
    digest = seal(measured(), tmp_path / "one")
    assert seal(measured(), tmp_path / "two") == digest
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert hashlib.sha256((tmp_path / "one").read_bytes()[:-32]).hexdigest() == digest
    assert seal(measured(seed="2"), tmp_path / "three") != digest
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "three", "two"]


def test_a_changed_or_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sealed"
    digest = seal(measured(), path)
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(InputError, match="damaged-seal"):
            unseal(path)
    for size in (0, 10, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match="damaged-seal"):
            unseal(path)
    path.write_bytes(content)
    assert unseal(path)[1] == digest
    with pytest.raises(InputError, match="damaged-seal"):
        unseal(path, "0" * 64)
    with pytest.raises(InputError, match="file-not-found"):
        unseal(tmp_path / "absent")


def test_a_seal_is_never_written_over_and_failures_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal(measured(), tmp_path / "sealed")
    with pytest.raises(InputError, match="file-exists"):
        seal(measured(), tmp_path / "sealed")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        seal(measured(), tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["sealed"]


def test_scales_that_differ_within_a_level_cannot_be_sealed(tmp_path: Path) -> None:
    from dataclasses import replace

    good = measured()
    west = good.answers[2]
    assert west is not None
    bad = replace(good, answers=(*good.answers[:2], replace(west, parameter=west.parameter + 1)))
    with pytest.raises(ProblemError, match="different scales"):
        seal(bad, tmp_path / "sealed")
    assert not list(tmp_path.iterdir())


def test_the_key_is_kept_erased_and_never_redrawn_by_chance(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "run")
    assert folder.claim()
    assert not RunFolder(tmp_path, "run").claim()
    secret = folder.key().to_bytes()
    assert folder.key().to_bytes() == secret
    assert folder.has_key
    assert not folder.is_sealed
    folder.release()
    again = RunFolder(tmp_path, "run")
    assert again.claim()
    assert again.key().to_bytes() == secret
    digest = again.seal(measured(), SEALING)
    again.erase_key()
    again.erase_key()
    assert not again.has_key
    assert again.unseal(SEALING, digest)[1] == digest
    assert all(secret not in path.read_bytes() for path in again.path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_a_key_others_could_read_ends_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "run")
    assert folder.claim()
    folder.key()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    (folder.path / "key").chmod(0o644)
    with pytest.raises(InputError, match="open-key"):
        folder.key()


def test_a_run_is_bound_to_its_input(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "run")
    assert folder.claim()
    folder.bind("input", b"first")
    folder.bind("input", b"first")
    with pytest.raises(InputError, match=r"input-changed") as refused:
        folder.bind("input", b"other")
    assert "other" not in str(refused.value)
    assert folder.kept("target") == {}
    folder.keep("target", {"out": "here"})
    folder.keep("target", {"out": "there"})
    assert folder.kept("target") == {"out": "here"}
    folder.discard()
    assert not folder.path.exists()


def test_leftovers_of_an_interrupted_write_are_removed(tmp_path: Path) -> None:
    write_private(tmp_path / "kept", [b"1"])
    (tmp_path / ".sealed.0011223344556677.partial").write_bytes(b"half")
    remove_partial(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    erase_private(tmp_path / "kept")
    assert not list(tmp_path.iterdir())


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from coco_opt.privacy.private_files import FileLock\n"
        "assert FileLock(Path(sys.argv[1])).acquire()\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert not FileLock(path).acquire()
        holder.kill()
        holder.wait()
    lock = FileLock(path)
    assert lock.acquire()
    lock.release()
