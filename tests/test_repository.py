"""What a newcomer relies on: the lock, the metadata, the import weight, and a README that runs."""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.txt"
SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "releases", "private", "results", "_build"}
OWN = {"coco_opt", "coco_solvers", "coco_experiments", "tests", "generated"}
HEAVY = {
    "clarabel",
    "cryptography",
    "cvxpy",
    "duckdb",
    "highspy",
    "llvmlite",
    "matplotlib",
    "numba",
    "opendp",
    "osqp",
    "pandas",
    "piqp",
    "pyarrow",
    "pydantic",
    "rich",
    "scipy",
    "sklearn",
    "typer",
}


def test_the_paper_cites_what_its_bibliography_holds() -> None:
    paper, bibliography = (ROOT.joinpath("paper", name).read_text("utf-8") for name in ("paper.md", "paper.bib"))
    cited = set(re.findall(r"@([a-z]+\d*)", paper))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", bibliography, flags=re.MULTILINE))
    assert all((ROOT / "paper" / picture).is_file() for picture in re.findall(r"\]\((\S+\.png)\)", paper))


def text_files() -> Iterator[tuple[Path, str]]:
    """Yield every text file of the project with its content; no git needed."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [
            name for name in folders if name not in SKIPPED_FOLDERS and (not name.startswith(".") or name == ".ci")
        ]
        for name in files:
            if name == ".git":
                continue
            path = Path(folder, name)
            try:
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def declared_requirements() -> list[Requirement]:
    """Return what pyproject.toml asks for, extras included, the project's own extras left out."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)
    groups = [
        table["build-system"]["requires"],
        table["project"]["dependencies"],
        *table["project"]["optional-dependencies"].values(),
    ]
    requirements = [Requirement(line) for group in groups for line in group]
    return [requirement for requirement in requirements if requirement.name != "coco-opt"]


def python_blocks(markdown: str) -> list[str]:
    """Return the fenced python blocks of a Markdown text, in order."""
    return re.findall(r"^```python\n(.*?)^```$", markdown, flags=re.MULTILINE | re.DOTALL)


def pins() -> dict[str, list[Requirement]]:
    """Return the lock's pins by canonical name; a name has one pin a range of Python versions."""
    found: dict[str, list[Requirement]] = {}
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", " ")):
            requirement = Requirement(line.removesuffix("\\"))
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def imported_packages(source: str) -> set[str]:
    """Return the top-level packages a module imports anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_no_file_holds_a_path_of_one_machine() -> None:
    private_path = re.compile(r"(^|[^\w.~-])/(?:home/(?!person\b)|root/|work/|Users/|mnt/)\w")
    files = dict(text_files())
    assert Path("coco_opt/errors.py") in files
    hits = [
        f"{path}:{number}"
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if private_path.search(line)
    ]
    assert not hits


def test_lock_names_no_registry_and_every_pin_has_a_hash() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*-(-index-url|-extra-index-url|-find-links|i|f|e)\b", text, flags=re.MULTILINE)
    entries = re.split(r"\n(?=[A-Za-z0-9])", text)
    without_hash = [entry.splitlines()[0] for entry in entries[1:] if "--hash=sha256:" not in entry]
    assert len(entries) > 50
    assert not without_hash


def test_lock_satisfies_every_requirement() -> None:
    locked = pins()
    for requirement in declared_requirements():
        pinned = locked.get(canonicalize_name(requirement.name), [])
        assert pinned, f"{requirement.name} is not in the lock: run make lock"
        for pin in pinned:
            (version,) = [specifier.version for specifier in pin.specifier]
            assert requirement.specifier.contains(version), f"{pin} does not satisfy {requirement}"


def test_every_imported_package_is_declared() -> None:
    declared = {canonicalize_name(requirement.name) for requirement in declared_requirements()}
    providers = packages_distributions()
    undeclared = {
        f"{path}: {name}"
        for path, text in text_files()
        if path.suffix == ".py"
        for name in imported_packages(text) - sys.stdlib_module_names - OWN
        if not declared & {canonicalize_name(provider) for provider in providers.get(name, [name])}
    }
    assert not undeclared


def test_import_loads_no_heavy_package() -> None:
    shown = "print(json.dumps(sorted(sys.modules)))"
    code = f"import json, sys, coco_opt; {shown}; import coco_opt.topdown.kind, coco_opt.releases; {shown}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, later = (set(json.loads(line)) for line in done.stdout.splitlines())
    loaded = {name.partition(".")[0] for name in first}
    assert "coco_opt" in loaded
    assert not loaded & HEAVY
    assert "coco_solvers" not in loaded
    assert "coco_opt.problems.topdown_split" in later
    others = {"coco_opt.groups", "coco_opt.problems.joint", "coco_opt.ranges", "cryptography"}
    assert not later & others  # a kind of release takes what it needs of the others


def test_every_public_name_resolves() -> None:
    package = importlib.import_module("coco_opt")
    names = dir(package)
    assert {"solve", "measure", "estimate", "release", "CountOfCounts", "__version__"} <= set(names)
    for name in names:
        value = getattr(package, name)
        assert value is not None
        assert not isinstance(value, ModuleType)


def test_one_version_everywhere() -> None:
    version = importlib.import_module("coco_opt").__version__
    assert distribution("coco-opt").version == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_entry_point_resolves() -> None:
    points = [
        point
        for point in distribution("coco-opt").entry_points
        if point.group == "console_scripts" or point.group.startswith("coco_opt.")
    ]
    assert {point.group for point in points} == {
        "console_scripts",
        "coco_opt.solvers",
        "coco_opt.kinds",
        "coco_opt.experiments",
    }
    for point in points:
        assert point.load()


def test_license_is_the_unmodified_text() -> None:
    digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_pages_name_only_what_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    for page, text in text_files():
        if page.suffix == ".md" and page.parts[0] in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs"):
            assert set(re.findall(r"\bmake ([a-z-]+)`", text)) <= targets, page
            paths = re.findall(r"`((?:coco_opt|solvers|experiments|tests|notebooks)/[\w./-]*)`", text)
            assert [path for path in paths if not (ROOT / path).exists()] == [], page


def test_readme_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = python_blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    assert blocks, "README.md has no python block"
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"README.md, python block {number}", "exec"), namespace)
