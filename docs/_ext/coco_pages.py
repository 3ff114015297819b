"""The Sphinx extension of these pages: what is generated goes where a page asks for it, docstrings become plain text.

A line ``<!-- generated: NAME -->`` of a page is replaced by what ``generated.NAMES`` makes of the code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from generated import expand

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_CODE = re.compile(r"(``[^`]+``)")
_MARKUP = re.compile(r"[\\*|`]|_(?=\W|$)")
_BULLET = re.compile(r"(\s*\* )?(.*)", re.DOTALL)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both hooks."""
    app.connect("source-read", lambda _app, _page, source: source.__setitem__(0, expand(source[0])))
    # Before napoleon (priority 500) turns the sections of a docstring into markup, which must stay.
    app.connect("autodoc-process-docstring", _as_text, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _as_text(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Escape a docstring's formulas, which are no markup; code, bullets and examples stay."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else _escaped(line) for line in lines]


def _escaped(line: str) -> str:
    bullet, text = _BULLET.fullmatch(line).groups(default="")
    parts = _CODE.split(text)
    return bullet + "".join(part if k % 2 else _MARKUP.sub(r"\\\g<0>", part) for k, part in enumerate(parts))
