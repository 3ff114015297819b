"""The files of a release of groups: what is written, that it comes back, and that every broken promise is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt import CountOfCounts, Hierarchy, verify_release
from coco_opt.errors import CocoOptError, InputError
from coco_opt.files.folder import as_json, sealed, write_folder
from coco_opt.files.regions import region_table
from coco_opt.groups.kind.files import HISTOGRAMS, histogram_table, read_groups_release
from coco_opt.groups.measuring.measure import measurement_plan_of
from coco_opt.groups.measuring.sizes import read_sizes
from coco_opt.releases.manifest import FORMAT
from tests.groups.helpers import thirds
from tests.releases.drawn import restate, seeded_budget

TREE = Hierarchy.from_paths([("n", "a"), ("n", "b"), ("n", "c")])
IDS = (None, "r1", "r2", "r3")
LEAVES = [CountOfCounts.from_ranks(ranks) for ranks in ([1, 1, 4], [0, 2], np.zeros(0, np.int64))]
HISTOGRAMS_OF = [CountOfCounts.total(LEAVES), *LEAVES]
PROMISES = ["integers", "nonnegative", "sizes_at_most_max_size", "group_totals", "children_sum_to_parents"]
MANIFEST: dict[str, Any] = {
    "format": FORMAT,
    "kind": "groups",
    "promises": PROMISES,
    "max_size": 4,
}


def written(
    folder: Path,
    tree: Hierarchy = TREE,
    histograms: Sequence[CountOfCounts] = HISTOGRAMS_OF,
    manifest: dict[str, Any] = MANIFEST,
    ids: tuple[str | None, ...] = IDS,
) -> Path:
    measurement_plan = measurement_plan_of(
        tree,
        np.array([histogram.groups for histogram in histograms]),
        queries=["cumulative"] * tree.levels,
        costs=thirds(tree.levels),
        max_size=manifest["max_size"],
        neighbours="add_remove",
        levels=("nation", "state", "county")[: tree.levels],
        region_ids=ids,
    )
    files = {
        HISTOGRAMS: histogram_table(measurement_plan, histograms),
        "hierarchy.parquet": region_table(measurement_plan),
    }
    full_manifest = {**manifest, **seeded_budget(measurement_plan)}
    write_folder(
        folder, files, "manifest.json", lambda digests: as_json(sealed({**full_manifest, "files": dict(digests)}))
    )
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "out" / "run-1")


def failed(folder: Path) -> list[str]:
    return [check.name for check in verify_release(folder) if not check.passed]


def test_round_trip(folder: Path) -> None:
    release = read_groups_release(folder)
    assert release.hierarchy.paths == TREE.paths
    assert (release.levels, release.region_ids) == (("nation", "state"), IDS)
    assert release.group_counts.tolist() == [5, 3, 2, 0]
    assert all(a.equals(b) for a, b in zip(release.histograms, HISTOGRAMS_OF, strict=True))
    assert release["n/a"].equals(LEAVES[0])
    assert release.manifest["max_size"] == 4
    assert "4 regions" in repr(release)
    frame = release.to_pandas()
    assert frame.columns.tolist() == ["level", "level_name", "region", "region_id", "size", "groups"]
    assert frame["groups"].sum() == 10
    assert frame["region"].tolist() == ["n"] * 4 + ["n/a"] * 2 + ["n/b"] * 2
    assert frame["level_name"].tolist() == ["nation"] * 4 + ["state"] * 4
    assert frame["region_id"].isna().tolist() == [True] * 4 + [False] * 4
    assert frame["region_id"].tolist()[4:] == ["r1"] * 2 + ["r2"] * 2
    assert frame.equals(pq.read_table(folder / HISTOGRAMS).to_pandas())


def test_files_are_those_of_the_contract(folder: Path) -> None:
    histograms = pq.read_schema(folder / "histograms.parquet")
    assert [f"{field.name} {field.type}" for field in histograms] == [
        "level int32",
        "level_name string",
        "region string",
        "region_id string",
        "size int64",
        "groups int64",
    ]
    assert not histograms.metadata
    hierarchy = pq.read_table(folder / "hierarchy.parquet").to_pydict()
    assert hierarchy["parent"] == [None, "n", "n", "n"]
    assert hierarchy["groups"] == [5, 3, 2, 0]


def test_all_checks_pass_on_a_good_release(folder: Path) -> None:
    names = [check.name for check in verify_release(folder)]
    assert failed(folder) == []
    assert names[:7] == ["files", "seal", "manifest", "budget", "hierarchy", "integers", "regions"]
    assert set(PROMISES) <= set(names)


def test_a_release_without_any_group_is_fine(tmp_path: Path) -> None:
    folder = written(tmp_path / "empty", histograms=[CountOfCounts.empty()] * 4)
    assert failed(folder) == []
    assert read_groups_release(folder).histograms[0].groups == 0


Edit = Callable[[dict[str, list[Any]]], None]


def edit(folder: Path, file: str, change: Edit) -> None:
    """Change a file and the digest that the manifest states of it, as whoever wants to deceive would."""
    path = folder / file
    columns = pq.read_table(path).to_pydict()
    change(columns)
    pq.write_table(pa.table(columns), path, write_page_checksum=True)
    restate(folder)


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
NEVER = PROMISES[1:]
ALL_PROMISES = PROMISES
SUM = "children_sum_to_parents"
NA, NC = (1, "state", "n/a", "r1"), (1, "state", "n/c", "r3")
# Rows of H: n (0:1, 1:2, 2:1, 4:1), n/a (1:2, 4:1), n/b (0:1, 2:1); rows of T: n, n/a, n/b, n/c.
PLANTED = [
    (H, as_floats("groups"), ["integers", *NEVER]),
    (H, as_floats("size"), ["integers", *NEVER]),
    (H, put("groups", 0, None), ["integers", *NEVER]),
    (T, as_floats("groups"), ["hierarchy", *ALL_PROMISES]),
    (T, lambda columns: columns.pop("groups"), ["integers", *NEVER]),
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
    (H, append(*NA, 1, 2), ["rows", "group_totals", SUM]),
    (H, append(*NC, 1, 0), ["rows"]),
    (H, append(1, "state", "n/d", "r4", 1, 1), ["regions", *NEVER]),
    (H, put("level", 0, 1), ["regions", *NEVER]),
    (H, put("level_name", 0, "state"), ["regions", *NEVER]),
    (H, put("region_id", 4, "r2"), ["regions", *NEVER]),
    (H, put("region_id", 0, "r1"), ["regions", *NEVER]),
    (H, put("region", 0, None), ["regions", *NEVER]),
    (T, drop(2), ["regions", *NEVER]),
    (T, append("n/a", "r9", "n", 1, "state", 0), ["hierarchy", *ALL_PROMISES]),
    (T, append("m", None, None, 0, "nation", 0), ["hierarchy", *ALL_PROMISES]),
    (T, append("n/a/z", None, "n/a", 2, "county", 3), ["hierarchy", *ALL_PROMISES]),
    (T, put("parent", 0, "n/a"), ["hierarchy", *ALL_PROMISES]),
    (T, put("level", 3, 2), ["hierarchy", *ALL_PROMISES]),
    (T, put("region", 3, "m/c"), ["hierarchy", *ALL_PROMISES]),
    (T, put("region", 3, None), ["hierarchy", *ALL_PROMISES]),
    (T, put("region", 3, "n/c\\"), ["hierarchy", *ALL_PROMISES]),
    (T, lambda columns: [values.reverse() for values in columns.values()], ["hierarchy", *ALL_PROMISES]),
    (T, lambda columns: columns.update(level_name=["land", *columns["level_name"][1:]]), ["hierarchy", *ALL_PROMISES]),
    (H, append(*NC, 3, 2**62), ["group_totals", SUM]),
    (H, lambda columns: columns.pop("level"), ["content", *ALL_PROMISES]),
    (H, lambda columns: columns.update(region=[1] * 8), ["content", *ALL_PROMISES]),
]


@pytest.mark.parametrize(("file", "change", "expected"), PLANTED)
def test_every_planted_fault_is_found(folder: Path, file: str, change: Edit, expected: list[str]) -> None:
    edit(folder, file, change)
    result = failed(folder)
    assert set(expected) <= set(result)
    assert not set(result) - set(expected) - {"regions"}


def test_only_what_is_promised_is_required(folder: Path) -> None:
    edit(folder, H, both(put("groups", 0, 2), put("groups", 1, 1)))
    assert failed(folder) == [SUM]
    restate(folder, promises=PROMISES[:-1])
    assert failed(folder) == []
    assert SUM not in [check.name for check in verify_release(folder)]


@pytest.mark.parametrize("max_size", [None, 0, 4.0, True, "4"])
def test_a_manifest_without_a_bound_fails(folder: Path, max_size: object) -> None:
    restate(folder, max_size=max_size)
    assert "manifest" in failed(folder)


@pytest.mark.parametrize("name", ["histograms.parquet", "hierarchy.parquet", "manifest.json"])
def test_missing_and_damaged_files(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    assert "files" in failed(folder)
    with pytest.raises(CocoOptError, match=f"changed since it was written: {name}|bad-manifest"):
        read_groups_release(folder)
    (folder / name).unlink()
    assert "files" in failed(folder)
    with pytest.raises(InputError, match="file-not-found"):
        read_groups_release(folder)


@pytest.mark.parametrize(
    ("file", "change", "code"),
    [
        (H, append(1, "state", "n/d", "r4", 1, 1), "bad-release"),
        (H, as_floats("groups"), "bad-release"),
        (H, put("groups", 0, None), "bad-release"),
        (H, append(*NA, 1, 2), "not-increasing"),
        (H, put("groups", 0, -1), "nonpositive-count"),
        (T, append("n/a", "r1", "n", 1, "state", 0), "duplicate-region"),
        (T, lambda columns: columns.pop("groups"), "missing-column"),
    ],
)
def test_reading_refuses_what_is_no_release(folder: Path, file: str, change: Edit, code: str) -> None:
    edit(folder, file, change)
    with pytest.raises(InputError) as caught:
        read_groups_release(folder)
    assert caught.value.code == code


def test_a_release_of_another_kind_is_refused(folder: Path) -> None:
    restate(folder, kind="tables")
    with pytest.raises(InputError, match="other-release"):
        read_groups_release(folder)


def test_taxi_round_trip(shared_data: Path, tmp_path: Path) -> None:
    counts = read_sizes(shared_data / "kuo2018" / "taxi_neighbourhoods.csv")
    histograms = counts.histograms()
    folder = written(tmp_path / "taxi", counts.hierarchy, histograms, {**MANIFEST, "max_size": 100_000}, ids=())
    assert failed(folder) == []
    again = read_groups_release(folder)
    assert again.hierarchy.paths == counts.hierarchy.paths
    assert all(a.equals(b) for a, b in zip(again.histograms, histograms, strict=True))
