"""The verbs do what the contract says."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt._version import __version__
from coco_opt.cli import app, experiments
from coco_opt.config import load_config
from tests.cli.helpers import ENTITIES, GROUPS, HIERARCHY, SIZES, Runner, write_config, write_sizes, write_tables

VERBS = ("demo", "init", "plan", "release", "verify", "compare", "ledger", "audit", "solvers", "reproduce", "bench")


class Links(HTMLParser):
    """Collects what a page would load, and checks that its tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href", "data", "srcset")]
        if tag not in ("img", "meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_exactly_the_verbs_of_the_contract() -> None:
    assert {command.callback.__name__ for command in app.registered_commands if command.callback} == set(VERBS)


@pytest.mark.parametrize("verb", [None, *VERBS])
def test_version_everywhere(verb: str | None, coco: Runner) -> None:
    ran = coco(*([verb] if verb else []), "--version")
    assert (ran.code, ran.out) == (0, f"coco-opt {__version__}\n")


def test_release_then_verify(tmp_path: Path, coco: Runner) -> None:
    out = tmp_path / "out"
    ran = coco("release", write_tables(tmp_path), "--out", out)
    assert (ran.code, ran.err) == (0, "")
    first = ran.out.splitlines()[0]
    assert first.startswith("NOT PRIVATE: seeded noise")
    assert "no privacy budget was spent" in first
    assert {path.name for path in out.iterdir()} == {
        "histograms.parquet",
        "hierarchy.parquet",
        "manifest.json",
        "report.html",
    }
    verified = coco("verify", out, "--json")
    assert verified.code == 0
    assert json.loads(verified.out)["passed"] is True
    again = coco("release", tmp_path / "run.toml", "--out", out)
    assert again.code == 2


def test_verify_fails_on_a_changed_release(tmp_path: Path, coco: Runner) -> None:
    out = tmp_path / "out"
    assert coco("release", write_sizes(tmp_path), "--out", out, "--json").code == 0
    path = out / "histograms.parquet"
    table = pq.read_table(path)
    groups = table.column("groups").to_numpy().copy()
    groups[0] += 1
    position = table.column_names.index("groups")
    pq.write_table(table.set_column(position, "groups", pa.array(groups)), path)
    ran = coco("verify", out)
    assert ran.code == 1
    assert "FAILS" in ran.out
    assert "group_totals" in ran.err
    assert coco("verify", tmp_path / "nowhere").code == 2


def test_a_private_release_says_so(tmp_path: Path, coco: Runner) -> None:
    pytest.importorskip("opendp")
    write_sizes(tmp_path)
    config = write_config(tmp_path, 'sizes = "sizes.csv"', privacy="")
    ran = coco("release", config)
    assert ran.code == 0
    assert ran.out.splitlines()[0].startswith("PRIVATE: epsilon = 1 spent (1/2 at each of 2 levels)")
    (folder,) = (tmp_path / "releases").iterdir()
    assert folder.name.startswith("run-")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "NOT PRIVATE" not in page
    assert "Error by level" not in page
    assert coco("verify", folder).code == 0


def test_demo(tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = coco("demo")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("NOT PRIVATE")
    (folder,) = Path("releases").iterdir()
    assert folder.name.startswith("demo-")
    assert "bottom-up" in ran.out
    assert "10 of 10 checks hold" in ran.out
    assert str(folder / "release" / "report.html") in ran.out
    page = (folder / "release" / "report.html").read_text(encoding="utf-8")
    assert "Error by level" in page
    links = Links()
    links.feed(page)
    assert links.open == []
    assert len(links.loaded) == 4
    assert all(link.startswith("data:image/svg+xml;base64,") for link in links.loaded)
    assert "http" not in page
    again = coco("release", folder / "config.toml", "--json")
    assert again.code == 0
    rerun = Path(json.loads(again.out)["release"])
    assert (rerun / "histograms.parquet").read_bytes() == (folder / "release" / "histograms.parquet").read_bytes()
    assert coco("demo", "--out", folder).code == 2


def test_compare(tmp_path: Path, coco: Runner) -> None:
    rows_file = tmp_path / "rows.csv"
    ran = coco("compare", write_sizes(tmp_path), "--size", "8", "--json", "--csv", rows_file)
    assert ran.code in (0, 4)
    rows = json.loads(ran.out)["rows"]
    kinds = {"isotonic_l2", "isotonic_l1", "simplex_projection", "controlled_rounding", "group_matching"}
    assert {row["problem"] for row in rows} == kinds
    assert [row["status"] for row in rows if row["planted"]] == ["GAP_TOO_LARGE"]
    certified = [row for row in rows if row["status"] == "OPTIMAL"]
    assert len(certified) > 20
    assert all(abs(row["difference"]) <= 2 * row["tolerance"] + 1e-9 for row in certified)
    with rows_file.open(newline="") as file:
        assert [row["solver"] for row in csv.DictReader(file)] == [row["solver"] for row in rows]


def test_compare_says_what_it_measured_and_what_it_caught(tmp_path: Path, coco: Runner) -> None:
    ran = coco("compare", write_sizes(tmp_path), "--size", "4")
    assert ran.out.startswith("NOT PRIVATE: seeded noise on the data of 'run'; no privacy budget was spent")
    assert "The planted wrong answer was caught." in ran.out


def test_solvers(coco: Runner) -> None:
    rows = json.loads(coco("solvers", "--json").out)
    by_name = {row["solver"]: row for row in rows}
    assert by_name["divide-and-conquer"]["problems"]["isotonic_l1"] == "auto"
    assert by_name["pav"]["problems"]["isotonic_l1"] is None
    assert by_name["highs"]["problems"]["isotonic_l1"] == "yes"
    assert by_name["brute-force"]["problems"]["group_matching"] == "exact"
    text = coco("solvers")
    assert text.code == 0
    assert all(name in text.out for name in by_name)
    assert all(kind in text.out for kind in by_name["highs"]["problems"])


def test_init_writes_a_config_that_runs(tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opendp")
    monkeypatch.chdir(tmp_path)
    for name, text in (("people", ENTITIES), ("homes", GROUPS), ("areas", HIERARCHY)):
        Path(f"{name}.csv").write_text(text)
    assert coco("init", "areas.csv", "people.csv", "homes.csv").code == 0
    config = load_config(Path("coco-opt.toml"))
    assert config.data.entities == Path("people.csv")
    assert config.data.groups == Path("homes.csv")
    assert config.data.hierarchy == Path("areas.csv")
    text = Path("coco-opt.toml").read_text()
    Path("coco-opt.toml").write_text(text.replace("max_size = 100000", "max_size = 100"))
    assert coco("release", "coco-opt.toml", "--out", "out").code == 0
    before = Path("coco-opt.toml").read_bytes()
    assert coco("init", "areas.csv").code == 2
    assert Path("coco-opt.toml").read_bytes() == before


def test_init_names_the_tables_it_did_not_find(tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("homes.csv").write_text(GROUPS)
    assert "fill in the tables not found (entities, hierarchy)" in coco("init").out
    Path("people.csv").write_text(ENTITIES)
    Path("areas.csv").write_text(HIERARCHY)
    assert "not found" not in coco("init", "--out", "all.toml").out


def test_init_on_counts(tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/one.csv").write_text("size,groups\n1,2\n")
    assert coco("init", "data/one.csv", "--out", "one.toml").code == 0
    config = load_config(Path("one.toml"))
    assert config.data.sizes == Path("data/one.csv")
    assert config.data.root == "all"
    Path("other.csv").write_text("a,b\nzebra7391,2\n")
    unknown = coco("init", "other.csv", "--out", "x.toml")
    assert unknown.code == 2
    assert "zebra7391" not in unknown.err
    assert not Path("x.toml").exists()
    Path("many.csv").write_text(SIZES)
    assert coco("init", "--out", "many.toml").code == 0
    assert load_config(Path("many.toml")).data.sizes == Path("many.csv")


def fake(name: str, kind: str, failures: tuple[str, ...] = ()) -> Any:
    table = SimpleNamespace(title="t", notes=(), records=lambda: [{"a": 1}])

    def run(*, small: bool, out: Path, reporter: Any) -> Any:
        reporter.note("working")
        return SimpleNamespace(tables=(table,), files=(out / "x.csv",), failures=failures)

    return SimpleNamespace(name=name, kind=kind, summary=f"about {name}", run=run)


def test_reproduce_and_bench(coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "paper": [fake("hay/one", "paper"), fake("kuo/two", "paper", ("too far",))],
        "bench": [fake("bench/fast", "bench")],
    }
    monkeypatch.setattr(experiments, "find", lambda kind: rows[kind])
    listed = coco("reproduce", "--list", "--json")
    assert [row["name"] for row in json.loads(listed.out)] == ["hay/one", "kuo/two"]
    good = coco("reproduce", "hay", "--small", "--json")
    assert good.code == 0
    assert json.loads(good.out)[0]["tables"][0]["rows"] == [{"a": 1}]
    failed = coco("reproduce", "--json")
    assert failed.code == 1
    assert "kuo/two: too far" in failed.err
    wrong = coco("reproduce", "kuo/tow")
    assert wrong.code == 2
    assert "did you mean 'kuo/two'?" in wrong.err
    assert json.loads(coco("bench", "fast", "--json").out)[0]["name"] == "bench/fast"


def test_the_built_in_experiments_are_found(coco: Runner) -> None:
    papers, benches = coco("reproduce", "--list"), coco("bench", "--list")
    assert papers.code == benches.code == 0
    assert "kuo2018/table3" in papers.out
    assert "bench/" in benches.out
