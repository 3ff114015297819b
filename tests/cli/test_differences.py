"""Two releases compared: their differences, what is beyond noise, the page, the verb, and wide tables."""

from __future__ import annotations

import json
import math
import shutil
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from coco_opt import Schema, load_config
from coco_opt.cli.diff import _write_rows
from coco_opt.errors import InputError, VerificationError
from coco_opt.files import unchanged
from coco_opt.files.differences import Compared, Side, difference_frame, read_renamed
from coco_opt.files.folder import as_json, file_digest
from coco_opt.files.unchanged import unchanged_manifest
from coco_opt.releases import differences, read_release, release
from coco_opt.releases.differences import GUESSES, Changes
from coco_opt.topdown.queries import parse_query
from tests.cli.helpers import KINDS, Runner

COMPARED = {"groups": "histograms", "tables": "estimates", "ranges": "ranges"}
Tables = dict[str, pa.Table]
GROUPS = Compared("h", "groups", ("size",), bounds="i", lower="low", upper="high")


def _tables(*rows: tuple[str, int, int, int, int]) -> dict[str, pa.Table]:
    """Return a table of counts above 0, and of their intervals, from region, size, groups, lower and upper."""
    frame = pd.DataFrame(rows, columns=["region", "size", "groups", "low", "high"])
    counts = frame[frame["groups"] > 0][["region", "size", "groups"]]
    ends = frame[["region", "size", "low", "high"]].assign(converged=frame["region"] != "b")
    return {"h": pa.Table.from_pandas(counts), "i": pa.Table.from_pandas(ends)}


def _frame(compared: Compared, later: Tables, earlier: Tables, coverage: float | None) -> pd.DataFrame:
    return difference_frame(compared, Side({}, later.get), Side({}, earlier.get), coverage)


def test_differences_hold_every_row_and_their_intervals_are_those_of_independent_estimates() -> None:
    later = _tables(("a", 1, 30, 26, 33), ("a", 2, 0, 0, 4), ("b", 1, 5, 4, 6))
    earlier = _tables(("a", 1, 20, 17, 24), ("b", 1, 6, 4, 7), ("b", 3, 2, 2, 2))
    frame = _frame(GROUPS, later, earlier, 0.9).set_index(["region", "size"])
    assert frame["difference"].to_dict() == {("a", 1): 10, ("a", 2): 0, ("b", 1): -1, ("b", 3): -2}
    assert frame["difference"].dtype == np.int64
    first = frame.loc[("a", 1)]
    assert first["lower"] == pytest.approx(10 - math.hypot(30 - 26, 24 - 20))
    assert first["upper"] == pytest.approx(10 + math.hypot(33 - 30, 20 - 17))
    assert frame["beyond_noise"].to_dict() == {("a", 1): True, ("a", 2): False, ("b", 1): False, ("b", 3): True}
    assert frame["converged"].to_dict() == {("a", 1): True, ("a", 2): True, ("b", 1): False, ("b", 3): False}
    without = _frame(GROUPS, later, earlier, None)
    assert without.columns.tolist() == ["region", "size", "earlier", "later", "difference"]
    assert len(without) == 3


def test_a_release_without_groups_has_no_rows_and_is_compared() -> None:
    later = _tables(("a", 1, 30, 26, 33))
    none = {name: table.from_batches([], table.schema) for name, table in later.items()}  # as a file has no chunk
    assert _frame(GROUPS, none, none, 0.9).empty
    assert _frame(GROUPS, later, none, 0.9)["difference"].tolist() == [30]
    assert _frame(GROUPS, none, later, 0.9)["difference"].tolist() == [-30]


