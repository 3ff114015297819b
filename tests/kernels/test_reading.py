"""Kernels teach their algorithms: docstrings in a common form, comments, short functions, bundles of arrays."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "coco_opt" / "kernels"
TOOLS = {"__init__.py", "arrays.py", "compile.py", "compile_lock.py", "drafts.py"}
FILES = sorted(FOLDER.glob("*.py"))
KERNELS = [path for path in FILES if path.name not in TOOLS]
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
MOST_LINES, MOST_ARRAYS, LEAST_COMMENTS = 80, 8, 0.06
PARTS = (r"^1\. ", r"\bInvariant: ", r"\bCost: ", r"^Source: ")


def functions(source: str) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]


def array_names(source: str) -> set[str]:
    """Return the names that a file gives to types of arrays; ``Any`` stands for arrays of several types."""
    assigned = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    names = {ast.unparse(node.targets[0]) for node in assigned if ast.unparse(node.value).find("NDArray") >= 0}
    return names | {"Any"}


def arrays(function: ast.FunctionDef, names: set[str]) -> int:
    """Return how many parameters are arrays; a bundle, that is, a tuple with a name, is not."""
    parameters = [*function.args.args, *function.args.kwonlyargs]
    types = [ast.unparse(parameter.annotation) for parameter in parameters if parameter.annotation is not None]
    return sum(text.removesuffix(" | None") in names or text.startswith("NDArray") for text in types)


def lines(source: str) -> tuple[int, int]:
    """Return the lines with code, docstrings left out, and the lines that are comments."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.update({token.start[0]} if token.line.strip().startswith("#") else ())
        elif token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - strings), len(comments)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_kernel_opens_with_its_steps_invariant_cost_and_source(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert [part for part in PARTS if not re.search(part, text, flags=re.MULTILINE)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_functions_are_short_and_take_bundles(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    names = array_names(source)
    for function in functions(source):
        length = (function.end_lineno or 0) - function.lineno + 1
        assert length <= MOST_LINES, f"{function.name} has {length} lines: divide it"
        count = arrays(function, names)
        assert count <= MOST_ARRAYS, f"{function.name} takes {count} arrays: give a bundle of them a name"


def test_loops_say_what_they_do() -> None:
    code, comments = map(sum, zip(*(lines(path.read_text(encoding="utf-8")) for path in KERNELS), strict=True))
    assert comments >= LEAST_COMMENTS * code
