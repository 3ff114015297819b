"""The table of error codes holds every code that the source raises, and no other."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import coco_solvers

import coco_opt
from coco_opt.cli.errors import EXIT_CODES, EXPLANATIONS
from tests.cli.helpers import Runner

CODED = {"InputError": 0, "HierarchyError": 0, "FolderExistsError": 0, "RowError": 0, "Failure": 1}
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
    assert raised | set(EXIT_CODES) == raised | set(EXPLANATIONS) == set(EXPLANATIONS)
    assert set(EXPLANATIONS) <= written
    assert list(EXPLANATIONS) == sorted(EXPLANATIONS)
    assert all(meaning.endswith(".") and advice.endswith(".") for meaning, advice in EXPLANATIONS.values())


def test_a_code_is_looked_up_alone_or_among_all(coco: Runner) -> None:
    ran = coco("errors", "control-in-id")
    assert ran.code == 0
    assert ran.out.startswith("control-in-id (exit code 2): A text holds a character that nobody sees")
    assert "\nWhat to do: Remove it in the file" in ran.out
    assert ran.out.strip() in coco("errors").out
    assert "[unknown-code]" in coco("errors", "no-such-code").errors[0]
    (entry,) = json.loads(coco("errors", "budget", "--json").out)
    assert (entry["code"], entry["exit_code"]) == ("budget", 3)
    assert [entry["code"] for entry in json.loads(coco("errors", "--json").out)] == list(EXPLANATIONS)
    assert (EXIT_CODES["solver"], EXIT_CODES["check-failed"], EXIT_CODES["interrupted"]) == (4, 1, 130)
