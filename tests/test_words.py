"""The words of the library's public names, help texts and docs are the field's: CONTRIBUTING.md says which."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Words of our own for what the field calls query, constraint, distribution, probability, predict, simulated data.
DROPPED = re.compile(
    r"(questions?|laws?|chances?|facts?|unproved|fore(?:tell|told)s?|reckon(?:s|ed)?|look_?alikes?|told|whole)",
    re.IGNORECASE,
)
PROSE = re.compile(
    r"\b(questions?|laws?|chances?|facts?|unproved|fore(?:tell|tells|told)|reckon(?:s|ed)?|look-alikes?|likewise)\b",
    re.IGNORECASE,
)
PAGES = sorted(
    path
    for pattern in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")
    for path in ROOT.glob(pattern)
    if "_build" not in path.parts
)
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
KEYS = {"unproved"}  # of files, which the experiments read
EXPERIMENTS = sorted((ROOT / "experiments").rglob("*.py"))
SOURCES = sorted(path for folder in ("coco_opt", "solvers") for path in (ROOT / folder).rglob("*.py"))


def public_names(tree: ast.Module) -> Iterator[str]:
    """Yield the public names that a module defines: classes, functions, their parameters, and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
            yield from (
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            )
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name
            yield from (argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))


def test_public_names_use_the_terms_of_the_field() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in public_names(ast.parse(path.read_text(encoding="utf-8")))
        if not name.startswith("_") and any(map(DROPPED.fullmatch, re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)))
    ]
    assert wrong == []


def prose() -> Iterator[tuple[Path, str]]:
    """Yield the texts of pages without code and links, of notebooks' cells, and of experiments' literals."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        code = r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->"
        yield path, re.sub(code, " ", text, flags=re.MULTILINE | re.DOTALL)
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        yield from ((path, "".join(cell["source"])) for cell in cells if cell["cell_type"] == "markdown")
    for path in EXPERIMENTS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in KEYS:
                yield path, re.sub(r"``[^`]*``", " ", node.value)


def test_texts_use_the_terms_of_the_field() -> None:
    assert [f"{path.relative_to(ROOT)}: {word}" for path, text in prose() for word in PROSE.findall(text)] == []


def test_help_texts_use_the_terms_of_the_field(capsys: pytest.CaptureFixture[str]) -> None:
    from coco_opt.cli import main

    assert main(["--help"]) == 0
    verbs = re.findall(r"^ *[│|]? *([a-z]+)  ", capsys.readouterr().out, flags=re.MULTILINE)
    assert len(verbs) > 10
    for verb in verbs:
        assert main([verb, "--help"]) == 0
        assert PROSE.findall(capsys.readouterr().out) == [], verb
