"""The documentation and notebooks: every example runs, in R too, every link leads somewhere, nothing is missing."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient
from nbclient.util import run_sync

import coco_opt
import coco_opt as co
from coco_opt.cli.config_keys import config_keys
from coco_opt.cli.reference import explanations
from coco_opt.files.spreadsheets import write_csv_files
from tests.evidence import ROWS, defined, markdown, promises

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)
INCLUDED = re.compile(r"^```\{include\} (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    """Load what the pages' Sphinx extension makes of the code; it needs no Sphinx."""
    spec = importlib.util.spec_from_file_location("generated", DOCS / "_ext" / "generated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page_name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as Markdown readers make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=page_name)
def test_every_example_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("documented")  # a module, for dataclasses look theirs up
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for number, block in enumerate(blocks(page), start=1):
        code = compile(block, f"{page_name(page)}, python block {number}", "exec", dont_inherit=True)
        exec(code, module.__dict__)


def test_every_public_name_has_an_example_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``make check`` runs mypy on the same script."""
    script = DOCS / "every_name.py"
    used = {
        node.attr
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "co"
    }
    assert set(coco_opt.__all__) == used & set(coco_opt.__all__), set(coco_opt.__all__) - used
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_every_complete_configuration_of_a_page_is_valid(page: Path, tmp_path: Path) -> None:
    shown = re.findall(r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for text in shown:
        if "[data]" in text and "[privacy]" in text:
            assert coco_opt.parse_config(text, tmp_path).explicit_keys("privacy")


def test_every_chapter_of_the_guide_has_an_example_and_a_small_figure() -> None:
    chapters = [page for page in PAGES if page.parent.name == "guide" and page.stem != "index"]
    shown = set()
    for chapter in chapters:
        figures = re.findall(r"^```\{figure\} (\S+)$", chapter.read_text(encoding="utf-8"), re.MULTILINE)
        assert blocks(chapter), page_name(chapter)
        assert figures, page_name(chapter)
        shown |= {(chapter.parent / figure).resolve() for figure in figures}
    drawn = set((DOCS / "pictures" / "guide").glob("*.svg"))
    assert shown == drawn, "python docs/guide_figures.py draws them"
    assert all(figure.stat().st_size < 50_000 for figure in drawn)


@pytest.mark.parametrize("name", [name for name in coco_opt.__all__ if name != "__version__"])
def test_a_public_docstring_names_every_parameter_and_its_examples_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = inspect.unwrap(getattr(coco_opt, name))
    text = inspect.getdoc(public) or ""
    listed = {
        entry.strip("*") for line in re.findall(r"^(\S.*) :|^(\*\*\w+)$", text, re.MULTILINE) for entry in _names(line)
    }
    if not (inspect.isclass(public) and issubclass(public, Enum)):
        assert set(inspect.signature(public).parameters) <= listed
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(recurse=inspect.isclass(public))  # methods too
    for example in finder.find(public, name, module=False, globs={}):
        assert doctest.DocTestRunner().run(example).failed == 0


def _names(line: tuple[str, str]) -> list[str]:
    return "".join(line).split(", ")


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = page if not name else (page.parent / name).resolve()
        assert other.is_file(), f"{page_name(page)} links to {target}"
        assert not anchor or anchor in anchors(other.read_text(encoding="utf-8")), f"{page_name(page)}: {target}"
    for included in INCLUDED.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / included).is_file()


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for names in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            listed |= {page.parent / f"{name}.md" for name in names.splitlines() if name and name[0] != ":"}
    assert set(PAGES) == listed


def test_every_public_name_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    missing = [name for name in coco_opt.__all__ if not re.search(rf"\bcoco_opt\.{name}\b", text)]
    assert not missing, "add them to docs/reference/python.md"


def test_every_key_of_a_configuration_is_explained(generated: ModuleType) -> None:
    shown = generated.expand((DOCS / "reference" / "configuration.md").read_text(encoding="utf-8"))
    missing = [f"[{each.section}] {each.key}" for each in config_keys() if not each.meaning]
    assert not missing, "say under each field what it means, as a docstring"
    assert all(f"| `{each.key}` |" in shown for each in config_keys())
    sections = {each.section for each in config_keys()}
    assert {"groups", "topdown.facilities.types", "privacy", "auto", "solvers", "output"} <= sections


def test_what_a_page_asks_for_is_made(generated: ModuleType) -> None:
    measurement_plan = {name for page in PAGES for name in re.findall(r"generated: ([a-z-]+)", page.read_text("utf-8"))}
    assert measurement_plan == set(generated.NAMES)
    verbs = generated.NAMES["command-line"]()
    assert "## `measure`" in verbs
    assert "--publish" in verbs
    assert "`isotonic_l1`" in generated.NAMES["solvers"]()
    assert "`coco-opt reproduce kuo2018/l1_l2`" in generated.NAMES["experiments"]()


def test_every_experiment_with_a_figure_is_in_the_gallery(generated: ModuleType) -> None:
    from coco_experiments.table import EXPERIMENTS

    page = generated.NAMES["gallery"]()
    for row in EXPERIMENTS:
        draws = bool(row.shows)  # the small run of each experiment draws just where this is said
        picture = generated.PICTURES / f"{row.name.replace('/', '-')}.png"
        assert picture.is_file() == draws, f"python docs/gallery_pictures.py makes {picture.name}"
        assert (f"coco-opt reproduce {row.name}" in page) == draws
    assert sum(picture.stat().st_size for picture in generated.PICTURES.glob("*.png")) < 1_500_000


def test_the_page_of_errors_holds_every_code(generated: ModuleType) -> None:
    page = generated.NAMES["errors"]()
    assert all(f"| `{code}` |" in page for code in explanations())


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="Sphinx is not installed (extra docs)")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    paths = os.pathsep.join(path for path in sys.path if path)
    built = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "reference" / "python.html").read_text(encoding="utf-8")
    assert all(f'id="coco_opt.{name}"' in page for name in coco_opt.__all__ if name != "__version__")
    assert "<code" in (tmp_path / "reference" / "configuration.html").read_text(encoding="utf-8")


def test_every_promise_has_evidence_whose_tests_there_are() -> None:
    """A promise without a row, a row without a promise, and a test that is gone fail here."""
    assert len(promises()) > 15
    assert tuple(dict.fromkeys(row.promise for row in ROWS)) == promises()
    for row in ROWS:
        assert row.tests
        for node in row.tests:
            file, _, name = node.partition("::")
            assert name in defined(file), node
    for promise in promises():
        assert f"| **{promise}** |" in markdown()


def test_every_attack_names_tests_that_there_are() -> None:
    named = re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 15
    written = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "releases").glob("test_*.py"))
    assert [name for name in named if f"\ndef {name}(" not in written] == []


BEGIN = "%reset -f\nimport os\nos.chdir({folder!r})"
NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


def test_there_is_a_quick_start() -> None:
    assert "quickstart.ipynb" in {path.name for path in NOTEBOOKS}


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """Serve all notebooks by one process, which imports packages once; each notebook begins without names."""
    manager = NotebookClient(nbformat.v4.new_notebook(), kernel_name="python3").create_kernel_manager()
    yield manager
    run_sync(manager.shutdown_kernel)(now=True)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore")  # the kernel's own packages warn about themselves
def test_runs_and_is_stored_executed(path: Path, tmp_path: Path, kernel: Any) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    stored = [_texts(cell) for cell in cells]
    assert all(cell.execution_count for cell in cells), "run 'make notebooks' and commit the result"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(BEGIN.format(folder=str(tmp_path))))
    client = NotebookClient(notebook, kernel, timeout=300)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    for cell, before in zip(cells, stored, strict=True):
        assert [text.split("\n")[0] for text in _texts(cell)] == [text.split("\n")[0] for text in before]


def _texts(cell: nbformat.NotebookNode) -> list[str]:
    """Return the texts of a cell's results; a line of progress, which stays empty, is only there after a slow stage."""
    results = [output["data"] for output in cell.outputs if "data" in output]
    return [data.get("text/plain", "") for data in results if data.get("text/html") != ""]


PAGE = Path(__file__).parents[1] / "docs" / "howto" / "r.md"
BLOCKS = re.findall(r"^```r\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a release and its tables as CSV."""
    made = tmp_path_factory.mktemp("r")
    persons = pd.DataFrame({"entity_id": range(400), "group_id": [k * k % 170 for k in range(400)]})
    households = pd.DataFrame({"group_id": range(180), "region_id": ["0012", "007"] * 90})
    areas = pd.DataFrame({"region_id": ["0012", "007"], "nation": "land", "part": ["=1+1", "Köln"]})
    config = co.configure(
        data={"entities": persons, "groups": households, "hierarchy": areas},
        privacy={"epsilon": "1", "noise": "seeded", "seed": 7},
        groups={"max_size": 20, "consistency": "matching"},
    )
    release = co.estimate(co.measure(config)).save(made / "releases" / "first")
    write_csv_files(release, made / "tables", raw=True)
    return made


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_examples_run(number: int, folder: Path) -> None:
    block = BLOCKS[number]
    for package in re.findall(r"library\((\w+)\)", block):
        found = ["Rscript", "-e", f'quit(status = !requireNamespace("{package}", quietly = TRUE))']
        if subprocess.run(found, capture_output=True, check=False, timeout=60).returncode:
            pytest.skip(f"the R package {package} is not installed")
    (folder / "block.R").write_text(f"options(warn = 2)\n{block}", encoding="utf-8")
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin:/usr/local/bin"}
    ran = subprocess.run(
        ["Rscript", "block.R"], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
