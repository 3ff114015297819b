"""A first configuration of a release of tables, from the headers of the user's files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from coco_opt.releases.kind import Draft

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# Recognised by the name alone: the number of values of a private column is not read.
_ID = re.compile(r"(^|[_ .-])(id|nr|no|number|key|uuid|guid)$|^pid$")
_CAMEL = re.compile(r"[a-z](Id|ID|Nr|No)$")
_FILES = {
    "records": "region_id, one column an attribute, perhaps count: private",
    "hierarchy": "region_id, then levels, root first: public",
}
_BOUNDS_NOTE = "region, query, answer, lower, upper: public"
_BOUNDS = f'# bounds = "bounds.csv"       # {_BOUNDS_NOTE}'
_SECTION = """\
[topdown]
workload = {workload}
# what you will look at; {crossed} crosses attributes, "detail" is every cell
# strategy = "workload"       # left out, it is chosen: or workload | identity | optimised, or a list of queries
# shares = ["1/2", "1/2"]     # the queries' parts of a level's budget: a list for all levels, or a list of lists
# structural_zeros = ["age = child & work = yes"]            # what cannot be
# invariants = [{{ query = "total", level = {level} }}]    # exact, not private: needs neighbours = "replace"
# counts = {{ parents = "age = old", children = "age = child" }}
# constraints = [{{ holds = "parents >= children", level = {level} }}]    # structural | public | data: see source
# implied = "auto"            # what constraints imply above: auto | bounds | cuts | minimal_schema
estimation = "full"           # estimated, and free to change from here on: full | classic | bottom_up
rounding = "passes"           # passes (totals, the workload in order, cells) | nearest | unbiased
microdata = false             # true: also one row a person

[topdown.attributes]          # every value that can occur, in your order, whether it does or not
{attributes}
[solvers]                     # the default is the fast exact one; see  coco-opt solvers
# topdown_split = "piqp"
"""


def file_key_of(columns: Sequence[str]) -> str | None:
    """Return the key of [data] that a file with these columns fits; records without a count look like regions."""
    if len(columns) < 2 or columns[0] != "region_id":
        return "bounds" if tuple(columns) == ("region", "query", "answer", "lower", "upper") else None
    return "records" if len(columns) > 2 and columns[-1] == "count" else "hierarchy"


def draft_of(files: Mapping[str, Sequence[str]]) -> Draft:
    """Return a configuration with the attributes in the records' header; their values are left to fill in."""
    columns = [name for name in files.get("records", ()) if name not in ("region_id", "count")]
    ids = [name for name in columns if _is_id(name)]
    names = [name for name in columns if name not in ids]
    levels = files.get("hierarchy", ())[1:] or ("level",)
    lines = [f"{f'{_key(name)} = []':<30}# fill in, such as " + '["a", "b"] or "0..115"\n' for name in names]
    lines += [f"{f'# {_key(name)} = []':<30}# left out: by its name an id, which is no attribute\n" for name in ids]
    section = _SECTION.format(
        workload=_text(["total", *names]),
        crossed=_text(" * ".join(names[:2]) if len(names) > 1 else "sex * age"),
        level=_text(levels[0]),
        attributes="".join(lines),
    )
    return Draft(
        files={**_FILES, "bounds": _BOUNDS_NOTE} if "bounds" in files else _FILES,
        section=section,
        replaced="persons' records may change while their number is public",
        left="list every attribute's values, check epsilon",
        data=() if "bounds" in files else (_BOUNDS,),
        taken=_column_roles(names, ids) if columns else (),
    )


def _is_id(name: str) -> bool:
    return bool(_ID.search(name.lower()) or _CAMEL.search(name))


def _column_roles(names: Sequence[str], ids: Sequence[str]) -> tuple[str, ...]:
    """Return the role assumed for each column of the records."""
    roles = [f"attributes: {', '.join(map(repr, names))}"] if names else []
    if ids:
        roles.append(f"ids, and left out of the attributes: {', '.join(map(repr, ids))}")
    return tuple(roles)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _text(value: str | list[str]) -> str:
    # JSON strings and lists of strings are valid TOML.
    return json.dumps(value, ensure_ascii=False)
