"""The catalogue of errors, read from the program's own source: every code, its messages and its modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import coco_opt.errors
from coco_opt.cli.explanations import EXPLANATIONS
from coco_opt.errors import CocoOptError

_PACKAGES = ("coco_opt", "coco_solvers")
_CODED = {"InputError": 0, "HierarchyError": 0, "FolderExistsError": 0, "RowError": 0, "Failure": 1}
"""The position of the code among the arguments; the message follows it."""
_CODE = re.compile(r"[a-z]+(-[a-z0-9]+)*")
_FORWARDS = re.compile(rf"({'|'.join(_CODED)})\(\s*[a-z_.]+,")
_ELLIPSIS = "..."
_PAIR = 2

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class CodedError:
    """A stable code, its exit code, its messages ("..." stands for what they fill in), and their modules."""

    code: str
    exit_code: int
    messages: tuple[str, ...]
    modules: tuple[str, ...]


@cache
def error_codes() -> Mapping[str, CodedError]:
    """Return every code that the program can report, in alphabetical order. O(source); about a second."""
    trees = {name: ast.parse(text) for name, text in _sources()}
    return _coded_errors(trees, _forwarders(trees.values()))


def error_of(code: str) -> CodedError | None:
    """Return one code's entry, None without any; only the modules that mention it are parsed. O(source) to read."""
    texts = dict(_sources())
    mentioned = {name: ast.parse(text) for name, text in texts.items() if f'"{code}"' in text}
    forwarding = [mentioned.get(name) or ast.parse(text) for name, text in texts.items() if _FORWARDS.search(text)]
    return _coded_errors(mentioned, _forwarders(forwarding)).get(code)


def _coded_errors(trees: Mapping[str, ast.Module], forwarders: Mapping[str, tuple[int, str]]) -> dict[str, CodedError]:
    """Return the codes of some modules, and of the classes that have one code each."""
    entries = [(*coded, module) for module, tree in trees.items() for coded in _coded_messages(tree, forwarders)]
    exits = {code: 2 for code, _, _ in entries} | {"interrupted": 130, "unexpected": 1}
    for kind in _classes():
        entries.append((kind.code, (kind.__doc__ or "").split("\n")[0].rstrip("."), kind.__module__))
        exits[kind.code] = kind.exit_code
    return {
        code: CodedError(
            code,
            exits[code],
            tuple(dict.fromkeys(message for entry_code, message, _ in entries if entry_code == code and message)),
            tuple(dict.fromkeys(module for entry_code, _, module in entries if entry_code == code)),
        )
        for code in sorted(exits)
    }


def as_markdown() -> str:
    """Return the catalogue as a page."""
    lines = [
        "# Errors",
        "",
        "Every error has a stable code: in brackets at the end of its line, and as `error.code` with `--json`. `...`",
        "stands for what a message fills in; no message holds a private value. Exit codes: 1 a check failed; 2 bad",
        "usage, configuration, input or output; 3 budget refused; 4 a solver missed its tolerance; 130 interrupted.",
        "Nothing that was paid for is lost by any of them.",
    ]
    for error in error_codes().values():
        lines += [
            "",
            f"## {error.code}",
            "",
            f"Exit code {error.exit_code}; {', '.join(f'`{name}`' for name in error.modules)}.",
            "",
        ]
        lines += [" ".join(EXPLANATIONS[error.code]), ""] if error.code in EXPLANATIONS else []
        lines += [f"- {' '.join(message.split())}" for message in error.messages]
    return "\n".join(lines).rstrip() + "\n"


def _sources() -> Iterator[tuple[str, str]]:
    """Yield the modules that raise coded errors, with their texts."""
    for package in _PACKAGES:
        spec = find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            for path in sorted(Path(folder).rglob("*.py")):
                parts = (package, *path.relative_to(folder).with_suffix("").parts)
                text = path.read_text(encoding="utf-8")
                if "Error" in text or "Failure" in text:
                    yield ".".join(part for part in parts if part != "__init__"), text


def _classes() -> list[type[CocoOptError]]:
    """Return the kinds of errors that have one code for all their errors."""
    kinds = [kind for kind in vars(coco_opt.errors).values() if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, CocoOptError) and "code" in vars(kind)]


def _forwarders(trees: Iterable[ast.Module]) -> dict[str, tuple[int, str]]:
    """Return functions that take the code of the error they raise: its position, and their own message."""
    forwarders = {}
    for tree in trees:
        for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
            names = [argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")]
            for call, place in _coded_calls(function):
                code = call.args[place]
                if isinstance(code, ast.Name) and code.id in names:
                    forwarders[function.name] = (names.index(code.id), _message(call, place, function))
    return forwarders


def _is_coded(text: str) -> bool:
    return "-" in text and _CODE.fullmatch(text) is not None


def _coded_messages(tree: ast.Module, forwarders: Mapping[str, tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Yield the codes and messages of a module's errors, and of its constants that are both."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == _PAIR:
            code, message = (part.value if isinstance(part, ast.Constant) else None for part in node.value.elts)
            if isinstance(code, str) and isinstance(message, str) and _is_coded(code) and not _is_coded(message):
                yield code, message
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        for call, place in _coded_calls(function):
            for code in _codes(call.args[place], function):
                yield code, _message(call, place, function)
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            if _name(call) in forwarders:
                place, message = forwarders[_name(call)]
                if place < len(call.args) and isinstance(call.args[place], ast.Constant):
                    for code in (text for text in _codes(call.args[place], function) if "-" in text):
                        yield code, message or _message(call, place, function)


def _coded_calls(function: Function) -> Iterator[tuple[ast.Call, int]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _name(node) in _CODED and len(node.args) > _CODED[_name(node)]:
            yield node, _CODED[_name(node)]


def _name(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def _codes(node: ast.expr, function: Function) -> list[str]:
    """Return the codes that an expression can be: a text, or the values of a name of the function."""
    texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    if isinstance(node, ast.Name):
        texts = {text for value in _assigned_values(node.id, function) for text in _codes(value, function)}
    single = isinstance(node, ast.Constant)  # elsewhere a single word is not a code
    return sorted(text for text in texts if _CODE.fullmatch(text) and (single or "-" in text))


def _message(call: ast.Call, place: int, function: Function) -> str:
    """Return the message of a call, "" where it is not known."""
    if len(call.args) <= place + 1:
        return ""
    argument = call.args[place + 1]
    if isinstance(argument, ast.Name):
        values = sorted(_assigned_values(argument.id, function), key=lambda value: value.lineno)
        before = [value for value in values if value.lineno < call.lineno]
        argument = (before or values or [argument])[-1]
    return _text(argument)


def _assigned_values(name: str, function: Function) -> list[ast.expr]:
    """Return the values assigned to a name in a function, alone or as one of a tuple."""
    values: list[ast.expr] = []
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == name:
                values.append(node.value)
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=True)
                values += [value for element, value in pairs if isinstance(element, ast.Name) and element.id == name]
    return values


def _text(node: ast.expr) -> str:
    """Return a text with dots in place of what is filled in, "" for no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else _ELLIPSIS for part in node.values]
        return "" if set(parts) <= {_ELLIPSIS} else "".join(parts)
    if isinstance(node, ast.IfExp):
        return _text(node.body) or _text(node.orelse)
    return ""
