"""A release folder: what is written, that it comes back, and that every broken promise is found."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import InputError
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.tables import read_release, read_sizes, verify_release, write_release

TREE = Hierarchy.from_paths([("n", "a"), ("n", "b"), ("n", "c")])
LEAVES = [CountOfCounts.from_ranks(ranks) for ranks in ([1, 1, 4], [0, 2], np.zeros(0, np.int64))]
HISTOGRAMS = [CountOfCounts.total(LEAVES), *LEAVES]
TOTALS = np.array([5, 3, 2, 0])
PROMISES = ["integers", "nonnegative", "sizes_at_most_max_size", "group_totals", "children_sum_to_parents"]
MANIFEST: dict[str, Any] = {"promises": PROMISES, "max_size": 4, "private": False}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_release(tmp_path / "out" / "run-1", TREE, TOTALS, HISTOGRAMS, MANIFEST, "<html></html>")


def failed(folder: Path) -> list[str]:
    return [check.name for check in verify_release(folder) if not check.passed]


def test_round_trip(folder: Path) -> None:
    release = read_release(folder)
    assert release.hierarchy.paths == TREE.paths
    assert release.group_counts.tolist() == TOTALS.tolist()
    assert all(a.equals(b) for a, b in zip(release.histograms, HISTOGRAMS, strict=True))
    assert release.manifest == MANIFEST
    assert "4 regions" in repr(release)
    frame = release.to_pandas()
    assert frame.columns.tolist() == ["level", "region", "size", "groups"]
    assert frame["groups"].sum() == 10
    assert frame["region"].tolist() == ["n"] * 4 + ["n/a"] * 2 + ["n/b"] * 2


def test_files_are_those_of_the_contract(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        "hierarchy.parquet",
        "histograms.parquet",
        "manifest.json",
        "report.html",
    ]
    assert [path.name for path in folder.parent.iterdir()] == ["run-1"]
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    histograms = pq.read_schema(folder / "histograms.parquet")
    assert [f"{field.name} {field.type}" for field in histograms] == [
        "level int32",
        "region string",
        "size int64",
        "groups int64",
    ]
    assert not histograms.metadata
    hierarchy = pq.read_table(folder / "hierarchy.parquet").to_pydict()
    assert hierarchy["parent"] == [None, "n", "n", "n"]
    assert hierarchy["groups"] == TOTALS.tolist()


def test_the_same_release_is_the_same_bytes(tmp_path: Path) -> None:
    digests = []
    for name in ("x", "y"):
        folder = write_release(tmp_path / name, TREE, TOTALS, HISTOGRAMS, MANIFEST)
        content = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        digests.append(hashlib.sha256(content).hexdigest())
    assert digests[0] == digests[1]


def test_all_checks_pass_on_a_good_release(folder: Path) -> None:
    names = [check.name for check in verify_release(folder)]
    assert failed(folder) == []
    assert names[:5] == ["files", "manifest", "integers", "hierarchy", "regions"]
    assert set(PROMISES) <= set(names)


def test_a_release_without_any_group_is_fine(tmp_path: Path) -> None:
    empty = [CountOfCounts.empty()] * 4
    folder = write_release(tmp_path / "empty", TREE, np.zeros(4, np.int64), empty, MANIFEST)
    assert failed(folder) == []
    assert read_release(folder).histograms[0].groups == 0


def test_one_region_is_a_release(tmp_path: Path) -> None:
    tree = Hierarchy.from_paths([("only",)])
    folder = write_release(tmp_path / "one", tree, np.array([3]), [LEAVES[0]], MANIFEST)
    assert failed(folder) == []
    assert read_release(folder).histograms[0].equals(LEAVES[0])


def test_an_existing_target_is_refused(folder: Path, tmp_path: Path) -> None:
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(InputError, match="folder-exists"):
        write_release(folder, TREE, TOTALS, HISTOGRAMS, {**MANIFEST, "max_size": 9})
    assert (folder / "manifest.json").read_bytes() == before
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="folder-exists"):
        write_release(tmp_path / "empty", TREE, TOTALS, HISTOGRAMS, MANIFEST)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="folder-exists"):
        write_release(tmp_path / "link", TREE, TOTALS, HISTOGRAMS, MANIFEST)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def full_disk(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(InputError, match=r"No space left on device \[cannot-write\]"):
        write_release(tmp_path / "full", TREE, TOTALS, HISTOGRAMS, MANIFEST)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_a_release(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bad-shape"):
        write_release(tmp_path / "x", TREE, TOTALS, HISTOGRAMS[:3], MANIFEST)
    with pytest.raises(InputError, match="bad-shape"):
        write_release(tmp_path / "x", TREE, TOTALS[:3], HISTOGRAMS, MANIFEST)
    for bad in ({"a": float("nan")}, {"a": object()}):
        with pytest.raises(InputError, match="bad-manifest"):
            write_release(tmp_path / "x", TREE, TOTALS, HISTOGRAMS, bad)
    assert list(tmp_path.iterdir()) == []


Edit = Callable[[dict[str, list[Any]]], None]


def edit(folder: Path, file: str, change: Edit) -> None:
    path = folder / file
    columns = pq.read_table(path).to_pydict()
    change(columns)
    pq.write_table(pa.table(columns), path, write_page_checksum=True)


def put(column: str, row: int, value: object) -> Edit:
    def change(columns: dict[str, list[Any]]) -> None:
        columns[column][row] = value

    return change


def append(*values: object) -> Edit:
    def change(columns: dict[str, list[Any]]) -> None:
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)

    return change


def drop(row: int) -> Edit:
    def change(columns: dict[str, list[Any]]) -> None:
        for column in columns.values():
            del column[row]

    return change


def as_floats(column: str) -> Edit:
    def change(columns: dict[str, list[Any]]) -> None:
        columns[column] = [value + 0.0 for value in columns[column]]

    return change


def both(*changes: Edit) -> Edit:
    def change(columns: dict[str, list[Any]]) -> None:
        for part in changes:
            part(columns)

    return change


H, T = "histograms.parquet", "hierarchy.parquet"
ALL_PROMISES = PROMISES[1:]
SUM = "children_sum_to_parents"
# Rows of H: n (0:1, 1:2, 2:1, 4:1), n/a (1:2, 4:1), n/b (0:1, 2:1); rows of T: n, n/a, n/b, n/c.
PLANTED = [
    (H, as_floats("groups"), ["integers", *ALL_PROMISES]),
    (H, as_floats("size"), ["integers", *ALL_PROMISES]),
    (H, put("groups", 0, None), ["integers", *ALL_PROMISES]),
    (T, as_floats("groups"), ["integers", *ALL_PROMISES]),
    (H, both(put("groups", 0, -1), put("groups", 1, 4)), ["nonnegative", SUM]),
    (T, both(put("groups", 3, -1), put("groups", 1, 4)), ["nonnegative", "group_totals"]),
    (H, put("size", 0, -1), ["nonnegative", "sizes_at_most_max_size", SUM]),
    (H, both(put("size", 3, 5), put("size", 5, 5)), ["sizes_at_most_max_size"]),
    (H, both(put("groups", 5, 2), put("groups", 3, 2)), ["group_totals"]),
    (H, both(put("groups", 0, 2), put("groups", 1, 1)), [SUM]),
    (H, put("size", 5, 3), [SUM]),
    (H, drop(0), ["group_totals", SUM]),
    (T, put("groups", 0, 6), ["group_totals"]),
    (T, both(put("groups", 3, 1)), ["group_totals"]),
    (H, append(1, "n/a", 1, 2), ["rows", "group_totals", SUM]),
    (H, append(1, "n/c", 1, 0), ["rows"]),
    (H, append(1, "n/d", 1, 1), ["regions", *ALL_PROMISES]),
    (H, put("level", 0, 1), ["regions", *ALL_PROMISES]),
    (H, put("region", 0, None), ["regions", *ALL_PROMISES]),
    (T, drop(2), ["regions", *ALL_PROMISES]),
    (T, append("n/a", "n", 1, 0), ["hierarchy", *ALL_PROMISES]),
    (T, append("m", None, 0, 0), ["hierarchy", *ALL_PROMISES]),
    (T, append("m/x", "m", 1, 0), ["hierarchy", *ALL_PROMISES]),
    (T, append("n/a/z", "n/a", 2, 3), ["hierarchy", *ALL_PROMISES]),
    (T, put("parent", 0, "n/a"), ["hierarchy", *ALL_PROMISES]),
    (T, put("parent", 3, "n/c"), ["hierarchy", *ALL_PROMISES]),
    (T, put("level", 3, 2), ["hierarchy", *ALL_PROMISES]),
    (T, put("region", 3, "m/c"), ["hierarchy", *ALL_PROMISES]),
    (T, put("region", 3, None), ["hierarchy", *ALL_PROMISES]),
    (H, append(1, "n/c", 3, 2**62), ["group_totals", SUM]),
    (H, lambda columns: columns.pop("level"), ["files"]),
    (H, lambda columns: columns.update(region=[1] * 8), ["files"]),
]


@pytest.mark.parametrize(("file", "change", "expected"), PLANTED)
def test_every_planted_fault_is_found(folder: Path, file: str, change: Edit, expected: list[str]) -> None:
    edit(folder, file, change)
    found = failed(folder)
    assert set(expected) <= set(found)
    assert not set(found) - set(expected) - {"regions"}


def test_only_what_is_promised_is_required(folder: Path) -> None:
    edit(folder, H, both(put("groups", 0, 2), put("groups", 1, 1)))
    assert failed(folder) == [SUM]
    manifest = {**MANIFEST, "promises": PROMISES[:-1]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert failed(folder) == []
    assert SUM not in [check.name for check in verify_release(folder)]


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ("{", "files"),
        ("[]", "files"),
        ("{}", "manifest"),
        ('{"promises": "all", "max_size": 4}', "manifest"),
        ('{"promises": [], "max_size": 0}', "manifest"),
        ('{"promises": [], "max_size": 4.0}', "manifest"),
        ('{"promises": ["magic"], "max_size": 4}', "manifest"),
    ],
)
def test_a_bad_manifest_fails(folder: Path, manifest: str, expected: str) -> None:
    (folder / "manifest.json").write_text(manifest)
    assert failed(folder) == [expected]


@pytest.mark.parametrize("name", ["histograms.parquet", "hierarchy.parquet", "manifest.json"])
def test_missing_and_damaged_files(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    assert failed(folder) == ["files"]
    with pytest.raises(InputError, match=r"unreadable-file|bad-manifest"):
        read_release(folder)
    (folder / name).unlink()
    assert failed(folder) == ["files"]
    with pytest.raises(InputError, match="file-not-found"):
        read_release(folder)


@pytest.mark.parametrize(
    ("file", "change", "code"),
    [
        (H, append(1, "n/d", 1, 1), "unknown-region"),
        (H, as_floats("groups"), "not-an-integer"),
        (H, put("groups", 0, None), "null-value"),
        (H, append(1, "n/a", 1, 2), "not-increasing"),
        (H, put("groups", 0, -1), "nonpositive-count"),
        (T, append("n/a", "n", 1, 0), "duplicate-region"),
        (T, drop(0), "duplicate-region"),
        (T, put("region", 3, None), "null-value"),
    ],
)
def test_reading_refuses_what_is_no_release(folder: Path, file: str, change: Edit, code: str) -> None:
    edit(folder, file, change)
    with pytest.raises(InputError) as caught:
        read_release(folder)
    assert caught.value.code == code


def test_taxi_round_trip(shared_data: Path, tmp_path: Path) -> None:
    counts = read_sizes(shared_data / "kuo2018" / "taxi_neighbourhoods.csv")
    histograms = counts.histograms()
    manifest = {"promises": PROMISES, "max_size": 100_000}
    folder = write_release(tmp_path / "taxi", counts.hierarchy, counts.group_counts, histograms, manifest)
    assert failed(folder) == []
    again = read_release(folder)
    assert again.hierarchy.paths == counts.hierarchy.paths
    assert all(a.equals(b) for a, b in zip(again.histograms, histograms, strict=True))
