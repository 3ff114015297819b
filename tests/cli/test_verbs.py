"""The verbs do what the contract says; every choice can be cited, and every error code is explained."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import coco_solvers
import pytest
from coco_experiments.outcome import Outcome, Table

import coco_opt
from coco_opt._version import __version__
from coco_opt.activity import steps
from coco_opt.cli import app, experiments
from coco_opt.cli.reference import exit_codes, explanations, references, sources
from coco_opt.config.sections import Mechanism
from coco_opt.estimators import ESTIMATORS
from coco_opt.kinds import KINDS as BUILT_IN
from tests.cli.helpers import ENTITIES, GROUPS, KINDS, RECORDS, SECURE, Runner, write_groups, write_sizes

VERBS = (
    "demo",
    "init",
    "check",
    "plan",
    "measure",
    "import",
    "estimate",
    "release",
    "verify",
    "export",
    "diff",
    "sign",
    "compare",
    "keys",
    "ledger",
    "audit",
    "solvers",
    "errors",
    "reproduce",
    "bench",
    "cite",
)


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
    callbacks = [command.callback for command in app.registered_commands if command.callback]
    assert {callback.__name__.rstrip("_") for callback in callbacks} == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_shows_an_example_that_its_options_allow(verb: str, coco: Runner) -> None:
    text = coco(verb, "--help").out
    (example,) = [line.split() for line in text.splitlines() if line.strip().startswith("Example:")]
    assert example[1:3] == ["coco-opt", verb]
    assert all(word in text for word in example if word.startswith("--"))


@pytest.mark.parametrize("verb", [None, *VERBS])
def test_version_everywhere(verb: str | None, coco: Runner) -> None:
    ran = coco(*([verb] if verb else []), "--version")
    assert (ran.code, ran.out) == (0, f"coco-opt {__version__}\n")


def test_release_then_verify(tmp_path: Path, coco: Runner) -> None:
    out = tmp_path / "out"
    ran = coco("release", write_sizes(tmp_path), "--out", out)
    assert ran.code == 0
    first = ran.out.splitlines()[0]
    assert first.startswith("NOT PRIVATE: seeded noise")
    assert "no privacy budget was spent" in first
    names = {"histograms.parquet", "hierarchy.parquet", "manifest.json", "report.html", "datapackage.json"}
    assert {path.name for path in out.iterdir()} == names
    assert coco("release", tmp_path / "run.toml", "--out", out).code == 2


def test_plan_on_a_look_alike(tmp_path: Path, coco: Runner) -> None:
    config = write_sizes(tmp_path)
    ran = coco("plan", config, "--json", "--runs", "1", "--like", tmp_path / "sizes.csv")
    assert ran.code == 0
    assert "sizes.csv" in ran.out
    shown = coco("plan", config, "--runs", "1").out
    for words in ("Expected", "matching", "start", "write", "--rows declares them"):
        assert words in shown
    assert "5 in the private table, as declared" in coco("plan", config, "--rows", "5").out
    assert coco("plan", config, "--like", tmp_path / "absent.csv").code == 2


@pytest.mark.parametrize("kind", ["groups", "tables"])
def test_plan_on_another_year_uses_the_regions_that_both_have_and_says_how_much_that_is(
    tmp_path: Path, coco: Runner, kind: str
) -> None:
    config, last = KINDS[kind].write(tmp_path), tmp_path / "last"
    texts = {"groups": {"groups": f"{GROUPS}g6,r9\ng7,r9\n", "entities": f"{ENTITIES}e10,g6\ne11,g7\n"}}
    earlier = KINDS[kind].write(last, **texts.get(kind, {"records": f"{RECORDS}r9,male,old,4\nr8,male,old,1\n"}))
    table = last / ("entities.csv" if kind == "groups" else "records.csv")
    words = json.loads(coco("plan", config, "--like", table, "--json").out)["look_alike"]
    all_rows = {"groups": "5 of its 7 rows (71.4 %)", "tables": "12 of its 14 rows (85.7 %)"}[kind]
    assert all_rows in words
    assert "left out, such as 'r" in words
    renamed = {key: text.replace("r2", "r3") for key, text in KINDS[kind].files.items()}
    earlier = KINDS[kind].write(last, **renamed)
    assert coco("release", earlier, "--out", last / "out").code == 0
    words = json.loads(coco("plan", config, "--like", last / "out", "--json").out)["look_alike"]
    assert "the release out, 1 of whose 2 lowest regions have the id of a region here" in words
    assert coco("measure", earlier, "--publish", last / "noisy").code == 0
    assert "make a release of it, which is free" in coco("plan", config, "--like", last / "noisy").err


def test_keys_are_listed_by_section_and_by_name(coco: Runner) -> None:
    section = coco("keys", "privacy").out
    assert section.startswith("[privacy]\n  epsilon: exact number in a text; no default\n      The whole budget")
    assert 'split: "auto" or "uniform" or "leaves", or list of exact number' in section
    assert coco("keys", "privacy.epsilon").out.count("\n") < 5
    assert 'time: time in a text; default: "10 minutes"' in coco("keys", "auto.time").out
    assert "[topdown.invariants]" in coco("keys", "topdown").out
    assert "default: required" not in coco("keys").out
    (found,) = json.loads(coco("keys", "max_size", "--json").out)
    assert (found["section"], found["default"]) == ("groups", None)
    assert "did you mean 'epsilon'" in coco("keys", "epsilo").err


def test_a_missing_package_is_named(coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coco_opt.cli.config_keys", None)  # as if it were not there
    monkeypatch.delenv("COCO_OPT_DEBUG", raising=False)
    assert coco("keys").errors == ["error: this command needs the package 'coco_opt': pip install 'coco_opt'"]


def test_demo(tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = coco("demo")
    assert (ran.code, ran.errors) == (0, [])
    chosen, status, *_ = ran.out.splitlines()
    assert chosen.startswith("Chosen after the look: ")
    assert status.startswith("NOT PRIVATE")
    (folder,) = Path("releases").iterdir()
    assert folder.name.startswith("demo-")
    for words in ("bottom-up", "nation", "county", "14 of 14 checks hold", str(folder / "release" / "report.html")):
        assert words in ran.out
    page = (folder / "release" / "report.html").read_text(encoding="utf-8")
    assert "Error by level" in page
    assert "<h1>Households of Meridia by size (simulated)</h1>" in page
    links = Links()
    links.feed(page)
    assert links.open == []
    assert links.loaded == []
    assert page.count('<svg class="chart"') == 1
    assert "http" not in page
    again = coco("release", folder / "config.toml", "--json")
    assert again.code == 0
    rerun = Path(json.loads(again.out)["release"])
    assert (rerun / "histograms.parquet").read_bytes() == (folder / "release" / "histograms.parquet").read_bytes()
    assert coco("demo", "--out", folder).code == 2


def test_compare_says_what_it_measured_and_what_it_caught(tmp_path: Path, coco: Runner) -> None:
    ran = coco("compare", write_sizes(tmp_path), "--size", "4", "--profile", tmp_path / "profile")
    assert f"Performance profile  {tmp_path / 'profile.png'}, {tmp_path / 'profile.pdf'}" in ran.out
    assert (tmp_path / "profile.png").stat().st_size > 0
    assert ran.out.startswith("NOT PRIVATE: seeded noise on the data of 'run'; no privacy budget was spent")
    assert "The planted wrong answer was caught." in ran.out
    unwritable = coco("compare", tmp_path / "run.toml", "--size", "4", "--csv", "/proc/rows.csv")
    assert unwritable.code == 2
    assert "rows.csv: cannot be written" in unwritable.errors[0]


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


def fake(name: str, kind: str, failures: tuple[str, ...] = ()) -> Any:
    def run(*, small: bool, out: Path, reporter: Any) -> Any:
        reporter.note("working")
        return Outcome((Table("t", ("doing",), ((steps()[0].label,),)),), (out / "x.csv",), failures)

    return SimpleNamespace(name=name, kind=kind, summary=f"about {name}", run=run)


def test_reproduce_and_bench(coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "paper": [fake("hay/one", "paper"), fake("kuo/two", "paper", ("too far",))],
        "bench": [fake("bench/fast", "bench")],
    }
    monkeypatch.setattr(experiments, "find", lambda kind: rows[kind])
    for listed in (coco("reproduce", "--list", "--json"), coco("reproduce", "--json")):
        assert [row["name"] for row in json.loads(listed.out)] == ["hay/one", "kuo/two"]
    good = coco("reproduce", "hay", "--small", "--json")
    assert good.code == 0
    assert json.loads(good.out)[0]["tables"][0]["rows"] == [{"doing": "hay/one (1 of 1)"}]
    failed = coco("reproduce", "all", "--json")
    assert failed.code == 1
    assert "kuo/two: too far" in failed.err
    wrong = coco("reproduce", "kuo/tow")
    assert wrong.code == 2
    assert "did you mean 'kuo/two'?" in wrong.err
    assert json.loads(coco("bench", "fast", "--json").out)[0]["name"] == "bench/fast"
    sized = coco("bench", "fast", "--states", "2")
    assert sized.code == 2
    assert "--states is for bench country" in sized.err


def test_the_built_in_experiments_are_found(coco: Runner) -> None:
    papers, benches = coco("reproduce", "--list"), coco("bench", "--list")
    assert papers.code == benches.code == 0
    assert "kuo2018/table3" in papers.out
    assert "bench/" in benches.out


def test_a_level_that_repeats_the_one_above_is_noted_before_anything_is_paid(tmp_path: Path, coco: Runner) -> None:
    rows = KINDS["groups"].files["hierarchy"].splitlines()
    doubled = "\n".join([f"{rows[0]},extra", *(f"{row},x{number}" for number, row in enumerate(rows[1:]))])
    path = KINDS["groups"].write(tmp_path, hierarchy=doubled + "\n")
    assert "[not-a-level]" in coco("check", path).err
    levels = [*rows[0].split(",")[1:], "extra"]
    path.write_text(path.read_text().replace("[data]\n", f"[data]\nlevels = {levels}\n"))
    ran = coco("check", path)
    assert ran.code == 0
    assert "one region of 'extra' below it" in ran.out
    assert "one region of" not in coco("check", KINDS["groups"].write(tmp_path / "plain")).out


def test_what_is_allowed_and_seldom_meant_is_noted(tmp_path: Path, coco: Runner) -> None:
    rows = "region_id,country,county\nr1,land,Östra Å\nr2,land,OSTRA  Å.\nr3,land,1-1\nr4,land,11\n"
    path = KINDS["groups"].write(tmp_path, privacy=SECURE, hierarchy=rows)
    notes = [line for line in coco("check", path).out.splitlines() if line.startswith("Note: ")]
    assert len(notes) == 1
    assert notes[0].startswith("Note: 'land/Östra Å' (region_id 'r1') and 'land/OSTRA  Å.' (region_id 'r2') are two")
    path.write_text(path.read_text(encoding="utf-8").replace('epsilon = "1"', 'epsilon = "1000"'), encoding="utf-8")
    assert "Note: epsilon = 1000 protects hardly anybody" in coco("check", path).out


def test_everything_that_a_config_chooses_has_a_source() -> None:
    chosen = {*(row.name for row in ESTIMATORS), *get_args(Mechanism), *(row.name for row in BUILT_IN)}
    assert chosen <= set(sources())
    assert {key for keys in sources().values() for key in keys} == set(references())


def test_entries_are_printed_once_each(coco: Runner) -> None:
    out = coco("cite", "joint", "matching", "ranges").out
    assert [out.count(f"{{{key},") for key in ("coco-opt", "kuo2018", "hay2010", "abowd2022")] == [1, 1, 1, 0]
    assert out.count("{") == out.count("}")
    assert "posterior" in coco("cite").out


def test_a_release_is_cited_by_its_folder(coco: Runner, tmp_path: Path) -> None:
    config = write_groups(tmp_path)
    assert coco("release", config, "--out", tmp_path / "out").code == 0
    out = coco("cite", tmp_path / "out").out
    assert "{kuo2018," in out
    assert "{ghosh2012," in out
    assert "{abowd2022," not in out


CODED = {"InputError": 0, "HierarchyError": 0, "RowError": 0, "Failure": 1}
"""The position of the code among an error's arguments."""