def test_rows_of_regions_that_have_not_converged_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    def release_of(*rows: tuple[str, int, int, int, int], date: str = "2026") -> SimpleNamespace:
        tables = _tables(*rows)
        intervals = tables["i"].rename_columns({"low": "groups_lower", "high": "groups_upper"})
        named = {"histograms": tables["h"], "intervals": intervals}
        manifest = {"kind": "groups", "status": "private", "max_size": 3, "intervals": {"coverage": 0.95}}
        manifest |= {"name": "homes", "about": {"title": "Homes & sizes", "date": date}}
        return SimpleNamespace(manifest=manifest, tables=tuple(named), to_arrow=named.get)

    later = release_of(("a", 1, 9, 8, 9), ("b", 1, 5, 4, 6))
    earlier = release_of(("a", 1, 2, 1, 3), ("b", 1, 4, 3, 5), date="2025")
    frame = differences(later, earlier)
    words = Changes(later, earlier).noise_words("histograms", frame, "")
    assert words.startswith("1 of 2 rows compared are beyond noise: their interval of 95 % excludes 0.")
    assert "up to 5 % are marked by chance. The chains of 1 region have not converged" in words
    page = Changes(later, earlier).page(("earlier", "later"))
    assert words in unescape(page)
    assert page.count('data-name="converged">no<') == 1
    _write_rows(frame, frame)
    last = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if " 1 " in line or "converged" in line]
    assert last == ["converged", "yes", "no"]
    assert "<h1>Homes &amp; sizes, 2026 compared with Homes &amp; sizes, 2025</h1>" in page
    settled = release_of(("a", 1, 9, 8, 9))
    again = Changes(settled, settled).page(("out1", "out2"))
    assert "<h1>out2 compared with out1</h1>" in again
    assert "converge" not in again


def test_standard_errors_add_up_as_variances() -> None:
    compared = Compared("r", "estimate", ("start",), error="standard_error", absent_is_zero=False)
    later, earlier = (
        {"r": pa.table({"start": [0, 1], "estimate": [value, 2.0], "standard_error": [error, 1.0]})}
        for value, error in ((19.0, 3.0), (10.0, 4.0))
    )
    frame = _frame(compared, later, earlier, None)
    assert frame["standard_error"].tolist() == [5.0, math.sqrt(2.0)]
    assert frame["beyond_noise"].tolist() == [True, False]
    np.testing.assert_allclose(frame["upper"] - frame["difference"], 1.6448536 * frame["standard_error"])


def test_an_attribute_may_have_a_name_that_values_have_too() -> None:
    tables = {"t": pa.table({"region": ["a", "a"], "value": ["x", "y"], "error": ["u", "u"], "persons": [3, 4]})}
    frame = _frame(Compared("t", "persons"), tables, tables, None)
    assert frame[["value", "error", "earlier"]].to_numpy().tolist() == [["x", "u", 3], ["y", "u", 4]]
    taken = {"t": tables["t"].rename_columns(["region", "later", "error", "persons"])}
    with pytest.raises(InputError, match="not-comparable"):
        _frame(Compared("t", "persons"), taken, taken, None)


@pytest.fixture(scope="module", params=sorted(KINDS))
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """Two seeded releases of the same data of a kind."""
    folder = tmp_path_factory.mktemp(request.param)
    paths = []
    for seed in (5, 6):
        config = load_config(KINDS[request.param].write(folder / str(seed), privacy=f'noise = "seeded"\nseed = {seed}'))
        release(config, folder / f"out{seed}")
        paths.append(folder / f"out{seed}")
    return request.param, paths[0], paths[1]