def trees() -> Iterator[ast.Module]:
    for package in (coco_opt, coco_solvers):
        for path in Path(package.__path__[0]).rglob("*.py"):
            if path.name != "explanations.py":
                yield ast.parse(path.read_text(encoding="utf-8"))


def texts(node: ast.AST) -> set[str]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def raised_codes(tree: ast.Module) -> Iterator[str]:
    """Yield the codes that errors are raised with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if len(node.args) > CODED.get(name, len(node.args)):
                yield from texts(node.args[CODED[name]])


def test_every_code_that_is_raised_is_explained_and_every_explained_code_is_raised() -> None:
    raised, written = set(), set()
    for tree in trees():
        raised |= set(raised_codes(tree))
        written |= texts(tree)
    assert len(raised) > 100
    assert raised | set(exit_codes()) == raised | set(explanations()) == set(explanations())
    assert set(explanations()) <= written
    assert list(explanations()) == sorted(explanations())
    assert all(meaning.endswith(".") and advice.endswith(".") for meaning, advice in explanations().values())


def test_a_code_is_looked_up_alone_or_among_all(coco: Runner) -> None:
    ran = coco("errors", "control-in-id")
    assert ran.code == 0
    assert ran.out.startswith("control-in-id (exit code 2): A text holds a character that nobody sees")
    assert "\nWhat to do: Remove it in the file" in ran.out
    assert ran.out.strip() in coco("errors").out
    assert "[unknown-code]" in coco("errors", "no-such-code").errors[0]
    (entry,) = json.loads(coco("errors", "budget", "--json").out)
    assert (entry["code"], entry["exit_code"]) == ("budget", 3)
    assert [entry["code"] for entry in json.loads(coco("errors", "--json").out)] == list(explanations())
    assert (exit_codes()["solver"], exit_codes()["check-failed"], exit_codes()["interrupted"]) == (4, 1, 130)