def test_releases_of_every_kind_are_compared(two: tuple[str, Path, Path], coco: Runner, tmp_path: Path) -> None:
    kind, earlier, later = two
    frame = differences(later, earlier)
    assert (frame["later"] - frame["earlier"] == frame["difference"]).all()
    backwards = differences(earlier, later)
    assert frame["difference"].abs().sum() == pytest.approx(backwards["difference"].abs().sum())
    assert not differences(earlier, earlier)["difference"].any()
    page = tmp_path / "changes.html"
    ran = coco("diff", earlier, later, "--page", page, "--csv", tmp_path / "rows.csv")
    assert ran.code == 0, ran.err
    assert "NOT PRIVATE" in page.read_text()
    assert ("beyond_noise" in frame) == (f"Compared: the table {COMPARED[kind]!r}" in ran.out)
    assert (kind == "tables") <= ("beyond_noise" in frame)
    assert Changes(later, earlier).page((earlier.name, later.name)) == page.read_text()
    assert len(pd.read_csv(tmp_path / "rows.csv")) == len(frame)
    same = coco("diff", earlier, earlier).out
    assert "No row differs." in same
    edited = shutil.copytree(later, tmp_path / "edited")
    table = edited / {"groups": "histograms.parquet", "tables": "tables.parquet", "ranges": "ranges.parquet"}[kind]
    table.write_bytes(table.read_bytes() + b"x")
    refused = coco("diff", earlier, edited)
    assert (refused.code, "changed since it was written" in refused.err) == (1, True)
    for reads in (read_release, lambda folder: differences(folder, earlier)):
        with pytest.raises(VerificationError, match=f"edited: changed since it was written: {table.name}"):
            reads(edited)
    manifest = (edited / "manifest.json").read_text().replace('"private": false', '"private":  false')
    (edited / "manifest.json").write_text(manifest)
    with pytest.raises(VerificationError, match=r"written: manifest.json"):
        read_release(edited)
    unsealed = json.loads((later / "manifest.json").read_text())
    del unsealed["seal"], unsealed["files"]
    (edited / "manifest.json").write_bytes(as_json(unsealed))
    with pytest.raises(VerificationError, match=r"written: manifest.json"):
        differences(edited, earlier)
    planted = shutil.copytree(later, tmp_path / "planted")
    shutil.copy(planted / table.name, planted / "planted.parquet")
    with pytest.raises(VerificationError, match=r"states no digest of planted.parquet"):
        read_release(planted)
    assert "clearest" not in same
    assert coco("diff", earlier, later, "--delimiter", ";").code == 2
    assert coco("diff", earlier, later, "--csv", tmp_path / "rows.csv", "--delimiter", ";").code == 0
    assert coco("diff", earlier, later, "--csv", tmp_path / "rows.csv", "--decimal", ",").code == 2
    header, first = (tmp_path / "rows.csv").read_text(encoding="utf-8-sig").splitlines()[:2]
    columns = list(frame)
    if "region" in columns:  # a column for each level follows, as in exports
        levels = pd.read_parquet(later / "hierarchy.parquet").sort_values("level")["level_name"].unique()
        after = 1 + max(columns.index(name) for name in ("region", "region_id"))
        columns[after:after] = levels
    assert header.split(";") == [f'"{name}"' for name in columns]
    assert "False" not in first  # truth values and texts are written as export writes them
    assert json.loads(coco("diff", earlier, later, "--json").out)["rows"] == len(frame)
    if kind != "ranges":
        pd.testing.assert_frame_equal(read_release(later) - read_release(earlier), frame)
    if "beyond_noise" in frame:
        shown, marked = page.read_text().count("class=beyond"), int(frame["beyond_noise"].sum())
        assert shown == marked or 0 < shown < marked
        assert shown <= 20 * (frame["level"].nunique() if "level" in frame else 1)  # the file of rows has the others


def test_each_file_is_compared_with_its_digest_once_and_none_is_missed(
    two: tuple[str, Path, Path], coco: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, earlier, later = two
    read: list[Path] = []
    monkeypatch.setattr(unchanged, "file_digest", lambda path: read.append(path) or file_digest(path))
    assert coco("diff", earlier, later, "--page", tmp_path / "page.html").code == 0
    stated = [folder / name for folder in (earlier, later) for name in unchanged_manifest(folder)["files"]]
    assert sorted(read[: len(stated)]) == sorted(stated)
    copy = shutil.copytree(later, tmp_path / "without")
    (copy / f"{COMPARED[kind]}.parquet").unlink()
    with pytest.raises(InputError, match=f"{COMPARED[kind]}.parquet: is missing"):
        differences(copy, earlier)


def test_cells_that_no_query_measured_are_not_compared_unless_they_are_named(coco: Runner, tmp_path: Path) -> None:
    folders = []
    for seed in (5, 6):
        config = KINDS["tables"].write(tmp_path / str(seed), privacy=f'noise = "seeded"\nseed = {seed}')
        margins = '["sex", "age"]\nstrategy = "workload"'
        config.write_text(config.read_text().replace('["total", "sex * age"]', margins))
        folders.append(release(load_config(config), tmp_path / f"out{seed}").folder)
    assert coco("diff", *folders, "--page", tmp_path / "page.html").code == 0
    page = unescape((tmp_path / "page.html").read_text())
    assert page.index("<h2>Estimates") < page.index("<h2>Tables")
    assert GUESSES in page[page.index("<h2>Tables") :]
    assert "<table" not in page[page.index("<h2>Tables") :]
    assert GUESSES in coco("diff", *folders, "--table", "tables").out
    assert GUESSES not in coco("diff", *folders).out
    assert json.loads(coco("diff", *folders, "--table", "tables", "--json").out)["guesses"]


def test_releases_that_count_different_things_are_refused(
    two: tuple[str, Path, Path], coco: Runner, tmp_path: Path
) -> None:
    kind, earlier, _ = two
    other = next(name for name in sorted(KINDS) if name != kind)
    release(load_config(KINDS[other].write(tmp_path / "other")), tmp_path / "out")
    with pytest.raises(InputError, match=r"different kinds.*\[not-comparable\]"):
        differences(tmp_path / "out", earlier)
    assert coco("diff", tmp_path / "out", earlier).code == 2
    with pytest.raises(InputError, match="unknown-table"):
        differences(earlier, earlier, "nothing")


def test_regions_that_one_release_lacks_are_named_and_the_common_ones_compared(coco: Runner, tmp_path: Path) -> None:
    made = {}
    for name, county, country in (("a", "south", "land"), ("b", "south & west", "land"), ("c", "south", "isle")):
        regions = f"region_id,country,county\nr1,{country},north\nr2,{country},{county}\n"
        made[name] = tmp_path / f"out-{name}"
        release(load_config(KINDS["groups"].write(tmp_path / name, hierarchy=regions)), made[name])
    frame = differences(made["b"], made["a"])
    assert set(frame["region"]) == {"land", "land/north"}
    ran = coco("diff", made["a"], made["b"], "--page", tmp_path / "page.html")
    words = "Left out: 1 region of {} only (land/south & west); 1 region of {} only (land/south)."
    assert words.format("the later release", "the earlier release") in ran.out
    assert words.format("out-b", "out-a").replace("&", "&amp;") in (tmp_path / "page.html").read_text()
    remedy = "1 region with the same id in both releases. If a region was renamed, list its two names in a file for"
    assert remedy in ran.out
    assert remedy in (tmp_path / "page.html").read_text()
    plain = json.loads(coco("diff", made["a"], made["b"], "--json").out)
    assert (plain["only_later"], plain["only_earlier"]) == (["land/south & west"], ["land/south"])
    with pytest.raises(InputError, match=r"no region in common.*\[not-comparable\]"):
        differences(made["c"], made["a"])


def _cells(schema: Schema) -> list[str]:
    return parse_query("detail", schema).labels()


def test_a_wide_table_has_a_row_a_region_and_keeps_every_count(
    two: tuple[str, Path, Path], coco: Runner, tmp_path: Path
) -> None:
    kind, folder, _ = two
    ran = coco("export", folder, "--wide", "--out", tmp_path / "wide")
    if kind == "ranges":
        assert (ran.code, "--wide is for counts by region" in ran.err) == (2, True)
        return
    assert ran.code == 0, ran.err
    name, value = ("histograms", "groups") if kind == "groups" else ("tables", "persons")
    wide = pd.read_csv(tmp_path / "wide" / f"{name}-wide.csv", dtype={"region_id": str})
    long = pd.read_csv(tmp_path / "wide" / f"{name}.csv")
    assert wide["region"].tolist() == pd.read_csv(tmp_path / "wide" / "hierarchy.csv")["region"].tolist()
    read = read_release(folder)
    possible = read.manifest["max_size"] + 1 if kind == "groups" else read.schema.size
    first = len(wide.columns) - possible  # also sizes and cells that nobody has
    assert list(wide.columns[:4]) == ["level", "level_name", "region", "region_id"]
    cells = list(wide.columns[first:])  # in the order of the schema, as queries' answers are called
    assert cells == ([f"size = {k}" for k in range(possible)] if kind == "groups" else _cells(read.schema))
    sums = wide.set_index("region").filter(like="=").sum(axis=1)
    for region, count in long.groupby("region")[value].sum().items():
        assert sums[region] == count


def test_changed_borders_are_said(tmp_path: Path, coco: Runner) -> None:
    """A town that moved to another part, and one that went into another, change the counts of those around them."""
    folders = []
    for year, towns in enumerate((("p/a", "p/b", "q/c"), ("p/b", "q/a"))):
        folder = tmp_path / str(year)
        folder.mkdir()
        rows = "".join(f"all,{town.replace('/', ',')},1,9\n" for town in towns)
        (folder / "sizes.csv").write_text(f"land,part,town,size,groups\n{rows}")
        (folder / "run.toml").write_text(
            '[data]\nsizes = "sizes.csv"\n[privacy]\nepsilon = "50"\nnoise = "seeded"\nseed = 1\n'
            '[groups]\nmax_size = 3\nconsistency = "matching"\n'
        )
        folders.append(release(load_config(folder / "run.toml"), folder / "out").folder)
    (tmp_path / "renamed.csv").write_text("earlier,later\nall/p/a,all/q/a\n")
    diff = ("diff", *folders, "--renamed", tmp_path / "renamed.csv")
    said = coco(*diff, "--page", tmp_path / "page.html").out
    for text in (said, (tmp_path / "page.html").read_text(encoding="utf-8")):
        assert "all/q/a lies in another region than before" in " ".join(text.split())
        assert "all/q/c" in text
        assert "changes of borders, too" in text
    assert json.loads(coco(*diff, "--json").out)["moved"] == ["all/q/a"]


def test_regions_that_were_renamed_are_compared_under_their_later_names(tmp_path: Path, coco: Runner) -> None:
    """By id or path, the regions below follow; nothing else changes, and wrong rows are named."""
    folders = []
    for year, (part, town) in enumerate((("p", "r1"), ("q", "x9"))):
        folder = tmp_path / str(year)
        folder.mkdir()
        (folder / "areas.csv").write_text(f"region_id,land,part\n{town},all,{part}\nr2,all,s\n")
        (folder / "sizes.csv").write_text(f"land,part,size,groups\nall,{part},1,{5 + year}\nall,s,2,{7 + 4 * year}\n")
        (folder / "run.toml").write_text(
            '[data]\nsizes = "sizes.csv"\n[privacy]\nepsilon = "50"\nnoise = "seeded"\nseed = 1\n'
            '[groups]\nmax_size = 3\nconsistency = "matching"\n'
        )
        folders.append(release(load_config(folder / "run.toml"), folder / "out").folder)
    names = tmp_path / "renamed.csv"
    names.write_text("\ufeffearlier;later\nall/p;all/q\n", encoding="utf-8")
    assert set(differences(folders[1], folders[0])["region"]) == {"all", "all/s"}
    frame = differences(folders[1], folders[0], renamed=names).set_index(["region", "size"])
    assert frame.loc[("all/q", 1), "difference"] == 1
    assert frame.loc[("all/s", 2), "difference"] == 4
    shown = coco("diff", folders[0], folders[1], "--renamed", names, "--page", tmp_path / "page.html")
    assert "all/q" in shown.out
    assert "Left out" not in shown.out
    assert "Compared under later names: all/q (earlier all/p)." in shown.out
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("all/p") == 1  # there, too
    names.write_text("earlier,later\nall/p,all/z\nall/s,all/s\nall/p,all/s\n")
    refused = coco("diff", folders[0], folders[1], "--renamed", names)
    assert refused.code == 2
    assert "row 2, column 'later': is no region of the later release" in refused.err
    assert "row 4, column 'later': another region got this name: regions that were merged cannot" in refused.err


def test_a_renamed_region_keeps_its_level_and_takes_no_name_that_another_one_keeps(tmp_path: Path) -> None:
    """Else two earlier regions would stand beside one later region, and what they count would be compared twice."""
    levels = {"level": [0, 1, 1], "level_name": ["land", "part", "part"]}
    regions = pa.table({"region": ["all", "all/p", "all/s"], **levels})
    names = tmp_path / "renamed.csv"
    names.write_text("earlier,later\nall/p,all\n")
    with pytest.raises(InputError, match=r"'later': is a region of level 'land', and the earlier one of level 'part'"):
        read_renamed(names, regions, regions)
    names.write_text("earlier,later\nall/p,all/s\n")
    with pytest.raises(InputError, match=r"row 2, column 'later': another region of the earlier release has this name"):
        read_renamed(names, regions, regions)
    names.write_text("earlier,later\nall/p,all/s\nall/s,all/p\n")
    assert read_renamed(names, regions, regions) == {"all/p": "all/s", "all/s": "all/p"}
